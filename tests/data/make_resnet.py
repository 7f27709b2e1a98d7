"""Writes tests/data/resnet_names.txt, names and shapes of torchvision's resnet18 and resnet50, and tests/data/resnet.bin: batch
normalisation by torch.nn.functional, and the first gradient and 100 SGD steps of ResNet-20. Needs torch, torchvision and numpy (made
with torch 2.13 and torchvision 0.29); nothing else reads this script.

ResNet-20 is that of torch_models.py. Weights and pictures are too
many to be kept, so test_resnet_steps.c makes the same ones from the same hash. Each step takes, of TRIES batches, the one with the
largest margin: the smallest distance of a ReLU in the float64 run from deciding otherwise. Without that a ReLU that falls the other way
now and then moves the weights by a thousand times the rounding errors, and every float32 run goes its own way.

Kept are the batches' seeds; the gradient of the first summed loss, in float64; of the weights after steps 1, 5, 20 and 100 of the
float64 run a count sketch (see make_gpt2_steps.py), of the running averages all values; the distances of a float32 run from both.
"""
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from drawn import drawn, hashed, mix
from make_gpt2 import write
from torch_models import ResNet20

SIZE, CLASSES, STEPS, BATCH, TRIES = 8, 10, 100, 8, 64
KEPT_STEPS = (1, 5, 20, 100)
BUCKETS = 1024
SAMPLE = 37  # every SAMPLE-th entry of the gradient of a convolution is kept


def write_names(path):
    with open(path, "w") as file:
        for depth in (18, 50):
            for name, tensor in getattr(torchvision.models, f"resnet{depth}")().state_dict().items():
                if not name.endswith("num_batches_tracked"):
                    print(depth, name, *tensor.shape, file=file)


def set_weights(model):
    for i, (name, p) in enumerate(model.named_parameters()):
        value = drawn(i, p.numel())
        if p.dim() == 4:
            value = value * (6.0 / (p.shape[0] * p.shape[2] * p.shape[3])) ** 0.5
        elif name.startswith("fc"):
            value = value * 0.125
        else:
            value = value * 0.25 + (1.0 if name.endswith("weight") else 0.0)
        with torch.no_grad():
            p.copy_(torch.from_numpy(value.astype(np.float32)).view_as(p))


def pictures(seed, n):
    """Each class has a picture of its own, with noise."""
    labels = (hashed(1000 + 2 * seed, n) % CLASSES).astype(np.int64)
    classes = drawn(999, CLASSES * SIZE * SIZE * 3).reshape(CLASSES, -1)
    noise = drawn(1001 + 2 * seed, n * SIZE * SIZE * 3).reshape(n, -1)
    x = (0.75 * classes[labels] + noise).astype(np.float32).reshape(n, SIZE, SIZE, 3)
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)


def relu_margin(model, x):
    """The smallest distance of a ReLU's argument from 0."""
    smallest = []

    def look(_, args):
        smallest.append(args[0].abs().min().item())

    # BasicBlock has one ReLU module for both of its places, and works in place: look before it
    hooks = [m.register_forward_pre_hook(look) for m in model.modules() if isinstance(m, torch.nn.ReLU)]
    model(x)
    for hook in hooks:
        hook.remove()
    return min(smallest)


def clear_seed(model, first):
    """Of the next seeds the one whose batch has the largest margin."""
    with torch.no_grad():
        margins = [relu_margin(model, pictures(seed, BATCH)[0].double()) for seed in range(first, first + TRIES)]
    return first + int(np.argmax(margins)), max(margins)


def keep_averages(model, work):
    """BatchNorm updates its averages in any forward in training: these are not the model's."""
    kept = {k: v.clone() for k, v in model.named_buffers()}
    result = work()
    for k, v in model.named_buffers():
        v.copy_(kept[k])
    return result


def gradients(file):
    model = ResNet20().double()
    set_weights(model)
    seed, margin = clear_seed(model, 0)
    x, y = pictures(seed, BATCH)
    model.zero_grad()
    loss = F.cross_entropy(model(x.double()), y, reduction="sum")
    loss.backward()
    for name, p in model.named_parameters():
        g = p.grad.flatten()
        write(file, f"grad.largest.{name}", np.array([g.abs().max().item()]))
        write(file, f"grad.{name}", g[:: SAMPLE if p.dim() == 4 else 1].float().numpy())
    print("gradient: seed", seed, "margin", margin, "loss", loss.item())


def train(dtype, seeds=None):
    """With `seeds` None they are chosen, in float64."""
    model = ResNet20()
    set_weights(model)
    model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-8, momentum=0.9, weight_decay=2.0**-13)
    losses, weights, averages, chosen, margins = [], {}, {}, [], []
    for step in range(STEPS):
        if seeds is None:
            seed, margin = keep_averages(model, lambda: clear_seed(model, step * TRIES))
            margins.append(margin)
        else:
            seed = int(seeds[step])
        chosen.append(seed)
        x, y = pictures(seed, BATCH)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(dtype)), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step + 1 in KEPT_STEPS:
            weights[step + 1] = torch.cat([p.detach().double().flatten() for p in model.parameters()]).numpy()
            averages[step + 1] = torch.cat([b.double().flatten() for n, b in model.named_buffers() if "running" in n]).numpy()
    if seeds is None:
        print("trajectory: smallest margin", min(margins))
    return np.array(losses), weights, averages, np.array(chosen, np.int32)


def sketch(weights):
    h = mix(np.arange(weights.size, dtype=np.uint32) + np.uint32(100 << 24))
    return np.bincount(h % BUCKETS, weights=np.where(h >> 31, -weights, weights), minlength=BUCKETS)


def trajectory(file):
    losses64, weights64, averages64, seeds = train(torch.float64)
    losses32, weights32, averages32, _ = train(torch.float32, seeds)
    write(file, "seeds", seeds)
    write(file, "losses64", losses64)
    write(file, "losses32", losses32)
    for name, a, b in (("weights", weights64, weights32), ("averages", averages64, averages32)):
        distances = np.array([np.linalg.norm(a[s] - b[s]) for s in KEPT_STEPS])
        write(file, f"{name}.distances32", distances)
        print(name, distances, [np.linalg.norm(a[s]) for s in KEPT_STEPS])
    for s in KEPT_STEPS:
        write(file, f"weights.sketch{s}", sketch(weights64[s]))
        write(file, f"averages.{s}", averages64[s])
    print([(losses64[s - 1], abs(losses32 - losses64)[:s].max()) for s in KEPT_STEPS])


def batch_norm(file):
    """[rows, channels], as images in NHWC are; with and without a residual and ReLU."""
    torch.manual_seed(5)
    rows, c = 60, 19
    x, residual, dy = (torch.randn(rows, c, dtype=torch.float32) for _ in range(3))
    x += 2.0
    gamma, beta, mean = (torch.randn(c) for _ in range(3))
    var = torch.rand(c) + 0.5
    for name, value in (("x", x), ("residual", residual), ("dy", dy), ("gamma", gamma), ("beta", beta), ("mean", mean), ("var", var)):
        write(file, f"bn.{name}", value.numpy())
    inputs = [t.double().requires_grad_() for t in (x, residual, gamma, beta)]
    new_mean, new_var = mean.double(), var.double()
    y = F.batch_norm(inputs[0], new_mean, new_var, inputs[2], inputs[3], True, 0.1, 1e-5)
    y = F.relu(y + inputs[1])
    y.backward(dy.double())
    evaluated = F.batch_norm(x.double(), mean.double(), var.double(), gamma.double(), beta.double(), False, 0.1, 1e-5)
    for name, value in (("y", y), ("new_mean", new_mean), ("new_var", new_var), ("eval", evaluated),
                        *zip(("dx", "dresidual", "dgamma", "dbeta"), (t.grad for t in inputs))):
        write(file, f"bn.{name}", value.detach().numpy())


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = pathlib.Path(__file__).resolve().parent
    write_names(folder / "resnet_names.txt")
    with open(folder / "resnet.bin", "wb") as out:
        batch_norm(out)
        gradients(out)
        trajectory(out)

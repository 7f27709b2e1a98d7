"""Writes tests/data/training.bin: 20 training steps of mlp and cnn by PyTorch. Needs torch and numpy (made with
torch 2.13); nothing else reads this script.

For each model: images, labels and initial weights (float32); the gradient of the summed loss of step 1, computed in
float64; and for AdamW and SGD with momentum the losses of all steps and a sample of the weights after steps 1, 5 and
20, of a run in float64, with the distance of a run in float32 from it. Both runs start from the same float32 weights.
The first batch has a margin: in float64 no ReLU and no maximum is within MARGIN of deciding otherwise, so that
correct float32 kernels decide alike.
"""
import pathlib
import struct

import numpy as np
import torch
import torch.nn.functional as F

SIZE, CLASSES, BATCHES, STEPS, MARGIN = 12, 10, 5, 20, 2e-5
KEPT_STEPS = (1, 5, 20)
SAMPLE = 11  # every SAMPLE-th weight is kept


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(SIZE * SIZE, 32)
        self.fc2 = torch.nn.Linear(32, 32)
        self.fc3 = torch.nn.Linear(32, CLASSES)

    def forward(self, x, margins=None):
        x = x.flatten(1)
        for layer in (self.fc1, self.fc2):
            x = layer(x)
            relu_margin(x, margins)
            x = F.relu(x)
        return self.fc3(x)


class Cnn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = torch.nn.Linear(64 * (SIZE // 4) ** 2, 128)
        self.fc2 = torch.nn.Linear(128, CLASSES)

    def forward(self, x, margins=None):
        for layer in (self.conv1, self.conv2):
            x = F.relu(pool_margin(layer(x), margins))
            x = F.max_pool2d(x, 2)
        x = self.fc1(x.flatten(1))
        relu_margin(x, margins)
        return self.fc2(F.relu(x))


def relu_margin(x, margins):
    if margins is not None:
        margins.append(x.abs().flatten(1).min(dim=1).values)


def pool_margin(x, margins):
    """Of a ReLU and a 2x2 maximum: the winner's distance from 0 and, if it is positive, from the second."""
    if margins is not None:
        two = F.unfold(x, 2, stride=2).view(x.shape[0], x.shape[1], 4, -1).topk(2, dim=2).values
        gap = torch.where(two[:, :, 0] > 0, two[:, :, 0] - two[:, :, 1].clamp(min=0), torch.inf)
        margins.append(two[:, :, 0].abs().flatten(1).min(dim=1).values)
        margins.append(gap.flatten(1).min(dim=1).values)
    return x


def make_data(model, batch):
    """Noisy prototypes; the first batch is made of samples with a margin."""
    generator = torch.Generator().manual_seed(7)
    prototypes = torch.randn(CLASSES, 1, SIZE, SIZE, generator=generator)
    n = 2 * BATCHES * batch
    labels = torch.randint(CLASSES, (n,), generator=generator)
    images = prototypes[labels] + 0.8 * torch.randn(n, 1, SIZE, SIZE, generator=generator)
    margins = []
    with torch.no_grad():
        model.double()(images.double(), margins)
    clear = torch.stack(margins).min(dim=0).values > MARGIN
    order = torch.cat([torch.nonzero(clear).flatten(), torch.nonzero(~clear).flatten()])[: BATCHES * batch]
    assert clear[order[:batch]].all()
    return images[order], labels[order]


def make_optimizer(kind, model):
    if kind == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=2.0**-8)
    return torch.optim.SGD(model.parameters(), lr=2.0**-5, momentum=0.9, weight_decay=2.0**-10)


def train(make_model, weights, kind, dtype, images, labels, batch):
    model = make_model().to(dtype)
    model.load_state_dict(weights)
    optimizer = make_optimizer(kind, model)
    losses, kept = [], {}
    for step in range(STEPS):
        rows = slice(step % BATCHES * batch, (step % BATCHES + 1) * batch)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[rows].to(dtype)), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step + 1 in KEPT_STEPS:
            kept[step + 1] = {k: v.detach().double().flatten()[::SAMPLE].clone() for k, v in model.named_parameters()}
    return np.array(losses), kept


def distance(a, b):
    return sum(float(((a[k] - b[k]) ** 2).sum()) for k in a) ** 0.5


def write(file, name, array):
    types = {np.dtype("float32"): 0, np.dtype("float64"): 1, np.dtype("int32"): 2}
    shape = list(array.shape) + [1] * (4 - array.ndim)
    file.write(struct.pack("<48sII4I", name.encode(), types[array.dtype], array.ndim, *shape))
    file.write(np.ascontiguousarray(array).tobytes())


def main():
    torch.set_num_threads(1)
    with open(pathlib.Path(__file__).resolve().parent / "training.bin", "wb") as file:
        for name, make_model, batch in (("mlp", Mlp, 16), ("cnn", Cnn, 8)):
            torch.manual_seed(1)
            model = make_model()
            weights = {k: v.clone() for k, v in model.state_dict().items()}
            images, labels = make_data(model, batch)
            write(file, f"{name}.images", images.permute(0, 2, 3, 1).numpy())
            write(file, f"{name}.labels", labels.int().numpy())
            F.cross_entropy(model(images[:batch].double()), labels[:batch], reduction="sum").backward()
            for key, value in model.named_parameters():
                write(file, f"{name}.start.{key}", weights[key].numpy())
                write(file, f"{name}.grad.{key}", value.grad.float().numpy())
            for kind in ("adamw", "sgd"):
                losses64, kept64 = train(make_model, weights, kind, torch.float64, images, labels, batch)
                losses32, kept32 = train(make_model, weights, kind, torch.float32, images, labels, batch)
                distances = [distance(kept32[step], kept64[step]) for step in KEPT_STEPS]
                write(file, f"{name}.{kind}.losses64", losses64)
                write(file, f"{name}.{kind}.losses32", losses32)
                write(file, f"{name}.{kind}.distances32", np.array(distances))
                for step in KEPT_STEPS:
                    for key, value in kept64[step].items():
                        write(file, f"{name}.{kind}.step{step}.{key}", value.numpy())
                print(name, kind, losses64[[0, 4, 19]], abs(losses32 - losses64)[[0, 4, 19]], distances)


main()

"""Writes tests/data/gpt2.bin: 10 AdamW steps of a tiny GPT-2 by PyTorch. Needs torch and numpy (made with torch 2.13);
nothing else reads this script. Format and meaning are those of make_training.py: arrays with a header; initial weights,
and the gradient of the summed loss of step 1 computed in float64; losses and a sample of the weights after steps 1, 5
and 10 of a run in float64, with the distance of a run in float32 from it. The model is written out in plain torch, with
the names and shapes of Hugging Face's GPT2LMHeadModel. Weights of later steps leave out attn.c_attn.bias: softmax does
not depend on the bias of the keys, so its gradient is rounding alone, of which AdamW makes whole steps.
"""
import pathlib
import struct

import numpy as np
import torch
import torch.nn.functional as F

LAYERS, HEADS, C, T, V, N, STEPS = 2, 2, 32, 24, 61, 3, 10
KEPT_STEPS = (1, 5, 10)
SAMPLE = 7


def make_weights():
    g = torch.Generator().manual_seed(3)
    shapes = {"wte.weight": (V, C), "wpe.weight": (T, C)}
    for i in range(LAYERS):
        for name, rows, columns in (("ln_1", None, C), ("attn.c_attn", C, 3 * C), ("attn.c_proj", C, C),
                                    ("ln_2", None, C), ("mlp.c_fc", C, 4 * C), ("mlp.c_proj", 4 * C, C)):
            shapes[f"h.{i}.{name}.weight"] = (columns,) if rows is None else (rows, columns)
            shapes[f"h.{i}.{name}.bias"] = (columns,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (C,)
    # Larger than at a real start, so that no part is lost beside another.
    weights = {"transformer." + k: 0.2 * torch.randn(s, generator=g) for k, s in shapes.items()}
    for k in weights:
        if ".ln_" in k and k.endswith("weight"):
            weights[k] += 1
    return weights


def model(w, tokens):
    n, t = tokens.shape
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:t]
    mask = torch.ones(t, t, dtype=torch.bool).tril()

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def norm(x, name):
        return F.layer_norm(x, (C,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    for i in range(LAYERS):
        h = f"transformer.h.{i}."
        q, k, v = (p.view(n, t, HEADS, C // HEADS).transpose(1, 2)
                   for p in linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(C, dim=2))
        scores = (q @ k.transpose(2, 3) / (C // HEADS) ** 0.5).masked_fill(~mask, -torch.inf)
        y = (scores.softmax(dim=3) @ v).transpose(1, 2).reshape(n, t, C)
        x = x + linear(y, h + "attn.c_proj")
        y = F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
        x = x + linear(y, h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def loss_of(w, tokens, targets, reduction):
    return F.cross_entropy(model(w, tokens).flatten(0, 1), targets.flatten().long(), ignore_index=-1,
                           reduction=reduction)


def train(start, dtype, tokens, targets):
    w = {k: v.to(dtype).clone().requires_grad_() for k, v in start.items()}
    optimizer = torch.optim.AdamW(w.values(), lr=2.0**-8)
    losses, kept = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(w, tokens[step], targets[step], "mean")
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step + 1 in KEPT_STEPS:
            kept[step + 1] = {k: v.detach().double().flatten()[::SAMPLE].clone() for k, v in w.items()
                              if not k.endswith("c_attn.bias")}
    return np.array(losses), kept


def distance(a, b):
    return sum(float(((a[k] - b[k]) ** 2).sum()) for k in a) ** 0.5


def write(file, name, array):
    types = {np.dtype("float32"): 0, np.dtype("float64"): 1, np.dtype("int32"): 2}
    shape = list(array.shape) + [1] * (4 - array.ndim)
    file.write(struct.pack("<64sII4I", name.encode(), types[array.dtype], array.ndim, *shape))
    file.write(np.ascontiguousarray(array).tobytes())


def main():
    torch.set_num_threads(1)
    start = make_weights()
    text = torch.randint(V, (STEPS, N, T + 1), generator=torch.Generator().manual_seed(4), dtype=torch.int32)
    tokens, targets = text[:, :, :-1].contiguous(), text[:, :, 1:].contiguous()
    targets[0, 1, 5] = -1
    with open(pathlib.Path(__file__).resolve().parent / "gpt2.bin", "wb") as file:
        write(file, "tokens", tokens.numpy())
        write(file, "targets", targets.numpy())
        w = {k: v.double().clone().requires_grad_() for k, v in start.items()}
        write(file, "logits", model(w, tokens[0]).detach().numpy())
        loss_of(w, tokens[0], targets[0], "sum").backward()
        for key, value in w.items():
            write(file, f"start.{key}", start[key].numpy())
            write(file, f"grad.{key}", value.grad.float().numpy())
        losses64, kept64 = train(start, torch.float64, tokens, targets)
        losses32, kept32 = train(start, torch.float32, tokens, targets)
        write(file, "losses64", losses64)
        write(file, "losses32", losses32)
        write(file, "distances32", np.array([distance(kept32[s], kept64[s]) for s in KEPT_STEPS]))
        for step in KEPT_STEPS:
            for key, value in kept64[step].items():
                write(file, f"step{step}.{key}", value.numpy())
        print(losses64, abs(losses32 - losses64), [distance(kept32[s], kept64[s]) for s in KEPT_STEPS])


main()

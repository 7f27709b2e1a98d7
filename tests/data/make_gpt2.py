"""Writes tests/data/gpt2.bin: 10 AdamW steps of a tiny GPT2LMHeadModel of Hugging Face's transformers. Needs torch, numpy and
transformers (made with torch 2.13 and transformers 5.24); nothing else reads this script. Format and meaning are those of
make_training.py: arrays with a header; initial weights, and the gradient of the summed loss of step 1 computed in float64; losses and
a sample of the weights after steps 1, 5 and 10 of a run in float64, with the distance of a run in float32 from it. Weights of
later steps leave out attn.c_attn.bias: softmax does not depend on the bias of the keys, so its gradient is rounding alone, of
which AdamW makes whole steps.
"""
import pathlib
import struct

import numpy as np
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

LAYERS, HEADS, C, T, V, N, STEPS = 2, 2, 32, 24, 61, 3, 10
KEPT_STEPS = (1, 5, 10)
SAMPLE = 7


def make_model(start, dtype):
    """`start` is a state dict, or None: larger weights than at a real start, so that no part is lost beside another."""
    model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=T, n_embd=C, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0,
                                       embd_pdrop=0, attn_pdrop=0)).to(dtype)
    if start is not None:
        model.load_state_dict(start, strict=False)  # lm_head.weight is tied to the embedding
        return model
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(0.2 * torch.randn(p.shape, generator=g) + (1 if ".ln_" in name and name.endswith("weight") else 0))
    return model


def loss_of(model, tokens, targets, reduction):
    logits = model(input_ids=tokens.long()).logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=-1, reduction=reduction)


def train(start, dtype, tokens, targets):
    model = make_model(start, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2.0**-8)
    losses, kept = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, tokens[step], targets[step], "mean")
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step + 1 in KEPT_STEPS:
            kept[step + 1] = {k: v.detach().double().flatten()[::SAMPLE].clone() for k, v in model.named_parameters()
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
    start = {k: v.detach() for k, v in make_model(None, torch.float32).named_parameters()}
    text = torch.randint(V, (STEPS, N, T + 1), generator=torch.Generator().manual_seed(4), dtype=torch.int32)
    tokens, targets = text[:, :, :-1].contiguous(), text[:, :, 1:].contiguous()
    targets[0, 1, 5] = -1
    with open(pathlib.Path(__file__).resolve().parent / "gpt2.bin", "wb") as file:
        write(file, "tokens", tokens.numpy())
        write(file, "targets", targets.numpy())
        model = make_model(start, torch.float64)
        write(file, "logits", model(input_ids=tokens[0].long()).logits.detach().numpy())
        loss_of(model, tokens[0], targets[0], "sum").backward()
        for key, value in model.named_parameters():
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


if __name__ == "__main__":
    main()

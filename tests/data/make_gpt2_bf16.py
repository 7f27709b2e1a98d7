"""Writes tests/data/gpt2_bf16.bin: the run of make_gpt2.py under PyTorch's autocast to bfloat16, as distances from its float64 run.
Needs torch, numpy and transformers (made with torch 2.13 and transformers 5.24); nothing else reads this script. `losses16` has the
losses; `distances16` the distance of the kept weights after steps 1, 5 and 10; `grad.NAME`, one number, the distance of the
gradient of step 1 from that in float64, divided by the latter's length. Autocast stores results of products in bfloat16 too, so it
rounds more often than ddptrain does.
"""
import pathlib

import numpy as np
import torch
from make_gpt2 import KEPT_STEPS, N, SAMPLE, STEPS, T, V, distance, loss_of, make_model, train, write


def train16(start, tokens, targets):
    model = make_model(start, torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2.0**-8)
    losses, kept, first = [], {}, None
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, tokens[step], targets[step], "mean")
        loss.backward()
        first = first or {k: v.grad.double().clone() for k, v in model.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
        if step + 1 in KEPT_STEPS:
            kept[step + 1] = {k: v.detach().double().flatten()[::SAMPLE].clone() for k, v in model.named_parameters()
                              if not k.endswith("c_attn.bias")}
    return np.array(losses), kept, first


def main():
    torch.set_num_threads(1)
    start = {k: v.detach() for k, v in make_model(None, torch.float32).named_parameters()}
    text = torch.randint(V, (STEPS, N, T + 1), generator=torch.Generator().manual_seed(4), dtype=torch.int32)
    tokens, targets = text[:, :, :-1].contiguous(), text[:, :, 1:].contiguous()
    targets[0, 1, 5] = -1
    model = make_model(start, torch.float64)
    loss_of(model, tokens[0], targets[0], "mean").backward()
    losses64, kept64 = train(start, torch.float64, tokens, targets)
    losses16, kept16, first = train16(start, tokens, targets)
    distances16 = np.array([distance(kept16[s], kept64[s]) for s in KEPT_STEPS])
    with open(pathlib.Path(__file__).resolve().parent / "gpt2_bf16.bin", "wb") as file:
        write(file, "losses16", losses16)
        write(file, "distances16", distances16)
        for key, value in model.named_parameters():
            off = float((first[key] - value.grad).norm() / value.grad.norm())
            write(file, f"grad.{key}", np.array([off]))
            print(key, off)
    print(losses16 - losses64, distances16)


if __name__ == "__main__":
    main()

"""Writes tests/data/gpt2_steps.bin: 100 AdamW steps of a GPT2LMHeadModel of Hugging Face's transformers with 4 layers, 4 heads
and 256 channels on bytes, in float64 and in float32 from the same weights. Needs torch, numpy and transformers (made with torch
2.13 and transformers 5.24); nothing else reads this script.

Weights and tokens are too many to be kept, so test_gpt2_steps.c makes the same ones from the same hash. Of the weights after
steps 1, 5, 20 and 100 of the float64 run the file has a count sketch (Charikar, Chen, Farach-Colton 2002): each weight is added,
with a random sign, to one of 2048 sums. The distance of two sketches is that of the weights within 2 %; it sees every weight.
Left out is attn.c_attn.bias, as make_gpt2.py explains. The distances of the float32 run are exact. AdamW's eps is larger than
usual: with 1e-8 the first steps of a few weights whose gradient is that small are rounding alone, and they are all of the distance. Attention
is written out ("eager"); with PyTorch's fused one the float32 run comes half as far until step 20.
"""
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from make_gpt2 import write
from transformers import GPT2Config, GPT2LMHeadModel

LAYERS, HEADS, C, T, V, N, STEPS = 4, 4, 256, 72, 256, 2, 100
KEPT_STEPS = (1, 5, 20, 100)
BUCKETS = 2048


def mix(x):
    """The end of MurmurHash3, 32 bits."""
    x = x.astype(np.uint32)
    x ^= x >> 16
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> 13
    x *= np.uint32(0xC2B2AE35)
    return x ^ x >> 16


def make_weight(tensor, name, shape):
    n = int(np.prod(shape))
    if len(shape) == 1:
        return np.full(shape, 1.0 if name.endswith("weight") else 0.0, np.float32)
    h = mix(np.arange(n, dtype=np.uint32) + np.uint32(tensor << 24))
    scale = 2.0**-29 if "c_proj" in name else 2.0**-28  # up to 2^-6 and 2^-5
    return (((h >> 8).astype(np.float64) - 2.0**23) * scale).astype(np.float32).reshape(shape)


def make_text():
    """Each byte has four that may follow it."""
    draw = mix(np.arange(STEPS * N * (T + 1), dtype=np.uint32) + np.uint32(200 << 24)).reshape(STEPS, N, T + 1)
    text = np.zeros((STEPS, N, T + 1), np.int64)
    text[:, :, 0] = draw[:, :, 0] % V
    for t in range(T):
        text[:, :, t + 1] = (5 * text[:, :, t] + 17 * (draw[:, :, t + 1] >> 30) + 3) % V
    return torch.from_numpy(text)


def train(dtype, text):
    model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=T, n_embd=C, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0,
                                       embd_pdrop=0, attn_pdrop=0, attn_implementation="eager")).to(dtype)
    with torch.no_grad():
        for i, (name, p) in enumerate(model.named_parameters()):
            p.copy_(torch.from_numpy(make_weight(i, name, tuple(p.shape))))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2.0**-10, eps=2.0**-20)
    losses, kept = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(input_ids=text[step, :, :-1]).logits.flatten(0, 1), text[step, :, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step + 1 in KEPT_STEPS:
            kept[step + 1] = np.concatenate([(p.detach().double() * (not k.endswith("c_attn.bias"))).flatten().numpy()
                                             for k, p in model.named_parameters()])
    return np.array(losses), kept


def sketch(weights):
    h = mix(np.arange(weights.size, dtype=np.uint32) + np.uint32(100 << 24))
    return np.bincount(h % BUCKETS, weights=np.where(h >> 31, -weights, weights), minlength=BUCKETS)


def main():
    torch.set_num_threads(1)
    text = make_text()
    losses64, kept64 = train(torch.float64, text)
    losses32, kept32 = train(torch.float32, text)
    distances32 = np.array([np.linalg.norm(kept32[s] - kept64[s]) for s in KEPT_STEPS])
    with open(pathlib.Path(__file__).resolve().parent / "gpt2_steps.bin", "wb") as file:
        write(file, "losses64", losses64)
        write(file, "losses32", losses32)
        write(file, "distances32", distances32)
        for step in KEPT_STEPS:
            write(file, f"sketch{step}", sketch(kept64[step]))
    for step in KEPT_STEPS:
        print(step, losses64[step - 1], losses32[step - 1] - losses64[step - 1])
    print(distances32, [np.linalg.norm(sketch(kept32[s]) - sketch(kept64[s])) for s in KEPT_STEPS],
          np.linalg.norm(kept64[100]))
    print(abs(losses32 - losses64))


if __name__ == "__main__":
    main()

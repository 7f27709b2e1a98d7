"""GPT-2's training step in PyTorch, for tests/gpu_check.sh to compare with: bf16 autocast, fused AdamW, torch.compile on a GPU."""
import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.proj(y)
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(o.vocab, o.channels), nn.Embedding(o.context, o.channels)
        self.blocks = nn.ModuleList(Block(o.channels, o.heads) for _ in range(o.layers))
        self.ln_f = nn.LayerNorm(o.channels)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe.weight
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy((self.ln_f(h) @ self.wte.weight.T).flatten(0, 1).float(), y.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    for name, value in dict(layers=12, channels=768, heads=12, context=1024, vocab=50257, batch=32, steps=20).items():
        parser.add_argument("--" + name, type=int, default=value)
    o = parser.parse_args()
    model = Gpt2(o).to(o.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=o.device == "cuda")
    step_model = torch.compile(model) if o.device == "cuda" else model
    tokens = torch.randint(o.vocab, (o.batch, o.context + 1), device=o.device)
    warm = min(5, o.steps // 2)
    for step in range(o.steps):
        if step == warm:
            if o.device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
        with torch.autocast(o.device, torch.bfloat16):
            loss = step_model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    value = loss.item()
    rate = (o.steps - warm) * o.batch * o.context / (time.perf_counter() - start)
    print(f"PyTorch {torch.__version__}: {rate:.0f} tokens/s, loss {value:.3f}")


main()

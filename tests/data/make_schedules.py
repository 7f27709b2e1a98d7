"""Writes tests/nn/schedule_values.h: rates of torch.optim.lr_scheduler. Needs torch (made with 2.13)."""
import pathlib

import torch
from torch.optim import lr_scheduler as s

STEPS = 10


def rates(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = make(optimizer)
    values = []
    for _ in range(STEPS):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return values


def warmup(optimizer, steps):
    return s.LinearLR(optimizer, start_factor=1 / steps, end_factor=1.0, total_iters=steps - 1)


tables = {
    "torch_warmup": rates(lambda o: warmup(o, 4)),
    "torch_linear": rates(lambda o: s.LinearLR(o, start_factor=1.0, end_factor=0.25, total_iters=8)),
    # CosineAnnealingLR goes up again after T_max; ours stays, so that its last value is at T_max.
    "torch_cosine": rates(lambda o: s.CosineAnnealingLR(o, T_max=9, eta_min=0.01)),
    "torch_warmup_cosine": rates(
        lambda o: s.SequentialLR(o, [warmup(o, 3), s.CosineAnnealingLR(o, T_max=6, eta_min=0.01)], milestones=[3])
    ),
    "torch_step": rates(lambda o: s.StepLR(o, step_size=3, gamma=0.5)),
}
guard = "DDP_TESTS_SCHEDULE_VALUES_H_"
lines = [
    "/** @file Learning rates of PyTorch; written by tests/data/make_schedules.py, then formatted. */",
    f"#ifndef {guard}",
    f"#define {guard}",
    "",
]
for name, values in tables.items():
    lines.append(f"static const double {name}[{STEPS}] = {{{', '.join(repr(v) for v in values)}}};")
lines += ["", "#endif"]
path = pathlib.Path(__file__).resolve().parent.parent / "nn" / "schedule_values.h"
path.write_text("\n".join(lines) + "\n")

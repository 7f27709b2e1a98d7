"""Values for tests/kernels/test_optim.c: five steps of PyTorch's optimizers on given gradients.

Run with PyTorch (2.13 made the file beside it): python3 make_optim.py > optim_torch.txt

A case is one line "case <kind> <lr> <beta1> <beta2> <eps> <momentum> <nesterov> <weight_decay> <slots>", the
parameters, and for each step the gradient, the parameters after it and the slots after it, one line each. The
optimizers run in float32; a second run in float64 ("param64") says how far rounding alone takes them.
"""
import torch

COUNT = 16
STEPS = 5
BETAS = (0.9, 0.999)
CASES = [
    ("adamw", 1e-3, BETAS, 1e-8, 0.0, False, 0.01),
    ("adamw", 0.02, (0.8, 0.95), 1e-6, 0.0, False, 0.3),
    ("adamw", 1e-3, BETAS, 1e-8, 0.0, False, 0.0),
    ("sgd", 0.1, BETAS, 1e-8, 0.0, False, 0.0),
    ("sgd", 0.1, BETAS, 1e-8, 0.0, False, 0.05),
    ("sgd", 0.05, BETAS, 1e-8, 0.9, False, 0.0),
    ("sgd", 0.05, BETAS, 1e-8, 0.9, True, 0.0),
    ("sgd", 0.05, BETAS, 1e-8, 0.8, True, 0.01),
]
SLOTS = {"adamw": ["exp_avg", "exp_avg_sq"], "sgd": ["momentum_buffer"]}


def make(kind, param, lr, betas, eps, momentum, nesterov, decay):
    if kind == "adamw":
        return torch.optim.AdamW([param], lr=lr, betas=betas, eps=eps, weight_decay=decay)
    return torch.optim.SGD([param], lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=decay)


def line(values):
    print(" ".join(f"{v:.9g}" if values.dtype == torch.float32 else f"{v:.17g}" for v in values.tolist()))


def run(case, generator):
    kind, lr, betas, eps, momentum, nesterov, decay = case
    slots = SLOTS[kind] if kind == "adamw" or momentum > 0 else []
    print("case", kind, lr, *betas, eps, momentum, int(nesterov), decay, len(slots))
    start = torch.randn(COUNT, generator=generator)
    params = [start.clone().requires_grad_(), start.double().requires_grad_()]
    optimizers = [make(kind, p, lr, betas, eps, momentum, nesterov, decay) for p in params]
    sizes = torch.logspace(-6, 1, COUNT)  # gradients around eps and far above it
    line(start)
    for _ in range(STEPS):
        grad = torch.randn(COUNT, generator=generator) * sizes
        for p, optimizer in zip(params, optimizers):
            p.grad = grad.to(p.dtype)
            optimizer.step()
        line(grad)
        line(params[0].detach())
        line(params[1].detach())
        for slot in slots:
            line(optimizers[0].state[params[0]][slot])


generator = torch.Generator().manual_seed(7)
for case in CASES:
    run(case, generator)

"""Makes ../dp_compat/dp_values.h: one step of torch.nn.DataParallel, as it would be with several GPUs.

    python make_dp.py

DataParallel does nothing without GPUs, so its parts are written out here, on a CPU, from torch/nn/parallel: the
batch is cut as scatter does (Tensor.chunk), each replica works on copies of parameters and buffers, outputs are
concatenated as gather does, and the gradients of all copies add up in the parameters, which is what the backward
of its broadcast does. Buffers of all replicas but the first are dropped. Needs: torch 2.13.
"""
import os

import torch
import torch.nn.functional as F
from torch.func import functional_call

SAMPLES, IN, HIDDEN, CLASSES, LR = 11, 5, 6, 3, 0.5
HERE = os.path.dirname(os.path.abspath(__file__))


def make_model():
    model = torch.nn.Sequential(torch.nn.Linear(IN, HIDDEN), torch.nn.BatchNorm1d(HIDDEN), torch.nn.ReLU(),
                                torch.nn.Linear(HIDDEN, CLASSES)).double()
    for p in model.parameters():  # values that float32 has too
        p.data = p.data.float().double()
    return model


def step(state, x, labels, devices, loss_at):
    """One step of SGD. @return chunk sizes, loss, gathered outputs, state after it"""
    model = make_model()
    model.load_state_dict(state)
    model.train()
    outputs, losses, sizes = [], [], []
    for k, (part, target) in enumerate(zip(x.chunk(devices), labels.chunk(devices))):
        buffers = dict(model.named_buffers()) if k == 0 else {n: b.clone() for n, b in model.named_buffers()}
        output = functional_call(model, {**{n: p * 1 for n, p in model.named_parameters()}, **buffers}, (part,))
        sizes.append(len(part))
        outputs.append(output)
        if loss_at == "inside":
            losses.append(F.cross_entropy(output, target, ignore_index=-100))
    gathered = torch.cat(outputs)
    if loss_at == "inside":
        loss = torch.stack(losses).mean()
    else:
        loss = F.cross_entropy(gathered, labels, ignore_index=-100)
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=LR).step()
    return sizes, loss.item(), gathered.detach(), model.state_dict()


def array(name, tensor):
    values = ", ".join(repr(float(v)) for v in tensor.flatten())
    return f"static const double {name}[{tensor.numel()}] = {{{values}}};\n"


def main():
    torch.manual_seed(5)
    x = torch.randn(SAMPLES, IN).double()
    labels = torch.tensor([0, 1, 2, 0, -100, -100, 2, 1, 0, -100, 1])
    state = make_model().state_dict()
    keys = [k for k in state if not k.endswith("num_batches_tracked")]
    text = '/** @file Steps of torch.nn.DataParallel; written by tests/data/make_dp.py, then formatted. */\n'
    text += "#ifndef DDP_TESTS_DP_VALUES_H_\n#define DDP_TESTS_DP_VALUES_H_\n\n"
    text += f"#define TORCH_SAMPLES {SAMPLES}\n#define TORCH_IN {IN}\n#define TORCH_HIDDEN {HIDDEN}\n"
    text += f"#define TORCH_CLASSES {CLASSES}\n#define TORCH_LR {LR}\n\n"
    text += array("torch_x", x)
    text += f"static const int torch_labels[{SAMPLES}] = {{{', '.join(str(int(v)) for v in labels)}}};\n"
    text += "/* weight, bias, gamma, beta, mean, variance, weight, bias */\n"
    text += array("torch_begin", torch.cat([state[k].flatten() for k in keys]))
    for devices, loss_at in ((1, "outside"), (2, "outside"), (4, "outside"), (4, "inside")):
        sizes, loss, outputs, after = step(state, x, labels, devices, loss_at)
        name = f"torch_{loss_at}_{devices}"
        text += f"static const size_t {name}_sizes[{devices}] = {{{', '.join(map(str, sizes))}}};\n"
        text += f"static const double {name}_loss = {loss!r};\n"
        text += array(f"{name}_outputs", outputs)
        text += array(f"{name}_end", torch.cat([after[k].flatten() for k in keys]))
    text += "/* chunk sizes of torch: batch, devices, sizes, 0 where there is none */\n"
    table = [(10, 4), (9, 4), (5, 4), (9, 8), (36, 7), (3, 8), (64, 2)]
    text += f"static const size_t torch_chunks[{len(table)}][10] = {{\n"
    for batch, devices in table:
        sizes = [len(c) for c in torch.zeros(batch).chunk(devices)]
        text += "    {" + ", ".join(map(str, [batch, devices] + sizes + [0] * (8 - len(sizes)))) + "},\n"
    text += "};\n\n#endif\n"
    with open(os.path.join(HERE, "..", "dp_compat", "dp_values.h"), "w") as file:
        file.write(text)


main()

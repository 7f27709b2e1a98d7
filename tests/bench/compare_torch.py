"""Training steps of ddptrain and PyTorch on the CPU, alternately in one run.

    python3 -m venv V && V/bin/pip install torch==2.13.0 numpy
    V/bin/python tests/bench/compare_torch.py build/ddptrain [--rounds N] [--cases A,B] [--ranks 1,2] [--mode ddp|dp|layer]

Step = forward, mean cross-entropy, backward, AdamW, loss on the host; the same model and global batch on both sides; one
process with one thread, and two with one thread each, every process on a core of its own (PyTorch: DistributedDataParallel
over gloo, gradient_as_bucket_view, fused AdamW, scaled_dot_product_attention). Case names that end in -bf16 have matrix products in
bfloat16: train.precision bf16 here, autocast there.

--mode dp: one process on both sides, so many devices of ddptrain's DataParallel against so many threads of PyTorch (its own
DataParallel is a pass-through on a CPU). --mode layer: no PyTorch; ddptrain without the layer in the column of PyTorch, against the
layer on one device, so the ratio is what the layer leaves of the speed.

A round runs both sides of each case one after the other. The table has the median over the rounds of each side's median
step, and the ratio PyTorch / ddptrain as median, smallest and largest of the rounds; `fastest` is the ratio of both sides' fastest
steps in all rounds, which a machine that others use disturbs least. Start-up is in neither side's steps;
ddptrain's steps include fetching the samples. Memory is the PSS of all processes together, after the last step (ddptrain keeps what it
took; PyTorch's is what it had at most). `exposed` is
the share of ddptrain's step between the end of backward and the end of the step; `1->2` is ddptrain's own speed-up.
"""
import argparse
import array
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

LONGEST_S = 600  # of one side's run


class Case:
    """A model, as both sides know it: `config` is ddptrain's, the rest PyTorch's."""

    def __init__(self, steps, batch, make, inputs, classes, config):
        self.steps, self.batch, self.make, self.inputs, self.classes, self.config = steps, batch, make, inputs, classes, config


def make_mlp():
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def make_cnn():
    from torch import nn
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10))


def make_resnet20():
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.main = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                                      nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
            self.shortcut = nn.Identity()
            if inputs != outputs:
                self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            return nn.functional.relu(self.main(x) + self.shortcut(x))

    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    layers += [Block(i, o, 1 if i == o else 2) for i, o in zip(widths, widths[1:])]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def make_gpt2(vocab, context, layers, heads, channels):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
            self.qkv, self.projection = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
            self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

        def forward(self, x):
            n, length, _ = x.shape
            q, k, v = (part.view(n, length, heads, channels // heads).transpose(1, 2)
                       for part in self.qkv(self.norm1(x)).split(channels, 2))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.projection(y.transpose(1, 2).reshape(n, length, channels))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocab, channels), nn.Embedding(context, channels)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, vocab, bias=False)
            self.head.weight = self.tokens.weight
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, x):
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return Model()


def gpt2(steps, batch, preset, vocab, context, layers, heads, channels):
    config = {"model.kind": "gpt2", "model.preset": preset, "model.context": context, "model.vocab": vocab, "data.kind": "tokens"}
    return Case(steps, batch, lambda: make_gpt2(vocab, context, layers, heads, channels), (context,), vocab, config)


CASES = {
    "mlp": Case(400, 128, make_mlp, (1, 28, 28), 10, {"model.kind": "mlp", "data.kind": "shapes"}),
    "cnn": Case(60, 128, make_cnn, (1, 28, 28), 10, {"model.kind": "cnn", "data.kind": "shapes"}),
    "resnet20": Case(16, 128, make_resnet20, (3, 32, 32), 10, {"model.kind": "resnet", "model.depth": 20, "data.kind": "cifar10"}),
    "gpt-small": gpt2(14, 8, "small", 256, 256, 4, 4, 256),
    "gpt-small-bf16": gpt2(14, 8, "small", 256, 256, 4, 4, 256),
    "gpt2-124m": gpt2(6, 4, "124m", 50257, 64, 12, 12, 768),
    "gpt2-124m-bf16": gpt2(6, 4, "124m", 50257, 64, 12, 12, 768),
}
BF16 = "-bf16"


def kept(times):
    """The first fifth warms up."""
    return times[max(2, len(times) // 5):]


def kib(path, name):
    with open(path) as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def peak_pss_mb():
    """Activations are given back to the system by now: what the process had at most, shared pages counted by their part."""
    status = "/proc/self/status"
    return (kib("/proc/self/smaps_rollup", "Pss") + kib(status, "VmHWM") - kib(status, "VmRSS")) / 1024


def torch_worker(name, rank, world, threads):
    import contextlib
    import time
    import torch
    from torch import nn
    import torch.distributed as dist

    case = CASES[name]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = case.make()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    precision = torch.autocast("cpu", dtype=torch.bfloat16) if name.endswith(BF16) else contextlib.nullcontext()
    n = case.batch // world
    is_text = len(case.inputs) == 1
    times = []
    for _ in range(case.steps):
        x = torch.randint(case.classes, (n, *case.inputs)) if is_text else torch.randn(n, *case.inputs)
        y = torch.randint(case.classes, (n, *case.inputs) if is_text else (n,))
        start = time.perf_counter()
        with precision:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits.view(-1, case.classes), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(1e3 * (time.perf_counter() - start))
    memory = peak_pss_mb()
    print(json.dumps({"ms": statistics.median(kept(times)), "best_ms": min(kept(times)), "pss_mb": memory, "parameters": parameters}), flush=True)
    if world > 1:
        dist.barrier()  # both are alive while both look at their memory
    os._exit(0)  # gloo's own shut-down fails now and then


def run_torch(name, world, threads=1):
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(random.randrange(20000, 40000)), OMP_NUM_THREADS=str(threads))
    workers = [subprocess.Popen(["taskset", "-c", f"{rank}-{rank + threads - 1}", sys.executable, __file__, "--worker", name, str(rank),
                                 str(world), str(threads)], env=env, stdout=subprocess.PIPE, text=True) for rank in range(world)]
    said = [json.loads(worker.communicate(timeout=LONGEST_S)[0].splitlines()[-1]) for worker in workers]
    return dict(said[0], pss_mb=sum(one["pss_mb"] for one in said))


def write_data(name, folder):
    """Random samples in a format that ddptrain reads. Enough for batches that are never short."""
    case = CASES[name]
    draw = random.Random(1)
    if case.config["data.kind"] == "tokens":
        tokens = array.array("H", (draw.randrange(case.classes) for _ in range(60 * case.batch * case.inputs[0])))
        with open(folder + "/tokens.bin", "wb") as file:
            tokens.tofile(file)
        return {"data.path": folder + "/tokens.bin", "data.format": "uint16"}
    if case.config["data.kind"] == "cifar10":
        for part in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]:
            with open(f"{folder}/{part}.bin", "wb") as file:
                for _ in range(2 * case.batch):
                    file.write(bytes([draw.randrange(10)]) + draw.randbytes(3072))
        return {"data.path": folder}
    return {}


def run_ours(program, name, world, devices=0):
    """On `world` ranks, or on so many devices of one process."""
    case = CASES[name]
    parts = devices or world
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as folder:
        options = dict(case.config, **write_data(name, folder))
        options.update({"train.steps": case.steps, "train.batch": case.batch, "train.micro_batch": case.batch // parts,
                        "train.log_every": 1, "train.eval_every": 10 ** 6, "data.test_samples": case.batch,
                        "checkpoint.every_epochs": 0})
        if name.endswith(BF16):
            options["train.precision"] = "bf16"
        command = [program] if devices else ["mpirun", "-np", str(world), "--bind-to", "core", program]
        command += ["--log", "error", "--out", folder + "/run"]
        if devices:
            command += ["--mode", "dp", "--devices", ",".join(str(device) for device in range(devices))]
        for key, value in options.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, timeout=LONGEST_S)
        with open(folder + "/run/metrics.jsonl") as lines:
            events = [json.loads(line) for line in lines]
    steps = kept([event for event in events if event["event"] == "step"])
    return {"ms": statistics.median(step["step_ms"] for step in steps), "best_ms": min(step["step_ms"] for step in steps),
            "exposed": statistics.median(step.get("exposed_comm_ms", 0) / step["step_ms"] for step in steps),
            "pss_mb": events[-1]["pss_mb"], "parameters": events[0]["parameters"]}


def run_both(program, name, size, mode):
    if mode == "ddp":
        return run_torch(name, size), run_ours(program, name, size)
    if mode == "dp":
        return run_torch(name, 1, size), run_ours(program, name, 1, size)
    return run_ours(program, name, 1), run_ours(program, name, 1, 1)


def measure(program, names, sizes, rounds, mode):
    """(name, ranks) -> [(theirs, ours)], one pair a round."""
    pairs = {}
    for done in range(rounds):
        for name in names:
            for world in sizes:
                if name.endswith(BF16) and world > 1:
                    continue  # compared on one rank
                theirs, ours = run_both(program, name, world, mode)
                if theirs["parameters"] != ours["parameters"]:
                    sys.exit(f"{name}: {theirs['parameters']} parameters there, {ours['parameters']} here: not the same model")
                pairs.setdefault((name, world), []).append((theirs, ours))
                print(f"round {done + 1} {name} {world}: PyTorch {theirs['ms']:.2f} ms (fastest {theirs['best_ms']:.2f}), "
                      f"ddptrain {ours['ms']:.2f} ms (fastest {ours['best_ms']:.2f})",
                      file=sys.stderr, flush=True)
    return pairs


def report(pairs):
    print(f"{'case':16} {'ranks':>5} {'PyTorch ms':>11} {'ddptrain ms':>12} {'ratio':>6} {'least':>6} {'most':>6} {'fastest':>7} "
          f"{'PyTorch MB':>11} {'ddptrain MB':>12} {'share':>6} {'exposed':>8} {'1->2':>6}")
    for (name, world), runs in pairs.items():
        ratios = sorted(theirs["ms"] / ours["ms"] for theirs, ours in runs)
        fastest = min(theirs["best_ms"] for theirs, _ in runs) / min(ours["best_ms"] for _, ours in runs)
        memory = [statistics.median(run[side]["pss_mb"] for run in runs) for side in (0, 1)]
        scaling = "-"
        if world > 1 and (name, 1) in pairs:
            alone = pairs[(name, 1)]
            scaling = f"{statistics.median(a[1]['ms'] / b[1]['ms'] for a, b in zip(alone, runs)):.2f}"
        exposed = f"{100 * statistics.median(ours['exposed'] for _, ours in runs):.1f}%" if world > 1 else "-"
        print(f"{name:16} {world:5d} {statistics.median(t['ms'] for t, _ in runs):11.2f} "
              f"{statistics.median(o['ms'] for _, o in runs):12.2f} {statistics.median(ratios):6.2f} {ratios[0]:6.2f} {ratios[-1]:6.2f} {fastest:7.2f} "
              f"{memory[0]:11.0f} {memory[1]:12.0f} {memory[1] / memory[0]:6.2f} {exposed:>8} {scaling:>6}", flush=True)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--worker":
        torch_worker(sys.argv[2], *(int(word) for word in sys.argv[3:6]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--mode", choices=["ddp", "dp", "layer"], default="ddp")
    asked = parser.parse_args()
    names = asked.cases.split(",")
    unknown = [name for name in names if name not in CASES]
    if unknown or asked.rounds < 1:
        parser.error(f"cases are {', '.join(CASES)}; rounds at least 1")
    report(measure(os.path.abspath(asked.program), names, [int(size) for size in asked.ranks.split(",")], asked.rounds, asked.mode))


main()

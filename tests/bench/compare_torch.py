"""Training steps of ddptrain and PyTorch on the CPU, alternately in one run.

    python3 -m venv V && V/bin/pip install torch==2.13.0 numpy
    V/bin/python tests/bench/compare_torch.py build/ddptrain [rounds]

Step = forward, mean cross-entropy, backward, AdamW, loss on the host; global batch 128; one process with one thread, and two with one
thread each (PyTorch: DistributedDataParallel over gloo). Prints the medians over rounds of each side's median step, and the
ratio PyTorch / ddptrain of every round. Neither side's start-up is in it; ddptrain's steps include fetching the samples.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

STEPS = {"mlp": 400, "cnn": 60}


def torch_worker(case, rank, world, steps):
    import time
    import torch
    from torch import nn
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if case == "mlp":
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    else:
        model = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10))
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    n = 128 // world
    times = []
    for _ in range(steps):
        x = torch.randn(n, 1, 28, 28)
        y = torch.randint(10, (n,))
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(1e3 * (time.perf_counter() - start))
    if rank == 0:
        print(statistics.median(times[steps // 5:]), flush=True)
    os._exit(0)  # gloo's own shut-down fails now and then


def run_torch(case, world):
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), OMP_NUM_THREADS="1")
    workers = [subprocess.Popen(["taskset", "-c", str(rank), sys.executable, __file__, "--worker", case, str(rank), str(world)],
                                env=env, stdout=subprocess.PIPE, text=True) for rank in range(world)]
    outputs = [worker.communicate()[0] for worker in workers]
    return float(outputs[0].split()[-1])


def run_ours(program, case, world):
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as folder:
        options = {"model.kind": case, "data.kind": "shapes", "train.steps": STEPS[case], "train.batch": 128,
                   "train.micro_batch": 128 // world, "train.log_every": 1}
        command = ["mpirun", "-np", str(world), "--bind-to", "core", program, "--out", folder + "/run"]
        for key, value in options.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(folder + "/run/metrics.jsonl") as lines:
            events = [json.loads(line) for line in lines]
    times = [event["step_ms"] for event in events if event["event"] == "step"]
    return statistics.median(times[len(times) // 5:])


def main():
    if sys.argv[1] == "--worker":
        torch_worker(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), STEPS[sys.argv[2]])
    program = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    for case in STEPS:
        for world in (1, 2):
            pairs = [(run_torch(case, world), run_ours(program, case, world)) for _ in range(rounds)]
            ratios = sorted(theirs / ours for theirs, ours in pairs)
            print(f"{case} {world} x 1: PyTorch {statistics.median(p[0] for p in pairs):.2f} ms, "
                  f"ddptrain {statistics.median(p[1] for p in pairs):.2f} ms, ratio {statistics.median(ratios):.2f} "
                  f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {rounds} rounds)", flush=True)


main()

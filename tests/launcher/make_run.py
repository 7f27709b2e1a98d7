"""Writes the folder of a made-up run: what `ddptrain report` is tested on without training.

Usage: python3 make_run.py FOLDER STEPS RANKS [STARTS]. A step event after each step, an evaluation and a checkpoint after each
tenth of them, a straggler event after each fiftieth; rank 1 is slow from the middle on. STARTS processes have trained it.
"""

import json
import math
import pathlib
import sys


def start(ranks, steps, time, batch):
    hosts = ["node%d" % (rank // 2) for rank in range(ranks)]
    return {"event": "start", "hosts": hosts, "version": "0.1.0", "mode": "ddp", "ranks": ranks,
            "machines": (ranks + 1) // 2, "device": "cpu", "isa": "avx2", "data": "made up & <drawn>", "samples": 1000,
            "parameters": 12345, "micro_batches": 16, "total_steps": steps,
            "config": {"model.kind": "mlp", "train.batch": str(batch), "optimizer.lr": "0.001"}, "time": time}


def step_event(step, time):
    backward = 6 + math.sin(step / 9)
    return {"event": "step", "step": step, "epoch": 1 + step // 100, "loss": 0.1 + 2 * math.exp(-step / 5000),
            "lr": 0.001 / (1 + step / 1e4), "grad_norm": 1 + abs(math.sin(step)), "step_ms": 10 + math.sin(step / 9),
            "samples_per_s": 6400 + step % 7, "forward_ms": 3, "backward_ms": backward, "exposed_comm_ms": 0.5,
            "comm_ms": 1, "overlap": 0.5, "data_wait_ms": 0.25, "mfu": 0.5, "slowest_rank": 0, "spread_ms": 0.5, "time": time}


def straggler(step, steps, ranks, time):
    late = 2.0 if step > steps / 2 else 1.0
    return {"event": "straggler", "step": step, "steps": 50,
            "compute_ms": [9 * (late if rank == 1 else 1.0) for rank in range(ranks)], "wait_ms": [0.25] * ranks,
            "comm_ms": [1.0] * ranks, "slowest_rank": 1 if step > steps / 2 else step % ranks, "slowest_ms": 9 * late,
            "median_ms": 9, "time": time}


def main():
    folder = pathlib.Path(sys.argv[1])
    steps, ranks = int(sys.argv[2]), int(sys.argv[3])
    starts = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    folder.mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    (folder / "config.yaml").write_text("model:\n  kind: mlp\n  name: <b>&\n")
    with open(folder / "metrics.jsonl", "w") as out:
        def write(event):
            out.write(json.dumps(event, separators=(",", ":")) + "\n")
        for step in range(1, steps + 1):
            time = 1700000000 + step * 0.01
            if (step - 1) % max(1, steps // starts) == 0 and (step - 1) // max(1, steps // starts) < starts:
                write(start(ranks, steps, time, 64 + (step - 1) // max(1, steps // starts)))
            write(step_event(step, time))
            if step % max(1, steps // 10) == 0:
                write({"event": "eval", "step": step, "epoch": 1, "loss": 0.2 + 2 * math.exp(-step / 5000),
                       "accuracy": 1 - math.exp(-step / 5000), "seconds": 0.1, "time": time})
                name = "ckpt-%012d.h5" % step
                (folder / "checkpoints" / name).write_bytes(b"")
                write({"event": "checkpoint", "step": step, "path": str(folder / "checkpoints" / name), "bytes": 1 << 20,
                       "stall_ms": 2.5, "write_ms": 12.5, "time": time})
            if step % 50 == 0:
                write(straggler(step, steps, ranks, time))
        write({"event": "end", "steps": steps, "seconds": steps * 0.01, "accuracy": 0.5, "weights": "ab" * 16,
               "time": 1700000000 + steps * 0.01})


if __name__ == "__main__":
    main()

"""Weights of one model on their way between ddptrain, h5py, safetensors and PyTorch, in the working folder. Needs numpy, h5py and
safetensors. With torch, PyTorch loads what was trained and gives the logits; without, PyTorch's names, shapes and logits are those that
were kept in tests/data/logits.npz. MODEL hub: GPT-2 of Hugging Face. Usage: python3 export.py MODEL DDPTRAIN TEST_LOGITS MPIRUN [mpirun option...]
"""
import json
import pathlib
import re
import struct
import subprocess
import sys
import types

import h5py
import numpy as np
from safetensors.numpy import load_file, save_file

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "tests" / "data"))
import drawn  # noqa: E402

try:
    import torch
    import torch_models
except ImportError:
    torch = None

TOLERANCE = 1e-5
NAME, PROGRAM, TEST_LOGITS, *MPIRUN = sys.argv[1:]


def fail(text):
    sys.exit(f"FAILED: {NAME}: {text}")


def run(*command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=env)
    if done.returncode != 0:
        fail(f"exit status {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def sets(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def kept():
    """PyTorch's names and shapes, and its logits of drawn weights."""
    data = np.load(TOP / "tests" / "data" / "logits.npz")
    shapes = [(name, tuple(map(int, dims))) for name, *dims in map(str.split, data[f"{NAME}.names"])]
    return shapes, data[f"{NAME}.logits"]


def write_idx(path, array):
    with open(path, "wb") as file:
        file.write(struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


def make_data():
    """A few pictures of noise, as MNIST's files; a text. @return the test pictures and labels, None for a text"""
    if NAME == "gpt2":
        pathlib.Path("text").write_bytes((drawn.hashed(800, 6000) % 256).astype(np.uint8).tobytes())
        return None
    pathlib.Path("pictures").mkdir()
    for stream, (split, n) in enumerate((("train", 32), ("t10k", 24))):
        x = (drawn.hashed(810 + stream, n * drawn.SIDE**2) % 256).astype(np.uint8).reshape(n, drawn.SIDE, drawn.SIDE)
        y = (drawn.hashed(820 + stream, n) % drawn.CLASSES).astype(np.uint8)
        y[: drawn.CLASSES] = np.arange(drawn.CLASSES)
        write_idx(f"pictures/{split}-images-idx3-ubyte", x)
        write_idx(f"pictures/{split}-labels-idx1-ubyte", y)
    return x, y


def train():
    """@return path of the last checkpoint"""
    data = ("data.kind=text", "data.path=text") if NAME == "gpt2" else ("data.kind=idx", "data.path=pictures")
    run(*MPIRUN, "-np", "2", PROGRAM, *sets(*drawn.MODELS[NAME], *data, "train.batch=8", "train.micro_batch=4", "train.epochs=1",
                                            "train.steps=3", "optimizer.kind=sgd"), "--out", "run", "--log", "error")
    return sorted(pathlib.Path("run/checkpoints").glob("ckpt-*.h5"))[-1]


def snippets():
    """The Python of README.md's section on PyTorch: by h5py, and by safetensors."""
    section = (TOP / "README.md").read_text().split("## Weights for PyTorch")[1].split("\n## ")[0]
    code = re.findall(r"```python\n(.*?)```", section, re.S)
    if len(code) != 2 or "h5py" not in code[0] or "safetensors" not in code[1]:
        fail("README.md has other lines of Python than expected")
    return code


class Model:
    """Stands for `model` of README.md: PyTorch's where it is installed, else PyTorch's names and shapes."""

    def __init__(self, shapes):
        self.shapes = shapes
        self.module = torch_models.make(NAME) if torch else None

    def load_state_dict(self, state, strict=True):
        if {k: tuple(v.shape) for k, v in state.items()} != dict(self.shapes):
            fail("names or shapes are not PyTorch's")
        self.state = {k: v.numpy() if torch else v for k, v in state.items()}
        if torch and NAME == "gpt2":  # as README.md says of lm_head.weight
            missing, unexpected = self.module.load_state_dict(state, strict=False)
            if missing not in ([], ["lm_head.weight"]) or unexpected:
                fail(f"{missing} are missing, {unexpected} unexpected")
        elif torch:
            self.module.load_state_dict(state, strict=strict)


def run_snippet(code, shapes, **replaced):
    """Lines of README.md, as they stand there but for the files' names."""
    for old, new in replaced.values():
        if old not in code:
            fail(f"README.md's lines do not name {old}")
        code = code.replace(old, str(new))
    model = Model(shapes)
    if torch is None:
        sys.modules["torch"] = types.SimpleNamespace(from_numpy=lambda x: x)
        code = code.replace("safetensors.torch", "safetensors.numpy")
    exec(code, {"model": model})
    return model


def must_equal(what, got, wanted):
    if set(got) != set(wanted) or any(got[k].dtype != np.float32 or got[k].tobytes() != wanted[k].tobytes() for k in wanted):
        fail(f"{what}: other names, types or bits")


def our_logits(weights, isa=None):
    """By ddptrain's libraries; `weights` is a checkpoint. None: this processor has no such instruction set."""
    x = drawn.model_input(NAME)
    size = (drawn.SIDE, drawn.SIDE, 1, drawn.CLASSES) if x.ndim == 4 else (0, 0, 0, 0)
    (x if x.ndim == 2 else x.transpose(0, 2, 3, 1)).tofile("input")
    text = ("data.kind=text", "data.path=text") if NAME == "gpt2" else ()
    command = [TEST_LOGITS, str(weights), "input", "logits", str(x.shape[0]), *map(str, size), *drawn.MODELS[NAME], *text]
    if isa:
        command = ["env", f"DDP_ISA={isa}", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    if isa and done.returncode != 0 and "DDP_ISA" in done.stderr:
        return None
    if done.returncode != 0:
        fail(done.stderr)
    return np.fromfile("logits", "<f4")


def must_be_near(what, got, wanted):
    distance = float(np.abs(np.ravel(got) - np.ravel(wanted)).max())
    print(f"{NAME}: {what}: {np.size(wanted)} logits up to {np.abs(wanted).max():.3g}, off by {distance:.2g}")
    if not distance <= TOLERANCE:
        fail(f"{what}: logits differ by {distance}")


def check_evaluation(model, checkpoint, test):
    """`ddptrain eval` and PyTorch on the same pictures, normalised as the run's `start` event says."""
    start = json.loads(pathlib.Path("run/metrics.jsonl").read_text().splitlines()[0])
    ours = json.loads(run(PROGRAM, "eval", str(checkpoint), "--json", "--log", "error"))
    pictures, labels = test
    x = (pictures[:, None] / 255.0 - start["pixel_mean"][0]) / start["pixel_std"][0]
    if torch:
        logits = torch_models.logits_of(model.module, x.astype(np.float64))
    elif NAME == "mlp":
        logits = x.reshape(len(x), -1)
        for layer in ("fc1", "fc2", "fc3"):
            logits = logits @ model.state[f"{layer}.weight"].T.astype(np.float64) + model.state[f"{layer}.bias"]
            logits = np.maximum(logits, 0) if layer != "fc3" else logits
    else:
        return
    loss = float(np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]))
    if abs(loss - ours["loss"]) > TOLERANCE or ours["samples"] != len(labels):
        fail(f"eval: {ours}, but PyTorch's loss is {loss}")
    print(f"{NAME}: loss {loss:.6f} on both sides")


def check_trained(shapes):
    """What was trained here, in PyTorch."""
    by_h5py, by_safetensors = snippets()
    test = make_data()
    checkpoint = train()
    run(PROGRAM, "convert", str(checkpoint), "trained.safetensors")
    model = run_snippet(by_h5py, shapes, file=("best.h5", checkpoint))
    must_equal("the package safetensors", load_file("trained.safetensors"), model.state)
    other = run_snippet(by_safetensors, shapes, file=("weights.safetensors", "trained.safetensors"))
    must_equal("README.md's lines for safetensors", other.state, model.state)
    if torch:
        for module in (model.module, other.module):
            must_be_near("trained here, PyTorch", our_logits(checkpoint), torch_models.logits_of(module, drawn.model_input(NAME)))
    if test is not None:
        check_evaluation(model, checkpoint, test)


def check_hub():
    """A GPT-2 as transformers saved it, and as the hub has it: imported, it gives the logits of transformers."""
    folder = TOP / "tests" / "data"
    values = drawn.read_bin(folder / "gpt2.bin")
    values["tokens"][0].tofile("input")
    for name in ("gpt2_lm", "gpt2_model", "gpt2_hub"):
        run(PROGRAM, "convert", str(folder / "weights" / f"{name}.safetensors"), f"{name}.h5")
        run(TEST_LOGITS, f"{name}.h5", "input", "logits", "3", "0", "0", "0", "0", "model.kind=gpt2", "model.layers=2", "model.heads=2",
            "model.channels=32", "model.context=24", "model.vocab=61", "data.kind=text", "data.path=text")
        must_be_near(name, np.fromfile("logits", "<f4"), values["logits"])


def check_drawn(shapes, logits):
    """What the package wrote, here."""
    weights = drawn.model_weights(shapes)
    save_file(weights, "drawn.safetensors")
    run(PROGRAM, "convert", "drawn.safetensors", "drawn.h5")
    with h5py.File("drawn.h5") as file:
        must_equal("h5py", {name: array[()] for name, array in file["model"].items()}, weights)
    for isa in ("plain", "avx2", "avx512"):
        ours = our_logits("drawn.h5", isa)
        if ours is not None:
            must_be_near(f"PyTorch's weights, {isa}", drawn.kept(ours), logits)


def main():
    if NAME == "hub":
        check_hub()
        return
    shapes, logits = kept()
    print(f"{NAME}: " + (f"with torch {torch.__version__}" if torch else "without torch: its values were kept"))
    if torch:
        torch.set_num_threads(1)
        if shapes != torch_models.shapes_of(torch_models.make(NAME)):
            fail("tests/data/logits.npz is of other models: run make_logits.py")
    check_drawn(shapes, logits)
    check_trained(shapes)


main()

"""Writes the files beside it: tensors as the Python packages safetensors, numpy and h5py write them. Needs these, torch and, for
the gpt2 files, transformers and tests/data/gpt2.bin; for keras.weights.h5, Keras on torch; nothing else reads this script (made with safetensors 0.8.0,
torch 2.13, numpy 2.4.6, h5py 3.16.0 with HDF5 1.14, keras 3.15.1). Values of tensor t are ((7 i + 3 t) mod 31 - 15) / 8, exact in every type here, t counting from 0 in the order below.
"""
import os
import pathlib
import shutil
import sys
import tempfile

import h5py
import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from drawn import read_bin  # noqa: E402

PLAIN = [("fc2.bias", (3,)), ("conv1.weight", (5, 3, 3, 3)), ("a \"quoted\\ name\u00e9", (2, 1, 7)), ("fc1.weight", (9, 11))]


def values(t, shape, dtype="<f4"):
    count = int(np.prod(shape))
    return ((((7 * np.arange(count) + 3 * t) % 31) - 15) / 8).astype(dtype).reshape(shape)


def plain():
    return {name: values(t, shape) for t, (name, shape) in enumerate(PLAIN)}


def mixed_safetensors():
    """Every type of float, under the names that wrappers of PyTorch give, and integers."""
    names = [("module._orig_mod.a.weight", "<f4", (4, 5)), ("module._orig_mod.b.weight", "<f2", (33,)),
             ("module._orig_mod.c.weight", None, (2, 3, 4)), ("module._orig_mod.d.running_var", "<f8", (6,))]
    tensors = {}
    for t, (name, dtype, shape) in enumerate(names):
        data = torch.from_numpy(values(t, shape, dtype or "<f4"))
        tensors[name] = data.bfloat16() if dtype is None else data
    tensors["module._orig_mod.d.num_batches_tracked"] = torch.tensor(7)
    save_torch(tensors, str(HERE / "mixed.safetensors"))


def gpt2_start():
    """The weights of tests/data/gpt2.bin, by whose logits what is made of these files is known."""
    arrays = read_bin(HERE.parent / "gpt2.bin")
    return {k.removeprefix("start."): v for k, v in arrays.items() if k.startswith("start.")}


def gpt2_saved():
    """As transformers saves it: two files, of the language model and of GPT2Model alone."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=24, n_embd=32, n_layer=2, n_head=2))
    model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in gpt2_start().items()}, strict=False)
    for part, name in ((model, "gpt2_lm"), (model.transformer, "gpt2_model")):
        with tempfile.TemporaryDirectory() as folder:
            part.save_pretrained(folder)
            shutil.copyfile(pathlib.Path(folder) / "model.safetensors", HERE / f"{name}.safetensors")


def gpt2_hub():
    """As the files of the hub: no `transformer.`, masks of attention, the output layer twice."""
    start = {k.removeprefix("transformer."): v for k, v in gpt2_start().items()}
    length = start["wpe.weight"].shape[0]
    for layer in range(2):
        start[f"h.{layer}.attn.bias"] = np.tril(np.ones((1, 1, length, length), "<f4"))
    start["lm_head.weight"] = start["wte.weight"]
    save_file({k: np.ascontiguousarray(v) for k, v in start.items()}, str(HERE / "gpt2_hub.safetensors"))


def hdf5():
    with h5py.File(HERE / "plain.h5", "w") as f:
        names = [("a/weight", "<f4", (4, 5)), ("a/bias", "<f8", (3,)), ("half", "<f2", (2, 2, 2))]
        for t, (name, dtype, shape) in enumerate(names):
            f[name] = values(t, shape, dtype)
        f["count"] = np.int64(7)
    with h5py.File(HERE / "soft.h5", "w") as f:
        f["x"] = h5py.SoftLink("/y")
    with h5py.File(HERE / "elsewhere.h5", "w") as f:
        f["x"] = h5py.ExternalLink("plain.h5", "/half")
    with h5py.File(HERE / "external.h5", "w") as f:
        f.create_dataset("x", (4,), "<f4", external=[("/etc/hostname", 0, 16)])
    with h5py.File(HERE / "virtual.h5", "w", libver=("earliest", "v110")) as f:
        layout = h5py.VirtualLayout((8,), "<f4")
        layout[:] = h5py.VirtualSource("plain.h5", "half", (8,))
        f.create_virtual_dataset("x", layout)
    with h5py.File(HERE / "loop.h5", "w") as f:
        group = f.create_group("g")
        group["g"] = group


def packed_hdf5():
    """Chunks, gzip, shuffle and checksums, in all combinations that h5py's users write; tensors that fill their chunks or not."""
    ways = [("gzip", "<f4", (100, 37), {"chunks": (16, 10), "compression": "gzip", "shuffle": True}),
            ("half", "<f2", (9, 8, 7), {"chunks": (2, 8, 3), "compression": 9}),
            ("hard", "<f8", (7,), {"chunks": (2,), "fletcher32": True}),
            ("long", "<f4", (70001,), {"compression": "gzip"}),
            ("plain", "<f4", (4, 5), {}),
            ("square", "<f4", (3, 5, 3, 3), {"chunks": True})]
    with h5py.File(HERE / "packed.h5", "w") as f:
        for t, (name, dtype, shape, how) in enumerate(ways):
            f.create_dataset(name, data=values(t, shape, dtype), **how)
        f.create_dataset("count", data=np.arange(9), chunks=(4,))
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        compact.set_obj_track_times(False)
        for t, name, shape in ((6, b"tiny", (3, 2)), (7, b"one", ())):
            small = h5py.h5d.create(f.id, name, h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(shape) if shape else
                                    h5py.h5s.create(h5py.h5s.SCALAR), compact)
            small.write(h5py.h5s.ALL, h5py.h5s.ALL, values(t, shape))
    with h5py.File(HERE / "lzf.h5", "w") as f:
        f.create_dataset("x", data=values(0, (8, 8)), compression="lzf")
    with h5py.File(HERE / "bomb.h5", "w") as f:
        f.create_dataset("x", (1 << 30,), "<f4", chunks=(1 << 16,), compression="gzip")


def keras_hdf5():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3), keras.layers.BatchNormalization()])
    model.set_weights([values(t, w.shape) for t, w in enumerate(model.get_weights())])
    model.save_weights(HERE / "keras.weights.h5")


def main():
    save_file(plain(), str(HERE / "plain.safetensors"), metadata={"format": "pt"})
    mixed_safetensors()
    gpt2_hub()
    gpt2_saved()
    np.savez(HERE / "stored.npz", **plain())
    np.savez_compressed(HERE / "deflated.npz", half=values(0, (40, 40), "<f2"), wide=values(1, (7,), "<f8"),
                        one=values(2, (), "<f4"), plain=values(3, (100, 200)), count=np.arange(5))
    np.savez(HERE / "fortran.npz", x=np.asfortranarray(values(0, (3, 4))))
    np.savez(HERE / "object.npz", x=np.array([{}], object))
    hdf5()
    packed_hdf5()
    keras_hdf5()


if __name__ == "__main__":
    main()

"""Numbers that tests in C and in Python draw or read alike, and models of such weights. Needs numpy."""
import pathlib
import struct

import numpy as np


def read_bin(path):
    """Arrays of tests/data/gpt2.bin: see make_training.py."""
    data, at, arrays = pathlib.Path(path).read_bytes(), 0, {}
    while at < len(data):
        name, kind, ndim, *shape = struct.unpack_from("<64sII4I", data, at)
        at += struct.calcsize("<64sII4I")
        array = np.frombuffer(data, ["<f4", "<f8", "<i4"][kind], int(np.prod(shape)), at).reshape(shape[:ndim])
        at += array.nbytes
        arrays[name.rstrip(b"\0").decode()] = array
    return arrays


def mix(x):
    """The end of MurmurHash3, 32 bits."""
    x = x.astype(np.uint32)
    x ^= x >> 16
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> 13
    x *= np.uint32(0xC2B2AE35)
    return x ^ x >> 16


def hashed(stream, n):
    start = mix(np.array([stream + 1], np.uint32))[0]
    return mix(np.arange(n, dtype=np.uint32) * np.uint32(0x9E3779B1) + start)


def drawn(stream, n):
    """n numbers in [-1, 1), multiples of 2^-23."""
    return ((hashed(stream, n) >> 8).astype(np.float64) - 2.0**23) * 2.0**-23


# The models of tests/launcher/export.sh: ddptrain's keys. Pictures are [28, 28, 1] with 10 classes.
SIDE, CLASSES, CONTEXT, VOCAB = 28, 10, 32, 256
MODELS = {
    "mlp": ["model.kind=mlp", "model.hidden=[48,16]"],
    "cnn": ["model.kind=cnn"],
    "resnet18": ["model.kind=resnet", "model.depth=18"],
    "resnet20": ["model.kind=resnet", "model.depth=20"],
    "gpt2": ["model.kind=gpt2", "model.preset=tiny"],
}


def model_input(model):
    """What goes into it: float32 [n, 1, SIDE, SIDE], or tokens."""
    if model == "gpt2":
        return (hashed(700, 3 * CONTEXT) % VOCAB).astype(np.int32).reshape(3, CONTEXT)
    return drawn(701, 3 * SIDE * SIDE).astype(np.float32).reshape(3, 1, SIDE, SIDE)


def kept(logits):
    """Those of them that tests/data/logits.npz has: of a gpt2 every seventh."""
    return logits.ravel()[:: 7 if logits.size > 1000 else 1]


def model_weights(shapes):
    """`shapes` is [(name, shape)...] in PyTorch's names; the sizes of activations stay about the same from layer to layer."""
    weights = {}
    for stream, (name, shape) in enumerate(shapes):
        value = drawn(stream, int(np.prod(shape)))
        if name.endswith("running_var") or (len(shape) == 1 and name.endswith("weight")):
            value = (0.5 if name.endswith("2.weight") else 1.0) + 0.25 * value
        elif len(shape) > 1:
            value *= (3.0 / np.prod(shape[1:])) ** 0.5
        else:
            value *= 0.125
        weights[name] = value.astype(np.float32).reshape(shape)
    return weights

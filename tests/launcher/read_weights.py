"""Files that ddptrain wrote, read by h5py and NumPy: the lines of docs/checkpoint.md, as they stand there, must give what a reader
of safetensors of four lines gives. Usage: python3 read_weights.py CHECKPOINT.MD CHECKPOINT SAFETENSORS NPZ...
"""
import json
import re
import struct
import sys
import zipfile

import numpy as np


def read_safetensors(path):
    data = open(path, "rb").read()
    start = 8 + struct.unpack_from("<Q", data)[0]
    header = {k: v for k, v in json.loads(data[8:start]).items() if k != "__metadata__"}
    return {k: np.frombuffer(data[start + v["data_offsets"][0]:start + v["data_offsets"][1]], "<f4").reshape(v["shape"])
            for k, v in header.items()}


def must_equal(what, got, wanted):
    if set(got) != set(wanted):
        sys.exit(f"{what}: names differ: {sorted(set(got) ^ set(wanted))[:5]}")
    for name, array in wanted.items():
        if got[name].dtype != np.float32 or got[name].shape != array.shape or got[name].tobytes() != array.tobytes():
            sys.exit(f"{what}: '{name}' differs")


def main():
    page, checkpoint, safetensors, *npzs = sys.argv[1:]
    wanted = read_safetensors(safetensors)
    code = re.search(r"```python\n(.*?)```", open(page).read(), re.S).group(1)
    result = {}
    exec(code.replace("ckpt-000000001200.h5", checkpoint), result)
    must_equal(checkpoint, result["state"], wanted)
    if int(result["step"]) != 3:
        sys.exit(f"{checkpoint}: step {result['step']}")
    for npz in npzs:
        must_equal(npz, np.load(npz), wanted)
        if zipfile.ZipFile(npz).testzip() is not None:
            sys.exit(f"{npz}: a checksum is wrong")
    print(f"read by h5py: {len(wanted)} tensors")


if __name__ == "__main__":
    main()

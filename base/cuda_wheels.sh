#!/bin/sh
# Gets NVIDIA's toolkit, NCCL and cuDNN from PyPI into build/cuda, where CMake looks for them; nothing is installed and no
# driver is needed. Pinned versions; a wheel that is unpacked already is not downloaded again.
# Usage: sh base/cuda_wheels.sh [headers | plans | nvcc]     headers: what the stand-in's tests need; plans: libcudnn and
# libnvrtc as well, for the test cudnn.plans (700 MB on disk); nvcc: the compiler
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
root=$top/build/cuda
python=python3

headers="nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.1.0.3
    nvidia-cudnn-cu13==9.19.0.56 nvidia-nccl-cu13==2.28.9"
libraries="nvidia-cudnn-cu13==9.19.0.56 nvidia-cuda-nvrtc==13.0.88"
compiler="nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88"

case ${1:-headers} in
headers) wheels=$headers ;;
plans) wheels="$libraries $headers" ;;
nvcc) wheels="$headers $compiler" ;;
*)
    echo "usage: sh base/cuda_wheels.sh [headers | plans | nvcc]" >&2
    exit 2
    ;;
esac

mkdir -p "$root/wheels"
if ! "$python" -m pip --version >/dev/null 2>&1; then # Debian's python3 comes without pip
    "$python" -m venv "$root/python"
    python=$root/python/bin/python
fi
for wheel in $wheels; do
    kept=libcudart
    mark=$wheel
    case "${1:-headers} $wheel" in
    "plans nvidia-cudnn"* | "plans nvidia-cuda-nvrtc"*)
        kept="libcudnn libnvrtc"
        mark=$wheel.libraries
        ;;
    esac
    [ ! -f "$root/wheels/$mark" ] || continue
    echo "cuda: $wheel from PyPI"
    folder=$(mktemp -d "$root/download.XXXXXX")
    if ! "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$folder" "$wheel"; then
        rm -rf "$folder"
        echo "cuda: $wheel cannot be downloaded; without it: install the CUDA toolkit in /usr/local/cuda" >&2
        exit 1
    fi
    # Folders in a wheel: nvidia/cu13/include, nvidia/nccl/include, ... become include, lib, bin, nvvm. The large libraries
    # are not needed to build: only cudart is linked, the others are loaded at run time.
    "$python" - "$folder" "$root" "$kept" <<'PYTHON'
import os, sys, zipfile

folder, root, kept = sys.argv[1:]
kept = tuple(kept.split()) + ("libcudadevrt",)
(wheel,) = os.listdir(folder)
with zipfile.ZipFile(os.path.join(folder, wheel)) as archive:
    for member in archive.infolist():
        parts = member.filename.split("/")
        if parts[0] != "nvidia" or len(parts) < 4 or member.is_dir():
            continue
        if parts[2] not in ("include", "lib", "bin", "nvvm"):
            continue
        if parts[2] == "lib" and not parts[-1].startswith(kept):
            continue
        target = os.path.join(root, *parts[2:])
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as out:
            out.write(archive.read(member))
        if parts[2] in ("bin", "nvvm"):
            os.chmod(target, 0o755)
PYTHON
    rm -rf "$folder"
    : >"$root/wheels/$wheel"
    : >"$root/wheels/$mark"
done
echo "cuda: $root is complete"

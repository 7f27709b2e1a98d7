#!/bin/sh
# Weights that ddptrain exports, as PyTorch and the package safetensors read them, and the other way round: export.py has the
# details. DDP_TEST_PYTHON is the Python that has h5py, numpy and safetensors, and torch if that is to be compared with, too.
# Usage: sh export.sh MODEL DDPTRAIN MPIRUN [mpirun option...]; DDP_TEST_LOGITS is the program of logits.c
# shellcheck disable=SC2086,SC2154 # mpirun is several words; support.sh sets it
set -u

here=$(cd "$(dirname "$0")" && pwd)
. "$here/support.sh"

python=${DDP_TEST_PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import h5py, numpy, safetensors' 2>python; then
    echo "skipped: DDP_TEST_PYTHON=$python: $(tail -n 1 python)"
    [ -z "${DDP_LINT_STRICT:-}" ] || exit 1
    exit 77
fi
PYTHONDONTWRITEBYTECODE=1 "$python" "$here/export.py" "$case" "$program" "$DDP_TEST_LOGITS" $mpirun || failed=1
exit $failed

#!/bin/sh
# The products really use fused multiply-add: without -ffp-contract=fast, -std=c11 gives separate instructions, and
# nothing but the time would show it. Usage: sh fma.sh OBJECT...
set -u

if ! command -v objdump >/dev/null; then
    echo "objdump is missing: apt-get install binutils"
    exit 77
fi
for object in "$@"; do
    fused=$(objdump -d --no-show-raw-insn "$object" | grep -c 'vfn*madd[0-9]*ps')
    separate=$(objdump -d --no-show-raw-insn "$object" | grep -c 'vmulps')
    echo "$object: $fused fused, $separate separate multiplications"
    if [ "$fused" -lt 100 ] || [ "$separate" -gt $((fused / 2)) ]; then
        echo "$object: compiled without contraction; look for -ffp-contract=fast"
        exit 1
    fi
done

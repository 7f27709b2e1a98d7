#!/bin/sh
# Training needs no room in /dev/shm: memory is a memfd. small_dev_shm.sh <mpirun> <comm_victim>
# Where a mount namespace is not allowed the test is skipped (77).
set -u
mpirun=$1
victim=$2

if [ "${3:-}" != inside ]; then
    unshare -m true 2> /dev/null || exit 77
    exec unshare -m sh "$0" "$mpirun" "$victim" inside
fi

mount -t tmpfs -o size=1M tmpfs /dev/shm || exit 77
# Open MPI's own shared memory would not fit either.
export OMPI_MCA_btl_vader_backing_directory=/tmp
fail() {
    printf '%s\n' "$1" "$2" >&2
    exit 1
}

out=$("$mpirun" --oversubscribe --bind-to none -np 2 "$victim" share 2>&1) || fail "memfd: not expected to fail" "$out"
[ "$(printf '%s\n' "$out" | grep -c 'ms: fine')" = 2 ] || fail "memfd: two ranks should say fine" "$out"
[ -z "$(ls /dev/shm)" ] || fail "left in /dev/shm:" "$(ls /dev/shm)"

out=$(DDP_HOST_SHM=posix "$mpirun" --oversubscribe --bind-to none -np 2 "$victim" share 2>&1) && fail "posix: expected to fail" "$out"
line='shared memory for gradients: 8.4 MB needed, 1.0 MB free in /dev/shm; enlarge it (docker run --shm-size) or unset DDP_HOST_SHM'
printf '%s\n' "$out" | grep -qF "$line" || fail "posix: no such line: $line" "$out"
[ -z "$(ls /dev/shm)" ] || fail "left in /dev/shm:" "$(ls /dev/shm)"

#!/bin/sh
# A command on a host: its network, name and /dev/shm, a temporary folder of its own. It becomes the command: same pid.
# Usage: sh on.sh HOST COMMAND...
set -u

host=$1
shift
if ! read -r holder 2>/dev/null <"$DDP_CLUSTER/$host/pid"; then
    echo "on.sh: there is no host '$host'" >&2
    exit 255
fi
TMPDIR=$DDP_CLUSTER/$host/tmp
export TMPDIR
exec nsenter --target "$holder" --net --uts --ipc --mount --wdns="$PWD" -- "$@"

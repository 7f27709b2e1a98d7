#!/bin/sh
# Stands in for ssh where mpirun starts its daemons on other hosts: as there, the environment is new, the folder is the
# user's, all words are one line for a shell, and it stays on the host of mpirun, which does not learn from it what becomes of
# the daemon on a host that is not reached. Usage: sh rsh_agent.sh [option...] HOST WORD...
set -u

while [ "${1#-}" != "$1" ]; do
    shift
done
host=$1
shift
[ -e "$DDP_CLUSTER/$host/pid" ] || { echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }
cd "${HOME:-/}" || exit 255
exec 3>&2 2>/dev/null # ssh does not say what killed the daemon
(exec env -i DDP_CLUSTER="$DDP_CLUSTER" PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME="${HOME:-/}" USER=root \
    LOGNAME=root SHELL=/bin/sh sh "$(dirname "$0")/on.sh" "$host" /bin/sh -c "$*" 2>&3 3>&-)
status=$?
[ $status -le 128 ] || status=255 # ended by a signal, or the link
while [ -e "$DDP_CLUSTER/$host/silent" ] && kill -0 "$PPID" 2>/dev/null; do
    sleep 0.1
done
exit $status

# shellcheck shell=sh disable=SC1091,SC2015,SC2034,SC2154 # variables pass between this file and the scripts that source it
# Sourced first by a test on several hosts (POSIX sh): arguments CASE DDPTRAIN [MPIRUN...], the checks of
# tests/launcher/support.sh, and the functions of hosts.sh and slurm.sh. README.md tells how to use them.
#
# The test runs again inside namespaces of its own (processes, mounts, network): whatever it starts ends with it, also when
# ctest kills it, and its hosts and their names collide with nobody's.

cluster_tests=$(cd "$(dirname "$0")" && pwd)
for cluster_here in "$cluster_tests" "$cluster_tests/../cluster" "$cluster_tests/cluster"; do
    [ ! -f "$cluster_here/hosts.sh" ] || break
done

# cluster_needs TEXT: what is missing; a skip, or a failure where skips are none
cluster_needs()
{
    echo "tests on several hosts need $1"
    [ "${DDP_TEST_REQUIRE_CLUSTER:-0}" = 0 ] || exit 1
    exit 77
}

# cluster_has PROGRAM PACKAGE
cluster_has()
{
    command -v "$1" >/dev/null 2>&1 || cluster_needs "$1: apt-get install $2"
}

if [ -z "${DDP_CLUSTER_INSIDE:-}" ]; then
    PATH=$PATH:/usr/sbin:/sbin
    export PATH
    [ "$(id -u)" -eq 0 ] || cluster_needs root
    cluster_has ip iproute2
    cluster_has mpirun openmpi-bin
    unshare --pid --fork --mount --net --uts --ipc true 2>/dev/null || cluster_needs "a kernel that lets root make namespaces"
    DDP_CLUSTER_INSIDE=1
    export DDP_CLUSTER_INSIDE
    case $- in *x*) cluster_trace=-x ;; *) cluster_trace= ;; esac
    # shellcheck disable=SC2086 # one word or none
    exec unshare --pid --fork --kill-child --mount --mount-proc --net sh $cluster_trace "$0" "$@"
fi

case=$1
program=$(readlink -f "$2") # by hand it may be a path from here
shift 2
set -- "$case" "$program" "$@"
. "$cluster_here/../launcher/support.sh"
: "${DDP_SLOW_SWITCH:=$(dirname "$program")/bin/slow_switch}"
. "$cluster_here/hosts.sh"
. "$cluster_here/slurm.sh"

trap 'kill -9 -1 2>/dev/null; rm -rf "$folder"' EXIT # this is process 1: all others are ours
trap 'exit 130' INT TERM
cluster_begin "$folder"

#!/bin/sh
# The hosts by hand: runs lines of shell with the functions of hosts.sh and slurm.sh, and takes all away afterwards.
# Usage: sh hand.sh LINES [DDPTRAIN]
#   sh hand.sh 'hosts_up 3; on node1 mpirun --host node1:2,node3:2 hostname'
#   sh hand.sh 'hosts_up 4; slurm_up; on node1 bash -i'
#   sh hand.sh 'hosts_up 2; on node1 mpirun --host node1,node2 "$program" --set train.steps=20' build/ddptrain
# shellcheck disable=SC1091,SC2154 # by cluster.sh
set -u

set -- "$1" "${2:-/bin/true}"
. "$(dirname "$0")/cluster.sh"
eval "$case"
exit "$failed"

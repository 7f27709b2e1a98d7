#!/bin/sh
# nccl_lost.sh <program> <how> <mpirun...>: a failure of rank 1 of three over NCCL ends the job within the deadline of 3 s and a few
# more, with a line on the ranks that says what it was, and with nothing left running.
set -u
program=$1 how=$2
shift 2
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# What at least one rank must say, and how many ranks at least must say something that is not "all done".
least=2
case $how in
init) fault=init:1 text='did not join within 2.25 s; .*NCCL_SOCKET_IFNAME' least=3 ;;
async) fault=async:1:12 text='rank 1 says: nccl: in the background: remote process exited' least=3 ;;
hang) fault=hang:1:12 text='no progress for 3 s, and no rank here is behind: waiting for the .*NCCL_P2P_DISABLE=1' least=3 ;;
gone) fault=gone:1:12 text='rank 1 on .* has ended (pid [0-9]*): waiting for' least=1 ;; # mpirun ends the rest
count) fault=count:1:12 text='nccl: in the background: invalid usage.*NCCL_DEBUG=WARN' least=3 ;;
call) fault=call:1:1 text='rank 1 says: nccl: ncclAllReduce: an error of NCCL' least=3 ;; # in a group
late) fault= text='rank 1 on .* made no progress for 3 s: waiting for' ;;
version) fault= text='rank 1 on .* has version 2.19.3, rank 0 on .* has 2.[0-9]*.[0-9]*; check LD_LIBRARY_PATH' least=3 ;;
same) fault= text='ranks 0 and 1 have the same GPU on .*one rank per GPU' least=3 ;;
esac
start=$(date +%s)
CUSIM_NCCL_FAULT=$fault timeout -k 5 40 "$@" -np 3 "$program" "$how" >"$out" 2>&1
status=$?
seconds=$(($(date +%s) - start))
fail()
{
    echo "$how: $1"
    cat "$out"
    exit 1
}
[ $status -ne 0 ] && { [ $status -lt 124 ] || [ $status -eq 137 ]; } || fail "exit status $status"
grep -q "$text" "$out" || fail "nobody said '$text'"
[ "$(grep -c 'rank [0-9]* says: ' "$out")" -ge $least ] || fail "fewer than $least ranks said anything"
grep -q 'all done' "$out" && fail "a rank saw nothing"
[ $seconds -le 15 ] || fail "took $seconds s"
exit 0

#!/bin/sh
# lost_rank.sh <program> <ranks> <exit|kill|stop|late>: a rank that leaves in the middle of training is named by another one within
# seconds, and the job ends with a status that is not 0.
set -u
program=$1 ranks=$2 how=$3
out=$(mktemp)
trap 'rm -f "$out"' EXIT
start=$(date +%s)
timeout -k 5 60 mpirun --oversubscribe --bind-to none -np "$ranks" "$program" "$how" $$ >"$out" 2>&1
status=$?
seconds=$(($(date +%s) - start))
pkill -KILL -f "^$program $how $$" 2>/dev/null # a stopped process survives what mpirun sends; $$: only this test's
if [ $status -eq 0 ] || [ $status -ge 124 ] && [ $status -ne 137 ]; then
    echo "exit status $status"
    cat "$out"
    exit 1
fi
if ! grep -q 'survivor [0-9]*: .*rank 1 .*\(has ended\|made no progress\|did not\)' "$out"; then
    echo "nobody named rank 1"
    cat "$out"
    exit 1
fi
if [ $seconds -gt 30 ]; then
    echo "took $seconds s"
    exit 1
fi

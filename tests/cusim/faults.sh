#!/bin/sh
# Runs a program with each planted fault of a table and looks whether those notice it that must.
# Usage: sh faults.sh PROGRAM TABLE BUILD WAY...     BUILD: plain asan tsan; WAY: a word of the table's second column
set -u

program=$1
table=$2
build=$3
shift 3
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# What the planted fault does counts, not what the program leaves allocated when it stops.
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=exitcode=66:halt_on_error=1

# run WAY FAULT: the exit status
run()
{
    CUSIM_ORDER=f CUSIM_SCHED=eager CUSIM_LAZY=0
    case $1 in
    f | r | g | h | x?) CUSIM_ORDER=$1 ;;
    lifo) CUSIM_SCHED=lifo ;;
    lazy) CUSIM_SCHED=lifo CUSIM_LAZY=1 ;;
    esac
    export CUSIM_ORDER CUSIM_SCHED CUSIM_LAZY
    timeout 60 "$program" "$2" >"$out" 2>&1
}

# An exact table says who may not notice as well: kernels run in a fixed order, streams do not.
exact=no
case $table in
*kernels.txt) exact=yes ;;
esac

failed=0
grep -v '^#' "$table" | sed 's/ *| */|/g' >"$out.table"
while IFS='|' read -r fault ways text; do
    if [ "$fault" = host_deref ] && ! grep -q -w ospke /proc/cpuinfo; then
        echo "$build $fault: not tried, as this processor has no memory protection keys"
        continue
    fi
    line="$fault:"
    for way in "$@"; do
        run "$way" "$fault" </dev/null
        status=$?
        must=no
        case " $ways " in
        *" $way "*) must=yes ;;
        esac
        # Where a sanitizer has ended one of two processes, the other waits for it, as with the real NCCL.
        [ "$status" -eq 124 ] && ! grep -q '^SUMMARY: ThreadSanitizer' "$out" && status="124, a hang"
        line="$line $way $status"
        verdict=""
        if [ "$must" = yes ] && [ "$status" = 0 ]; then
            verdict="NOT NOTICED"
        elif [ "$must" = yes ] && [ -n "$text" ] && ! grep -q "$text" "$out"; then
            verdict="not named as '$text'"
        elif [ "$must" = no ] && [ "$status" != 0 ] && { [ "$exact" = yes ] || [ "$fault" = none ]; }; then
            verdict="noticed, which the table does not say"
        elif [ "$status" = "124, a hang" ]; then
            verdict="a hang"
        fi
        if [ -n "$verdict" ]; then
            line="$line <- $verdict"
            failed=1
            tail -n 20 "$out"
        fi
    done
    echo "$build $line"
done <"$out.table"
rm -f "$out.table"
exit $failed

#!/bin/sh
# The matrix of faults: each kind in each phase of a run over three hosts, at a moment that is drawn. The line names the right
# rank and host on time, nothing is left on any host, and what was saved goes on to the weights of a run that nothing disturbed.
# Usage: sh faults.sh CASE DDPTRAIN; CASE: `KIND PHASE`, a name of the samples below, `all`, or `table` (all, as a page's rows).
# DDP_TEST_SEED repeats what was drawn.
# shellcheck disable=SC1091,SC2015,SC2034,SC2046,SC2086,SC2154,SC2317 # run by name; variables of other scripts; commands of several words
set -u

. "$(dirname "$0")/cluster.sh"
. "$cluster_here/draw.sh"
. "$cluster_here/fault_kinds.sh"

: "${DDP_SLOW_END_LIBRARY:=$(dirname "$program")/tests/cluster/libslow_end.so}" # beside a program that was built here
: "${DDP_WRONG_TIME_LIBRARY:=$(dirname "$program")/tests/cluster/libwrong_time.so}"
limit=3 # s: ddp.timeout_s
slack=20 # s: for a machine that has other things to do
hosts_of_ranks='node1 node1 node2 node2 node3'
common="--set data.kind=shapes --set data.samples=200 --set train.batch=60 --set train.micro_batch=8 --set model.kind=mlp
    --set model.dropout=0.2 --set schedule.kind=constant --set checkpoint.every_epochs=0 --set ddp.straggler_every=10
    --set ddp.timeout_s=$limit --log warn"

# settings PHASE: of a run that is long in this phase. It has no end before the fault has come, where the fault is to end it:
# each start reads run.yaml
settings()
{
    tests=64
    eval_every=100000
    save_every=20
    late=
    hidden=100,16
    case $1 in
    start | step) steps=1000 ;;
    save) steps=1000 save_every=5 ;;
    eval) steps=100 tests=4000 eval_every=1 save_every=4 ;;
    end) steps=200 late="-x DDP_SLOW_END=2 -x LD_PRELOAD=$DDP_SLOW_END_LIBRARY" ;;
    slow) steps=200 hidden=512,256 ;;
    *) fail "phase '$1'" ;;
    esac
    small="run.yaml $common --set data.test_samples=$tests --set train.eval_every=$eval_every
        --set checkpoint.every_steps=$save_every --set model.hidden=[$hidden]"
    if [ "$kind" != slow ] && [ "$1" != end ]; then
        steps=10000000
    fi
    echo "train: {steps: $steps}" >run.yaml
}

# whole: the run that nothing disturbs, on one rank, some steps beyond what was saved
whole()
{
    if [ $steps -eq 10000000 ]; then
        steps=$(($(newest_step) + 25))
        echo "train: {steps: $steps}" >run.yaml
    fi
    last=checkpoints/ckpt-$(printf '%012d' $steps).h5
    rm -rf whole
    run 0 on node1 "$program" $small --out whole
    whole=$(weights)
}

is_command()
{
    command -v "$1" >/dev/null
}

host_of()
{
    echo $hosts_of_ranks | cut -d ' ' -f $(($1 + 1))
}

now_ms()
{
    date +%s%3N
}

# saved STEP: a checkpoint of that step or a later one is there, or the run has ended
saved()
{
    [ "$(newest_step)" -ge "$1" ] || job_has_ended
}

# newest_step: that was saved, or 0
newest_step()
{
    newest=$(readlink disk/a/checkpoints/latest.h5 | sed 's/^ckpt-0*\([0-9]*\)\.h5$/\1/')
    echo "${newest:-0}"
}

job_has_ended()
{
    ! is_running "$job"
}

all_begin()
{
    [ "$(program_pids | grep -c '')" -ge 5 ] || job_has_ended
}

is_saving()
{
    [ -n "$(find disk/a/checkpoints -name '.ckpt-*' 2>/dev/null)" ] || job_has_ended
}

has_event()
{
    grep -q "\"event\":\"$1\"" disk/a/metrics.jsonl 2>/dev/null || job_has_ended
}

# reach PHASE: a moment in it
reach()
{
    case $1 in
    start) await 60 all_begin ;;
    step | save | slow)
        draw 8
        await 60 saved $((20 * (drawn + 1)))
        ;;
    eval) await 60 has_event eval ;;
    end) await 60 has_event end ;;
    esac || { fail "no run gets to '$1'"; cat err; }
    case $1 in
    start) draw 8 ;;
    save) await 60 is_saving; drawn=0 ;;
    *) draw 3 ;;
    esac
    [ "$drawn" -eq 0 ] || sleep "0.$drawn"
}

# begin KIND: the run in the background. What a rank does before the program begins is in as.sh.
begin()
{
    rm -rf disk/* out err
    echo 'exec "$@"' >as.sh
    is_command "before_$1" && "before_$1"
    start node1 mpirun $late --host node1:2,node2:2,node3:1 sh as.sh "$program" $small --out disk/a >out 2>err
}

# observe: until all has ended; the times of the line and of the end, since the fault
observe()
{
    line_ms=
    until job_has_ended && no_job_runs; do
        seen_line
        if [ $(($(now_ms) - fault_ms)) -ge 90000 ]; then
            fail 'it does not end'
            kill -9 "$job" $(program_pids) 2>/dev/null
            break
        fi
        sleep 0.05
    done
    seen_line
    end_ms=$(($(now_ms) - fault_ms))
    wait "$job" 2>/dev/null
    code=$?
    nothing_left 1
}

seen_line()
{
    [ -n "$line_ms" ] || ! the_line | grep -q . || line_ms=$(($(now_ms) - fault_ms))
}

# the_line: of ddptrain, but for warnings; with mpirun dead only the run's folder has it
the_line()
{
    grep '^ddptrain' err | grep -v '^[^ ]* warning: '
    [ "$kind" != mpirun ] || sed -n 's/.*"event":"fail".*"error":"\([^"]*\)".*/\1/p' disk/a/metrics.jsonl 2>/dev/null
}

# goes_on: what is left, on another number of ranks, to the same end
goes_on()
{
    whole
    draw 2
    start=$program
    [ "$drawn" -eq 0 ] || start="mpirun --host node2:1,node3:2 $program"
    run 0 on node2 $start $small --out disk/a --resume auto
    [ "$(weights)" = "$whole" ] && [ -n "$whole" ] || { fail "weights '$(weights)' instead of '$whole'"; cat err; }
    cmp "whole/$last" "disk/a/$last" || fail 'the last file is another one'
    [ -z "$(find disk/a -name '.*.tmp-*')" ] || fail 'a temporary file stays'
}

# one KIND PHASE
one()
{
    kind=$1
    phase=$2
    failed_before=$failed
    failed=0
    began_with=$state
    settings "$phase"
    draw 5
    rank=$drawn
    host=$(host_of $rank)
    begin "$kind"
    reach "$phase"
    fault_ms=$(now_ms)
    "do_$kind" || echo "$kind $phase: too late, all was over"
    observe
    ! is_command "mend_$kind" || "mend_$kind"
    line=$(the_line | tail -n 1)
    cp err "err.$kind.$phase"
    "check_$kind"
    goes_on
    [ $failed -eq 0 ] || { echo "FAILED: $kind $phase, DDP_TEST_SEED=$began_with: $line"; cat "err.$kind.$phase"; }
    echo "| $kind | $phase | rank $rank on $host | ${line_ms:--} | $end_ms | $code | $(echo "$line" | sed 's/^[^:]*: //; s/; go on.*//') |"
    [ $failed_before -eq 0 ] || failed=1
}

# some KIND/PHASE...: one of them
some()
{
    draw $#
    shift "$drawn"
    one "${1%/*}" "${1#*/}"
}

begins()
{
    echo "seed $seed"
    mkdir disk
    trap 'kill -9 -1 2>/dev/null; umount "$folder/disk"; rm -rf "$folder"' EXIT
    mount -t tmpfs -o size=48m disk disk || cluster_needs 'mounts in namespaces'
    hosts_up 3
}

begins
case $case in
*/*) one "${case%/*}" "${case#*/}" ;;
killed) some $(every 'rank daemon mpirun host' 'start step save eval end') ;;
silent) some $(every 'stop cut power' 'step save eval') ;;
goes_on) some slow/slow slow/eval clock/step clock/eval time/step time/save time/eval disk/step disk/save ;;
begin) some config/start build/start memory/start memory/step memory/save memory/eval ;;
all)
    for pair in $(every 'rank daemon mpirun host stop cut power memory disk' 'start step save eval end') slow/slow slow/eval \
        clock/step clock/eval time/step time/save time/eval config/start build/start; do
        one "${pair%/*}" "${pair#*/}"
    done
    ;;
esac
exit "$failed"

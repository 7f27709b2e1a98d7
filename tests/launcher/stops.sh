#!/bin/sh
# Runs that are asked to stop: by signals to mpirun or to a rank, at any time, and by limits of time. They save, end with
# 75 on all ranks, and go on to the weights of a run that nobody stopped. Usage: sh stops.sh CASE DDPTRAIN MPIRUN
# [mpirun option...]
set -u

. "$(dirname "$0")/support.sh"

# A run whose loader has more to do than the model; 400 steps an epoch, and it does not end by itself.
small="--set data.kind=shapes --set data.samples=24000 --set data.test_samples=64 --set data.augment=pad-crop-flip
    --set train.batch=60 --set train.micro_batch=8 --set train.eval_every=1000000 --set schedule.kind=constant
    --set model.kind=mlp --set model.hidden=[2] --set model.dropout=0.2 --set checkpoint.every_epochs=0
    --set checkpoint.every_steps=150 --set train.log_every=50"
endless="--set train.steps=10000000"
name=stop$$ # other tests may run
trap 'kill -9 $(pgrep -f "$program .*--out $name") 2>/dev/null; rm -rf "$folder"' EXIT

# start NP ARGUMENT...: in the background; 0: without mpirun
start()
{
    launcher=
    [ "$1" -eq 0 ] || launcher="$mpirun -np $1"
    shift
    rm -rf $name
    $launcher "$program" $small $endless --out $name --log info "$@" >out 2>err &
    job=$!
}

# until_event WHAT: until a line of the metrics holds it
until_event()
{
    tries=0
    until grep -q "$1" $name/metrics.jsonl 2>/dev/null; do
        tries=$((tries + 1))
        if [ $tries -gt 1500 ] || ! is_running $job; then
            fail "there was no $1"
            cat err
            return
        fi
        sleep 0.02
    done
}

# pid_of RANK
pid_of()
{
    for pid in $(pgrep -f "^$program .*--out $name"); do
        if tr '\0' '\n' <"/proc/$pid/environ" | grep -q "^OMPI_COMM_WORLD_RANK=$1\$"; then
            echo "$pid"
        fi
    done
}

# send SIGNAL WHOM: to what was started, or to a rank twice, as Slurm does
send()
{
    if [ "$2" = started ]; then
        kill "-$1" $job
    else
        whom=$(pid_of "$2")
        kill "-$1" "$whom"
        kill "-$1" "$whom"
    fi
}

# ends_well WHY: 75, told once and by whom it was asked; the step into `stop`
ends_well()
{
    wait $job
    got=$?
    [ $got -eq 75 ] || { fail "$1: exit status $got, not 75"; cat err; }
    stop=$(sed -n 's/.*"event":"stop","step":\([0-9]*\).*/\1/p' $name/metrics.jsonl)
    [ "$(echo "$stop" | grep -c '^[0-9]*$')" -eq 1 ] || fail "$1: metrics do not tell of one stop"
    holds err "$1: stops after step $stop\$"
    holds err 'saved; go on with --resume auto'
    [ -z "$(weights)" ] || fail "$1: weights of a run that was stopped"
    [ -e "$name/checkpoints/ckpt-$(printf '%012d' "$stop").h5" ] || fail "$1: step $stop is not saved"
}

# goes_on NP STEP ARGUMENT...: from there to 100 steps later, and a run that nobody stopped has the same bits
goes_on()
{
    np=$1
    end=$(($2 + 100))
    shift 2
    rm -rf straight
    run 0 "$program" $small "$@" --set train.steps=$end --out straight --log error
    whole=$(weights)
    ranks "$np" 0 $small "$@" --set train.steps=$end --out $name --resume auto --log warn
    ends_with "$whole"
    grep -q '^ddptrain' err && { fail 'going on says'; cat err; }
    cmp "straight/checkpoints/ckpt-$(printf '%012d' $end).h5" "$name/checkpoints/ckpt-$(printf '%012d' $end).h5" ||
        fail 'the last checkpoint is another one'
}

# stopped SIGNAL WHOM NP
stopped()
{
    start "$3"
    until_event '"event":"checkpoint"'
    send "$1" "$2"
    ends_well "SIG$1"
    [ $((stop % 400)) -ne 0 ] || echo 'by chance at the end of an epoch'
    waited=$(sed -n 's/.*"step":1[05]0,.*"data_wait_ms":\([0-9.]*\).*/\1/p' $name/metrics.jsonl | head -n 1)
    goes_on $(($3 + 1)) "$stop"
}

signals()
{
    stopped USR1 started 2
    stopped USR2 started 0
    awk -v ms="$waited" 'BEGIN { exit !(ms > 0.01) }' || fail "training waits $waited ms of a step for its loader"
}

# One rank of another machine is told; all stop at the same step.
machines()
{
    DDP_TEST_MACHINES=1,0,1
    export DDP_TEST_MACHINES
    stopped TERM 2 3
    unset DDP_TEST_MACHINES
    DDP_HOST_SHM=0
    export DDP_HOST_SHM
    stopped USR1 1 2
}

# A signal in the middle of an evaluation: the run stops after the next step. A second SIGTERM ends it at once.
evaluation()
{
    cnn="--set model.kind=cnn --set data.samples=2000 --set train.eval_every=5 --set train.log_every=5 --set checkpoint.every_steps=3"
    for samples in 6000 24000; do # until the evaluation is slow enough
        start 2 $cnn --set data.test_samples=$samples
        until_event '"event":"step","step":1,'
        whom=$(pid_of 1)
        until_event '"event":"step","step":5,'
        kill -USR1 "$whom"
        grep -q '"event":"eval"' $name/metrics.jsonl || break
        wait $job
    done
    ends_well SIGUSR1
    [ "$stop" = 6 ] || fail "stopped after step '$stop' instead of 6"
    holds $name/metrics.jsonl '"event":"eval","step":5,'
    rm -rf straight
    run 0 "$program" $small $cnn --set train.steps=9 --set train.eval_every=100 --out straight --log error
    whole=$(weights)
    ranks 3 0 $small $cnn --set train.steps=9 --set train.eval_every=100 --out $name --resume auto --log error
    ends_with "$whole"
    start 0 $cnn --set data.test_samples=30000
    until_event '"event":"step","step":5,'
    kill -TERM $job
    sleep 1.2
    is_running $job || fail 'the first SIGTERM ended it'
    begun=$(date +%s)
    kill -TERM $job
    wait $job 2>/dev/null
    got=$?
    [ $got -eq 143 ] || fail "exit status $got after a second SIGTERM"
    [ $(($(date +%s) - begun)) -le 2 ] || fail 'a second SIGTERM was waited for'
    [ "$(find $name -name 'ckpt-*.h5')" = $name/checkpoints/ckpt-000000000003.h5 ] || fail 'another checkpoint'
}

# SIGTERM to mpirun kills the ranks after about two seconds; what is saved is whole, nobody stays.
term_mpirun()
{
    start 2
    until_event '"event":"checkpoint"'
    kill -TERM $job
    wait $job
    [ $? -ne 0 ] || fail 'exit status 0'
    tries=0
    while [ -n "$(pgrep -f "$program .*--out $name")" ]; do
        tries=$((tries + 1))
        [ $tries -le 100 ] || { fail 'processes stay'; break; }
        sleep 0.1
    done
    saved=$(find $name -name 'ckpt-*.h5' | sort | tail -n 1 | sed 's/.*ckpt-0*\([0-9]*\).h5/\1/')
    [ "$saved" -ge 150 ] || fail 'nothing is saved'
    goes_on 2 "$saved"
}

# A rank that is gone cannot agree: it is named, whatever the others were asked.
gone()
{
    start 3
    until_event '"event":"checkpoint"'
    victim=$(pid_of 1)
    other=$(pid_of 2)
    kill -9 "$victim"
    kill -TERM "$other"
    wait $job
    got=$?
    [ $got -ne 75 ] && [ $got -ne 0 ] || fail "exit status $got"
    holds err "rank 1 .*pid $victim"
    grep -q 'stops after step' err && { fail 'the run stops as if all were there'; cat err; }
    return 0
}

limits()
{
    ranks 2 75 $small $endless --out limit --time-limit 0.4
    holds err 'time limit: stops after step'
    run 2 "$program" $small --time-limit soon
    says "--time-limit 'soon': a time is expected"
    SLURM_JOB_END_TIME=$(($(date +%s) - 5)) run 75 "$program" $small $endless --out late
    holds err 'time limit: stops after step 1$'
    run 1 "$program" $small $endless --set checkpoint.every_steps=0 --time-limit 0.5 --log error
    says 'nothing is saved'
}

"$case"
exit $failed

#!/bin/sh
# A rank that is lost is named in one line, on one machine and on machines that are only said to be several; nothing is left behind.
# Usage: sh monitor.sh CASE DDPTRAIN MPIRUN [mpirun option...]; hosts of their own: tests/cluster/monitor.sh
set -u

. "$(dirname "$0")/support.sh"

small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=64 --set train.batch=60
    --set train.micro_batch=8 --set model.kind=mlp --set model.hidden=[100,16] --set train.epochs=1000000
    --set train.eval_every=100000 --set checkpoint.every_steps=20 --set ddp.timeout_s=3 --log error"
name=watched$$ # other tests may run
trap 'kill -9 $(pgrep -f "^$program .*--out $name") 2>/dev/null; rm -rf "$folder"' EXIT

# train RANKS OPTION...: in the background, until there is a checkpoint
train()
{
    ranks=$1
    shift
    rm -rf $name
    $mpirun -np "$ranks" "$program" $small "$@" --out $name >out 2>err &
    job=$!
    tries=0
    until [ -e $name/checkpoints/latest.h5 ] || [ $tries -gt 600 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
}

# pid_of RANK
pid_of()
{
    for pid in $(pgrep -f "^$program .*--out $name"); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -q "^OMPI_COMM_WORLD_RANK=$1\$" && echo "$pid"
    done
}

# lost TEXT: the run has ended with one line, which says that
lost()
{
    tries=0
    while is_running $job && [ $tries -lt 400 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
    is_running $job && fail "$1: mpirun runs after 20 s"
    kill -9 $job 2>/dev/null
    wait $job 2>/dev/null
    count=$(grep -c '^ddptrain' err)
    [ "$count" -eq 1 ] && grep '^ddptrain' err | grep -q -e "$1" || { fail "'$1' in one line, got $count:"; cat err; }
    tries=0
    while [ -n "$(pgrep -f "^$program .*--out $name")" ]; do
        tries=$((tries + 1))
        [ $tries -le 200 ] || { fail "$1: processes stay"; break; }
        sleep 0.05
    done
}

# kill_and_name SIGNAL RANK TEXT
kill_and_name()
{
    victim=$(pid_of "$2")
    kill "-$1" "$victim"
    lost "$3"
}

# One machine: each rank; who saves is named by the next.
here()
{
    train 3
    kill_and_name KILL 2 'ddptrain.0@.*rank 2 on .* has ended (pid [0-9]*.*): in .*go on with --resume auto --out'
    grep -q "pid $victim" err || fail "another process than $victim"
    train 3
    kill_and_name KILL 0 'ddptrain.1@.*rank 0 on .* has ended'
    train 3
    kill_and_name STOP 0 'ddptrain.1@.*rank 0 on .* made no progress for 3 s: it is stopped (pid [0-9]*, SIGSTOP) in'
}

# Machines of 2, 2 and 1 ranks, over TCP.
machines()
{
    export DDP_TEST_MACHINES=0,0,1,1,2
    for rank in 1 2 4; do # that of machine 0 which does not speak, one that speaks, one that is alone
        train 5
        kill_and_name KILL $rank "ddptrain.0@.*rank $rank on .* has ended"
    done
    train 5
    kill_and_name STOP 3 'ddptrain.0@.*rank 3 on .* made no progress for 3 s: it is stopped'
}

# Every rank a machine: the judge itself is lost.
alone()
{
    export DDP_HOST_SHM=0
    train 3
    kill_and_name KILL 0 'ddptrain.1@.*rank 0 on .* has ended'
    train 3
    kill_and_name STOP 0 'ddptrain.1@.*rank 0 on .* gave no sign of life for 3 s'
}

# Nine machines of twelve are lost at once: the lowest that is left judges, and the others hear it.
many()
{
    export DDP_HOST_SHM=0
    train 12 --set train.micro_batch=2
    victims=$(for rank in 0 1 2 3 4 5 6 7 8; do pid_of $rank; done)
    kill -STOP $victims
    lost 'ddptrain.9@.*rank 0 on .* gave no sign of life for [0-9.]* s'
}

# The rank that speaks for its machine is stopped for a while: another one speaks, and then the first again.
handed_over()
{
    export DDP_TEST_MACHINES=0,0,1,1
    train 4 --set ddp.timeout_s=8
    victim=$(pid_of 2)
    kill -STOP "$victim"
    sleep 5
    kill -CONT "$victim"
    goes_on
    kill_and_name KILL 2 'ddptrain.0@.*rank 2 on .* has ended'
}

# Another checkpoint is written, and nobody complains.
goes_on()
{
    before=$(readlink $name/checkpoints/latest.h5)
    tries=0
    until [ "$(readlink $name/checkpoints/latest.h5)" != "$before" ] || [ $tries -gt 200 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
    [ $tries -le 200 ] && is_running $job && [ ! -s err ] || { fail 'it does not go on'; cat err; }
}

# A job that is suspended as a whole, for longer than the limit, goes on.
suspended()
{
    train 3
    all=$(pgrep -f "^$program .*--out $name")
    kill -STOP $all
    sleep 5
    kill -CONT $all
    goes_on
    kill_and_name KILL 1 'ddptrain.0@.*rank 1 on .* has ended'
}

# mpirun is killed: the ranks end, though nobody tells them; with ddp.monitor=false there is no thread, and the run is the same.
without()
{
    train 2
    kill -9 $job
    pkill -9 -f "^mpirun .*--out $name" 2>/dev/null
    wait $job 2>/dev/null
    tries=0
    while [ -n "$(pgrep -f "^$program .*--out $name")" ]; do
        tries=$((tries + 1))
        [ $tries -le 200 ] || { fail 'mpirun was killed, and ranks stay'; break; }
        sleep 0.05
    done
    short="$small --set train.epochs=5 --set ddp.straggler_every=5"
    run 0 $mpirun -np 2 "$program" $short --out on
    with=$(weights)
    [ "$(grep -c '"event":"straggler"' on/metrics.jsonl)" -eq 4 ] || fail 'straggler events'
    grep -q '"event":"straggler","step":20,"steps":5,"compute_ms":\[[0-9.]*,[0-9.]*\],"wait_ms":\[' on/metrics.jsonl ||
        { fail 'a straggler event'; grep straggler on/metrics.jsonl; }
    run 0 $mpirun -np 2 "$program" $short --set ddp.monitor=false --out off
    [ "$(weights)" = "$with" ] || fail 'other weights'
    grep -q '"event":"straggler"' off/metrics.jsonl && fail 'straggler events of nobody'
    return 0
}

# Much work is no hang: drawing pictures and an evaluation take longer than the limit, piece by piece.
slow()
{
    for shared in 1 0; do
        rm -rf $name
        DDP_HOST_SHM=$shared run 0 $mpirun -np 2 "$program" $small --set data.samples=200000 --set data.test_samples=100000 --set train.steps=2 \
            --set model.kind=cnn --set ddp.timeout_s=1 --out $name
    done
}

"$case"
exit $failed

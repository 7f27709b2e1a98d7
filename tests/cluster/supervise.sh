#!/bin/sh
# `ddptrain supervise` over several hosts: ranks, Open MPI's daemons and mpirun are killed, hosts fail and are left out, and
# under Slurm. Usage: sh supervise.sh CASE DDPTRAIN; DDP_TEST_SEED repeats what was drawn, DDP_TEST_KILLS says how often.
# shellcheck disable=SC1091,SC2086,SC2154,SC2317 # run by name; commands of several words
set -u

. "$(dirname "$0")/cluster.sh"
. "$cluster_here/draw.sh"

small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=64 --set train.batch=60
    --set train.micro_batch=8 --set model.kind=mlp --set model.hidden=[100,16] --set model.dropout=0.2
    --set train.eval_every=100000 --set checkpoint.every_epochs=0 --set ddp.timeout_s=30 --log warn"
steps= # of a run that began without an end
fast="--backoff 0.02 --backoff-max 0.1 --max-restarts 100"

# settings STEPS SAVE_EVERY: and the run that nothing disturbs
settings()
{
    small="$small --set train.steps=$1 --set checkpoint.every_steps=$2"
    last=checkpoints/ckpt-$(printf '%012d' "$1").h5
    run 0 on node1 "$program" $small --out whole
    whole=$(weights)
}

# endless SAVE_EVERY: a run that does not end before its last fault has come; each start reads run.yaml
endless()
{
    small="run.yaml $small --set schedule.kind=constant --set checkpoint.every_steps=$1"
    echo 'train: {steps: 10000000}' >run.yaml
}

# freeze RANK: the run stands still, and its next start has an end; then there is time for the last fault
freeze()
{
    victim=$(rank_pid "$1")
    kill -STOP "$victim" || fail "rank $1 does not run"
    steps=$(($(newest_step) + 200))
    echo "train: {steps: $steps}" >run.yaml
}

# undisturbed: from the start to the same end
undisturbed()
{
    last=checkpoints/ckpt-$(printf '%012d' "$steps").h5
    mv out out.supervise
    mv err err.supervise
    run 0 on node1 "$program" $small --out whole
    whole=$(weights)
    mv out.supervise out
    mv err.supervise err
}

newest()
{
    find a/checkpoints -name 'ckpt-*.h5' 2>/dev/null | sort | tail -n 1
}

newest_step()
{
    newest | sed 's/.*ckpt-0*\([0-9]*\)\.h5$/\1/'
}

is_saved()
{
    [ "$(newest)" != "$before" ] || ! is_running "$supervisor"
}

is_restarted()
{
    restarted=$(grep -c '"next":"restart"' a.supervise.jsonl 2>/dev/null)
    [ "${restarted:-0}" -ge "$faults" ] || ! is_running "$supervisor"
}

# await_save: by the run that goes on after as many faults as `faults` says; false when it has ended
await_save()
{
    await 120 is_restarted || fail "there is no restart after fault $faults"
    before=$(newest)
    await 120 is_saved || fail "after fault $faults nothing is saved"
    is_running "$supervisor"
}

# supervised ARGUMENT...: in the background on node1
supervised()
{
    start node1 "$program" supervise $fast "$@" >out 2>err
    supervisor=$job
    faults=0
}

# ends_alike: with the weights and the last file of the run that nothing disturbs
ends_alike()
{
    wait "$supervisor"
    got=$?
    [ $got -eq 0 ] || { fail "exit status $got"; cat err; }
    [ -z "$steps" ] || undisturbed
    ends_with "$whole"
    cmp "whole/$last" "a/$last" || fail 'the last file is another one'
    nothing_left 10
}

# kill_one: a rank, a daemon or mpirun. False: whoever it was has ended already
kill_one()
{
    draw 3
    case $drawn in
    0) victims=$(host_pids node2 orted; host_pids node3 orted) ;;
    1) victims=$(pgrep -P "$supervisor" "^(mpi|ort|prte)") ;;
    *) victims=$(for rank in 0 1 2 3 4; do rank_pid $rank; done) ;;
    esac
    draw "$(echo "$victims" | grep -c '')"
    victim=$(echo "$victims" | sed -n "$((drawn + 1))p")
    who=$(cat "/proc/$victim/comm" 2>/dev/null)
    kill -9 "$victim" 2>/dev/null || return 1
    told="$told $who"
    faults=$((faults + 1))
    n=$((n + 1))
}

# One of them after each new checkpoint. A run that ends before enough were killed is followed by another.
kills()
{
    goal=${DDP_TEST_KILLS:-3}
    echo "seed $seed, $goal kills"
    hosts_up 3
    settings $((goal * 250)) 20
    n=0
    restarts=0
    while [ $n -lt "$goal" ] && [ $failed -eq 0 ]; do
        rm -rf a a.supervise.jsonl
        supervised --min-ranks 5 -- mpirun --host node1:1,node2:2,node3:2 -np 5 "$program" $small --out a
        while [ $n -lt "$goal" ] && [ $failed -eq 0 ] && await_save; do
            kill_one
        done
        ends_alike
        restarts=$((restarts + $(grep -c '"next":"restart"' a.supervise.jsonl)))
    done
    [ $restarts -ge $n ] || { fail "$restarts restarts"; cat err a.supervise.jsonl; }
    echo "killed:$told; $restarts restarts"
}
told=

# A host whose ranks are killed twice is left out; four ranks come to the same end as six.
left_out()
{
    hosts_up 3
    endless 20
    printf 'node1 slots=2\nnode2 slots=2\nnode3 slots=2\n' >list
    supervised --hostfile list -- mpirun -np 6 "$program" $small --out a
    await_save
    kill -9 "$(rank_pid 5)" || fail 'of nobody'
    faults=1
    await_save
    freeze 5
    kill -9 "$victim"
    ends_alike
    holds err 'supervise: node3 has failed twice and is left out: 4 ranks from now on'
    holds a.supervise.jsonl '"ranks":4,"hosts":\["node1","node2"\],"left_out":\["node3"\],"next":"done"'
}

# A host loses its power, and does not come back.
power()
{
    hosts_up 3
    small="$small --set ddp.timeout_s=5"
    endless 20
    supervised -- mpirun --host node1:2,node2:2,node3:2 -np 6 "$program" $small --out a
    await_save
    freeze 5
    host_off node3
    ends_alike
    holds err 'supervise: node3 has failed twice and is left out: 4 ranks from now on'
}

# In a Slurm job: a rank is killed, the run goes on in the same job; the job is told to stop, is queued again, and goes on. The first
# start does not end by itself, the second waits for the file `go`, so that it can be said how many steps there are.
slurm_job()
{
    hosts_up 2
    slurm_up
    endless 20
    cat >job <<END
#!/bin/bash
trap 'kill -USR1 \$supervisor' USR1
[ "\${SLURM_RESTART_COUNT:-0}" = 0 ] || until [ -e "$folder/go" ]; do sleep 0.1; done
"$program" supervise $fast -- srun -K --mpi=pmix "$program" $(echo $small) --out a &
supervisor=\$!
wait \$supervisor; status=\$?
while kill -0 \$supervisor 2>/dev/null; do wait \$supervisor; status=\$?; done
echo "ended with \$status"
[ \$status -ne 75 ] || scontrol requeue \$SLURM_JOB_ID
END
    supervisor=$$ # not this test's child
    faults=0
    number=$(slurm sbatch --parsable --open-mode=append -N2 --ntasks-per-node=2 -o "$folder/told" job)
    await_save
    kill -9 "$(rank_pid 3)" || fail 'of nobody'
    faults=1
    await_save
    slurm scancel -b -s USR1 "$number"
    await 60 grep -q 'ended with 75' told || fail 'it does not stop'
    steps=$(($(newest_step) + 200))
    echo "train: {steps: $steps}" >run.yaml
    : >go
    await_job "$number" COMPLETED 120
    cp told out
    : >err
    undisturbed
    holds out 'ended with 0'
    sed -i '/^ended with/d' out
    ends_with "$whole"
    cmp "whole/$last" "a/$last" || fail 'the last file is another one'
    [ "$(grep -o '"code":[0-9]*' a.supervise.jsonl | tr -d '\n')" = '"code":137"code":75"code":0' ] ||
        { fail 'another history'; cat a.supervise.jsonl told; }
    nothing_left 20
}

"$case"
exit "$failed"

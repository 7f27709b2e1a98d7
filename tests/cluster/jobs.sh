#!/bin/sh
# The template for jobs of Slurm: a training that is stopped, sent away, cancelled or loses a node, and ends with the weights
# of one that nobody disturbed. Usage: sh jobs.sh CASE DDPTRAIN
# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2154,SC2317 # run by name; words for slurm.sh
set -u

. "$(dirname "$0")/cluster.sh"

template=$cluster_here/../../cluster/train.sbatch

# write_config STEPS
write_config()
{
    cat >run.yaml <<END
data: {kind: shapes, samples: 2400, test_samples: 64}
train: {batch: 60, micro_batch: 8, steps: $1, eval_every: 10000000, log_every: 500}
schedule: {kind: constant}
model: {kind: mlp, hidden: [2], dropout: 0.2}
checkpoint: {every_epochs: 0, every_steps: 150}
ddp: {timeout_s: 20}
END
}

# job_begins [option of sbatch...]: its first start does not end by itself, its second waits for the file `go`. $job
job_begins()
{
    write_config 10000000
    rm -f go
    cat >started.sh <<END
[ "\${SLURM_RESTART_COUNT:-0}" = 0 ] || until [ -e "$folder/go" ]; do sleep 0.1; done
exec "$program" "\$@"
END
    printf '#!/bin/sh\n' | cat - started.sh >started
    chmod +x started
    DDPTRAIN=$folder/started
    export DDPTRAIN
    job=$(slurm sbatch --parsable -N2 --ntasks-per-node=2 --time=10 "$@" "$template" run.yaml --log info)
    out=runs/ddptrain-$job
    await 60 grep -q '"event":"checkpoint"' "$out/metrics.jsonl" || { fail 'nothing was saved'; cat "ddptrain-$job.out"; }
}

# begins_again SECONDS: Slurm has started it again
is_again()
{
    [ "$(job_field "$job" Restarts)" = 1 ] && job_is "$job" RUNNING
}

# ends_well SECONDS: started again within them, it goes on for 100 steps, and the weights are those of an undisturbed run
ends_well()
{
    await "$1" is_again || { fail 'not started again'; slurm scontrol show job "$job"; cat "ddptrain-$job.out"; }
    newest=$(basename "$(readlink "$out/checkpoints/latest.h5")" .h5)
    write_config $(($(echo "${newest#ckpt-}" | sed 's/^0*//') + 100))
    : >go
    await_job "$job" COMPLETED 60 || cat "ddptrain-$job.out"
    sed -n 's/^weights //p' "ddptrain-$job.out" >weights
    run 0 on node1 "$program" run.yaml --out "straight-$job" --log error
    [ "$(cat weights)" = "$(weights)" ] || { fail "weights '$(cat weights)' instead of '$(weights)'"; cat "ddptrain-$job.out"; }
    holds "ddptrain-$job.out" 'resume: goes on after step'
}

# stopped LAUNCHER: before its time is over
stopped()
{
    DDP_LAUNCHER=$1
    export DDP_LAUNCHER
    job_begins
    slurm scancel -b -s USR1 "$job"
    ends_well 60
    holds "ddptrain-$job.out" 'SIGUSR1: stops after step'
    holds "ddptrain-$job.out" "job $job stopped, and waits to be started again"
    nothing_left 20
}

stopped_srun()
{
    hosts_up 2
    slurm_up
    stopped srun
}

stopped_mpirun()
{
    hosts_up 2
    slurm_up
    stopped mpirun
}

# Slurm tells the template by itself, some time before the limit.
limit()
{
    hosts_up 2
    slurm_up
    job_begins --time=2 --signal=B:USR1@60
    ends_well 150
    holds "ddptrain-$job.out" 'SIGUSR1: stops after step'
}

# sent_away LAUNCHER: for a job that comes first. srun's ranks are told, and save; those of mpirun go on from the last checkpoint.
sent_away()
{
    slurm_grace=5
    slurm_kill_wait=5
    hosts_up 2
    slurm_up
    DDP_LAUNCHER=$1
    export DDP_LAUNCHER
    job_begins -p low
    slurm srun -p main -N2 --exclusive hostname >first 2>&1
    grep -q node2 first || { fail 'no room was made'; cat first; }
    ends_well 90
    nothing_left 20
}

sent_away_srun()
{
    sent_away srun
    holds "ddptrain-$job.out" 'SIGTERM: stops after step'
}

sent_away_mpirun()
{
    sent_away mpirun
}

# A node loses its power; Slurm notices, and starts the job again on others.
power()
{
    slurm_down_after=5
    slurm_kill_wait=5
    hosts_up 4
    slurm_up
    DDP_LAUNCHER=$1
    export DDP_LAUNCHER
    job_begins --exclude=node1
    host_off node3
    ends_well 110
}

power_srun()
{
    power srun
}

power_mpirun()
{
    power mpirun
}

# is_over: cancelled, and not started again for longer than that takes
is_over()
{
    await_job "$job" CANCELLED 60
    sleep 8
    job_is "$job" CANCELLED || { fail 'cancelled, and started again'; slurm scontrol show job "$job"; }
}

# A cancelled job stays so; srun's ranks have the time to save (with mpirun there are about two seconds).
cancelled()
{
    hosts_up 2
    slurm_up
    job_begins
    slurm scancel "$job"
    is_over
    stop=$(sed -n 's/.*"event":"stop","step":\([0-9]*\).*/\1/p' "$out/metrics.jsonl")
    [ -e "$out/checkpoints/ckpt-$(printf %012d "${stop:-0}").h5" ] || fail "step '$stop' is not saved"
    write_config $((stop + 100))
    DDP_OUT=$out
    export DDP_OUT
    next=$(slurm sbatch --parsable -N2 --ntasks-per-node=2 "$template" run.yaml)
    await_job "$next" COMPLETED 60
    holds "ddptrain-$next.out" "resume: goes on after step $stop of"
    unset DDP_OUT
    DDP_LAUNCHER=mpirun
    export DDP_LAUNCHER
    job_begins
    slurm scancel "$job"
    is_over
    [ -e "$out/checkpoints/latest.h5" ] || fail 'nothing is left'
    nothing_left 20
}

# What is no reason to start again: a mistake, a rank that was killed, and enough restarts.
ends()
{
    hosts_up 2
    slurm_up
    DDPTRAIN=$program
    MAX_RESTARTS=0
    export DDPTRAIN MAX_RESTARTS
    job=$(slurm sbatch --parsable -N2 --ntasks-per-node=2 "$template" missing.yaml)
    await_job "$job" FAILED 60
    [ "$(job_field "$job" ExitCode)" = 2:0 ] || fail "exit code $(job_field "$job" ExitCode) of a mistake"
    job_begins
    kill -9 "$(rank_pid 3)"
    await_job "$job" FAILED 60
    job_begins
    slurm scancel -b -s USR1 "$job"
    await_job "$job" FAILED 60
    [ "$(job_field "$job" ExitCode)" = 75:0 ] || fail "exit code $(job_field "$job" ExitCode) of a job that was stopped"
    holds "ddptrain-$job.out" 'started again 0 times, which is enough'
}

# With GPUs each task sees all of its node, and chooses by its rank there.
gpus()
{
    slurm_gpus=2
    hosts_up 2
    slurm_up
    sed 's/^##SBATCH --gpus-per-node=8/#SBATCH --gpus-per-node=2/' "$template" >gpus.sbatch
    printf '#!/bin/sh\necho "gpus $CUDA_VISIBLE_DEVICES"\n' >shows
    chmod +x shows
    for launcher in srun mpirun; do
        job=$(DDPTRAIN=$folder/shows DDP_LAUNCHER=$launcher slurm sbatch --parsable -N2 --ntasks-per-node=2 gpus.sbatch)
        await_job "$job" COMPLETED 60
        [ "$(grep -c '^gpus 0,1$' "ddptrain-$job.out")" -eq 4 ] || { fail "$launcher: other GPUs"; cat "ddptrain-$job.out"; }
    done
}

"$case"
exit "$failed"

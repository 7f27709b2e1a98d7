# shellcheck shell=sh disable=SC2154 # `hosts` is of hosts.sh
# A real Slurm on the hosts of hosts.sh: slurmctld on node1, a slurmd on each. Sourced by cluster.sh.

# slurm_conf: slurm.conf for the hosts that there are. slurm_cpus (of each node, claimed), slurm_kill_wait, slurm_down_after,
# slurm_grace (seconds), slurm_gpus (of each node, pretended) and slurm_more (lines) may be set before.
slurm_conf()
{
    cat <<END
ClusterName=test
SlurmctldHost=node1(10.77.0.1)
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$slurm_folder/state
SlurmdSpoolDir=$slurm_folder/spool/%n
SlurmctldPidFile=$slurm_folder/slurmctld.pid
SlurmdPidFile=$slurm_folder/slurmd-%n.pid
SlurmctldLogFile=$slurm_folder/log/slurmctld
SlurmdLogFile=$slurm_folder/log/%n
# two nodes with one folder for temporary files: mpi/pmix of the second fails
TmpFS=$DDP_CLUSTER/%n/tmp
AuthType=auth/munge
CredType=cred/munge
# a requeued job waits for cred_expire + 1 seconds
AuthInfo=socket=$slurm_folder/munge/socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=pmix
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
ReturnToService=2
SlurmdParameters=config_overrides
JobRequeue=1
KillWait=${slurm_kill_wait:-30}
SlurmdTimeout=${slurm_down_after:-30}
InactiveLimit=0
MinJobAge=300
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PrologFlags=Alloc
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
${slurm_more:-}
GresTypes=gpu
NodeName=node[1-$hosts] CPUs=${slurm_cpus:-4} RealMemory=4000 Gres=gpu:${slurm_gpus:-0}
PartitionName=main Nodes=node[1-$hosts] Default=YES PriorityTier=10 PreemptMode=OFF
PartitionName=low Nodes=node[1-$hosts] PriorityTier=1 PreemptMode=REQUEUE GraceTime=${slurm_grace:-10}
END
}

# slurm_up: after hosts_up. Partition `main`, and `low`, whose jobs make room for those of `main`.
slurm_up()
{
    cluster_has slurmctld slurmctld
    cluster_has slurmd slurmd
    cluster_has srun slurm-client
    cluster_has munged munge
    slurm_folder=$DDP_CLUSTER/slurm
    SLURM_CONF=$slurm_folder/slurm.conf
    export SLURM_CONF
    mkdir -p "$slurm_folder/state" "$slurm_folder/log" "$slurm_folder/munge"
    chmod 755 "$folder" "$DDP_CLUSTER" "$slurm_folder" "$slurm_folder/munge"
    slurm_conf >"$SLURM_CONF"
    echo 'CgroupPlugin=cgroup/v1' >"$slurm_folder/cgroup.conf"
    for slurm_number in $(seq "${slurm_gpus:-0}"); do # character devices, as /dev/null
        mknod "$slurm_folder/gpu$slurm_number" c 1 3
        echo "Name=gpu File=$slurm_folder/gpu$slurm_number" >>"$slurm_folder/gres.conf"
    done
    # Slurm 22.05: its tree of a fence is none for few nodes, and MPI_Init then races (cluster/README.md)
    echo 'PMIxCollFence=ring' >"$slurm_folder/mpi.conf"
    head -c 64 /dev/urandom >"$slurm_folder/munge/key"
    chmod 600 "$slurm_folder/munge/key"
    munged --force --key-file="$slurm_folder/munge/key" --socket="$slurm_folder/munge/socket" \
        --pid-file="$slurm_folder/munge/pid" --log-file="$slurm_folder/munge/log" --seed-file="$slurm_folder/munge/seed" ||
        slurm_fails 'munged does not start'
    on node1 slurmctld || slurm_fails 'slurmctld does not start'
    for slurm_number in $(seq "$hosts"); do
        slurm_node "node$slurm_number"
    done
    await 60 slurm_is_idle || slurm_fails 'the nodes are not idle'
}

# slurm_node HOST: its slurmd; also for a host that has power again
slurm_node()
{
    mkdir -p "$slurm_folder/spool/$1"
    on "$1" slurmd -N "$1" || slurm_fails "slurmd of $1 does not start"
}

slurm_is_idle()
{
    [ "$(slurm sinfo -h -p main -t idle -o %D)" = "$hosts" ]
}

slurm_fails()
{
    echo "Slurm: $1"
    tail -n 5 "$slurm_folder"/log/* "$slurm_folder/munge/log"
    exit 1
}

# slurm COMMAND...: sbatch, srun, scontrol ... on node1
slurm()
{
    on node1 "$@"
}

# job_field JOB NAME: e.g. JobState, Restarts, ExitCode; Slurm's tool waits, with pauses that grow, so this asks
job_field()
{
    slurm scontrol show job "$1" | tr ' ' '\n' | sed -n "s/^ *$2=//p" | head -n 1
}

# job_is JOB STATE: e.g. RUNNING, COMPLETED, FAILED, PENDING, or some of them: 'COMPLETED|FAILED'
job_is()
{
    job_field "$1" JobState | grep -q -x -E "$2"
}

# await_job JOB STATE SECONDS
await_job()
{
    await "$3" job_is "$1" "$2" && return
    fail "job $1 is not $2 after $3 s:"
    slurm scontrol show job "$1"
    tail -n 20 "$slurm_folder"/log/*
    return 1
}

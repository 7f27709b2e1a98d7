#!/bin/sh
# The program on several hosts, in all ways in which people start it: the same weights, or one line that says what is wrong.
# Usage: sh train.sh CASE DDPTRAIN
# shellcheck disable=SC1091,SC2015,SC2016,SC2086,SC2154,SC2317 # run by name; commands of several words
set -u

. "$(dirname "$0")/cluster.sh"

# A run small enough for a second: 8 micro-batches, a short last batch, dropout and clipping on.
small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=130 --set train.batch=60
    --set train.micro_batch=8 --set train.steps=6 --set model.kind=mlp --set model.hidden=[24,16]
    --set model.dropout=0.2 --set optimizer.clip_norm=0.25 --log error"

# alone: what one process makes of it, in $one
alone()
{
    run 0 "$program" $small --out alone
    one=$(weights)
}

# says_once TEXT: beside what Slurm and mpirun say
says_once()
{
    count=$(grep -c -F -e "$1" err)
    [ "$count" -eq 1 ] || { fail "'$1' expected once, got $count:"; cat err; }
}

# mpirun with a file of hosts, and with daemons below daemons
hostfile()
{
    alone
    hosts_up 4
    printf '%s\n' '# three of four' 'node2 slots=2' 'node1 slots=1' 'node4 slots=3' >hosts
    run 0 on node1 mpirun --hostfile hosts -np 6 "$program" $small --out file
    ends_with "$one"
    run 0 on node2 mpirun --host node1:2,node2:2,node3:2,node4:2 "$program" $small --out eight
    ends_with "$one"
    nothing_left 20
}

# srun alone, mpirun inside an allocation, and srun with more tasks on one node than on the others
slurm_ways()
{
    alone
    hosts_up 3
    slurm_up
    run 0 slurm srun -K -N3 --ntasks-per-node=2 --mpi=pmix "$program" $small --out srun
    ends_with "$one"
    run 0 slurm srun -K -N3 -n7 --mpi=pmix "$program" $small --out uneven
    ends_with "$one"
    run 0 slurm salloc -N2 --ntasks-per-node=2 mpirun "$program" $small --out inside
    ends_with "$one"
    nothing_left 20
}

# Processes that should have been one job are refused, with what to do; one process that wants to be alone is not.
singles()
{
    alone
    hosts_up 2
    slurm_up
    run 2 slurm srun -N2 -n3 --mpi=none "$program" $small --out none
    says_once '3 tasks, but MPI joins 1: start with srun --mpi=pmix, or with mpirun inside the allocation'
    run 1 slurm srun -N2 -n3 --mpi=pmi2 "$program" $small --log warn --out pmi2
    says_once 'should MPI_Init fail now, start with srun --mpi=pmix'
    run 2 slurm salloc -N2 -n3 "$program" $small --out shell
    says_once '3 tasks, but MPI joins 1'
    [ ! -e none ] && [ ! -e pmi2 ] && [ ! -e shell ] || fail 'a run that did not begin left a folder'
    run 0 slurm salloc -N2 -n3 "$program" $small --out devices --mode dp --devices 0
    ends_with "$one"
    run 0 slurm salloc -N2 -n3 srun -N1 -n1 "$program" $small --out one_task
    ends_with "$one"
    run 0 slurm salloc -N2 -n3 mpirun -np 1 "$program" $small --out one_rank
    ends_with "$one"
    run 0 slurm srun -n3 --mpi=none "$program" --help
    [ "$(grep -c '^Usage' out)" -eq 1 ] || fail '--help is not there once'
}

# Another program, or another configuration, on one host is named before anything begins.
other()
{
    hosts_up 3
    mkdir old
    cp "$program" old/ddptrain
    printf 'x' >>old/ddptrain # a file of another content, which runs all the same
    echo 'if [ "$(hostname)" = node2 ]; then exec old/ddptrain "$@"; else exec "$0" "$@"; fi' >which.sh
    run 2 on node1 mpirun --host node1:2,node2:1,node3:1 sh -c "$(cat which.sh)" "$program" $small --out build
    says 'rank 2 on node2 has ddptrain 0.'
    says 'put the same program on all hosts'
    for host in 1 2 3; do
        echo 'train: {epochs: 2}' >"run.node$host.yaml"
    done
    echo 'train: {epochs: 3}' >run.node3.yaml
    run 2 on node1 mpirun --host node1:1,node2:1,node3:2 sh -c '"$0" "run.$(hostname).yaml" "$@"' "$program" $small --out config
    says 'rank 2 on node3 has train.epochs 3'
    [ ! -e build ] && [ ! -e config ] || fail 'a run that did not begin left a folder'
    nothing_left 20
}

"$case"
exit "$failed"

#!/bin/sh
# The command `doctor` on several hosts: links, folders and programs that differ, hosts that do not answer, Slurm.
# Usage: sh doctor_hosts.sh CASE DDPTRAIN
# shellcheck disable=SC1091,SC2086,SC2154,SC2317 # run by name; commands of several words
set -u

. "$(dirname "$0")/../cluster/cluster.sh"

# finds LEVEL NAME TEXT: a line of out
finds()
{
    grep "^$1 *$2: " out | grep -q -F -e "$3" || { fail "no line '$1 $2' with '$3'"; cat out err; }
}

# Rate and latency are those of the link; what one host has not, is named.
links()
{
    hosts_up 2 switch
    link_shape all 50 5000 # ms there and back: 20
    run 0 on node1 mpirun --host node1:2,node2:1 "$program" doctor
    finds ok ranks.hosts '3 ranks on 2 machines: node1 2, node2 1'
    finds ok network.interfaces 'node1: eth0 10.77.0.1'
    finds ok network.interfaces 'node2: eth0 10.77.0.2'
    finds ok network.transport 'its own TCP' # not libfabric's, which may stop for ever
    finds ok folder.shared 'all machines see it'
    finds ok program.binary ddptrain
    finds ok network.clock 'node2'
    run 0 on node1 mpirun --host node1,node2 "$program" doctor --json
    "${DDP_TEST_PYTHON:-/usr/bin/python3}" - <<'END' || { fail 'rate or latency'; cat out; }
import json
link = [f for f in json.load(open("out"))["findings"] if f["name"] == "link"]
assert len(link) == 1 and link[0]["machine_a"] == 0 and link[0]["machine_b"] == 1, link
assert 5000 < link[0]["latency_us"] < 2000000 and 1 < link[0]["mbit_s"] < 55, link
END
    # the start event tells the same of the network as doctor.
    run 0 on node1 mpirun --host node1,node2 "$program" --set data.kind=shapes --set data.samples=200 --set data.test_samples=64 \
        --set train.batch=64 --set train.steps=1 --set model.kind=mlp --out a
    holds a/metrics.jsonl '"nics":\[{"name":"eth0","address":"10.77.0.1","mbit_s":-*[0-9]*,"numa":-*[0-9]*}\]'
}

differ()
{
    hosts_up 2
    cp "$program" other
    printf 'x' >>other # still the same program, but another file
    run 1 on node1 mpirun --host node1 "$program" doctor : --host node2 "$PWD/other" doctor
    finds fail program.binary 'but rank 1 on node2 has'
    # a folder that is each host's own
    run 0 on node1 mpirun --host node1,node2 "$program" doctor --out /dev/shm
    finds warn folder.shared 'rank 1 on node2'
    finds warn folder.space 'tmpfs'
    # data that one host has
    on node1 sh -c 'seq 1 20000 >/dev/shm/my.txt'
    gpt='--set model.kind=gpt2 --set model.preset=tiny --set data.path=/dev/shm/my.txt --set train.batch=8'
    run 1 on node1 mpirun --host node1,node2 "$program" doctor $gpt
    finds fail run.configuration node2
    finds fail run.configuration /dev/shm/my.txt
    on node2 sh -c 'seq 1 20000 >/dev/shm/my.txt'
    run 0 on node1 mpirun --host node1,node2 "$program" doctor $gpt
    finds ok run.data 'found by all ranks'
}

# A bridge of containers, with the same address everywhere: libfabric takes it, and no message arrives. The hosts are named, nothing
# hangs, and what the line advises helps.
silent()
{
    hosts_up 2
    for host in node1 node2; do
        on $host sh -c 'ip link add docker0 type bridge && ip link set docker0 up && ip address add 172.17.0.1/16 dev docker0 &&
            ip link add v0 type veth peer name v1 && ip link set v0 master docker0 up && ip link set v1 up'
    done
    run 1 on node1 timeout 60 mpirun --mca pml ob1 --mca btl_tcp_if_include docker0 --host node1,node2 "$program" doctor \
        --set ddp.timeout_s=3
    finds fail ranks.answer 'rank 1 '
    holds err 'on node2'
    nothing_left 10
    run 0 on node1 mpirun --mca pml ob1 --mca btl_tcp_if_include eth0 --host node1,node2 "$program" doctor
    finds ok network.addresses 'Open MPI uses eth0'
    finds ok network.transport 'pml ob1'
    run 0 on node1 mpirun --host node1,node2 "$program" doctor --set ddp.interfaces=[eth0]
    finds ok network.addresses 'Open MPI uses eth0'
    finds ok network.transport 'pml ob1'
    if on node1 mpirun --host node1,node2 "$program" doctor --set ddp.timeout_s=3 >out 2>err; then
        finds warn network.addresses '172.17.0.1 (docker0)' # another Open MPI: it found the way
    else
        finds fail ranks.answer 'pml ob1'
        holds err 'on node2'
    fi
    nothing_left 10
}

# What Slurm says of the job, and how ranks were started in it.
slurm_ways()
{
    hosts_up 2
    slurm_up
    run 0 slurm srun -K -N2 --ntasks-per-node=2 --mpi=pmix "$program" doctor
    finds ok ranks.launcher 'srun in a job of Slurm, PMIx'
    finds ok ranks.hosts '4 ranks on 2 machines: node1 2, node2 2'
    finds ok slurm.job '2 nodes, Slurm'
    finds ok slurm.fence ring
    run 0 slurm srun -K -N2 -n3 --mpi=pmix "$program" doctor
    finds warn slurm.placement '--ntasks-per-node'
    run 0 slurm salloc -N2 --ntasks-per-node=1 mpirun "$program" doctor
    finds ok ranks.launcher 'mpirun in a job of Slurm, PMIx'
    finds ok ranks.hosts '2 ranks on 2 machines'
    run 2 slurm srun -N2 -n2 --mpi=none "$program" doctor # refused before MPI starts
    holds err 'start with srun --mpi=pmix'
}

"$case"
exit "$failed"

#!/bin/sh
# The hosts themselves: names, networks, links, power, Slurm; and that nothing is left of them.
# Usage: sh smoke.sh CASE DDPTRAIN
# shellcheck disable=SC1091,SC2015,SC2086,SC2154,SC2317 # run by name; commands of several words
set -u

. "$(dirname "$0")/cluster.sh"

link="${DDP_TEST_PYTHON:-/usr/bin/python3} $cluster_here/link.py"

# is_about NAME VALUE LEAST MOST
is_about()
{
    awk -v value="$2" -v least="$3" -v most="$4" 'BEGIN { exit !(value != "" && value >= least && value <= most) }' ||
        fail "$1: $2, not $3 to $4"
}

# serve HOST: and wait until it does
serve()
{
    start "$1" $link serve
    await 20 on "$1" $link trip "$1" || fail "$1 does not serve"
}

# Hosts have names, networks and shared memory of their own; one without power is gone at once, and comes back empty.
hosts()
{
    hosts_up 4
    # shellcheck disable=SC2016 # for the hosts
    run 0 on node2 mpirun --host node1:1,node2:2,node4:1 sh -c 'echo "$(hostname) $(ls /dev/shm | grep -c mine)"'
    [ "$(sort out | tr '\n' ' ')" = 'node1 0 node2 0 node2 0 node4 0 ' ] || { fail 'other hosts'; cat out; }
    start node3 sleep 100
    [ "$(host_pids node3 sleep)" = "$job" ] || fail 'a host does not know what runs there'
    on node3 sh -c ': >/dev/shm/mine'
    [ ! -e /dev/shm/mine ] && ! on node4 test -e /dev/shm/mine || fail '/dev/shm is not of one host'
    host_off node3
    on node3 true 2>/dev/null && fail 'node3 has no power'
    is_running "$job" && fail 'node3 has no power, and runs'
    host_on node3
    run 0 on node1 mpirun --host node1,node3 hostname
    start node3 sleep 100
    host_kill node3
    [ -z "$(host_pids node3)" ] || fail 'what was killed runs'
    run 0 on node3 hostname
    nothing_left 10
}

# Links have the rate that is asked for, can be cut and mended, without a word to either side.
rates()
{
    hosts_up 2
    serve node2
    link_shape all 50
    is_about 'Mbit/s' "$(on node1 $link push node2 5000000)" 1 52
    link_cut node2
    on node1 $link trip node2 2>/dev/null && fail 'a link that is cut'
    link_mend node2
    link_shape all 0
    await 20 on node1 $link trip node2 || fail 'a link that was mended'
    is_about 'Mbit/s' "$(on node1 $link push node2 20000000)" 60 1e6
}

# With a program for a switch also delay and loss; TCP goes on over both.
delays()
{
    hosts_up 2 switch
    serve node2
    link_shape all 0 20000
    is_about 'ms' "$(on node1 $link trip node2)" 40 2000
    link_shape node1 0
    is_about 'ms' "$(on node1 $link trip node2)" 20 2000
    link_shape all 100
    is_about 'Mbit/s' "$(on node1 $link push node2 5000000)" 5 102
    link_shape all 100 500 0 100
    is_about 'Mbit/s' "$(on node1 $link push node2 1000000)" 0.05 102
    link_cut node1
    on node1 $link trip node2 2>/dev/null && fail 'a link that is cut'
    link_mend node1
    await 20 on node1 $link trip node2 || fail 'a link that was mended'
}

# A real Slurm: ranks by srun, and mpirun inside an allocation.
slurm_jobs()
{
    hosts_up 3
    slurm_up
    run 0 slurm srun -K -N3 --ntasks-per-node=2 --mpi=pmix sh -c 'hostname'
    [ "$(sort -u out | tr '\n' ' ')" = 'node1 node2 node3 ' ] || { fail 'other nodes'; cat out; }
    number=$(slurm sbatch --parsable -N2 --ntasks-per-node=2 -o "$folder/job" --wrap 'mpirun hostname')
    await_job "$number" 'COMPLETED' 60
    [ "$(sort job | tr '\n' ' ')" = 'node1 node1 node2 node2 ' ] || { fail 'other nodes'; cat job; }
    nothing_left 10
}

# What a test has started ends with it, also when nobody can tell it.
gone()
{
    mark=$(mktemp -u)
    # another set of hosts, as a test beside this one
    env -u DDP_CLUSTER_INSIDE sh "$cluster_here/hand.sh" "hosts_up 2; start node2 sleep 4321; echo \$DDP_CLUSTER >$mark; wait" &
    await 60 test -s "$mark" || fail 'no other hosts'
    [ "$(pgrep -c -f 'sleep 4321')" -ge 1 ] || fail 'it runs nothing'
    kill -9 $!
    await 20 nothing_sleeps || fail 'it outlived its test'
    rm -rf "$(dirname "$(cat "$mark")")" "$mark"
}

nothing_sleeps()
{
    ! pgrep -f 'sleep 4321'
}

"$case"
exit "$failed"

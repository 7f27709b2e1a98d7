#!/bin/sh
# The monitor over several hosts: whatever is lost is named in one line on time, and all else ends. Usage: sh monitor.sh CASE DDPTRAIN
# shellcheck disable=SC1091,SC2015,SC2086,SC2154,SC2317 # run by name; commands of several words
set -u

. "$(dirname "$0")/cluster.sh"

limit=4 # s: ddp.timeout_s
small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=64 --set train.batch=60
    --set train.micro_batch=8 --set model.kind=mlp --set model.hidden=[100,16] --set train.epochs=1000000
    --set train.eval_every=100000 --set checkpoint.every_steps=20 --set ddp.timeout_s=$limit --log warn"

# train HOSTS: in the background, into `a`, until there is a checkpoint
train()
{
    start node1 mpirun --host "$1" "$program" $small --out a >out 2>err
    await 60 test -e a/checkpoints/latest.h5 || fail 'nothing is saved'
}

# ended SECONDS STATUS: mpirun, and all it has started
ended()
{
    await "$1" job_has_ended || fail "mpirun runs after $1 s"
    wait "$job"
    got=$?
    [ "$2" = any ] || [ "$got" -eq "$2" ] || { fail "exit status $got"; cat err; }
    nothing_left 30
}

job_has_ended()
{
    ! is_running "$job"
}

# names TEXT: in the only line, which a rank wrote before the time was over
names()
{
    grep -v -e ' warning: ' err >errors
    count=$(grep -c '^ddptrain' errors)
    [ "$count" -eq 1 ] && grep '^ddptrain' errors | grep -q -e "$1" || { fail "'$1' expected in one line, not in $count:"; cat err; }
}

# A rank of another host is killed; a whole host.
killed()
{
    hosts_up 3
    train node1:1,node2:2,node3:1
    victim=$(rank_pid 2)
    kill -9 "$victim"
    ended 60 any
    names "rank 2 on node2 has ended (pid $victim.*go on with --resume auto --out a"
    rm -rf a
    train node1:1,node2:2,node3:1
    host_kill node2
    ended 60 any
    names 'rank [12] on node2 has ended' # ', as all ranks of its host' where they are gone within milliseconds
}

# The host of rank 0, which judges: the others name it.
first()
{
    hosts_up 3
    start node3 mpirun --host node1:1,node2:1 "$program" $small --out a >out 2>err
    await 60 test -e a/checkpoints/latest.h5 || fail 'nothing is saved'
    host_kill node1
    ended 60 any
    names 'ddptrain.1@node2.*rank 0 on node1 has ended'
    rm -rf a
    start node3 mpirun --host node1:1,node2:1 "$program" $small --out a >out 2>err
    await 60 test -e a/checkpoints/latest.h5 || fail 'nothing is saved'
    kill -STOP "$(rank_pid 0)"
    ended $((limit + 60)) any
    names 'ddptrain.1@node2.*rank 0 on node1 gave no sign of life'
}

# A link that is cut: named after the limit, and who is cut off ends by itself. A short cut is none.
cut_off()
{
    hosts_up 3
    train node1:1,node2:2,node3:1
    link_cut node3
    sleep 1
    link_mend node3
    sleep 3
    is_running "$job" || { fail 'a cut of a second ended the run'; cat err; }
    link_cut node3
    await $((limit + 40)) grep -q '^ddptrain.*has\|^ddptrain.*gave' err || fail 'nothing is said'
    names 'rank 3 on node3 gave no sign of life for 4 s'
    await 40 host_is_empty || fail 'who is cut off does not end'
    ended 60 any
}

host_is_empty()
{
    [ -z "$(host_pids node3 ddptrain)" ]
}

# TCP gives up a link that is cut long before the limit: no process has ended because of that.
given_up()
{
    hosts_up 3
    for host in node1 node2 node3; do
        on $host sh -c 'echo 3 >/proc/sys/net/ipv4/tcp_retries2' # three seconds
    done
    small="$small --set ddp.timeout_s=9"
    train node1:1,node2:2,node3:1
    link_cut node3
    ended 60 any
    names 'rank 3 on node3 gave no sign of life for [0-9.]* s' # less where MPI ends a rank because of it
}

# A host loses its power, and mpirun finds it long before the limit and ends the ranks, those of its own host first; then the
# host of rank 0, which judges.
power()
{
    hosts_up 3
    start node1 mpirun --host node1:2,node2:2,node3:1 "$program" $small --set ddp.timeout_s=60 --out a >out 2>err
    await 60 test -e a/checkpoints/latest.h5 || fail 'nothing is saved'
    host_off node2 3
    ended 60 any
    names 'rank 2 on node2 gave no sign of life for [0-9.]* s'
    host_on node2
    rm -rf a
    start node3 mpirun --host node1:1,node2:2 "$program" $small --set ddp.timeout_s=60 --out a >out 2>err
    await 60 test -e a/checkpoints/latest.h5 || fail 'nothing is saved'
    host_off node1 3
    ended 60 any
    names 'rank 0 on node1 gave no sign of life for [0-9.]* s'
}

# A rank that is stopped has its time; then it is named.
stopped()
{
    hosts_up 2
    train node1:2,node2:2
    victim=$(rank_pid 3)
    kill -STOP "$victim"
    sleep 1
    kill -CONT "$victim"
    sleep $((limit + 1))
    is_running "$job" || { fail 'a stop of a second ended the run'; cat err; }
    kill -STOP "$victim"
    ended $((limit + 60)) any
    names "rank 3 on node2 made no progress for 4 s: it is stopped (pid $victim, SIGSTOP)"
    rm -rf a
    train node1:2,node2:2
    victim=$(rank_pid 0) # it judges, and both its own host and the other one see that
    kill -STOP "$victim"
    ended $((limit + 60)) any
    names "ddptrain.1@node1.*rank 0 on node1 made no progress for 4 s: it is stopped (pid $victim, SIGSTOP)"
}

# A rank that fails says so itself, and nobody else does; mpirun that is killed leaves nobody behind.
fails()
{
    hosts_up 2
    start node1 mpirun -x DDP_FAULT=train_step:3 --host node1:2,node2:2 "$program" $small --out a >out 2>err
    ended 60 1
    names 'ddptrain.3@node2.*planted fault'
    rm -rf a
    train node1:2,node2:2
    kill -9 "$job"
    wait "$job"
    nothing_left 30
}

# Whoever knocks at the port: nothing happens to the run, and nobody is listened to.
port()
{
    hosts_up 3
    train node1:1,node2:1
    ports=$(on node1 ss -Hltnp | awk '/ddptrain/ { n = split($4, part, ":"); print part[n] }')
    [ -n "$ports" ] || fail 'there is no port'
    monitors=0
    for port in $ports; do # MPI has some too
        on node3 ${DDP_TEST_PYTHON:-/usr/bin/python3} "$cluster_here/knock.py" node1 "$port"
        case $? in
        0) monitors=$((monitors + 1)) ;;
        3) ;;
        *) fail "port $port" ;;
        esac
    done
    [ $monitors -eq 1 ] || fail "the monitor listens at $monitors ports"
    is_running "$job" || { fail 'the run has ended'; cat err; }
    grep -v 'is the slowest' err | grep . && fail 'somebody complains'
    victim=$(rank_pid 1)
    kill -9 "$victim" # it still watches
    ended 60 any
    names "rank 1 on node2 has ended (pid $victim"
}

"$case"
exit "$failed"

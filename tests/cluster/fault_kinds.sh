# shellcheck shell=sh disable=SC2015,SC2034,SC2154 # variables pass between this and faults.sh, which reads it
# The kinds of faults of faults.sh. before_KIND prepares a run, do_KIND does it to `rank` on `host` (false: all is over),
# mend_KIND undoes what outlasts a run, check_KIND looks at what was said (`line`, `err`, `line_ms`, `code`).

# every 'KINDS' 'PHASES': each with each
every()
{
    for every_kind in $1; do
        for every_phase in $2; do
            echo "$every_kind/$every_phase"
        done
    done
}

# named SECONDS TEXT: the line is the only one, in time, and says this; or the run was over before the fault
named()
{
    [ -n "$line" ] || { is_over || fail 'nothing is said'; return; }
    [ "$(the_line | grep -c '')" -eq 1 ] || fail 'more than one line'
    echo "$line" | grep -q -e "$2" || fail "'$2' is not said"
    [ "$line_ms" -le $((($1 + slack) * 1000)) ] || fail "said after $line_ms ms"
    [ "$end_ms" -le $((($1 + 2 * slack) * 1000)) ] || fail "ended after $end_ms ms"
    [ "$code" -ne 0 ] || fail 'exit status 0'
}

# is_over: all was done and saved before
is_over()
{
    grep -q '^weights' out
}

# mpi_names PID: Open MPI has seen it before the monitor was there
mpi_names()
{
    [ "$phase" = start ] && grep -q "process rank $rank with PID \($1\|0\) on node $host exited on signal" err
}

# mpi_waits: it was stopped, or cut off, before it came to the others; they give up in time, and cannot know whom they miss
mpi_waits()
{
    [ "$phase" = start ] && echo "$line" | grep -q 'MPI_Init took more than' && [ "$end_ms" -le 60000 ] && [ "$code" -ne 0 ]
}

# victim: the pid of `rank`; false: there is none
victim()
{
    victim=$(rank_pid "$rank")
    [ -n "$victim" ]
}

# killed: what is said of a rank that was killed; how it ended only the ranks beside it see, and the last one is alone on its host
killed()
{
    printf 'rank %d on %s has ended (pid %d' "$rank" "$host" "$victim"
    [ "$rank" -eq 4 ] || printf ', killed by signal 9'
}

# A process is killed.
do_rank()
{
    victim && kill -9 "$victim"
}

check_rank()
{
    mpi_names "$victim" && [ -z "$line" ] || named 0 "$(killed)"
}

# The daemon of Open MPI on a host other than mpirun's.
do_daemon()
{
    [ "$host" != node1 ] || host=node2
    victim=$(host_pids "$host" orted)
    [ -n "$victim" ] && echo "$victim" | xargs kill -9
}

check_daemon()
{
    [ -z "$line" ] && [ "$phase" = start ] && grep -q "daemon" err || named 0 "$host"
}

do_mpirun()
{
    victim=$job
    kill -9 "$job"
}

check_mpirun()
{
    [ "$end_ms" -le $((slack * 1000)) ] || fail "ended after $end_ms ms"
    [ -z "$line" ] || named 0 'mpirun, or its daemon on node[123], has ended'
}

# All processes of a host other than mpirun's.
do_host()
{
    [ "$host" != node1 ] || host=node3
    host_kill "$host"
}

check_host()
{
    [ -z "$line" ] && [ "$phase" = start ] && grep -q "daemon" err || named 0 "on $host"
}

# It is stopped, and nobody tells it to go on.
do_stop()
{
    victim && kill -STOP "$victim"
}

check_stop()
{
    mpi_waits && return
    named "$limit" "rank $rank on $host"
}

# The host's network is gone.
do_cut()
{
    [ "$host" != node1 ] || host=node2
    link_cut "$host"
}

mend_cut()
{
    link_mend "$host"
    for mended in node1 node2 node3; do # an address that was asked for in vain is not reached for a second more
        on $mended ip neigh flush dev eth0
    done
}

check_cut()
{
    mpi_waits && return
    named "$limit" "on $host gave no sign of life"
}

# Its power too.
do_power()
{
    [ "$host" != node1 ] || host=node2
    host_off "$host"
}

mend_power()
{
    host_on "$host"
}

check_power()
{
    check_cut
}

# ended_well: the fault is none
ended_well()
{
    [ "$code" -eq 0 ] || { fail "exit status $code"; cat err; }
    told=$(weights)
    whole
    [ "$told" = "$whole" ] && [ -n "$whole" ] || fail "weights '$told' instead of '$whole'"
}

# It has a tenth of its time.
do_slow()
{
    victim || return 1
    while kill -STOP "$victim" 2>/dev/null; do
        sleep 0.09
        kill -CONT "$victim"
        sleep 0.01
    done &
}

check_slow()
{
    [ "$phase" = eval ] || grep -q "warning: rank $rank on $host is the slowest" err || { fail 'no warning names it'; cat err; }
    ended_well
}

# A host whose clock is a day ahead, or was started a day later; the ranks there are lost and named as ever.
before_clock()
{
    echo "[ \"\$(hostname)\" != $host ] || exec unshare --time --monotonic 86400 --boottime 86400 \"\$@\"; exec \"\$@\"" >as.sh
}

do_clock()
{
    do_rank
}

check_clock()
{
    check_rank
}

# A host whose time of day is a day ahead or behind, and files whose times are in the wrong order: the ranks there are lost and
# named as ever, and the run goes on.
before_time()
{
    wrong_s=86400
    draw 2
    [ "$drawn" -eq 0 ] || wrong_s=-86400
    echo "[ \"\$(hostname)\" != $host ] || export DDP_WRONG_TIME=$wrong_s LD_PRELOAD=$DDP_WRONG_TIME_LIBRARY; exec \"\$@\"" >as.sh
}

do_time()
{
    told_ms=$(tail -n 1 disk/a/metrics.jsonl | sed -n 's/.*"time":\([0-9]*\).*/\1000/p')
    do_rank
}

mend_time()
{
    for stamped in $(find disk/a/checkpoints -name 'ckpt-*.h5' -type f | sort -r); do
        touch "$stamped"
        sleep 0.02 # the last step has the oldest file
    done
}

check_time()
{
    off_s=$(((told_ms - fault_ms) / 1000))
    [ "$host" = node1 ] || wrong_s=0 # rank 0 tells the time
    [ $((off_s - wrong_s)) -le 60 ] && [ $((off_s - wrong_s)) -ge -60 ] || fail "times are off by $off_s s, not by $wrong_s s"
    check_rank
}

# The disk of the checkpoints gets full.
before_disk()
{
    [ "$phase" != start ] || do_disk
}

do_disk()
{
    dd if=/dev/zero of=disk/full bs=64k 2>/dev/null
    true
}

mend_disk()
{
    rm -f disk/full
}

check_disk()
{
    [ "$code" -ne 0 ] || { is_over || fail 'exit status 0'; return; }
    [ "$code" -eq 1 ] || fail "exit status $code"
    grep -q '^ddptrain.*no room for\|^ddptrain.*[Nn]o space left' err || fail 'the reason is not said'
}

# A rank gets no more memory: its control group is full, and the kernel ends it.
group=/sys/fs/cgroup/memory/ddp_faults.$(basename "$folder")

before_memory()
{
    mkdir "$group" || return
    [ "$phase" != start ] || echo 6M >"$group/memory.limit_in_bytes"
    echo "[ \$OMPI_COMM_WORLD_RANK != $rank ] || echo \$\$ >$group/cgroup.procs; exec \"\$@\"" >as.sh
}

do_memory()
{
    victim || [ "$phase" = start ] || return 1
    [ -d "$group" ] && [ "$phase" != start ] || return 0
    echo 1000 >"/proc/$victim/oom_score_adj"
    echo $(($(cat "$group/memory.usage_in_bytes") + 8000000)) >"$group/memory.limit_in_bytes"
    sh -c "echo \$\$ >$group/cgroup.procs; head -c 64000000 /dev/zero | tail -c 64000000 >/dev/null" 2>/dev/null &
}

mend_memory()
{
    await 10 rmdir "$group"
}

check_memory()
{
    # a group that was small from the start: it is ended at once, or sees that it is
    [ "$phase" = start ] && [ -z "$line" ] && grep -q "process rank $rank .*on node $host exited on signal 9" err ||
        [ "$phase" = start ] && grep -q "^ddptrain.*@$host\]: memory: the run needs .* are free" err ||
        named 0 "rank $rank on $host has ended (pid $victim$([ "$rank" -eq 4 ] || echo '.*out of memory')"
}

# Another configuration on one rank, another program on one host.
before_config()
{
    echo "[ \$OMPI_COMM_WORLD_RANK != $rank ] || set -- \"\$@\" --set train.seed=7; exec \"\$@\"" >as.sh
}

do_config()
{
    true
}

check_config()
{
    if [ "$rank" -eq 0 ]; then # it is the others that differ
        named 0 'train.seed'
    else
        named 0 "rank $rank on $host has train.seed 7"
    fi
    [ "$code" -eq 2 ] || fail "exit status $code"
}

before_build()
{
    rm -rf old
    mkdir old
    cp "$program" old/ddptrain
    printf x >>old/ddptrain
    [ "$host" != node1 ] || host=node3
    echo "[ \"\$(hostname)\" != $host ] || { shift; set -- old/ddptrain \"\$@\"; }; exec \"\$@\"" >as.sh
}

do_build()
{
    true
}

check_build()
{
    named 0 "on $host has ddptrain"
    [ "$code" -eq 2 ] || fail "exit status $code"
}

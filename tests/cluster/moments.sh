#!/bin/sh
# A rank is killed at any moment of a short run of three ranks on two hosts, from its first instruction to its last. One line
# names it, or mpirun does while MPI_Init has not come back; or the rank had done all it had to. No rank is left, and the status tells.
# Usage: sh moments.sh CASE DDPTRAIN; CASE: `few`, `many`, a number of moments, or `stopped`. DDP_TEST_SEED repeats what was drawn.
# shellcheck disable=SC1091,SC2015,SC2086,SC2154,SC2317 # run by name; commands of several words
set -u

. "$(dirname "$0")/cluster.sh"
. "$cluster_here/draw.sh"

hosts_of_ranks='node1 node1 node2'
small="--set data.kind=shapes --set data.samples=100 --set data.test_samples=64 --set train.batch=60 --set train.micro_batch=8
    --set model.kind=mlp --set model.hidden=[32,16] --set train.steps=20 --set checkpoint.every_steps=5 --set ddp.timeout_s=5
    --log warn"

now_ms()
{
    date +%s%3N
}

job_has_ended()
{
    ! is_running "$job"
}

rank_is_there()
{
    victim=$(rank_pid "$rank")
    [ -n "$victim" ] || job_has_ended
}

begin()
{
    rm -rf a out err
    begun_ms=$(now_ms)
    start node1 mpirun --host node1:2,node2:1 "$program" $small --out a >out 2>err
}

# how_long: the whole of a run, from the first process of a rank on
how_long()
{
    rank=0
    begin
    await 60 rank_is_there || fail 'no rank begins'
    first_ms=$(($(now_ms) - begun_ms))
    await 60 job_has_ended || fail 'the run does not end'
    whole_ms=$(($(now_ms) - begun_ms - first_ms))
    echo "a run: $whole_ms ms from the first process on"
}

# mpi_names: MPI was not there yet, or there no longer, for the ranks to know each other
mpi_names()
{
    grep -q "process rank $rank with PID [0-9]* on node $host exited on signal 9" err
}

# one PERMILLE: of the run's time, and the rank is killed
one()
{
    draw 3
    rank=$drawn
    host=$(echo $hosts_of_ranks | cut -d ' ' -f $((rank + 1)))
    begin
    await 60 rank_is_there
    delay=$((whole_ms * $1 / 1000))
    sleep "$((delay / 1000)).$(printf '%03d' $((delay % 1000)))"
    rank_is_there
    is_killed=no
    [ -z "$victim" ] || ! kill -9 "$victim" 2>/dev/null || is_killed=yes
    await 60 job_has_ended || fail 'mpirun runs after 60 s'
    wait "$job"
    code=$?
    nothing_left 10
    lines=$(grep '^ddptrain' err | grep -vc '^[^ ]* warning: ')
    judge "$1"
}

# is_late: mpirun alone names it, and its work was done; a rank that has said so to the others is watched no longer
is_late()
{
    grep -q '^weights' out && grep -q '"event":"end"' a/metrics.jsonl
}

# judge PERMILLE: what was said
judge()
{
    failed_before=$failed
    failed=0
    if [ $is_killed = no ] || [ "$code" -eq 0 ]; then # the zombie of a rank that has ended can be killed too
        how=whole
        [ "$code" -eq 0 ] && [ "$lines" -eq 0 ] && grep -q '^weights' out || fail "a whole run: status $code, $lines lines"
    elif [ "$lines" -eq 0 ] && is_late; then
        how=late
        late=$((late + 1))
    elif [ "$lines" -eq 0 ]; then
        how=mpirun
        mpi_names || fail 'nobody names it'
        ! grep -q '"event":"start"' a/metrics.jsonl 2>/dev/null || fail 'mpirun alone names it, and MPI_Init had come back'
    else
        how=line
        [ "$lines" -eq 1 ] || fail "$lines lines"
        grep -q "^ddptrain.*rank $rank on $host has ended (pid $victim[,)]" err || fail 'another rank is named'
    fi
    echo "$1 of 1000: rank $rank on $host, status $code, $how"
    [ $failed -eq 0 ] || { cat out err; tail -n 2 a/metrics.jsonl; }
    [ $failed_before -eq 0 ] || failed=1
}

# moments N: N parts of the time, and a moment in each
moments()
{
    for moment in $(seq 0 $(($1 - 1))); do
        draw $((1000 / $1))
        one $((1000 * moment / $1 + drawn))
    done
    [ $late -le $((1 + $1 / 20)) ] || fail "$late times nobody but mpirun named a rank at the end" # the last hundredths of a second
}

# A rank is stopped before it comes to MPI_Init: another one of its host names it, though rank 0 is elsewhere.
stopped()
{
    echo '[ "$PMIX_RANK" != 2 ] || kill -STOP $$; exec "$@"' >as.sh
    on node1 mpirun --host node1:1,node2:2 sh as.sh "$program" $small --set ddp.timeout_s=2 >out 2>err
    code=$?
    [ "$code" -ne 0 ] || fail 'exit status 0'
    [ "$(grep -c '^ddptrain' err)" -eq 1 ] && grep -q '^ddptrain.*MPI_Init took more than 12 s.*rank 2 on node2 is stopped (pid [0-9]*' err ||
        { fail 'it is not named in one line'; cat err; }
    nothing_left 10
    # the same of the first rank of mpirun's host, while the other host is cut off: mpirun, which waits for that, is ended by the rank beside it
    echo '[ "$PMIX_RANK" != 0 ] || { echo >there; kill -STOP $$; }; exec "$@"' >as.sh
    start node1 mpirun --host node1:2,node2:1 sh as.sh "$program" $small --set ddp.timeout_s=2 >out 2>err
    await 60 test -e there || fail 'no rank begins'
    sleep 2
    link_cut node2
    await 60 job_has_ended || { fail 'mpirun runs after 60 s'; kill -9 "$job"; }
    grep -q '^ddptrain.*MPI_Init took more than 12 s.*rank 0 on node1 is stopped (pid [0-9]*' err || { fail 'it is not named'; cat err; }
    link_mend node2
    nothing_left 10
}

echo "seed $seed"
late=0
hosts_up 2
case $case in
stopped) stopped ;;
*)
    how_long
    case $case in
    few) moments 5 ;;
    many) moments 100 ;;
    *) moments "$case" ;;
    esac
    ;;
esac
exit "$failed"

#!/bin/sh
# Runs of which a process is killed at a random moment, again and again: each goes on to the very same weights, on any
# number of ranks. Usage: sh kills.sh CASE DDPTRAIN MPIRUN [mpirun option...]; DDP_TEST_SEED repeats what was drawn,
# DDP_TEST_KILLS says how often.
set -u

. "$(dirname "$0")/support.sh"

# 8 micro-batches, and a file of 1 MB every other step: most of the time something is being written.
small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=64 --set train.batch=60
    --set train.micro_batch=8 --set train.epochs=100 --set model.kind=mlp --set model.hidden=[100,16]
    --set model.dropout=0.2 --set train.eval_every=400 --set checkpoint.every_steps=2 --set ddp.timeout_s=5
    --log warn"
last=ckpt-000000000400.h5
seed=${DDP_TEST_SEED:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
goal=${DDP_TEST_KILLS:-3}
name=killed$$ # other tests may run
state=$seed
trap 'kill -9 $(pgrep -f "$program .*--out $name") 2>/dev/null; rm -rf "$folder"' EXIT
kills=0
of_mpirun=0
halves=0 # kills that left an unfinished file
whole_runs=0
stuck=0 # an mpirun without ranks that does not end: Open MPI's, where a rank is killed as it connects

# draw N: a number from 0 to N - 1 into `drawn`
draw()
{
    state=$(((state * 1103515245 + 12345) % 2147483648))
    drawn=$((state / 65536 % $1))
}

# The run that nothing stopped.
whole_run()
{
    echo "seed $seed"
    run 0 "$program" $small --out whole
    whole=$(weights)
}

# start NP: in the background, from where the last one came to
start()
{
    $mpirun -np "$1" "$program" $small --out $name --resume auto >out 2>err &
    job=$!
}

sleep_ms()
{
    sleep "$(awk -v ms="$1" 'BEGIN { print ms / 1000 }')"
}

newest()
{
    find $name/checkpoints -name 'ckpt-*.h5' 2>/dev/null | sort | tail -n 1
}

# A checkpoint is there that was not before.
wait_for_save()
{
    before=$1
    tries=0
    while [ "$(newest)" = "$before" ] && is_running $job && [ $tries -lt 1500 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
}

ranks_of_run()
{
    pgrep -f "^$program .*--out $name" | sort -n
}

# The exit status of what was started into `got`.
wait_for_job()
{
    alone=0
    while is_running $job; do
        alone=$((alone + 1))
        [ -z "$(ranks_of_run)" ] || alone=0
        if [ $alone -gt 200 ]; then
            stuck=$((stuck + 1))
            kill -9 $job
        fi
        sleep 0.05
    done
    wait $job 2>/dev/null
    got=$?
}

# After a kill: the others end too, nothing under a final name is broken, nothing but drafts is left behind.
check_remains()
{
    tries=0
    while [ -n "$(pgrep -f "$program .*--out $name")" ]; do
        tries=$((tries + 1))
        [ $tries -le 300 ] || { fail "after kill $kills processes stay"; cat err; exit 1; }
        sleep 0.05
    done
    grep -q 'passed over' err && { fail "before kill $kills: a broken file"; cat err; }
    if [ -n "$(find $name -name '.ckpt-*.tmp-*' 2>/dev/null)" ]; then
        halves=$((halves + 1))
    fi
}

# The run came to its end.
check_end()
{
    whole_runs=$((whole_runs + 1))
    ends_with "$whole"
    cmp whole/checkpoints/$last $name/checkpoints/$last || fail "after $kills kills: the last file is another one"
    [ -z "$(find $name -name '.*.tmp-*')" ] || fail "after $kills kills: a temporary file stays"
    grep -q 'passed over' err && { fail "after $kills kills: a broken file"; cat err; }
    rm -rf "$name"
}

# kill_one MS: after so long mpirun (one in three) or a rank; true if somebody was
kill_one()
{
    sleep_ms "$1"
    victims=$(ranks_of_run)
    draw 3
    who=$drawn
    draw "$(echo "$victims" | grep -c '')" # 1 without any
    victim=$(echo "$victims" | sed -n "$((drawn + 1))p")
    if [ $who -eq 0 ] || [ -z "$victim" ]; then
        victim=$job
        who=0
    fi
    kill -9 "$victim" 2>/dev/null || return 1
    kills=$((kills + 1))
    [ $who -ne 0 ] || of_mpirun=$((of_mpirun + 1))
}

# kill -9 of a rank or of mpirun at any moment, from the start of mpirun on, on 1 to 4 ranks.
random()
{
    whole_run
    begun=$(date +%s)
    while [ $kills -lt "$goal" ] && [ $failed -eq 0 ]; do
        draw 4
        start $((drawn + 1))
        draw 2000
        kill_one $((200 + drawn))
        wait_for_job
        if [ $got -eq 0 ]; then
            check_end
        else
            [ $got -ge 128 ] || [ -s err ] || fail "kill $kills: exit status $got, and no word"
            check_remains
        fi
    done
    if [ -e $name ]; then
        ranks 2 0 $small --out $name --resume auto
        check_end
    fi
    echo "$kills kills, $of_mpirun of mpirun; $halves left an unfinished file; $whole_runs runs to the end; $stuck times mpirun hung; $(($(date +%s) - begun)) s"
}

# Three of eight ranks are killed at once, the run goes on with five, is killed again, and ends with one.
fewer()
{
    small="$small --set train.epochs=400 --set checkpoint.every_steps=16" # it must not end before
    last=ckpt-000000001600.h5
    whole_run
    start 8
    wait_for_save ''
    draw 300
    sleep_ms $drawn
    for left in 8 7 6; do
        draw $left
        # the pids that were there, without those already taken
        [ $left -lt 8 ] || all=$(ranks_of_run)
        victim=$(echo "$all" | sed -n "$((drawn + 1))p")
        all=$(echo "$all" | grep -v "^$victim\$")
        kill -9 "$victim" 2>/dev/null || fail 'the run of eight ranks ended too soon'
    done
    wait_for_job
    [ $got -ne 0 ] || fail 'exit status 0 after three ranks were killed'
    kills=3
    check_remains
    at=$(newest)
    start 5
    wait_for_save "$at"
    draw 300
    kill_one $drawn || fail 'the run of five ranks ended too soon'
    wait_for_job
    [ $got -ne 0 ] || fail 'exit status 0 after a kill'
    check_remains
    [ "$(newest)" != "$at" ] || fail 'five ranks saved nothing'
    run 0 "$program" $small --out $name --resume auto
    check_end
}

# fewer, with other moments and other ranks
fewer_often()
{
    while [ $whole_runs -lt "$goal" ] && [ $failed -eq 0 ]; do
        fewer
        rm -rf whole
        seed=$state
    done
}

"$case"
exit $failed

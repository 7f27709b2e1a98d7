#!/bin/sh
# `ddptrain supervise`: with scripts that fail as they are told, with a pretended mpirun, and with trainings whose
# processes are killed. Usage: sh supervise.sh CASE DDPTRAIN MPIRUN [mpirun option...]; DDP_TEST_SEED repeats what was
# drawn, DDP_TEST_KILLS says how often.
set -u

. "$(dirname "$0")/support.sh"

fast="--backoff 0.02 --backoff-max 0.1"
name=super$$ # other tests may run
small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=64 --set train.batch=60
    --set train.micro_batch=8 --set model.kind=mlp --set model.hidden=[100,16] --set model.dropout=0.2
    --set train.eval_every=4000 --set checkpoint.every_epochs=0 --set checkpoint.every_steps=2 --set ddp.timeout_s=30"
trap 'kill -9 $(pgrep -f "$program .*--out $name") 2>/dev/null; rm -rf "$folder"' EXIT

# has TEXT: err has it
has()
{
    grep -q -F -e "$1" err || { fail "'$1' expected:"; cat err; }
}

# until_there FILE
until_there()
{
    tries=0
    until [ -s "$1" ]; do
        tries=$((tries + 1))
        [ $tries -le 1500 ] || { fail "$1 does not come"; return; }
        sleep 0.02
    done
}

# gone PID [TRIES]: within a while
gone()
{
    tries=0
    while is_running "$1"; do
        tries=$((tries + 1))
        [ $tries -le "${2:-500}" ] || { fail "process $1 stays"; return; }
        sleep 0.02
    done
}

usage()
{
    run 2 "$program" supervise
    says 'supervise needs a command'
    run 2 "$program" supervise sh job.sh
    says 'the command goes behind --'
    run 2 "$program" supervise --max-restart 3 -- true
    says "did you mean '--max-restarts'?"
    run 2 "$program" supervise -- "$program" --oot x
    says "did you mean '--out'?"
    run 2 "$program" supervise -- "$program" bench ops
    says 'ddptrain bench does not train'
    run 2 "$program" supervise --hostfile none -- mpirun "$program" --out x
    says "hostfile: 'none': no such file or directory"
    mkfifo pipe # nobody writes: must not wait
    run 2 "$program" supervise --hostfile pipe -- mpirun "$program" --out x
    says "hostfile: 'pipe': a device or pipe, not a regular file"
    run 2 "$program" supervise --backoff 0 -- true
    says "--backoff '0': a time is expected, more than 0"
    run 2 "$program" supervise --hostfile none -- true
    says '--hostfile is for mpirun'
    mkdir taken
    touch taken/file
    run 2 "$program" supervise -- "$program" --out taken
    says "--out 'taken' exists: add --resume auto"
    run 2 env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$program" supervise -- true
    says 'supervise starts mpirun or srun itself'
    run 0 "$program" supervise --help
    holds out '--max-restarts N'
    [ ! -s err ] || fail '--help says'
    DDP_FAULT=guard:0 run 1 "$program" supervise --history other -- sleep "4321.$$" # it is not run without
    has 'guard: planted'
    ! pgrep -fx "sleep 4321.$$" >/dev/null || fail 'it runs all the same'
    run 127 "$program" supervise --history history -- ./nothing
    has 'ddptrain: ./nothing: no such file or directory'
    has 'gives up: the command cannot be run'
}

# A script that ends as it is told.
scripts()
{
    cat >job.sh <<'END'
echo "start ${DDPTRAIN_RESTART_COUNT:-none} ${OMPI_COMM_WORLD_SIZE:-alone} ${PMIX_RANK:-alone}" >>starts
echo 'to stdout'
printf 'to \377 stderr\n' >&2
shift $(($(grep -c '' starts) - 1))
exit $1
END
    rm -f starts
    OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=0 run 0 "$program" supervise $fast --history history -- sh job.sh 1 137 75 0
    printf 'start 0 alone alone\nstart 1 alone alone\nstart 2 alone alone\nstart 3 alone alone\n' | cmp - starts || fail 'other starts'
    printf 'to stdout\nto stdout\nto stdout\nto stdout\n' | cmp - out || fail 'stdout is another'
    [ "$(grep -c -a "$(printf '^to \377 stderr$')" err)" -eq 4 ] || fail 'stderr does not pass through'
    [ "$(grep -c -a '^ddptrain: warning: supervise: ended with' err)" -eq 3 ] || { fail 'restarts are not told'; cat err; }
    has 'ended with 137 after'
    [ "$(sed 's/.*"attempt":\([0-9]*\),.*"code":\([0-9]*\),.*"next":"\([^"]*\)".*/\1 \2 \3/' history | tr '\n' ,)" = \
        '0 1 restart,1 137 restart,2 75 restart,3 0 done,' ] || { fail 'another history'; cat history; }
    rm -f starts
    run 2 "$program" supervise $fast --history history -- sh job.sh 1 2
    has 'gives up: wrong usage'
    rm -f starts
    run 7 "$program" supervise $fast --history history --max-idle 100 --max-restarts 2 -- sh job.sh 1 1 7 0
    has 'gives up: 2 restarts within 3600 s are the most'
    rm -f starts
    run 5 "$program" supervise $fast --history history -- sh job.sh 5 5 5 5 5 5
    has 'gives up: 3 restarts in a row brought no new checkpoint'
    [ "$(grep -c '' starts)" -eq 4 ] || fail 'not four starts'
    rm -f starts
    run 9 env --ignore-signal=CHLD "$program" supervise --max-restarts 0 --history history -- sh job.sh 9
    has 'the last run ended with 9'
    rm -f starts
    SLURM_RESTART_COUNT=3 run 0 "$program" supervise $fast --history history -- sh job.sh 1 0
    holds starts '^start 4'
    rm -f starts
    SLURM_JOB_ID=7 run 75 "$program" supervise $fast --history history -- sh job.sh 75 0
    has 'the job script is told'
}

# Checkpoints that come are progress, though every start fails.
progress()
{
    cat >job.sh <<'END'
echo start >>starts
n=$(grep -c '' starts)
mkdir -p run/checkpoints
[ $n -gt 5 ] || touch "run/checkpoints/ckpt-00000000000$n.h5"
echo "ddptrain[0@here]: '/data' cannot be read" >&2
exit 1
END
    run 1 "$program" supervise $fast --run run -- sh job.sh
    [ "$(grep -c '' starts)" -eq 8 ] || fail "$(grep -c '' starts) starts, not 8"
    has 'gives up: 3 restarts in a row brought no new checkpoint, and each ended with the same line'
    has 'restart 5 after step 5 in'
    [ "$(grep -c '' run.supervise.jsonl)" -eq 8 ] || fail 'the history is not beside the run'
}

# What a run leaves behind is ended before the next one begins.
leftovers()
{
    cat >job.sh <<'END'
setsid sh -c 'trap "" TERM INT HUP; echo $$ >left; exec sleep 1000' </dev/null >/dev/null 2>&1 &
while [ ! -s left ]; do sleep 0.02; done
[ ! -e second ] || exit 0
cp left second
rm left
exit 1
END
    run 0 "$program" supervise $fast --history history -- sh job.sh
    for file in left second; do
        gone "$(cat $file)"
    done
}

# supervise ARGUMENT...: in the background
supervised()
{
    "$program" supervise --history history "$@" >out 2>err &
    pid=$!
}

# ends_with_code CODE
ends_with_code()
{
    wait $pid
    got=$?
    [ $got -eq "$1" ] || { fail "exit status $got instead of $1"; cat err; }
}

signals()
{
    cat >job.sh <<'END'
trap 'echo USR1 >>got; exit 75' USR1
trap 'echo TERM >>got; [ "$1" = deaf ] || exit 75' TERM
trap 'echo INT >>got; exit 130' INT
echo ready >ready
while :; do sleep 0.02; done
END
    for signal in USR1 TERM; do
        rm -f ready got
        supervised -- sh job.sh
        until_there ready
        kill -$signal $pid
        ends_with_code 75
        holds got $signal
        has "no restart: was asked to stop by SIG$signal"
    done
    rm -f ready got
    env --default-signal=INT "$program" supervise --history history -- sh job.sh >out 2>err & # a shell's & ignores it
    pid=$!
    until_there ready
    kill -INT $pid
    ends_with_code 130
    holds got INT
    # SIGINT ends within 8 seconds what does not end by it
    rm -f ready
    cat >deaf.sh <<'END'
trap '' INT TERM
echo ready >ready
while :; do sleep 0.1; done
END
    env --default-signal=INT "$program" supervise --history other -- sh deaf.sh >out 2>other.err &
    deaf=$!
    until_there ready
    kill -INT $deaf
    # a second SIGTERM, a second later, ends what does not end
    rm -f ready got
    supervised -- sh job.sh deaf
    until_there ready
    kill -TERM $pid
    sleep 1.2
    is_running $pid || fail 'the first SIGTERM ended it'
    kill -TERM $pid
    ends_with_code 137
    [ "$(grep -c TERM got)" -ge 2 ] || fail 'the second SIGTERM was not passed on'
    gone $deaf 250
    # between two runs
    supervised --backoff 1000 --backoff-max 1000 -- false
    until_there history
    tries=0
    until grep -q 'restart 1 in' err || [ $tries -gt 1000 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
    kill -USR1 $pid
    ends_with_code 75
    # killed, it takes its command with it, and all that this has started, also in groups of their own, whatever their names
    rm -f ready
    cp "$(command -v sleep)" "$(printf 'odd) Z\n1')"
    cat >job.sh <<'END'
sleep 1000 &
echo $! >all
./odd* 1000 &
echo $! >>all
timeout 1000 sh -c 'echo $$ >>all; sleep 1000 & echo $! >>all; mv all ready; wait'
echo never >>ready
END
    supervised -- sh job.sh
    until_there ready
    kill -KILL $pid
    wait $pid 2>/dev/null
    [ "$(grep -c '' ready)" -eq 4 ] || fail 'not four processes'
    for left in $(cat ready); do
        gone "$left"
    done
    # also where who sees to that is stopped
    rm -f ready
    supervised -- sh -c 'sleep 1000 & echo $! >all; mv all ready; wait'
    until_there ready
    for guard in $(ps -o pid=,comm= --ppid $pid | sed -n 's/ *\([0-9]*\) ddptrain-guard/\1/p'); do
        kill -STOP "$guard"
    done
    [ -n "$guard" ] || fail 'no guard'
    kill -KILL $pid
    wait $pid 2>/dev/null
    gone "$(cat ready)"
    # srun gets the time to end its tasks
    rm -f ready
    cat >srun <<'END'
#!/bin/sh
trap '' PIPE # of the message of a sleep that is killed
trap 'echo TERM >told; exit 1' TERM
echo $$ >ready
while :; do sleep 0.05; done
END
    chmod +x srun
    supervised -- sh -c './srun; true'
    until_there ready
    kill -KILL $pid
    wait $pid 2>/dev/null
    gone "$(cat ready)"
    until_there told
}

# A pretended mpirun that notes its words and says that host b is at fault.
hosts()
{
    mkdir tools
    cat >tools/mpirun <<'END'
#!/bin/sh
echo "$*" >>asked
for word; do
    [ "${last:-}" != --hostfile ] || { cat "$word"; echo "$word" >copy; } >>hosts.seen
    last=$word
done
echo "ddptrain[0@a]: rank 2 on b has ended (pid $$): waiting for its sums of bucket 1, step $(grep -c '' asked)" >&2
[ "$(grep -c '' asked)" -lt 4 ] || exit 0
exit 137
END
    chmod +x tools/mpirun
    PATH="$PWD/tools:$PATH"
    printf '# mine\na slots=2\nb slots=4\nc slots=2\n' >mine
    cp mine before
    run 0 "$program" supervise $fast --max-idle 9 --hostfile mine -- mpirun -np 8 "$program" --out x
    cmp mine before || fail "the user's file is written"
    [ "$(sed -n 's/.*-np \([0-9]*\).*/\1/p' asked | tr '\n' ,)" = 8,8,4,4, ] || { fail 'other numbers of ranks'; cat asked; }
    printf '# mine\na slots=2\nc slots=2\n' >wanted
    tail -n 3 hosts.seen | cmp - wanted || fail 'another hostfile'
    has 'b has failed twice and is left out: 4 ranks from now on'
    [ ! -e "$(cat copy)" ] || fail 'the copy stays'
    holds x.supervise.jsonl '"ranks":4,"hosts":\["a","c"\],"left_out":\["b"\]'
    holds x.supervise.jsonl '"host":"b"'
    holds asked '^-x DDPTRAIN_RESTART_COUNT'
    # mpirun need not say which host it could not reach: then it is the one that failed last
    cat >tools/unsure <<'END'
echo "$*" >>asked
[ -e once ] || { echo "ddptrain[0@a]: rank 2 on b has ended (pid 1): barrier" >&2; touch once; exit 137; }
echo 'ORTE was unable to reliably start one or more daemons.' >&2
[ "$(grep -c '' asked)" -lt 3 ] || exit 0
exit 255
END
    cp tools/mpirun keep
    { echo '#!/bin/sh'; cat tools/unsure; } >tools/mpirun
    rm -rf asked x
    run 0 "$program" supervise $fast --max-idle 9 -- mpirun -np 8 --host a:4,b:4 "$program" --out x
    [ "$(sed -n 's/.*-np \(.*\) [^ ]* --out x/\1/p' asked | tr '\n' ,)" = '8 --host a:4,b:4,8 --host a:4,b:4,4 --host a:4,' ] ||
        { fail 'other hosts'; cat asked; }
    # that mpirun itself is killed is no host's fault
    cat >tools/mpirun <<'END'
#!/bin/sh
echo "$*" >>asked
[ "$(grep -c '' asked)" -lt 4 ] || exit 0
echo "ddptrain[2@b]: mpirun, or its daemon on b, has ended: rank 2 on b (pid 1) was in start" >&2
kill -9 $$
END
    rm -rf asked x
    run 0 "$program" supervise $fast --max-idle 9 -- mpirun -np 8 --host a:4,b:4 "$program" --out x
    [ "$(grep -c -e '-np 8 --host a:4,b:4' asked)" -eq 4 ] || { fail 'a host is left out'; cat asked; }
    mv keep tools/mpirun
    # too few would be left
    rm -rf asked x
    run 0 "$program" supervise $fast --max-idle 9 --min-ranks 5 -- mpirun -np 8 --host a:4,b:4 "$program" --out x
    has 'without it 4 ranks would be left'
    [ "$(grep -c -e '-np 8 --host a:4,b:4' asked)" -eq 4 ] || { fail 'a host is left out'; cat asked; }
    # no more than is understood
    rm -rf asked x
    run 0 "$program" supervise $fast --max-idle 9 -- mpirun --new-option --host a:4,b:4 -np 8 "$program" --out x
    has "'--new-option' of mpirun is not understood: all hosts stay"
    [ "$(grep -c -e '-np 8' asked)" -eq 4 ] || fail 'the command is changed'
}

# Not an --out in the command: the first start chooses one, and the next go on with it.
folder()
{
    run 0 "$program" supervise -- $mpirun -np 2 "$program" $small --set train.steps=6
    whole=$(weights)
    has 'the command has no --out: the run goes to runs/supervised'
    [ -e runs/supervised/checkpoints/ckpt-000000000006.h5 ] || fail 'the run is elsewhere'
    run 0 "$program" supervise -- "$program" $small --set train.steps=6
    ends_with "$whole"
    has 'the run goes to runs/supervised-2'
}

# An mpirun that hangs behind its ranks, as Open MPI's does now and then, is not waited for for ever.
hanging()
{
    mkdir tools
    ln -s "$(command -v sleep)" ddptrain
    cat >tools/mpirun <<END
#!/bin/sh
echo start >>starts
[ "\$(grep -c '' starts)" -eq 1 ] || exit 0
$PWD/ddptrain 1 &
sleep 1000
END
    chmod +x tools/mpirun
    PATH="$PWD/tools:$PATH" run 0 "$program" supervise $fast --launcher-timeout 1 -- mpirun "$program" --out x
    has 'mpirun does not end'
    has 'ended with 137 after'
    [ "$(grep -c '' starts)" -eq 2 ] || fail 'not two starts'
}

# On a terminal the command has one too: ranks under mpirun draw a bar.
terminal()
{
    script -qec "'$program' supervise -- $mpirun -np 2 '$program' $(echo $small) --set train.steps=30 --out x" /dev/null >out 2>err </dev/null
    grep -q "$(printf 'epoch.*left\033\\[K')" out || { fail 'no bar'; cat out; }
    grep -q "$(printf '^weights [0-9a-f]*\r$')" out || { fail 'no weights'; cat out; }
    grep -q "$(printf '\r\r')" out && fail 'lines end twice'
}

# SIGTERM to it is a stop that saves, where SIGTERM to mpirun would not be.
stop()
{
    small="$small --set train.steps=1000 --set checkpoint.every_steps=50"
    run 0 "$program" $small --out whole --log error
    whole=$(weights)
    "$program" supervise -- $mpirun -np 2 "$program" $small --out $name --log warn >out 2>err &
    pid=$!
    until_there $name/checkpoints/ckpt-000000000050.h5
    kill -TERM $pid
    ends_with_code 75
    [ -z "$(pgrep -f "$program .*--out $name")" ] || fail 'processes stay'
    run 0 "$program" supervise -- $mpirun -np 3 "$program" $small --out $name --resume auto --log warn
    ends_with "$whole"
}

seed=${DDP_TEST_SEED:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
state=$seed

# draw N: a number from 0 to N - 1 into `drawn`
draw()
{
    state=$(((state * 1103515245 + 12345) % 2147483648))
    drawn=$((state / 65536 % $1))
}

newest()
{
    find $name/checkpoints -name 'ckpt-*.h5' 2>/dev/null | sort | tail -n 1
}

# while_it_runs COMMAND...: until it succeeds; false when the run has ended before
while_it_runs()
{
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -le 6000 ] || fail "after $n kills: never $*"
        is_running $pid && [ $failed -eq 0 ] || return 1
        sleep 0.01
    done
}

is_restarted()
{
    told=$(grep -c '"next":"restart"' $name.supervise.jsonl 2>/dev/null)
    [ "${told:-0}" -ge $((n - begun)) ]
}

is_saved()
{
    [ "$(newest)" != "$before" ]
}

# A rank or mpirun, after a new checkpoint. False: there was none, or the run has ended.
kill_one()
{
    while_it_runs is_restarted || return 1
    before=$(newest)
    while_it_runs is_saved || return 1
    draw 90
    sleep "0.0$((drawn + 10))"
    victims=$(pgrep -f "^$program --set.*--out $name")
    draw 3
    who=$drawn
    [ "$who" -ne 0 ] || victims=$(pgrep -P $pid "^(mpi|ort|prte)")
    draw "$(echo "$victims" | grep -c '')"
    kill -9 "$(echo "$victims" | sed -n "$((drawn + 1))p")" 2>/dev/null || return 1
    [ "$who" -ne 0 ] || of_mpirun=$((of_mpirun + 1))
    n=$((n + 1))
}

# Kill after kill; the end is that of a run that nobody disturbed. A run that ends before is followed by another.
kills()
{
    goal=${DDP_TEST_KILLS:-3}
    steps=$((goal * 250 + 100))
    last=ckpt-$(printf '%012d' $steps).h5
    echo "seed $seed, $goal kills"
    small="$small --set train.steps=$steps --set checkpoint.every_steps=25"
    run 0 "$program" $small --out whole --log error
    whole=$(weights)
    n=0
    of_mpirun=0
    restarts=0
    runs=0
    while [ $n -lt "$goal" ] && [ $failed -eq 0 ]; do
        rm -rf $name $name.supervise.jsonl
        "$program" supervise $fast --max-restarts 100 -- $mpirun -np 3 "$program" $small --out $name --log warn >out 2>err &
        pid=$!
        begun=$n
        while [ $n -lt "$goal" ] && is_running $pid && [ $failed -eq 0 ]; do
            kill_one
        done
        ends_with_code 0
        ends_with "$whole"
        cmp "whole/checkpoints/$last" "$name/checkpoints/$last" || fail 'the last file is another one'
        restarts=$((restarts + $(grep -c '"next":"restart"' $name.supervise.jsonl)))
        runs=$((runs + 1))
    done
    [ $restarts -ge $n ] || fail "$restarts restarts after $n kills"
    echo "$n kills, $of_mpirun of mpirun, $restarts restarts, $runs runs"
}

"$case"
exit $failed

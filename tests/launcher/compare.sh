#!/bin/sh
# The command `compare`: runs, files, what goes wrong, signals.
# Usage: sh compare.sh CASE DDPTRAIN MPIRUN [mpirun option...]
set -u

here=$(cd "$(dirname "$0")" && pwd)
. "$here/support.sh"

tiny="--set model.kind=mlp --set model.hidden=[24] --set data.kind=shapes --set data.samples=200 --set train.batch=60
    --steps 8 --rounds 1"

# A page of made-up figures in `made`.
make_page()
{
    mkdir -p made/runs
    run 0 "$TEST_MAKE_COMPARE" made 2 4 8
}

page()
{
    make_page
    holds out '^VERDICT: Use DDP, from 2 devices on\.'
    holds out '^DataParallel    2  memory 1.66  busy 1.50$' # 238 / 143 MiB, 30 / 20 ms
    [ "$(awk 'length > 100' out | wc -l)" -eq 0 ] || fail 'lines of more than 100 columns'
    run 0 python3 "$here/page.py" made
    holds made/compare.html '&lt;script&gt;'
    # a number that differs is seen
    sed 's/"samples_per_s":\t1/"samples_per_s":\t2/' made/compare.json >other && mv other made/compare.json
    run 1 python3 "$here/page.py" made
}

browser()
{
    make_page
    python3 "$here/browser.py" made >out 2>&1
    got=$?
    [ "$got" -eq 77 ] && exit 77
    [ "$got" -eq 0 ] || { fail 'the page'; cat out; }
}

measure()
{
    run 0 "$program" compare $tiny --set schedule.warmup_steps=100 --devices 1,2 --out a # more steps than are made
    holds out '^VERDICT: '
    holds out 'All 3 of them end with the same weights, bit for bit'
    [ "$(grep -c '^one device .* equal$' out)" -eq 1 ] || fail 'no line for one device'
    [ "$(grep -c '^DataParallel  *2 .* equal$' out)" -eq 1 ] || fail 'no line for DataParallel'
    [ "$(grep -c '^DDP  *2 .* equal$' out)" -eq 1 ] || fail 'no line for DDP'
    [ "$(awk 'length > 100' out | wc -l)" -eq 0 ] || fail 'lines of more than 100 columns'
    run 0 python3 "$here/page.py" a
    holds a/compare.svg '</svg>'
    if command -v gnuplot >/dev/null 2>&1; then
        [ -s a/compare.png ] || fail 'gnuplot made no picture'
    fi
    # the runs are what the same settings give by hand
    run 0 "$program" $(echo $tiny | sed 's/--steps.*//') --set train.steps=8 --set train.micro_batch=30 \
        --set schedule.kind=constant --log error --out b
    grep -q "\"weights\":.*\"$(weights)\"" a/compare.json || fail 'other weights than by hand'
    # a folder is never written over
    run 1 "$program" compare $tiny --devices 2 --out a
    says 'exists and is not empty'
}

mistakes()
{
    run 2 "$program" compare --devices 2,2
    says "--devices '2,2': 2 twice"
    run 2 "$program" compare --set train.micro_batch=64 --devices 2,4
    says '4 devices, but train.batch 128 makes 2 micro-batches of train.micro_batch 64'
    run 2 "$program" compare --set train.batch=3 --devices 2,4
    says '4 devices, but train.batch is 3'
    run 2 "$program" compare --set train.batch=1
    says 'nothing to compare'
    run 2 "$program" compare missing.yaml
    says 'missing.yaml: no such file or directory'
    run 2 "$program" compare --set train.batch=frog
    says "train.batch is 'frog'"
    run 2 "$program" compare --steps 3
    says 'leaves none after a warm-up of 3 steps'
    ranks 2 2 compare --devices 2
    says 'start it once, without mpirun'
    run 0 "$program" compare --help
    holds out '^Usage: ddptrain compare'
    run 0 "$program" --help
    holds out '^  compare '
    [ -e runs ] && fail 'a folder in spite of the mistake'
    return 0
}

# has TEXT: err of a comparison holds it in a line.
has()
{
    grep '^ddptrain' err | grep -q -F -e "$1" || { fail "'$1' is not in:"; cat err; }
}

failing()
{
    make_tools
    run 1 env PATH="$PWD/tools" "$program" compare $tiny --devices 2 --out a
    holds out '^one device  *1 .* equal$'
    holds out '^DDP  *2 not measured'
    holds out 'mpirun is not in PATH, so DDP could not be measured'
    has 'not all could be measured'
    grep -q '"error":.*mpirun is not in PATH' a/compare.json || fail 'not in compare.json'
    # a rank fails
    DDP_FAULT=train_step:1 run 1 "$program" compare $tiny --devices 2 --out b
    has 'DDP on 2 ranks: exit status 1: '
    holds b/compare.html 'planted'
    holds out '^one device  *1 .* equal$'
    # nothing works
    run 1 "$program" compare $tiny --devices 2 --set data.kind=idx --set data.path=nowhere --out c
    has 'one device: exit status 1: '
    holds out '^VERDICT: No verdict'
}

# A PATH without mpirun, in `tools`.
make_tools()
{
    mkdir tools
    ln -s /usr/bin/* tools/
    rm -f tools/mpirun tools/mpiexec tools/srun
}

# Inside a Slurm job without mpirun ranks come from srun; here one that notes what it is asked for.
slurm()
{
    make_tools
    cat >tools/srun <<END
#!/bin/sh
echo "\$*" >>$PWD/asked
shift 3
unset SLURM_JOB_ID SLURM_NTASKS
exec $mpirun -np 2 "\$@"
END
    chmod +x tools/srun
    SLURM_JOB_ID=1 SLURM_NTASKS=2 SLURM_RESTART_COUNT=1 run 0 env PATH="$PWD/tools" "$program" compare $tiny --devices 2 --out a
    holds out '^DDP  *2 .* equal$'
    holds asked '^--mpi=pmix --kill-on-bad-exit=1 --ntasks=2 /.*ddptrain'
}

# The lines of docs/dataparallel.md, as they stand there.
commands()
{
    page=$here/../../docs/dataparallel.md
    ln -s "$program" ddptrain
    PATH=$PWD:$PATH
    awk '/^```yaml/ { on = 1; next } /^```/ { on = 0 } on' "$page" >run.yaml
    awk '/^```sh/ { on = 1; next } /^```/ { on = 0 } on' "$page" >lines
    [ "$(wc -l <lines)" -ge 9 ] || fail 'the page has other lines than expected'
    while read -r line; do
        case $line in
        *'exit status '*) wanted=${line##*exit status } && wanted=${wanted%%[!0-9]*} ;;
        *) wanted=0 ;;
        esac
        run "$wanted" sh -c "$line" </dev/null
    done <lines
}

# An mpirun that starts something of its own, and then does nothing.
plant_mpirun()
{
    mkdir -p planted
    cat >planted/mpirun <<END
#!/bin/sh
setsid sleep 300 &
echo \$! >>$PWD/left
exec sleep 300
END
    chmod +x planted/mpirun
}

# is_there PID: it runs, and is not merely unburied.
is_there()
{
    case $(ps -o stat= -p "$1") in
    '' | Z*) return 1 ;;
    esac
}

# Nothing of the planted mpirun is left.
nothing_left()
{
    [ -s left ] || fail 'the planted mpirun was not started'
    while read -r pid; do
        is_there "$pid" && {
            fail "process $pid is left"
            kill "$pid"
        }
    done <left
    rm -f left
}

# wait_for FILE: until it is there.
wait_for()
{
    for _ in $(seq 200); do
        [ -s "$1" ] && return
        sleep 0.1
    done
    fail "no $1"
}

stuck()
{
    plant_mpirun
    run 1 env PATH="$PWD/planted:$PATH" "$program" compare $tiny --devices 2 --timeout 1 --out a
    has 'DDP on 2 ranks: no new step in 1 s (--timeout)'
    holds a/compare.json 'no new step in 1 s'
    nothing_left
}

signals()
{
    plant_mpirun
    for signal in INT TERM; do
        PATH="$PWD/planted:$PATH" "$program" compare $tiny --devices 2 --out "by-$signal" >out 2>err &
        pid=$!
        wait_for left
        kill -$signal $pid
        wait $pid
        got=$?
        [ "$got" -eq 1 ] || fail "exit status $got after $signal"
        has 'stopped by signal'
        [ -s "by-$signal/compare.html" ] || fail 'no page of what was measured'
        holds out 'was stopped by signal'
        nothing_left
    done
    # what was started does not outlive a killed comparison
    PATH="$PWD/planted:$PATH" "$program" compare $tiny --devices 2 --out killed >out 2>err &
    pid=$!
    wait_for left
    child=$(pgrep -P $pid)
    kill -KILL $pid
    wait $pid
    sleep 0.3
    is_there "$child" && fail 'mpirun outlived the comparison'
    while read -r orphan; do
        kill "$orphan"
    done <left
}

"$case"
exit $failed

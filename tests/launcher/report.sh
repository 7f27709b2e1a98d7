#!/bin/sh
# The command `report`: pages of real and of made-up runs, damaged files, event files, timelines.
# Usage: sh report.sh CASE DDPTRAIN MPIRUN [mpirun option...]
set -u

here=$(cd "$(dirname "$0")" && pwd)
. "$here/support.sh"

small="--set model.kind=mlp --set model.hidden=[24] --set data.kind=shapes --set data.samples=300 --set train.batch=60
    --set train.log_every=2 --log error"

# make FOLDER STEPS RANKS [STARTS]
make()
{
    python3 "$here/make_run.py" "$@" || fail 'no made-up run'
}

# page FOLDER: its page is well-formed and says what metrics.jsonl says
page()
{
    run 0 python3 "$here/report_page.py" "$1/report.html" "$1"
}

# A run, gone on with on other ranks, with its timeline.
real()
{
    ranks 2 0 $small --set train.epochs=2 --set checkpoint.every_epochs=1 --out a
    run 0 "$program" report a
    holds out '^a: Done: 10 steps in '
    holds out '^page a/report.html$'
    page a
    ranks 3 0 $small --set train.epochs=3 --set train.trace=true --out a --resume auto
    sum=$(cat a/metrics.jsonl a/config.yaml a/checkpoints/*.h5 | cksum)
    run 0 "$program" report a --trace t.json --tensorboard board
    [ "$(cat a/metrics.jsonl a/config.yaml a/checkpoints/*.h5 | cksum)" = "$sum" ] || fail 'the run was changed'
    page a
    holds a/report.html 'It was started 2 times'
    holds a/report.html 'train.epochs: 3 (was 2)'
    [ "$(grep -c 'class="restart"' a/report.html)" -ge 3 ] || fail 'no lines of restarts'
    [ -f a/.report.html.tmp ] && fail 'a draft is left'
    # the timeline is that of the run itself, but for what metrics.jsonl does not tell
    python3 - <<'END' || fail 'another timeline'
import json
def spans(path):
    return [(e["name"], e["pid"], e["tid"], e.get("ts")) for e in json.load(open(path))["traceEvents"]]
assert spans("t.json") == spans("a/trace.json") and len(spans("t.json")) > 10
END
    # every scalar of metrics.jsonl, at its step and time
    python3 "$here/tfevents.py" board/events.out.tfevents.*.ddptrain >scalars || fail "$(tail -n 1 scalars)"
    python3 - <<'END' || fail 'other scalars'
import json, struct
told = {}
for line in open("scalars"):
    step, tag, value, time = line.split()
    told[(int(step), tag)] = (float(value), float(time))
n = 0
for line in open("a/metrics.jsonl"):
    event = json.loads(line)
    for kind, key, tag in (("step", "loss", "loss/train"), ("step", "samples_per_s", "throughput/samples_per_s"),
                           ("eval", "loss", "loss/test"), ("checkpoint", "stall_ms", "checkpoint/stall_ms")):
        if event["event"] == kind:
            value, time = told[(event["step"], tag)]
            assert struct.pack("f", value) == struct.pack("f", event[key]), (event["step"], tag)
            assert abs(time - event["time"]) < 0.002
            n += 1
assert n > 20, n
END
    # a second report replaces the file of the first
    run 0 "$program" report a --tensorboard board
    [ "$(ls board | wc -l)" -eq 1 ] || fail 'two event files'
    # with devices of one process
    run 0 "$program" $small --set train.epochs=1 --mode dp --devices 0,1 --out d
    run 0 "$program" report d
    page d
    holds d/report.html 'class="replicate"'
}

# Stopped, failed, and without an end.
ends()
{
    run 75 "$program" $small --set train.epochs=400000 --time-limit 1 --out stopped
    run 0 "$program" report stopped
    holds out '^stopped: Stopped early, after step [0-9]* of 2000000, with its state saved'
    holds stopped/report.html 'ddptrain stopped/config.yaml --out stopped --resume auto'
    DDP_FAULT=train_step:1 ranks 2 1 $small --out failed
    run 0 "$program" report failed
    holds out '^failed: Failed after step 0 of 15 or soon after it: train_step: planted fault'
    # rank 0 itself is gone: who says so writes it
    $mpirun -np 3 "$program" $small --set train.epochs=100000 --out lost >lost.out 2>&1 &
    pid=$!
    for _ in $(seq 200); do
        grep -q '"event":"step"' lost/metrics.jsonl 2>/dev/null && break
        sleep 0.1
    done
    kill -KILL "$(pgrep -f -- "^$program .*--out lost" | head -n 1)"
    wait $pid
    run 0 "$program" report lost
    holds out '^lost: Failed after step [0-9]* of 500000 or soon after it: rank [0-2] on .* has ended (pid .*, killed by signal 9'
    # the lock is held as long as the run goes on
    "$program" $small --set train.epochs=100000 --out going >going.out 2>&1 &
    pid=$!
    for _ in $(seq 200); do
        grep -q '"event":"step"' going/metrics.jsonl 2>/dev/null && break
        sleep 0.1
    done
    run 0 "$program" report going
    holds out '^going: Going on: step'
    grep -q 'No process of this machine' going/report.html && fail 'the lock was not seen'
    kill -KILL $pid
    wait $pid
    touch -d '3 hours ago' going/metrics.jsonl
    run 0 "$program" report going
    holds out '^going: Broke off after step'
    holds going/report.html 'last written to 3 h 0 min ago'
    holds going/report.html 'The folder does not tell why'
    # who supervised it knows more
    {
        echo '{"event":"attempt","time":"2026-01-02T03:04:05Z","attempt":0,"seconds":5,"code":137,"line":"rank 3 on node07 has ended","next":"restart"}'
        echo '{"event":"attempt","attempt":1,"line":"rank 2 on <node08> is gone","next":"give_up","reason":"no"}'
        echo '{"event":"att'
    } >going.supervise.jsonl
    run 0 "$program" report going
    holds out '^going: Broke off after step .*: rank 2 on <node08> is gone'
    holds going/report.html 'rank 3 on node07 has ended'
    holds going/report.html 'supervise started it 2 times'
    holds going/report.html '2026-01-02 03:04 UTC' # as the other times of the page
    echo '{"event":"attempt","attempt":2,"next":"done","reason":"done"}' >>going.supervise.jsonl
    run 0 "$program" report going
    holds going/report.html 'supervise started it '
    ! grep -q 'done: done' going/report.html || fail 'done, because it is done'
}

# What can be read is shown.
damaged()
{
    make cut 40 3
    truncate -s -30 cut/metrics.jsonl # half of the last line
    touch -d '2 hours ago' cut/metrics.jsonl
    run 0 "$program" report cut
    holds out '^cut: Broke off after step 40'
    holds cut/report.html 'The last line of metrics.jsonl is cut off'
    [ -s err ] && fail "$(cat err)"
    page cut
    make odd 40 3
    {
        sed -n '1,10p' odd/metrics.jsonl
        echo 'not JSON'
        printf '{"event":"step","step":9,"loss":NaN}\n\377\376\000\n'
        echo '{"event":"step","step":2,"loss":1}' # long done
        echo '[[[[]]]]'
        sed -n '11,$p' odd/metrics.jsonl
        echo '{"event":"step","step":41,"loss":null,"lr":"high","step_ms":-1,"phases_ms":[],"slowest_rank":-3}'
        echo '{"event":"straggler","step":1e400,"ranks":5}'
    } >mixed
    mv mixed odd/metrics.jsonl
    run 0 "$program" report odd
    says '6 lines cannot be read and left out, first line 11'
    page odd
    # nothing of a run
    mkdir empty none foreign
    : >empty/metrics.jsonl
    run 1 "$program" report empty
    says 'there is no event of a run in it'
    echo 'hello' >foreign/metrics.jsonl
    run 1 "$program" report foreign
    says 'there is no event of a run in it'
    run 1 "$program" report none
    says "'none': no metrics.jsonl in it"
    mkfifo none/metrics.jsonl
    run 1 "$program" report none
    says 'not a regular file'
    [ -e none/report.html ] && fail 'a page of nothing'
    return 0
}

# 100 000 steps of 64 ranks, four starts: a small page, little memory.
large()
{
    make big 100000 64 4
    run 0 sh -c "ulimit -v 400000; exec \"$program\" report big"
    [ "$(wc -c <big/report.html)" -lt 2000000 ] || fail 'a page of 2 MB or more'
    holds big/report.html 'Rank 1 was the slowest in 50 % of the reports and worked 1.49 times as long'
    holds big/report.html 'class="late4"'
    holds big/report.html 'Means of up to 256 values each'
}

# The pages in a browser.
browser()
{
    make one 300 3 2
    make long-name-of-a-run-that-does-not-fit-into-a-legend-by-far 90 70
    run 0 "$program" report one
    run 0 "$program" report one long-* --out two.html
    for page in one/report.html two.html; do
        python3 "$here/browser.py" "$page" >out 2>&1
        got=$?
        [ "$got" -eq 77 ] && exit 77
        [ "$got" -eq 0 ] || { fail "$page"; cat out; }
    done
}

several()
{
    make a 30 2
    make b 60 2
    mkdir c
    cp -r a c/a
    run 0 "$program" report a/ b c/a --out all.html --tensorboard board
    [ "$(grep -c 'Done: ' out)" -eq 3 ] || fail 'not a line for each'
    python3 -c 'import sys, xml.etree.ElementTree as e; e.fromstring(open(sys.argv[1]).read().partition("\n")[2])' all.html ||
        fail 'all.html is not well-formed'
    [ "$(grep -c '<polyline class="c2 line"' all.html)" -eq 4 ] || fail 'not a line of the third run in each chart'
    for name in a b a-2; do
        ls board/$name/events.out.tfevents.* >/dev/null || fail "no event file of $name"
    done
    run 1 "$program" report a nowhere --out none.html
    says "'nowhere': no such file or directory"
    [ -e none.html ] && fail 'a page of half of the runs'
    return 0
}

mistakes()
{
    make a 5 2
    run 2 "$program" report
    says "a run's folder is needed: ddptrain report RUN"
    run 2 "$program" report a --out a/metrics.jsonl
    says "--out 'a/metrics.jsonl': the name of a page ends in .html"
    run 2 "$program" report a --trace a/config.yaml
    says 'ends in .json'
    run 2 "$program" report a --tensorbord x
    says "unknown option '--tensorbord'; did you mean '--tensorboard'?"
    run 1 "$program" report a/metrics.jsonl
    says 'a file; a run is a folder'
    run 1 "$program" report a --trace t.json
    says 'there is no timeline in it; a run with train.trace: true leaves one'
    run 1 "$program" report a --out nowhere/x.html
    says 'nowhere//x.html'
    run 1 "$program" report a --tensorboard a/config.yaml
    says "'a/config.yaml': "
    ranks 2 2 report a
    says 'start it without mpirun'
    if [ -w /dev/full ]; then
        "$program" report a >/dev/full 2>err
        [ $? -eq 1 ] || fail 'a full stdout is no error'
        says 'stdout: no space left on device'
    fi
    run 0 "$program" report --help
    holds out '^Usage: ddptrain report'
    run 0 "$program" --help
    holds out '^  report '
}

"$case"
exit $failed

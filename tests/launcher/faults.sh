#!/bin/sh
# Every call of a save fails once, or the run is killed there: no crash, what was saved before stays, the weights are
# right. Usage: SHIM=fault_shim.so sh faults.sh CASE DDPTRAIN MPIRUN [mpirun option...]; DDP_TEST_SEED repeats a sample.
set -u

. "$(dirname "$0")/support.sh"

# Four saves; the third is the first that makes an older file superfluous.
small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=64 --set train.batch=60
    --set train.micro_batch=15 --set train.steps=8 --set model.kind=mlp --set model.hidden=[24] --set train.eval_every=8
    --set checkpoint.every_steps=2 --set checkpoint.keep=2 --log warn"
last=ckpt-000000000008.h5
seed=${DDP_TEST_SEED:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}

# shimmed NP AT DO [RANK]: a run into the folder `run`, with that fault; its exit status in `got`
shimmed()
{
    np=$1
    rm -rf run calls
    start=$program
    [ "$np" -gt 1 ] && start="$mpirun -np $np $program"
    (
        export SHIM_UNDER=run/checkpoints SHIM_AT="$2" SHIM_DO="$3" SHIM_LOG="$folder/calls"
        [ $# -gt 3 ] && export SHIM_RANK="$4"
        export LD_PRELOAD="$SHIM" # of mpirun too, which has no such files
        exec $start $small --out run >out 2>err
    ) 2>/dev/null
    got=$?
}

# The run that nothing disturbs.
whole_run()
{
    rm -rf whole
    run 0 "$program" $small --out whole
    whole=$(weights)
    shimmed "$1" 0 0
    [ "$got" -eq 0 ] && [ "$(weights)" = "$whole" ] && [ -n "$whole" ] || { fail 'counting is no matter'; cat out err; }
    cmp whole/checkpoints/$last run/checkpoints/$last || fail 'the file is another one'
    cp calls order
}

# error AT WHAT [RANK]: the run goes on, or ends with one line because nothing could be saved at its start or at its end
error()
{
    shimmed "$np" "$@"
    errors=$(grep -c '^ddptrain' err)
    case $got in
    0)
        [ "$(weights)" = "$whole" ] || fail "$*: other weights"
        [ "$errors" -le 1 ] || { fail "$*: more than one line"; cat err; }
        [ -e run/checkpoints/$last ] || fail "$*: the last checkpoint is not there"
        ;;
    1) # the save that failed, and that it was the last one
        [ "$errors" -ge 1 ] && [ "$errors" -le 2 ] || { fail "$*: one line is expected"; cat err; }
        grep -q -e 'the last checkpoint could not be saved' -e "run/checkpoints" err || { fail "$*: says"; cat err; }
        ;;
    *)
        fail "$*: exit status $got"
        cat err
        ;;
    esac
    [ "$got" -eq 1 ] || [ -z "$(find run -name '.*.tmp-*')" ] || [ "$errors" -eq 1 ] || fail "$*: a temporary file stays"
    goes_on "$@"
}

# killed AT HOW [RANK]: what is left goes on
killed()
{
    shimmed "$np" "$@"
    [ "$got" -ge 128 ] || [ "$np" -gt 1 ] || fail "$*: exit status $got of what was killed"
    goes_on "$@"
}

# Nothing under a final name is broken, and the run comes to the same end.
goes_on()
{
    run 0 "$program" $small --out run --resume auto
    [ "$(weights)" = "$whole" ] || { fail "$*: other weights after --resume auto"; cat err; }
    grep -q 'passed over' err && { fail "$*: a broken file"; cat err; }
    cmp -s whole/checkpoints/$last run/checkpoints/$last || fail "$*: the last file is another one"
    [ -z "$(find run -name '.*.tmp-*')" ] || fail "$*: a temporary file stays"
}

# tried NUMBER: number of a fault, from 0: 7 for each call
tried()
{
    at=$(($1 / 7 + 1))
    case $(($1 % 7)) in
    0) error $at 28 $victim ;;  # ENOSPC
    1) error $at 5 $victim ;;   # EIO
    2) error $at 122 $victim ;; # EDQUOT
    3) error $at short $victim ;;
    4) killed $at kill $victim ;;
    5) killed $at torn $victim ;;
    6) killed $at after $victim ;;
    esac
}

# some COUNT: a sample of all faults; two in a row are never of the same kind
some()
{
    echo "seed $seed"
    calls=$(grep -c " ${victim:-0} " order)
    [ "$calls" -gt 20 ] || fail "only $calls calls"
    for i in $(seq 1 "$1"); do
        tried $(((seed * 31 + i * 7919) % (calls * 7)))
    done
}

sample()
{
    np=1
    victim=
    whole_run 1
    some 5
    np=2
    whole_run 2
    victim=$((seed % 2))
    some 3
}

# calls_of RANK: the numbers of its calls at the start and in the third save
calls_of()
{
    awk -v rank="$1" '$4 ~ /-000000000006/ && $3 == "open" { third = 1 } $4 ~ /-000000000008/ { third = 0 }
        $4 ~ /-000000000002/ { later = 1 } $2 == rank && (third || !later) { print $1 }' order
}

all()
{
    np=1
    victim=
    whole_run 1
    for call in $(calls_of 0); do
        for kind in 0 1 2 3 4 5 6; do
            tried $(((call - 1) * 7 + kind))
        done
    done
}

all_two()
{
    np=2
    whole_run 2
    for victim in 0 1; do
        for call in $(calls_of $victim); do
            tried $(((call - 1) * 7 + call % 7))
        done
    done
}

# The order of the calls that a power cut must not meet otherwise, of every rank's.
order()
{
    for np in 1 2; do
        whole_run $np
        awk -v np=$np '
            $3 == "pwrite" && $4 ~ /-000000000006/ { wrote[$2] = NR; last = NR }
            $3 == "fsync" && $4 ~ /-000000000006/ { synced = NR }
            $3 == "rename" && $4 ~ /^\.ckpt-000000000006/ { renamed = NR }
            $3 == "fsync" && $4 == "checkpoints" && renamed && !folder { folder = NR }
            $3 == "rename" && $4 ~ /^\.latest/ && folder && !linked { linked = NR }
            $3 == "unlink" && $4 ~ /^ckpt-000000000002/ { removed = NR }
            END {
                for (rank = 0; rank < np; rank++) if (!wrote[rank]) { print "rank " rank " writes nothing"; exit 1 }
                exit !(last < synced && synced < renamed && renamed < folder && folder < linked && linked < removed)
            }' order || { fail "the order of calls on $np ranks"; cat order; }
    done
}

# A signal that breaks off a call is no failure.
interrupted()
{
    np=1
    whole_run 1
    at=$(awk '$3 == "fallocate" { at = $1 } END { print at }' order)
    shimmed 1 "$at" 4 # EINTR
    [ "$got" -eq 0 ] && [ ! -s err ] || { fail 'interrupted'; cat err; }
}

# Known at the start; and a disk that is too small, where this user may make one.
room()
{
    np=1
    whole_run 1
    shimmed 1 "$(awk '$3 == "fallocate" { print $1; exit }' order)" 28
    [ "$got" -eq 1 ] || fail "exit status $got without room"
    says 'no room for a checkpoint of'
    holds err 'no space left on device'
    mkdir disk
    mount -t tmpfs -o size=6500k tmpfs disk 2>/dev/null || { echo 'no tmpfs for this user'; return 0; }
    mkdir tiny
    mount -t tmpfs -o size=4k tmpfs tiny
    run 1 env DDPTRAIN_TMP="$folder/tiny" "$program" $small --out outline
    umount tiny
    holds err 'file write failed: No space left on device$' # HDF5's own words have addresses, and no end
    small="$small --set model.hidden=[200]" # 1.9 MB in a file, 3 in the check at the start
    run 0 "$program" $small --out disk/run
    whole=$(weights)
    run 1 "$program" $small --out disk/other
    says 'no room for a checkpoint of'
    holds err 'disk/other/checkpoints'
    rm -rf disk/other disk/run
    # there is room at the start, and later there is none: training goes on
    run 1 "$program" $small --out disk/run --set checkpoint.keep=10
    holds err 'checkpoint of step 8 is not saved: .*no room for a checkpoint of'
    holds err 'the last checkpoint could not be saved'
    rm disk/run/checkpoints/ckpt-000000000002.h5 disk/run/checkpoints/ckpt-000000000004.h5
    run 0 "$program" $small --out disk/run --resume auto
    [ "$(weights)" = "$whole" ] || fail 'other weights after the disk was full'
}

# A rank dies while a slow disk holds a save up: it is named at once, and what is saved is whole.
in_flight()
{
    small="$small --set schedule.kind=constant"
    whole_run 2
    at=$(awk '$3 == "fsync" && $4 ~ /-000000000002/ { print $1; exit }' order)
    rm -rf run
    name=flight$$ # other tests may run
    SHIM_UNDER=$name/checkpoints SHIM_AT=$at SHIM_DO=slow LD_PRELOAD=$SHIM $mpirun -np 2 "$program" $small \
        --set train.steps=1000000 --set train.eval_every=1000000 --out $name >out 2>err &
    job=$!
    tries=0
    until [ -n "$(find $name -name '.ckpt-000000000002*' 2>/dev/null)" ] || [ $tries -gt 300 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
    begun=$(date +%s)
    kill -9 "$(pgrep -f "^$program .*--out $name" | sort -n | tail -n 1)"
    wait $job
    [ $? -ne 0 ] || fail 'exit status 0 after a rank was killed'
    [ $(($(date +%s) - begun)) -le 20 ] || fail 'the end took too long'
    mv $name run
    [ -e run/checkpoints/ckpt-000000000004.h5 ] && fail 'there was no save in flight'
    goes_on 'a rank that died'
}

# A step that is not finite ends the run; the save before it, held up by a slow disk, comes to its end and is named.
not_finite()
{
    small="$small --set checkpoint.every_steps=1 --set optimizer.kind=sgd --set optimizer.lr=1000000
        --set optimizer.clip_norm=0 --set schedule.kind=constant"
    for np in 1 2; do
        shimmed $np 0 0
        [ "$got" -eq 1 ] || fail "exit status $got"
        at=$(awk '$3 == "fsync" && /ckpt/ { at = $1 } END { print at }' calls)
        last=$(sed -n 's/.*fsync \.\(ckpt-[0-9]*\.h5\).*/\1/p' calls | tail -n 1)
        shimmed $np "$at" slow 0
        says "saved before: run/checkpoints/$last"
        [ -e "run/checkpoints/$last" ] || fail 'the save in flight was given up'
    done
}

# number_of WHAT NAME RANK: the first such call on a file of that name
number_of()
{
    awk -v what="$1" -v name="$2" -v rank="$3" '$2 == rank && $3 == what && index($4, name) { print $1; exit }' order
}

# hung WHAT NAME RANK: a run in which this call never returns ends in time, and says where it was
hung()
{
    at=$(number_of "$@")
    [ -n "$at" ] || fail "no $1 of $2 by rank $3"
    begun=$(date +%s)
    shimmed "$np" "$at" hang $([ "$np" -eq 1 ] || echo "$3")
    [ "$got" -eq 1 ] || fail "$*: exit status $got"
    [ $(($(date +%s) - begun)) -le 20 ] || fail "$*: the end took too long"
    holds err "on [^ ]*: no progress for [0-9.]* s, in $1"
}

# A disk that does not answer, in the last save or before: the run ends, and what was saved before stays whole.
hang()
{
    np=2
    small="$small --set checkpoint.timeout_s=3"
    whole_run 2
    hung fsync -000000000008 0
    holds err "run/checkpoints/$last.* in fsync of rank 0, 0.2[0-9]* of 0.2[0-9]* MB written"
    [ "$(grep -c '^ddptrain.* for 3\.*[0-9]* s' err)" -eq 1 ] || { fail 'the end is one line'; cat err; }
    goes_on 'a last save that hangs'
    hung pwrite -000000000008 1
    holds err 'in pwrite of rank 1'
    goes_on 'a part that hangs'
    np=1
    whole_run 1
    hung fallocate -000000000000 0
    holds err "getting folder 'run/checkpoints' ready for checkpoints on"
    [ "$(grep -c '^ddptrain' err)" -eq 2 ] || { fail 'a warning and the end'; cat err; }
    run 1 env SHIM_UNDER=other/metrics.jsonl SHIM_AT=1 SHIM_DO=hang LD_PRELOAD="$SHIM" "$program" $small --out other
    says "making the run's folder took more than 3 s: the disk does not answer"
}

# A disk that answers late: a save that is due meanwhile is left out, and the run is the same.
late()
{
    np=2
    small="$small --set checkpoint.timeout_s=5"
    whole_run 2
    late_rank 1
}

# late_rank RANK: it is late with its part of the second save
late_rank()
{
    shimmed 2 "$(number_of pwrite -000000000004 "$1")" slow "$1"
    [ "$got" -eq 0 ] && [ "$(weights)" = "$whole" ] || { fail "exit status $got"; cat err; }
    holds err 'checkpoint of step 6 is not saved: still writing .*-000000000004.h5.* in pwrite'
    cmp whole/checkpoints/$last run/checkpoints/$last || fail 'the last file is another one'
    [ -e run/checkpoints/ckpt-000000000004.h5 ] || fail 'what was written late is not there'
    [ -e run/checkpoints/ckpt-000000000006.h5 ] && fail 'the save was not left out'
    return 0
}

# A limit of the size of files (ulimit -f, SIGXFSZ) is a line like any other; also where it is met in the middle of a file.
limit()
{
    np=1
    whole_run 1
    shimmed 1 "$(number_of fallocate -000000000000 0)" limit
    [ "$got" -eq 1 ] || fail "exit status $got"
    says "no room for a checkpoint of 1.3 MB: 'run/checkpoints': file too large"
    shimmed 1 "$(number_of fallocate -000000000002 0)" limit
    [ "$got" -eq 1 ] || fail "exit status $got"
    holds err 'checkpoint of step 2 is not saved: no room for a checkpoint of .*file too large'
    holds err 'checkpoint of step 6 is not saved: .*[Ff]ile too large'
    holds err 'could not be saved'
    [ "$(find run -name '*ckpt-*')" = '' ] || fail 'a checkpoint that was not saved is there'
    shimmed 1 "$(number_of pwrite -000000000002 0)" limit
    [ "$got" -eq 1 ] || fail "exit status $got"
    holds err "checkpoint of step 2 is not saved: 'run/checkpoints/.ckpt-000000000002.h5.tmp-[0-9]*': file too large"
    goes_on 'a limit of the size of files'
}

# The name of a file is on the disk only if its folder was written: else that is no checkpoint.
folder()
{
    np=1
    whole_run 1
    shimmed 1 "$(number_of fsync checkpoints 0)" 5
    [ "$got" -eq 0 ] && [ "$(weights)" = "$whole" ] || fail "exit status $got"
    says "checkpoint of step 2 is not saved: 'run/checkpoints': input/output error"
    goes_on 'a folder that is not written'
    shimmed 1 "$(awk '$3 == "fsync" && $4 == "checkpoints" { at = $1 } END { print at }' order)" 5
    [ "$got" -eq 1 ] || fail "exit status $got"
    holds err "checkpoint of step 8 is not saved: 'run/checkpoints': input/output error"
    holds err 'the last checkpoint could not be saved'
    goes_on 'a folder that is not written at last'
}

# The best is the best of what was saved. The test losses of this run fall from step 4 on, that of step 2 is the least.
best()
{
    np=1
    small="$small --set train.eval_every=2 --set schedule.kind=constant --set optimizer.kind=sgd
        --set optimizer.momentum=0.5 --set optimizer.lr=0.2"
    whole_run 1
    [ "$(readlink run/checkpoints/best.h5)" = ckpt-000000000002.h5 ] || { fail 'the best is another one'; ls -l run/checkpoints; }
    at=$(number_of fsync -000000000002 0)
    shimmed 1 "$at" 5
    [ "$got" -eq 0 ] || fail "exit status $got"
    [ "$(readlink run/checkpoints/best.h5)" = $last ] || { fail 'the best was not saved, another is'; ls -l run/checkpoints; }
    run 0 "$program" inspect run/checkpoints/best.h5
    told=$(sed -n 's/.*"event":"eval","step":8,.*"loss":\([0-9.]*\),.*/\1/p' run/metrics.jsonl)
    [ "$(awk '$1 == "best_loss" { printf "%.5f", $2 }' out)" = "$(printf '%.5f' "$told")" ] || fail "best_loss is not $told"
}

# Each call of a save and of the start never returns, of either rank; three saves in a row that are left out.
all_hang()
{
    late
    late_rank 0
    hang
    hung rename -000000000002 0
    holds err 'checkpoint of step 4 is not saved: still writing .*-000000000002.h5'
    [ "$(find run -name 'ckpt-*')" = '' ] || fail 'a checkpoint that was not saved is there'
    for call in 'open -000000000000' 'unlink -000000000000' 'open -000000000008' 'fallocate -000000000008' \
        'pwrite -000000000008' 'close -000000000008' 'fsync -000000000008' 'rename -000000000008'; do
        hung $call 0
    done
    small="$small --set train.steps=20"
    hung fsync -000000000002 0
    holds err '3 checkpoints in a row could not be saved'
    np=2
    small="$small --set train.steps=8"
    whole_run 2
    for call in 'open -000000000008' 'close -000000000008'; do
        hung $call 1
        goes_on "$call"
    done
}

trap 'umount "$folder/disk" 2>/dev/null; rm -rf "$folder"' EXIT
"$case"
exit $failed

#!/bin/sh
# The whole program, as a user starts it: exit status, lines, files, and the same weights on any number of ranks.
# Usage: sh program.sh CASE DDPTRAIN MPIRUN [mpirun option...]
set -u

. "$(dirname "$0")/support.sh"

# A run small enough for a second: 8 micro-batches, a short last batch, dropout and clipping on.
small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=130 --set train.batch=60
    --set train.micro_batch=8 --set train.steps=6 --set model.kind=mlp --set model.hidden=[24,16]
    --set model.dropout=0.2 --set optimizer.clip_norm=0.25 --log error"

usage()
{
    run 0 "$program" --help
    holds out 'mpirun -np 2 ddptrain'
    holds out 'Exit status: 0 done, 1 failed, 2 wrong usage'
    run 0 "$program" --version
    holds out '^ddptrain [0-9]'
    holds out '^cuda'
    run 0 "$program" --help-config
    holds out '  micro_batch: auto'
    cp out run.yaml
    run 2 "$program" --dryrun
    says "unknown option '--dryrun'; did you mean '--dry-run'?"
    run 2 "$program" trian
    says "did you mean 'train'?"
    printf 'train:\n  modle: 5\n' >bad.yaml
    run 2 "$program" bad.yaml
    says "bad.yaml:2:3: unknown key 'modle' in 'train'"
    run 2 "$program" --set train.batch=frog
    says "train.batch is 'frog'"
    run 2 "$program" missing.yaml
    says 'missing.yaml: no such file or directory'
    run 2 "$program" train train
    says "'train' stands first and once"
    mkfifo pipe.yaml # nobody writes: must not wait
    run 2 "$program" pipe.yaml
    says 'pipe.yaml: a device or pipe, not a YAML file'
    for np in 1 2; do
        ranks $np 0 --help
        [ "$(grep -c '^Usage' out)" -eq 1 ] || fail "--help on $np ranks is not there once"
        ranks $np 2 --dryrun
        says "unknown option '--dryrun'"
        ranks $np 2 bad.yaml
        says "bad.yaml:2:3: unknown key 'modle' in 'train'"
        ranks $np 2 $small --set optimizer.lr=-1
        says "optimizer.lr is '-1'"
    done
    SLURM_NTASKS=4 run 2 "$program" $small
    says '4 tasks, but MPI joins 1'
    SLURM_NTASKS=4 run 0 "$program" $small --mode dp --devices 0 # one process may have the allocation to itself
    # srun --mpi=none
    SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_ID=0 SLURM_PROCID=0 run 2 "$program" $small --mode dp --devices 0
    says '3 tasks, but MPI joins 1'
    SLURM_STEP_NUM_TASKS=3 SLURM_STEP_ID=0 SLURM_PROCID=2 run 2 "$program" $small
    [ ! -s err ] || { fail 'all tasks say it'; cat err; }
}

# One process starts no other: a daemon of MPI would outlive it when it is killed. Nor does it make MPI's folder for temporary files,
# which others that are alone would share, and take away.
alone()
{
    mkdir temporary
    TMPDIR=$folder/temporary "$program" $small --set train.steps=100000 --out alone >out 2>err &
    pid=$!
    tries=0
    until grep -q '"event":"step"' alone/metrics.jsonl 2>/dev/null || [ $tries -ge 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    cat "/proc/$pid/task/"*/children >children
    kill -9 $pid
    wait $pid
    [ $tries -lt 300 ] || fail "no step in 30 s"
    [ ! -s children ] || fail "it started process $(cat children)"
    [ -z "$(ls temporary)" ] || fail "it left $(ls temporary)"
}

# Each rank reads its own file and options; differences are named.
mismatch()
{
    run 2 $mpirun -np 1 "$program" $small : -np 1 "$program" $small --set optimizer.lr=0.5
    says 'optimizer.lr'
    run 2 $mpirun -np 1 "$program" $small : -np 1 "$program" $small --set optimizer.lr=frog
    says "optimizer.lr is 'frog'"
    run 2 $mpirun -np 1 "$program" $small : -np 1 "$program" $small --dry-run
    says 'rank 1 on'
    says 'has --dry-run on'
    run 2 $mpirun -np 1 "$program" $small : -np 1 "$program" $small --out elsewhere
    says '--out elsewhere'
    [ -e runs ] && fail 'a run that did not begin left a folder'
    return 0
}

too_many_ranks()
{
    ranks 3 2 $small --set train.batch=60 --set train.micro_batch=30
    says '3 ranks, but train.batch 60 makes 2 micro-batches of train.micro_batch 30: start at most 2 ranks, or --set train.micro_batch=29'
    ranks 3 0 $small --set train.micro_batch=29
    ranks 3 2 $small --set train.batch=2 --set train.micro_batch=1
    says 'set train.batch to 3 or more'
}

folders()
{
    run 0 "$program" $small --out here/there
    holds here/there/metrics.jsonl '"event":"end"'
    run 0 "$program" --dry-run here/there/config.yaml
    run 1 "$program" $small --out here/there
    says 'here/there'
    ranks 2 1 $small --out here/there
    says 'here/there'
    run 0 "$program" $small
    run 0 "$program" $small
    [ -f runs/mlp-shapes/metrics.jsonl ] && [ -f runs/mlp-shapes-2/metrics.jsonl ] || fail 'no numbered folder'
    long=$(printf '%02040d' 0 | sed 's/0/a\//g')
    run 1 "$program" $small --out "$long"
    says 'path too long'
    [ -e a ] && fail 'folders were made for a path that is too long'
    : >file
    ranks 2 1 $small --out file/below
    says 'file'
    if [ "$(id -u)" -ne 0 ]; then
        mkdir locked && chmod 555 locked
        ranks 2 1 $small --out locked/run
        says 'locked'
    fi
    run 1 "$program" $small --set data.kind=idx --set data.path=/nowhere
    says '/nowhere'
    ranks 2 1 $small --set data.kind=idx --set data.path=/nowhere
    says '/nowhere'
    rm -rf runs
    ranks 2 1 $small --set model.hidden=[65536,65536]
    says 'MiB are free'
    [ -e runs ] && fail 'a run that did not begin left a folder'
    return 0
}

# The files of a run: events and their fields, one JSON object a line; the last line on stdout is the weights.
files()
{
    ranks 2 0 $small --set train.log_every=2 --out run
    [ "$(sed -n '$p' out | cut -c1-8)" = 'weights ' ] || fail 'the last line on stdout is not the weights'
    weights=$(weights)
    [ ${#weights} -eq 32 ] || fail "weights '$weights' are not 32 digits"
    holds run/metrics.jsonl "\"weights\":\"$weights\""
    head -1 run/metrics.jsonl >first
    holds first '^{"event":"start",'
    holds first '"ranks":2'
    holds first '"train.micro_batch":"8"'
    [ "$(grep -c '^{"event":"step",' run/metrics.jsonl)" -eq 4 ] || fail 'steps 1, 2, 4, 6 expected'
    [ "$(grep -c '^{"event":"eval",' run/metrics.jsonl)" -eq 2 ] || fail 'evaluation after steps 4 and 6 expected'
    grep '"event":"step"' run/metrics.jsonl >steps
    for field in step epoch loss lr grad_norm step_ms samples_per_s exposed_comm_ms comm_ms overlap \
        data_wait_ms gflops mfu slowest_rank spread_ms; do
        [ "$(grep -c "\"$field\":-\{0,1\}[0-9]" steps)" -eq 4 ] || fail "field $field is missing in step events"
    done
    for field in loss accuracy; do
        grep '"event":"eval"' run/metrics.jsonl | grep -q "\"$field\":[0-9]" || fail "$field is missing in eval"
    done
    for field in steps seconds first_step_ms peak_rss_mb pss_mb; do
        grep '"event":"end"' run/metrics.jsonl | grep -q "\"$field\":[0-9]" || fail "$field is missing in end"
    done
    holds first '"digest":"[0-9a-f]\{32\}"'
    holds first '"gradient_arenas":[1-9]'
    # each of the 130 test samples counts once
    sed -n 's/.*"event":"eval".*"accuracy":\([0-9.e-]*\).*/\1/p' run/metrics.jsonl >accuracies
    awk '{ n = $1 * 130; if (n - int(n + 0.5) > 1e-6 || int(n + 0.5) - n > 1e-6) exit 1 }' accuracies ||
        fail "accuracy is no multiple of 1/130: $(cat accuracies)"
    holds run/config.yaml '  micro_batch: 8'
    holds run/config.yaml '  hidden: \[24, 16\]'
    run 0 "$program" run/config.yaml --log error --out again
    [ "$(weights)" = "$weights" ] || fail 'config.yaml of a run does not give the same weights'
    [ -s err ] && fail 'lines on stderr with --log error'
    # streams that are closed take nothing with them, and nothing printed lands in a file of the run
    "$program" $small --log info --out closed <&- >&- 2>&-
    [ $? -eq 1 ] || fail 'weights that cannot be written are no success'
    holds closed/metrics.jsonl '"event":"end"'
    grep -v '^{"event"' closed/metrics.jsonl && fail 'metrics hold other lines'
    "$program" $small --log info --out piped 2>&1 | true
    holds piped/metrics.jsonl '"event":"end"'
    # stdout that cannot be written is a failure
    if [ -c /dev/full ]; then
        "$program" $small --out full >/dev/full 2>err
        [ $? -eq 1 ] || fail 'weights that cannot be written are no success'
        says 'stdout'
    fi
}

dry()
{
    for np in 1 3; do
        ranks $np 0 $small --dry-run
        holds out '^  batch: 60'
        holds out '^  micro_batch: 8'
        # 784 x 24 + 24, 24 x 16 + 16, 16 x 10 + 10 parameters
        holds out '^fc1 .* 18840$'
        holds out '^fc2 .* 400$'
        holds out '^fc3 .* 170$'
        holds out '^total .* 19410$'
        holds out '^# buckets'
        holds out '^# memory of one machine'
        holds out "^ranks $np on "
        [ -e runs ] && fail '--dry-run wrote something'
        [ "$(grep -c '^# model' out)" -eq 1 ] || fail 'printed more than once'
    done
    ranks 1 0 $small --dry-run --set model.kind=cnn
    # 32 filters of 3 x 3 and biases; 64 of 3 x 3 x 32; 3136 x 128 + 128; 128 x 10 + 10
    holds out '^conv1 .* 320$'
    holds out '^conv2 .* 18496$'
    holds out '^fc1 .* 401536$'
    holds out '^fc2 .* 1290$'
    holds out '^total .* 421642$'
    ranks 9 2 $small --dry-run
    says 'start at most 8 ranks'
}

bits()
{
    ranks 1 0 $small "$@"
    one=$(weights)
    accuracy=$(sed -n 's/.*"event":"eval".*"loss":\([^,]*\),"accuracy":\([^,]*\),.*/\1 \2/p' runs/*/metrics.jsonl)
    [ -n "$accuracy" ] || fail 'no evaluation'
    for np in $sizes; do
        rm -rf runs
        ranks "$np" 0 $small "$@"
        same "np $np"
        now=$(sed -n 's/.*"event":"eval".*"loss":\([^,]*\),"accuracy":\([^,]*\),.*/\1 \2/p' runs/*/metrics.jsonl)
        [ "$now" = "$accuracy" ] || fail "np $np: evaluation '$now' instead of '$accuracy'"
    done
    ranks 1 0 $small "$@" --set train.seed=2
    [ "$(weights)" != "$one" ] || fail 'another seed gives the same weights'
}

ways()
{
    ranks 1 0 $small
    one=$(weights)
    for np in 2 5; do
        export DDP_HOST_SHM=0
        ranks $np 0 $small
        same "np $np, DDP_HOST_SHM=0"
        unset DDP_HOST_SHM
        export DDP_DEVICE_SCHEDULE=defer
        ranks $np 0 $small
        same "np $np, DDP_DEVICE_SCHEDULE=defer"
        unset DDP_DEVICE_SCHEDULE
    done
    for cap in 0.001 1 1000; do
        ranks 3 0 $small --set ddp.bucket_cap_mb=$cap --set ddp.tail_bucket_kb=0
        same "bucket_cap_mb $cap"
    done
    ranks 3 0 $small --set optimizer.clip_norm=0
    two=$(weights)
    [ "$two" != "$one" ] || fail 'clipping changes nothing'
    one=$two
    ranks 1 0 $small --set optimizer.clip_norm=0
    same 'without clipping'
}

# cifar_file NAME COUNT LABELS: COUNT records, zeros but for a pixel in each row of a plane and the label (LABELS in front
# of it); the place of the pixel and the label go together.
cifar_file()
{
    awk -v count="$2" -v labels="$3" 'BEGIN {
        for (i = 0; i < count; i++) {
            printf labels "\\%03o", i % 10
            for (row = 0; row < 96; row++) {
                for (x = 0; x < 32; x++) printf "%s", x == i % 10 * 3 || x % 7 == row % 3 ? "\\310" : "\\024"
            }
        }
    }' >text
    printf '%b' "$(sed 's/\\/\\0/g' text)" >"$1"
}

# Own colour pictures in CIFAR's files, augmented, with both models: the weights do not depend on the ranks.
cifar()
{
    mkdir ten hundred
    for i in 1 2 3 4 5; do
        cifar_file ten/data_batch_$i.bin $((5 + i)) ''
    done
    cifar_file ten/test_batch.bin 9 ''
    cifar_file hundred/train.bin 30 '\\007'
    cifar_file hundred/test.bin 9 '\\007'
    colour="$small --set train.batch=16 --set train.micro_batch=4 --set data.samples=0 --set data.test_samples=0"
    for set in 'kind=cifar10 --set data.path=ten' 'kind=cifar10 --set data.path=ten --set model.kind=cnn' \
        'kind=cifar100 --set data.path=hundred'; do
        ranks 1 0 $colour --set data.$set --set data.augment=pad-crop-flip
        one=$(weights)
        ranks 2 0 $colour --set data.$set --set data.augment=pad-crop-flip
        same "np 2, $set"
        ranks 2 0 $colour --set data.$set
        [ "$(weights)" != "$one" ] || fail "augmentation changes nothing: $set"
    done
    ranks 2 0 $colour --dry-run --set data.kind=cifar100 --set data.path=hundred
    holds out '100'
    printf x >>ten/data_batch_3.bin
    ranks 2 1 $colour --set data.kind=cifar10 --set data.path=ten
    says 'ten/data_batch_3.bin'
    ranks 2 2 $colour --set data.kind=cifar10
    says 'data.kind cifar10 needs data.path'
}

# Batch normalisation: its averages are among the weights, and evaluation uses them. Then the file of examples/.
resnet()
{
    sizes='2 4 8'
    bits --set model.kind=resnet --set model.dropout=0 --set train.batch=30 --set train.micro_batch=4 --set train.steps=3 \
        --set train.eval_every=3
    ranks 2 0 $small --set model.kind=resnet --set model.dropout=0 --set train.batch=30 --set train.micro_batch=4 \
        --set train.steps=3 --set train.recompute=blocks
    same 'recompute blocks'
    ranks 3 0 $small --set model.kind=resnet --set train.batch=12 --set train.micro_batch=4 --set train.steps=1 --dry-run
    holds out '^layer3.0 .* 57728$'
    # 272474 of colour pictures less two of three 3 x 3 x 16 filters
    holds out '^total .* 272186$'
    ranks 2 2 $small --set model.kind=resnet --set model.depth=21
    says 'no resnet of depth 21; there are 20, 32, 44, 56, 110'
    # 28 x 28 pictures end as one pixel each; 200 samples leave 2 for a last batch of 3 micro-batches
    deep="$small --set model.kind=resnet --set model.depth=18 --set train.batch=9 --set train.micro_batch=3 --dry-run"
    ranks 2 2 $deep --set train.steps=30
    says 'a batch of 2 samples in 3 micro-batches has one of 1; set train.micro_batch'
    ranks 2 0 $deep --set train.steps=3
    mkdir ten
    for i in 1 2 3 4 5; do
        cifar_file ten/data_batch_$i.bin 4 ''
    done
    cifar_file ten/test_batch.bin 4 ''
    ranks 2 0 "$DDP_EXAMPLES/cifar-resnet20.yaml" --set data.path=ten --set train.steps=2 --set train.batch=8 \
        --set train.micro_batch=4 --out run
    holds run/metrics.jsonl '"event":"eval"'
    [ "$(grep -c 'has no effect' err)" -eq 0 ] || fail 'a key of the example has no effect'
}

# Pictures and features from an HDF5 file, split by val_fraction or by names.
hdf5()
{
    "$DDP_MAKE_HDF5" set.h5 || fail 'no HDF5 file'
    file="$small --set train.batch=16 --set train.micro_batch=4 --set data.samples=0 --set data.test_samples=0
        --set data.kind=hdf5 --set data.path=set.h5"
    for set in 'images=pictures/all --set model.kind=cnn --set data.augment=pad-crop-flip' \
        'images=features --set data.val_fraction=0.5' \
        'images=features --set data.test_images=features --set data.test_labels=labels'; do
        rm -rf runs
        ranks 1 0 $file --set data.$set
        one=$(weights)
        ranks 2 0 $file --set data.$set
        same "np 2, $set"
    done
    holds runs/mlp-hdf5/metrics.jsonl '"samples":80,"test_samples":80'
    ranks 1 0 $file --dry-run --set data.images=pictures/all
    # 9 x 8 x 3 pixels to 24, 24 to 16, 16 to 4 classes
    holds out '^fc1 .* 5208$'
    holds out '^fc3 .* 68$'
    ranks 2 1 $file
    says "set.h5': no data set 'images' (data.images names it)"
    ranks 2 2 $file --set data.images=features --set data.augment=pad-crop-flip
    says 'too small for data.augment pad-crop-flip'
    ranks 2 2 $file --set data.test_images=features
    says 'data.test_images and data.test_labels go together'
    ranks 2 2 $file --set data.val_fraction=0
    says 'data.val_fraction is 0'
    ranks 2 2 $file --set data.path=
    says 'data.kind hdf5 needs data.path'
}

# A rank that fails in training ends the run with its own line; one that is killed is named by the others.
ends()
{
    export DDP_FAULT=train_step:1
    ranks 3 1 $small
    says 'planted fault'
    grep -q '^ddptrain\[1@' err || fail 'the line is not from the rank that caused it'
    export DDP_FAULT=data_load:1
    ranks 3 1 $small
    says 'planted fault'
    export DDP_FAULT=run_shared:1 DDP_HOST_SHM=0 # the other machines have their memory
    ranks 3 1 $small
    says 'planted fault'
    unset DDP_FAULT DDP_HOST_SHM

    endless 20
    start=$(date +%s)
    kill -9 "$victim"
    ended
    says "pid $victim"

    endless 3
    kill -STOP "$victim"
    start=$(date +%s)
    ended
    kill -9 "$victim" 2>/dev/null
    says 'made no progress for 3 s'

    # one that is started, but never comes to MPI_Init
    start=$(date +%s)
    run 1 $mpirun -np 2 "$program" $small --set ddp.timeout_s=2 : -np 1 sleep 60
    says 'MPI_Init took more than 12 s'
    [ $(($(date +%s) - start)) -lt 30 ] || fail 'the end took more than 30 s'

    # one that comes there, and then stays away
    start=$(date +%s)
    run 1 $mpirun -np 2 "$program" $small --set ddp.timeout_s=2 : -np 1 "$TEST_VICTIM" asleep
    says 'MPI_Comm_dup took more than 12 s'
    [ $(($(date +%s) - start)) -lt 30 ] || fail 'the end took more than 30 s'
}

# endless SECONDS: start a run of 3 ranks in the background, job; wait for its first step; victim is one of its ranks.
endless()
{
    rm -rf runs
    $mpirun -np 3 "$program" $small --set train.steps=100000000 --set train.eval_every=100000000 \
        --set checkpoint.every_epochs=0 \
        --set ddp.timeout_s="$1" >out 2>err &
    job=$!
    tries=0
    until grep -q '"event":"step"' runs/*/metrics.jsonl 2>/dev/null; do
        tries=$((tries + 1))
        if [ $tries -gt 600 ]; then
            fail 'no step within 60 s'
            return
        fi
        sleep 0.1
    done
    victim=
    for stat in /proc/[0-9]*/stat; do
        read -r pid name state parent rest 2>/dev/null <"$stat" || continue
        if [ "$parent" = "$job" ] && [ "$name" = '(ddptrain)' ]; then
            victim=$pid
        fi
    done
    [ -n "$victim" ] || fail 'no rank found'
}

# The run in the background ends by itself, in time, and not as a success.
ended()
{
    wait $job
    got=$?
    [ $got -ne 0 ] || fail 'success without one of the ranks'
    [ $(($(date +%s) - start)) -lt 30 ] || fail 'the end took more than 30 s'
}

# Value of a number in the events of a kind.
number()
{
    grep "^{\"event\":\"$2\"" "$1" | sed "s/.*\"$3\":\([-0-9.e+]*\).*/\1/"
}

# Operations a second are those of the model, mfu is their share of a peak that was measured or told; stamps of
# buckets only on demand.
rates()
{
    ranks 2 0 $small --out measured
    holds measured/metrics.jsonl '"peak_gflops":[0-9.]*[1-9]' # below 1 on a machine that is busy enough
    grep -q '"bucket_times"' measured/metrics.jsonl && fail 'stamps that nobody asked for'
    ranks 2 0 $small --set train.peak_gflops=50 --set ddp.trace_buckets=true --set ddp.bucket_cap_mb=0.001 \
        --set ddp.tail_bucket_kb=0 --set train.trace=true --out told
    holds told/metrics.jsonl '"peak_gflops":50,'
    number told/metrics.jsonl step samples_per_s >rate
    number told/metrics.jsonl step gflops >gflops
    number told/metrics.jsonl step mfu >mfu
    buckets=$(number told/metrics.jsonl start buckets)
    paste rate gflops mfu | awk -v flop="$(number told/metrics.jsonl start sample_gflop)" '
        function off(x, y) { return x < 0.999999 * y || x > 1.000001 * y }
        { if (off($2, $1 * flop / 2) || off($3, $2 / 50)) exit 1 }' || fail 'gflops or mfu do not fit'
    [ "$buckets" -gt 1 ] || fail 'one bucket tells no order'
    for stamp in ready launched done; do
        sed -n "s/.*\"${stamp}_ms\":\[\([^]]*\)\].*/\1/p" told/metrics.jsonl >stamps
        [ "$(wc -l <stamps)" -eq "$(wc -l <rate)" ] || fail "${stamp}_ms is missing in step events"
        awk -F, -v n="$buckets" '{ if (NF != n) exit 1; for (i = 2; i <= n; i++) if ($i < $(i - 1)) exit 1 }' stamps ||
            fail "${stamp}_ms of $buckets buckets: $(cat stamps)"
    done
    timeline told/metrics.jsonl "$buckets"
    grep -q '"event":"trace"' measured/metrics.jsonl && fail 'a timeline that nobody asked for'
    # each of two ranks reads its half of the other's gradients: of every tensor, in blocks of 1 KiB
    blocks=$(sed -n 's/.*"device_memory_bytes":\[{"id":0,"parameters":\([0-9]*\).*/\1/p' told/metrics.jsonl)
    [ "$(number told/metrics.jsonl end gradients)" -eq $((2 * blocks)) ] || fail 'not the bytes that owners read'
    holds told/metrics.jsonl '"device_busy_ms":\[[0-9.e-]*,[0-9.e-]*\],"links":\[\[1,0,[0-9]*\],\[0,1,[0-9]*\]\]'
}

# timeline FILE BUCKETS: eight micro-batches on two ranks, forward before backward, and buckets; nothing before the
# step or much behind its end.
timeline()
{
    sed -n 's/.*"spans":\[\[\(.*\)\]\].*/\1/p' "$1" | sed 's/\],\[/\n/g' | tr -d '"' >spans
    awk -F, -v buckets="$2" -v ms="$(number "$1" trace step_ms)" '
        { n[$1]++; if ($3 > $4 || $3 < -1000 || $4 > 1000 * ms + 1000) bad = 1 }
        $1 == "forward" { begin[$2] = $3; if ($2 in end && $3 < end[$2]) bad = 1 }
        $1 == "backward" { end[$2] = $4; if ($3 < begin[$2]) bad = 1 }
        END { exit bad || n["forward"] != 8 || n["backward"] != 8 || n["reduce"] != 2 * buckets || n["exposed"] > 2 }' spans ||
        fail "spans of a step of $(number "$1" trace step_ms) ms: $(cat spans)"
}

# Not finite: the run stops with exit 1 and no weights, or skips and goes on.
not_finite()
{
    huge="$small --set optimizer.kind=sgd --set optimizer.lr=1000000 --set optimizer.clip_norm=0 --set schedule.kind=constant"
    ranks 2 1 $huge
    says 'finite'
    [ -z "$(weights)" ] || fail 'weights after a step that was not finite'
    ranks 2 0 $huge --set train.nonfinite=skip
    holds runs/*-2/metrics.jsonl '"skipped":'
}

case $case in
bits)
    sizes='2 3 4 5 8'
    bits
    ;;
bits_cnn)
    sizes='2 3'
    bits --set model.kind=cnn --set train.steps=3
    ;;
*) "$case" ;;
esac
exit $failed

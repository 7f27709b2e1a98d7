#!/bin/sh
# Checkpoints of the whole program: a run that was stopped anywhere goes on to the very same weights, on any number of
# ranks. Usage: sh resume.sh CASE DDPTRAIN MPIRUN [mpirun option...]
set -u

. "$(dirname "$0")/support.sh"

# 8 micro-batches, a short last batch, dropout and moments; 12 steps of 3 epochs.
small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=130 --set train.batch=60
    --set train.micro_batch=8 --set train.epochs=3 --set model.kind=mlp --set model.hidden=[24,16]
    --set model.dropout=0.2 --set checkpoint.every_steps=2 --log error"

# The run that nothing stopped.
whole_run()
{
    run 0 "$program" $small --out whole
    whole=$(weights)
}

# Stopped after some steps on one number of ranks, gone on with on others; also without shared memory.
bits()
{
    whole_run
    ranks 3 0 $small --set train.steps=5 --set schedule.kind=constant --out part
    # the learning rate follows from the number of steps: the same schedule is set for both
    ranks 1 0 $small --set schedule.kind=constant --out constant
    constant=$(weights)
    for np in 1 2 4; do
        cp -r part part$np
        ranks $np 0 $small --set schedule.kind=constant --out part$np --resume auto
        ends_with "$constant"
        cmp constant/checkpoints/ckpt-000000000012.h5 part$np/checkpoints/ckpt-000000000012.h5 ||
            fail "on $np ranks the last checkpoint has other bytes"
    done
    cp -r part apart
    DDP_HOST_SHM=0 ranks 3 0 $small --set schedule.kind=constant --out apart --resume auto
    ends_with "$constant"
    ranks 2 0 $small --out again --resume whole/checkpoints/ckpt-000000000010.h5
    ends_with "$whole"
}

# Models with running averages, and with many tensors: a file of many ranks is that of one.
models()
{
    common="--set train.steps=2 --set train.batch=8 --set train.micro_batch=2 --set checkpoint.every_steps=1 --log error"
    for model in 'resnet --set model.depth=20 --set data.kind=shapes --set data.samples=40 --set data.test_samples=8' \
        'gpt2 --set model.preset=tiny --set data.kind=text --set model.context=16 --set data.path=text'; do
        seq 3000 >text
        rm -rf one many
        run 0 "$program" $common --set model.kind=$model --out one
        ranks 3 0 $common --set model.kind=$model --out many
        for file in ckpt-000000000001.h5 ckpt-000000000002.h5; do
            cmp one/checkpoints/$file many/checkpoints/$file || fail "${model%% *}: $file is another one"
        done
        rm many/checkpoints/ckpt-000000000002.h5
        ranks 2 0 $common --set model.kind=$model --out many --resume auto
        cmp one/checkpoints/ckpt-000000000002.h5 many/checkpoints/ckpt-000000000002.h5 ||
            fail "${model%% *}: another file after going on"
    done
}

# Several machines: only the first has the file.
machines()
{
    whole_run
    DDP_TEST_MACHINES=0,1,1 ranks 3 0 $small --out again --resume whole/checkpoints/ckpt-000000000010.h5
    ends_with "$whole"
    cmp whole/checkpoints/ckpt-000000000012.h5 again/checkpoints/ckpt-000000000012.h5 || fail 'the last file is another one'
    DDP_TEST_MACHINES=0,1,1 ranks 3 1 $small --out none --resume nowhere.h5
    says 'no such file or directory'
}

# passed_over WHAT: the newest file is refused, the run goes on from the one before it to the same weights
passed_over()
{
    run 0 "$program" $small --out damaged --resume auto --log warn
    says 'ckpt-000000000012.h5 is passed over'
    ends_with "$whole"
    cmp whole/checkpoints/ckpt-000000000012.h5 damaged/checkpoints/ckpt-000000000012.h5 || fail "$1: the last file is another one"
}

# A byte anywhere that is another one, a file of another length.
flipped()
{
    whole_run
    cp -r whole damaged
    newest=damaged/checkpoints/ckpt-000000000012.h5
    bytes=$(wc -c <$newest)
    # header, its zeros, HDF5's signature and metadata, tensors, the last byte
    for at in 35 3000 4096 4200 $((bytes / 3)) $((bytes - 1)); do
        byte=$(od -An -tu1 -j $at -N 1 $newest)
        printf "\\$(printf %o $((byte ^ 16)))" | dd of=$newest bs=1 seek=$at conv=notrunc status=none
        cmp -s $newest whole/checkpoints/ckpt-000000000012.h5 && fail "byte $at is what it was"
        passed_over "byte $at"
    done
    for at in 0 $((bytes - 1)) $((bytes + 1)); do
        truncate -s $at $newest
        passed_over "length $at"
    done
    printf x | dd of=damaged/checkpoints/ckpt-000000000010.h5 bs=1 seek=9000 conv=notrunc status=none
    truncate -s 4095 $newest
    run 0 "$program" $small --out damaged --resume auto --log info
    [ "$(grep -c 'is passed over' err)" -eq 2 ] || fail 'two files are damaged'
    holds err 'goes on after step 8'
    ends_with "$whole"
}

# What is damaged is passed over and named; where nothing is whole the run does not begin anew by itself.
damaged()
{
    whole_run
    cp -r whole cut
    truncate -s 5000 cut/checkpoints/ckpt-000000000012.h5
    run 0 "$program" $small --out cut --resume auto --log warn
    says 'ckpt-000000000012.h5 is passed over'
    holds err 'cut short'
    ends_with "$whole"
    for file in cut/checkpoints/ckpt-*.h5; do
        truncate -s 5000 "$file"
    done
    ranks 2 1 $small --out cut --resume auto
    says 'none of its'
    run 1 "$program" $small --out new --resume whole/metrics.jsonl
    says 'not a checkpoint of ddptrain'
    [ -e new ] && fail 'a run that did not begin left a folder'
    run 1 "$program" $small --out new --resume nowhere.h5
    says 'no such file or directory'
}

# What may change is listed, what may not is refused by name.
changes()
{
    whole_run
    run 2 "$program" $small --out whole --resume auto --set train.batch=30
    says 'train.batch was 60 and cannot become 30'
    run 2 "$program" $small --out whole --resume auto --set optimizer.kind=sgd
    says 'optimizer.kind was adamw and cannot become sgd'
    run 1 "$program" $small --out whole --resume auto --set 'model.hidden=[24,15]'
    says "'fc2.weight' is [16, 24], the model wants [15, 24]"
    run 0 "$program" $small --out whole --resume auto --set train.epochs=4 --set train.micro_batch=20 --log info
    holds err 'resume: train.epochs was 3, is now 4'
    holds err 'resume: train.micro_batch stays 8, not 20'
    [ "$(grep -c '"event":"start"' whole/metrics.jsonl)" -eq 2 ] || fail 'metrics do not have two starts'
    [ "$(grep -c '"event":"end"' whole/metrics.jsonl)" -eq 1 ] || fail 'metrics do not have one end'
    run 2 "$program" $small --resume auto --init whole/checkpoints/best.h5
    says '--resume goes on with a run and --init begins one'
    run 2 "$program" $small --out whole --resume auto --set train.epochs=5 --set data.samples=180 --log error
    says '--resume: 16 steps are done, but the run ends after 15; raise train.epochs'
    run 0 "$program" $small --out whole --resume auto --set train.epochs=6 --set data.samples=180 --log warn
    says "the training data were 'shapes, 200 samples,"
    holds err "are now 'shapes, 180 samples,"
    set=$(sed -n 's/.*"event":"start".*"isa":"\([a-z0-9]*\)".*/\1/p' whole/metrics.jsonl | tail -n 1)
    if [ "$set" != plain ]; then
        DDP_ISA=plain ranks 2 0 $small --out whole --resume auto --set train.epochs=7 --set data.samples=180 --log warn
        says "computed with $set so far, now with plain: the last bits will differ"
    fi
}

# auto without --out: the newest run of this model and these data; a new one if there is none.
newest()
{
    run 0 "$program" $small --resume auto --set train.steps=4 --log info
    holds err 'no checkpoint of this model and data: the run begins anew'
    run 0 "$program" $small --set train.steps=4
    run 0 "$program" $small --set 'model.hidden=[8]' --set train.steps=4
    DDPTRAIN_RESTART_COUNT=1 run 0 "$program" $small --log info
    holds err 'folder runs/mlp-shapes-2'
    holds err 'goes on after step 4'
    SLURM_RESTART_COUNT=2 run 0 "$program" $small --set train.epochs=4 --log info
    holds err 'folder runs/mlp-shapes-2'
    holds err 'goes on after step 12'
    [ -e runs/mlp-shapes-4 ] && fail 'a folder too many'
    SLURM_RESTART_COUNT=0 run 0 "$program" $small --set train.steps=1 --log info
    holds err 'folder runs/mlp-shapes-4'
    run 1 "$program" $small --out runs/mlp-shapes
    says 'exists and is not empty'
    (
        flock 9
        run 1 "$program" $small --out runs/mlp-shapes-2 --resume auto
        says 'another run is training in this folder'
    ) 9>runs/mlp-shapes-2/.lock
}

# Weights only; what is missing must be allowed by name.
init()
{
    whole_run
    ranks 2 0 $small --out first --init whole/checkpoints/best.h5 --set train.steps=1 --set optimizer.lr=0
    ends_with "$whole"
    run 1 "$program" $small --out second --init whole/checkpoints/best.h5 --set 'model.hidden=[24,16,4]'
    says "'whole/checkpoints/best.h5' is of another model"
    run 1 "$program" $small --out second --init whole/checkpoints/best.h5 --set 'model.hidden=[24,16,4]' \
        --allow-missing 'fc4.*'
    says "'fc3.weight' is [10, 16], the model wants [4, 16]"
    run 2 "$program" $small --allow-missing 'fc4.*'
    says '--allow-missing is for --init only'
}

# The same command line in a job that is started again: what its folder holds goes on, whatever file it began with.
again()
{
    whole_run
    line="$small --set schedule.kind=constant --init whole/checkpoints/best.h5"
    run 0 "$program" $line --out once --set train.steps=6
    once=$(weights)
    run 0 "$program" $line --out twice --set train.steps=4
    run 1 "$program" $line --out twice --set train.steps=6
    says 'exists and is not empty'
    SLURM_RESTART_COUNT=1 ranks 2 0 $line --out twice --set train.steps=6 --log info
    ends_with "$once"
    holds err "started again: goes on in twice, not with 'whole/checkpoints/best.h5'"
    holds err 'goes on after step 4'
    rm -r twice/checkpoints # killed before its first save
    SLURM_RESTART_COUNT=1 ranks 2 0 $line --out twice --set train.steps=6 --log warn
    ends_with "$once"
    DDPTRAIN_RESTART_COUNT=1 run 0 "$program" $line --out thrice --set train.steps=6 # before its folder was there
    ends_with "$once"
    run 2 "$program" $small --out whole --resume whole/checkpoints/ckpt-000000000010.h5
    says 'holds step 12 already'
    SLURM_RESTART_COUNT=1 run 0 "$program" $small --out whole --resume whole/checkpoints/ckpt-000000000010.h5 --log info
    holds err 'goes on after step 12'
    ends_with "$whole"
}

# best_is STEP FOLDER: where best.h5 leads, and what the file says of its loss
best_is()
{
    name=$(printf 'ckpt-%012d.h5' "$1")
    [ "$(readlink "$2/checkpoints/best.h5")" = "$name" ] || { fail "$2: the best is not $name"; ls -l "$2/checkpoints"; }
    run 0 "$program" inspect "$2/checkpoints/best.h5"
    told=$(sed -n "s/.*\"event\":\"eval\",\"step\":$1,.*\"loss\":\([0-9.]*\),.*/\1/p" "$2/metrics.jsonl")
    [ "$(awk '$1 == "best_loss" { printf "%.5f", $2 }' out)" = "$(printf '%.5f' "$told")" ] || fail "best_loss is not $told"
}

# A checkpoint is the best if the validation after its step is the least: also the last one, and of all runs together.
best()
{
    # no save is due at an evaluation but the last one
    ranks 2 0 $small --set checkpoint.every_steps=5 --set checkpoint.every_epochs=0 --out last
    best_is 12 last
    # a run that gets worse after it went on: its best stays the best, and stays
    worse="$small --set schedule.kind=constant --set optimizer.kind=sgd --set optimizer.momentum=0.5
        --set optimizer.lr=0.4 --set model.hidden=[24] --set model.dropout=0 --set train.eval_every=2 --set checkpoint.keep=2"
    run 0 "$program" $worse --set train.steps=2 --out worse
    best_is 2 worse
    ranks 2 0 $worse --set train.steps=10 --out worse --resume auto
    best_is 2 worse
    [ "$(find worse -name 'ckpt-*' | wc -l)" -eq 3 ] || { fail 'the newest two and the best'; ls -l worse/checkpoints; }
    run 0 "$program" inspect worse/checkpoints/latest.h5
    [ "$(awk '$1 == "best_loss" { printf "%.5f", $2 }' out)" = "$(printf '%.5f' "$told")" ] || fail 'the newest knows another best'
}

# A disk that fills up: training goes on, three failures in a row end it.
full()
{
    mkdir full
    run 1 env DDP_FAULT=save_write:0 "$program" $small --out full/run --log warn
    holds err 'checkpoint of step 2 is not saved: save_write: planted'
    holds err '[3-9] checkpoints in a row could not be saved' # one more may be under way when the third has failed
    [ -z "$(find full -name 'ckpt-*')" ] || fail 'a checkpoint that was not saved is there'
    run 0 "$program" $small --out none --set checkpoint.every_steps=0 --set checkpoint.every_epochs=0
    [ -e none/checkpoints ] && fail 'checkpoints without being asked'
    return 0
}

# eval tells what the run said of its last step, on any number of ranks.
evaluation()
{
    whole_run
    told=$(sed -n 's/.*"event":"eval","step":12,.*"loss":\([0-9.]*\),"accuracy":\([0-9.]*\).*/\1 \2/p' whole/metrics.jsonl)
    for np in 1 3; do
        ranks $np 0 eval whole/checkpoints/latest.h5 --log error --json
        answer=$(sed -n 's/.*"loss":\([0-9.]*\),"accuracy":\([0-9.]*\),.*/\1 \2/p' out)
        [ "$(printf '%.5f %.5f' $told)" = "$(printf '%.5f %.5f' $answer)" ] || fail "eval says $answer, the run $told"
    done
    run 0 "$program" eval whole/checkpoints/latest.h5 --log error --set data.test_samples=50
    holds out '^loss .* accuracy .* on 50 samples$'
    run 2 "$program" eval
    says 'a checkpoint is needed'
    run 1 "$program" eval whole/metrics.jsonl
    says 'not a checkpoint of ddptrain'
    run 2 "$program" eval whole/checkpoints/latest.h5 --set data.kind=frog
    says "data.kind is 'frog'"
}

# generate: a pure function of checkpoint, prompt and seed; greedy needs none.
generate()
{
    awk 'BEGIN { for (i = 0; i < 4000; i++) printf "abcde" }' >text.txt
    run 0 "$program" --set model.kind=gpt2 --set model.preset=tiny --set model.context=16 --set data.path=text.txt \
        --set train.batch=16 --set train.steps=250 --set optimizer.lr=0.005 --out gpt --log error
    run 0 "$program" generate gpt/checkpoints/latest.h5 --prompt abcda --tokens 39 --temperature 0
    [ "$(cat out)" = abcdabcdeabcdeabcdeabcdeabcdeabcdeabcdeabcde ] || fail "greedy: $(cat out)"
    for seed in 1 1 2; do
        run 0 "$program" generate gpt/checkpoints/latest.h5 --tokens 200 --temperature 3 --seed $seed
        cp out "text$((first = ${first:-0} + 1))"
    done
    cmp text1 text2 || fail 'one seed, two texts'
    cmp -s text1 text3 && fail 'two seeds, one text'
    run 2 "$program" generate gpt/checkpoints/latest.h5 --temperature hot
    says "--temperature 'hot': a number of 0 or more is expected"
    run 2 "$program" generate gpt/checkpoints/latest.h5 --prompt a --file b
    says '--prompt and --file'
    run 1 "$program" generate gpt/checkpoints/latest.h5 --bpe nowhere
    says 'nowhere'
    run 1 "$program" generate nowhere.h5
    says 'no such file or directory'
    whole_run
    run 2 "$program" generate whole/checkpoints/latest.h5
    says 'is no gpt2'
}

"$case"
exit $failed

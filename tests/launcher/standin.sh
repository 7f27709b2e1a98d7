#!/bin/sh
# The whole program with ddp.device cuda, on the stand-in for GPUs: trainings that come out as on the CPU.
# Usage: sh standin.sh CASE DDPTRAIN_STANDIN MPIRUN [mpirun option...]
set -u

here=$(cd "$(dirname "$0")" && pwd)
. "$here/support.sh"
. "$here/standin_support.sh"

# Losses of the CPU by every way to sum; the exact sum has the same bits on any number of ranks, and in any order of streams.
bits()
{
    cpu cpu $mlp
    gpus 1 one $mlp --set ddp.reduction=exact
    one=$(weights)
    for np in 2 3; do
        gpus $np exact$np $mlp --set ddp.reduction=exact
        same "exact, $np ranks"
        gpus $np shard$np $mlp --set ddp.reduction=exact --set optimizer.shard=true
        same "exact and shard, $np ranks"
    done
    gpus 2 fast $mlp
    gpus 2 fast_shard $mlp --set optimizer.shard=true
}

# Through host memory, as where there is no NCCL.
host()
{
    cpu cpu $mlp
    gpus 1 host1 $mlp --set ddp.backend=host
    one=$(weights)
    for np in 2 3; do
        gpus $np host$np $mlp --set ddp.backend=host
        same "backend host, $np ranks"
    done
    for order in lifo random:1; do
        CUSIM_SCHED=$order CUSIM_LAZY=1 gpus 2 "host.$order" $mlp --set ddp.backend=host
        same "backend host, $order"
    done
    run 0 "$program" $mlp --set ddp.backend=host --mode dp --devices 0,1 --out dp
    near dp cpu
    # the moments are the host's, and device 0 has a copy of its samples too
    for event in planned device; do
        holds dp/metrics.jsonl "\"${event}_memory_bytes\":\[{\"id\":0,[^}]*\"moments\":0,[^}]*\"inputs\":[1-9]"
    done
    ranks 2 0 $mlp --set optimizer.shard=true --set train.steps=3 --set schedule.kind=constant --out half
    ranks 2 0 $mlp --set schedule.kind=constant --resume auto --out half --set ddp.backend=host
    events=step
    cpu constant $mlp --set schedule.kind=constant
    near half constant
}

orders()
{
    cpu cpu $mlp
    CUSIM_SCHED=eager gpus 2 eager $mlp --set ddp.reduction=exact
    one=$(weights)
    for order in lifo random:1 random:2; do
        CUSIM_SCHED=$order CUSIM_LAZY=1 gpus 2 "nccl.$order" $mlp --set ddp.reduction=exact
        same "nccl, $order"
    done
}

models()
{
    cpu cpu $cnn
    gpus 1 one $cnn --set ddp.reduction=exact
    one=$(weights)
    gpus 2 two $cnn --set ddp.reduction=exact
    same 'cnn, 2 ranks'
}

text()
{
    make_text
    cpu cpu $gpt
    gpus 1 one $gpt --set ddp.reduction=exact
    one=$(weights)
    CUSIM_SCHED=lifo CUSIM_LAZY=1 gpus 2 two $gpt --set ddp.reduction=exact
    same 'gpt2, 2 ranks'
    gpus 2 fast $gpt --set train.recompute=blocks
    for precision in bf16 fp16; do
        ranks 2 0 $gpt --set train.precision=$precision --out $precision
    done
}

norms()
{
    cpu cpu $resnet
    gpus 2 two $resnet --set ddp.reduction=exact
}

# Begun with two GPUs and shared moments, gone on with on three, on one, with DataParallel and on the CPU; and from the CPU
# to GPUs. Where it goes on with GPUs and the exact sum, it is as if nothing had happened.
resume()
{
    events=step
    steps="$mlp --set schedule.kind=constant --set ddp.reduction=exact"
    cpu cpu $steps
    gpus 1 whole $steps
    one=$(weights)
    for shard in true false; do
        ranks 2 0 $steps --set optimizer.shard=$shard --set train.steps=3 --out "half.$shard"
    done
    cp -r half.true on3
    gpus 3 on3 $steps --resume auto
    same 'three GPUs'
    cp -r half.false on1
    gpus 1 on1 $steps --resume auto --set optimizer.shard=true
    same 'one GPU'
    cp -r half.true dp
    run 0 "$program" $steps --resume auto --out dp --mode dp --devices 0,1
    same DataParallel
    near dp cpu
    cp -r half.true back
    run 0 "$program" $steps --resume auto --out back --set ddp.device=cpu --log warn
    grep -q 'computed with cuda so far, now with' err || fail 'nothing is said of the change'
    near back cpu
    run 0 "$program" $steps --set train.steps=3 --set ddp.device=cpu --out there
    gpus 2 there $steps --resume auto --set optimizer.shard=true
}

# What a GPU has learned is written as on the CPU.
generate()
{
    make_text
    ranks 2 0 $gpt --out run --set checkpoint.every_steps=5 --set train.sample_tokens=4 --log info
    grep -q 'sample |' err || fail 'no sample in the log'
    checkpoint=run/checkpoints/latest.h5
    run 0 "$program" generate $checkpoint --tokens 12 --temperature 0 --prompt 'line' --device cpu
    mv out cpu.txt
    run 0 "$program" generate $checkpoint --tokens 12 --temperature 0 --prompt 'line'
    cmp out cpu.txt || fail 'another text than on the CPU'
    run 2 "$program" generate $checkpoint --device gpu
    says "--device 'gpu': allowed are auto, cpu, cuda"
    CUSIM_DEVICES=0 run 2 "$program" generate $checkpoint --device cuda
    says '--device cuda: no'
    run 0 "$program" eval $checkpoint
    sed 's/ in [0-9.]* s//' out >gpu.txt
    run 0 "$program" eval $checkpoint --set ddp.device=cpu
    sed 's/ in [0-9.]* s//' out >cpu.txt
    cmp gpu.txt cpu.txt || fail 'evaluated otherwise than on the CPU'
}

# Each precision is near float32, and is not it.
precisions()
{
    cpu cpu $mlp --set optimizer.lr=1e-4 # far from chaos
    for precision in tf32 bf16; do
        ranks 2 0 $mlp --set optimizer.lr=1e-4 --set train.precision=$precision --out $precision
        losses $precision >got.txt
        losses cpu >want.txt
        cmp -s got.txt want.txt && fail "$precision computes as float32"
        paste -d ' ' got.txt want.txt | awk '{ d = $2 - $4; d = d < 0 ? -d : d; n++ } d > 0.01 * $4 { bad = 1 }
            END { exit bad || n < 7 }' || { fail "$precision is far from float32:"; paste got.txt want.txt; }
    done
    ranks 2 0 $mlp --set ddp.wire=bf16 --out wire
    holds wire/metrics.jsonl '"wire_overflows":0'
    run 2 "$program" $mlp --set train.precision=tf32 --set ddp.device=cpu
    says 'train.precision tf32 is for ddp.device cuda'
}

# DataParallel: replicas on GPUs, the bits of ranks.
dp()
{
    cpu cpu $mlp
    gpus 2 ranks $mlp --set ddp.reduction=exact
    one=$(weights)
    for loss in outside inside; do
        for ids in 0 0,1 2,0,1; do
            run 0 "$program" $mlp --set ddp.reduction=exact --mode dp --devices $ids --set dp.loss=$loss \
                --out "$loss.$ids"
            same "loss $loss, devices $ids"
        done
    done
    CUSIM_SCHED=lifo CUSIM_LAZY=1 run 0 "$program" $mlp --set ddp.reduction=exact --mode dp --devices 0,1 \
        --set dp.output_device=1 --out lifo
    same 'outputs on device 1'
    run 0 "$program" $mlp --set ddp.reduction=fast --mode dp --devices 0,1 --out fast
    near fast cpu
    holds outside.0,1/metrics.jsonl '"gpus":\[{"name":"cusim","bus":"0000:01:00.0"'
}

# Running averages are those of the first device, as on the CPU.
dp_norms()
{
    cpu cpu $resnet --mode dp --devices 0,1
    run 0 "$program" $resnet --mode dp --devices 0,1 --set ddp.reduction=exact --out dp
    near dp cpu
}

# A learning rate that sends the outputs far out: gradients times 65536 are too large for half precision, steps are
# skipped on all ranks and the scale halves. It is in the checkpoint, and what goes on from there has the same bits.
half()
{
    wild="$mlp --set train.precision=fp16 --set optimizer.kind=sgd --set optimizer.lr=4 --set optimizer.clip_norm=0
        --set model.dropout=0 --set ddp.reduction=exact --set checkpoint.every_steps=3 --set train.steps=6"
    run 0 "$program" $wild --out whole
    one=$(weights)
    case $(scales whole) in
    '1:65536 '*' 6:65536 ') fail "the loss scale did not change: $(scales whole)" ;;
    '1:65536 '*' 6:'*) ;;
    *) fail "no loss scales: $(scales whole)" ;;
    esac
    holds whole/metrics.jsonl '"skipped":1'
    for np in 1 2; do
        ranks "$np" 0 $wild --resume whole/checkpoints/ckpt-000000000003.h5 --out "rest$np"
        same "fp16 from step 3 on $np ranks"
        [ "$(scales whole | cut -d ' ' -f 4-)" = "$(scales "rest$np")" ] ||
            fail "scales of $np ranks are $(scales "rest$np") and not the last of $(scales whole)"
    done
    run 0 "$program" $wild --mode dp --devices 0,1 --out dp
    same 'fp16 with DataParallel'
    gentle="$mlp --set train.precision=fp16"
    run 0 "$program" $mlp --set ddp.device=cpu --out full
    ranks 2 0 $gentle --out halves
    losses full >want.txt
    losses halves >got.txt
    paste -d ' ' got.txt want.txt | awk '{ d = $2 - $4; d = d < 0 ? -d : d } d > 0.01 * $4 || $4 == "" { exit 1 }' ||
        { fail 'losses in half precision are far from those in float32:'; paste got.txt want.txt; }
    run 2 "$program" $gentle --set ddp.device=cpu
    says 'train.precision fp16 is for ddp.device cuda'
}

# The two ways, on GPUs.
compare()
{
    cat >run.yaml <<END
data: {kind: shapes, samples: 200, test_samples: 60}
model: {kind: mlp, hidden: [24, 16]}
train: {batch: 60, micro_batch: 8, peak_gflops: 1}
ddp: {reduction: exact}
END
    run 0 "$program" compare run.yaml --devices 1,2 --steps 5 --rounds 1 --out all
    holds out '^VERDICT'
    holds out '^DataParallel  *2 .* equal$'
    holds out '^DDP  *2 .* equal$'
    for way in one-1 dp-2 ddp-2; do
        holds all/runs/$way-round-1/metrics.jsonl '"device":"cuda"'
    done
}

# The commands of pages, as they stand there: on GPUs, and on the CPU. A line may name its exit status.
documented()
{
    ln -s "$program" ddptrain
    cat >mpirun <<END
#!/bin/sh
exec $(command -v "${mpirun%% *}") ${mpirun#* } "\$@"
END
    chmod +x mpirun
    PATH=$PWD:$PATH
    pages=$here/../../docs
    for page in any-devices ddp; do
        awk '/^```sh/ { on = 1; next } /^```/ { on = 0 } on' "$pages/$page.md" >lines
        [ "$(wc -l <lines)" -ge 4 ] || fail "$page has other lines than expected"
        while read -r line; do
            case $line in
            *'exit status '*) wanted=${line##*exit status } && wanted=${wanted%%[!0-9]*} ;;
            *) wanted=0 ;;
            esac
            run "$wanted" sh -c "$line" </dev/null
        done <lines
    done
    [ "$(sed -n 's/.*"weights":"\([0-9a-f]*\)".*/\1/p' ranks2/metrics.jsonl)" = \
        "$(sed -n 's/.*"weights":"\([0-9a-f]*\)".*/\1/p' ranks3/metrics.jsonl)" ] || fail 'two and three ranks differ'
}

"$case"
exit "$failed"

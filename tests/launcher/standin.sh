#!/bin/sh
# The whole program with ddp.device cuda, on the stand-in for GPUs: what it says of devices, and trainings that come out as
# on the CPU. Usage: sh standin.sh CASE DDPTRAIN_STANDIN MPIRUN [mpirun option...]
set -u

here=$(cd "$(dirname "$0")" && pwd)
. "$(dirname "$0")/support.sh"

CUSIM_DEVICES=3
export CUSIM_DEVICES

# Five steps of each; a peak that is said is not measured. mlp-tiny: 8 micro-batches, a short last batch, dropout and
# clipping on.
short="--set train.steps=5 --set train.log_every=1 --set train.peak_gflops=1 --log error"
mlp="--set data.kind=shapes --set data.samples=200 --set data.test_samples=130 --set train.batch=60
    --set train.micro_batch=8 --set model.kind=mlp --set model.hidden=[24,16] --set model.dropout=0.2
    --set optimizer.clip_norm=0.25 $short"
cnn="--set data.kind=shapes --set data.samples=16 --set data.test_samples=6 --set train.batch=6
    --set train.micro_batch=2 --set model.kind=cnn $short"
resnet="--set data.kind=shapes --set data.samples=4 --set data.test_samples=2 --set train.batch=4
    --set train.micro_batch=2 --set model.kind=resnet --set model.depth=20 $short --set train.steps=1"
gpt="--set model.kind=gpt2 --set model.preset=tiny --set data.path=text.txt --set data.test_samples=4
    --set train.batch=6 --set train.micro_batch=2 --set model.dropout=0.1 --set optimizer.clip_norm=1 $short"

make_text()
{
    i=0
    while [ $i -lt 120 ]; do
        echo "line $i: the quick brown fox jumps over the lazy dog"
        i=$((i + 1))
    done >text.txt
}

# losses FOLDER: of all steps and evaluations, or what `events` says
events='step\|eval'
losses()
{
    sed -n 's/.*"event":"\('"$events"'\)".*"epoch":[0-9]*,"loss":\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"
}

# near FOLDER WANTED: the losses of both, one for one, within 1e-5 of each other
near()
{
    losses "$1" >got.txt
    losses "$2" >want.txt
    paste -d ' ' got.txt want.txt | awk '
        $1 != $3 || $2 == "" || $4 == "" { bad = 1 }
        { d = $2 - $4; d = d < 0 ? -d : d; m = $4 < 0 ? -$4 : $4; n++ }
        d > 1e-5 * m { bad = 1 }
        END { exit bad || n < 2 }' || { fail "losses of $1 are not those of $2:"; paste got.txt want.txt; }
}

# cpu NAME ARGUMENT...: the run in folder NAME, on the CPU
cpu()
{
    name=$1
    shift
    run 0 "$program" "$@" --set ddp.device=cpu --out "$name"
}

# gpus NP NAME ARGUMENT...: on NP ranks with a GPU each, with the losses of the run in folder `cpu`
gpus()
{
    np=$1
    name=$2
    shift 2
    ranks "$np" 0 "$@" --out "$name"
    near "$name" cpu
}

# What there is, which rank has which, and what is refused.
devices()
{
    run 0 "$program" --version
    holds out '^cuda 13.*, driver 13.*, 3 devices$'
    CUSIM_DEVICES=0 run 0 "$program" --version
    holds out '^cuda: '
    ranks 2 0 $mlp --dry-run
    holds out '^rank 0: GPU 0, cusim, 0000:01:00.0'
    holds out '^rank 1: GPU 1, cusim, 0000:02:00.0'
    holds out "^# memory of rank 0's GPU"
    holds out '  device: cuda'
    ranks 2 0 $mlp --dry-run --set ddp.device=cpu
    holds out '  device: cpu'
    ranks 4 2 $mlp --dry-run
    says 'ranks 0 and 3'
    says 'would share GPU 0000:01:00.0'
    says '--set ddp.share_gpu=true'
    ranks 4 0 $mlp --dry-run --set ddp.share_gpu=true
    holds out '^rank 3: GPU 0'
    CUSIM_DEVICES=0 run 2 "$program" $mlp --set ddp.device=cuda
    says 'ddp.device cuda: no CUDA-capable device is detected'
    run 2 env CUSIM_DEVICES=1 $mpirun -np 1 "$program" $mlp : -np 1 env CUSIM_DEVICES=0 "$program" $mlp
    says 'rank 0'
    says 'sees a GPU and rank 1'
    says '--set ddp.device=cpu'
    run 2 "$program" $mlp --mode dp --devices 0,3
    says 'dp.devices: there is no GPU 3, only 0 to 2'
}

# each_with A B ARGUMENT...: two ranks, that see what CUDA_VISIBLE_DEVICES=A and =B leave them
each_with()
{
    a=$1
    b=$2
    shift 2
    run "$wanted" $mpirun -np 1 env "CUDA_VISIBLE_DEVICES=$a" "$program" "$@" : \
        -np 1 env "CUDA_VISIBLE_DEVICES=$b" "$program" "$@"
}

# What CUDA_VISIBLE_DEVICES leaves is what there is: in its order, for a job or, as Slurm does it, for each rank.
visible()
{
    CUDA_VISIBLE_DEVICES=2 run 0 "$program" --version
    holds out ', 1 device'
    CUDA_VISIBLE_DEVICES='' run 0 "$program" --version
    holds out '^cuda: no CUDA-capable device'
    CUDA_VISIBLE_DEVICES=0,9,1 run 0 "$program" --version # it ends at the first that is not there
    holds out ', 1 device'
    CUDA_VISIBLE_DEVICES=2,0 ranks 2 0 $mlp --dry-run
    holds out '^rank 0: GPU 0, cusim, 0000:03:00.0'
    holds out '^rank 1: GPU 1, cusim, 0000:01:00.0'
    CUDA_VISIBLE_DEVICES=2,0 ranks 3 2 $mlp --dry-run
    says 'ranks 0 and 2'
    says 'would share GPU 0000:03:00.0'
    wanted=0
    each_with 1 2 $mlp --set ddp.reduction=exact --out apart
    one=$(weights)
    holds apart/metrics.jsonl '"bus":"0000:02:00.0".*"bus":"0000:03:00.0"'
    ranks 2 0 $mlp --set ddp.reduction=exact --out all
    same 'two ranks that see all GPUs'
    uuid=$(sed -n 's/.*"gpus":\[{[^}]*"uuid":"\(GPU-[^"]*\)".*/\1/p' apart/metrics.jsonl)
    each_with "$uuid" 2,0 $mlp --dry-run
    holds out '^rank 0: GPU 0, cusim, 0000:02:00.0'
    holds out '^rank 1: GPU 1, cusim, 0000:01:00.0'
    wanted=2
    each_with 1 1 $mlp --dry-run
    says 'would share GPU 0000:02:00.0'
    each_with 1 '' $mlp --dry-run
    says 'sees a GPU and rank 1'
    CUDA_VISIBLE_DEVICES=2 run 2 "$program" $mlp --mode dp --devices 0,1
    says 'dp.devices: there is no GPU 1, only 0 to 0'
}

# Several ranks on one GPU, where that was asked for: the bits of one rank.
shared()
{
    CUSIM_DEVICES=1
    run 0 "$program" $mlp --set ddp.reduction=exact --out one
    one=$(weights)
    for np in 2 3; do
        for backend in nccl host; do
            ranks $np 2 $mlp --set ddp.backend=$backend --out refused
            says 'would share GPU 0000:01:00.0'
            [ ! -d refused ] || fail 'a run that was refused left a folder'
        done
        ranks $np 0 $mlp --set ddp.reduction=exact --set ddp.share_gpu=true --out nccl$np
        same "$np ranks on one GPU"
        holds nccl$np/metrics.jsonl '"bus":"0000:01:00.0".*"bus":"0000:01:00.0"'
    done
    ranks 2 0 $mlp --set ddp.share_gpu=true --dry-run # half of its 8192
    holds out '^free now  *4096.0'
}

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

# unlike STATUS VARIABLE=VALUE ARGUMENT...: two ranks, and the second one's environment has this too
unlike()
{
    wanted=$1
    variable=$2
    shift 2
    set -- $mlp --set train.batch=64 "$@" # equal parts: products of the same shapes
    run "$wanted" $mpirun -np 1 "$program" "$@" : -np 1 env "$variable" "$program" "$@"
}

# Two ranks whose libraries choose unlike algorithms cannot have the bits of one: that is said, and who.
algorithms()
{
    for backend in nccl host; do
        unlike 1 CUSIM_CUBLASLT_ID=7 --set ddp.backend=$backend --set ddp.reduction=exact --out unlike.$backend
        says 'rank 1 on'
        says 'has product 8 x 24 x 784 (cuBLASLt'
        says ' algorithm 8, tile 0, '
        says 'rank 0 on '
        says ' has algorithm 1, tile 0, '
        says 'or ddp.reduction=fast'
    done
    unlike 1 DDP_CUDA_GEMM=plain --set ddp.reduction=exact --out plain
    says 'has products by a plain kernel, rank 0 on'
    unlike 0 CUSIM_CUBLASLT_ID=7 --out fast
    CUSIM_CUBLASLT_ID=7 ranks 3 0 $mlp --set ddp.reduction=exact --out alike
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

# planted N TEXT ARGUMENT...: rank 1's Nth allocation fails: it says so, and both ranks end
planted()
{
    at=$1
    text=$2
    shift 2
    run 1 $mpirun -np 1 "$program" $mlp "$@" --out none : -np 1 env CUSIM_MEMORY_FAULT="$at" "$program" $mlp "$@" --out none
    says 'ddptrain[1@'
    says "$text"
}

# What a GPU has not room for is refused before it starts; the memory of GPUs is not the machine's. What cannot be had
# all the same is named, with its GPU.
memory()
{
    CUSIM_MEMORY_MB=4 ranks 2 1 $mlp
    says 'memory: rank 0 needs'
    says 'on GPU 0000:01:00.0, 4 MiB are free there'
    CUSIM_MEMORY_MB=4 run 1 "$program" $mlp --mode dp --devices 1,2
    says 'memory: device 1 needs'
    says 'on GPU 0000:02:00.0, 4 MiB are free there; use a smaller model, or fewer devices'
    CUSIM_MEMORY_MB=4 run 0 "$program" $mlp --mode dp --devices 1,2 --dry-run
    holds out '^2 .* 4.0: NOT ENOUGH$'
    grep -q '^devices ' out && fail 'memory of GPUs is counted as the process has it'
    planted 1 ': GPU 0000:02:00.0: cudaHostAlloc'
    planted 2 ': rank 1: parameters need 0.1 MB'
    planted 3 ': GPU 0000:02:00.0: moments need 0.0 MB' --set optimizer.shard=true
    planted 4 ': GPU 0000:02:00.0: ' --set ddp.backend=host
}

# planned NAME ARGUMENT...: two ranks hold on their GPUs what was planned, to the byte
planned()
{
    name=$1
    shift
    CUSIM_MEMORY_REPORT=$name.bytes ranks 2 0 "$@" --out "$name"
    wanted=$(sed -n 's/.*"event":"start".*"gpu":\([0-9]*\).*/\1/p' "$name/metrics.jsonl")
    counted=$(cat "$name".bytes.* | sed -n 's/^0 //p')
    [ -n "$wanted" ] && [ "$wanted" = "$counted" ] || fail "$name: $wanted bytes are planned on a GPU, $counted were taken"
}

# What is said of a GPU's memory before a run starts is what it takes.
planned_memory()
{
    make_text
    short_mlp="$mlp --set train.steps=2"
    for reduction in fast exact; do
        for shard in false true; do
            planned mlp.$reduction.$shard $short_mlp --set ddp.reduction=$reduction --set optimizer.shard=$shard
        done
    done
    planned mlp.wire $short_mlp --set ddp.wire=bf16 --set optimizer.shard=true
    planned mlp.bf16 $short_mlp --set train.precision=bf16
    planned mlp.sgd $short_mlp --set optimizer.kind=sgd --set optimizer.momentum=0
    planned mlp.host $short_mlp --set ddp.backend=host
    planned cnn $cnn --set train.steps=1 --set optimizer.shard=true
    planned gpt.wire $gpt --set train.steps=1 --set ddp.wire=bf16
    planned gpt.exact $gpt --set train.steps=1 --set ddp.reduction=exact --set optimizer.shard=true --set train.precision=bf16
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

# scales FOLDER: the loss scale of each step
scales()
{
    sed -n 's/.*"event":"step".*"step":\([0-9]*\).*"loss_scale":\([0-9.]*\).*/\1:\2/p' "$1/metrics.jsonl" | tr '\n' ' '
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

# in_order FOLDER NP: forward and backward took time and lie within the step; each rank's spans have a length, backward
# begins where forward ends, and those of rank 0 lie within the traced step; each rank has both streams in trace.json, with their buckets.
in_order()
{
    sed -n 's/.*"event":"step".*"step_ms":\([^,]*\),.*"forward_ms":\([^,]*\),"backward_ms":\([^,]*\),.*/\1 \2 \3/p' \
        "$1/metrics.jsonl" | awk '$2 <= 0 || $3 <= 0 || $2 + $3 > $1 * 1.001 { bad = 1 } { n++ } END { exit bad || n < 3 }' ||
        fail "$1: forward and backward are no parts of a step"
    sed -n 's/.*"event":"trace".*"step_ms":\([^,]*\),"spans":\[\(.*\)\],"time.*/\1 \2/p' "$1/metrics.jsonl" |
        tr '[],"' '    ' | awk -v np="$2" '
        { limit = $1 * 1000
          for (i = 2; i + 3 <= NF; i += 4) {
              late = $(i + 1) == 0 ? 0 : 1e6 # another rank ends its step in its own time
              if ($(i + 3) <= $(i + 2) || $(i + 3) > limit + late) { bad = 1 }
              if ($i == "backward" && $(i + 2) != end[$(i + 1)]) { bad = 1 }
              if ($i == "forward" && ($(i + 1) in end) && $(i + 2) < end[$(i + 1)]) { bad = 1 } # may begin before rank 0
              if ($i == "forward" || $i == "backward") { end[$(i + 1)] = $(i + 3) }
              seen[$i, $(i + 1)] = 1
          } }
        END { for (r = 0; r < np; r++) { if (!seen["reduce", r] || !seen["backward", r]) { bad = 1 } } exit bad }' ||
        fail "$1: spans of the trace are not in order, or not within the step"
    rank=0
    while [ $rank -lt "$2" ]; do
        for line in compute comm; do
            grep -q "\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":$rank,\"tid\":[01],\"args\":{\"name\":\"$line\"}" \
                "$1/trace.json" || fail "$1: rank $rank has no stream $line in trace.json"
        done
        rank=$((rank + 1))
    done
    holds "$1/trace.json" '"name":"reduce","ph":"X",.*"args":{"bucket":0,"ready_us":'
    if command -v python3 >/dev/null; then
        python3 -c 'import json, sys; json.load(open(sys.argv[1]))["traceEvents"][0]' "$1/trace.json" ||
            fail "$1: trace.json is no JSON"
    fi
}

# Times are the GPU's: none is missing, whichever order streams run in.
timeline()
{
    traced="$mlp --set train.trace=true --set train.steps=5 --set train.log_every=2"
    for order in eager lifo; do
        CUSIM_SCHED=$order CUSIM_LAZY=1 ranks 2 0 $traced --out nccl.$order
        in_order nccl.$order 2
    done
    ranks 2 0 $traced --set ddp.reduction=exact --set optimizer.shard=true --out exact
    in_order exact 2
    ranks 2 0 $traced --set ddp.backend=host --out host
    in_order host 2
    ranks 2 0 $traced --set ddp.device=cpu --out cpu
    in_order cpu 2
}

# balanced N NAME: N processes told a profiler of ranges; on each of their threads every range that was opened was closed
balanced()
{
    set -- "$1" "$2" "$2".ranges.*
    [ $# -eq $(($1 + 2)) ] || fail "$2: the profiler was opened $(($# - 2)) times, not $1"
    profile=$2
    shift 2
    for file in "$@"; do
        awk '$2 == "begin" { depth[$1]++ } $2 == "end" && --depth[$1] < 0 { bad = 1 }
            END { for (thread in depth) { bad = bad || depth[thread] != 0 } exit bad || NR < 5 }' "$file" ||
            { fail "$profile: ranges are not closed as they are opened:"; cat "$file"; }
    done
}

# has_ranges FILE NAME...: each was told
has_ranges()
{
    told=$1
    shift
    for range in "$@"; do
        grep -q "begin $range\$" "$told" || fail "$told: no range '$range'"
    done
}

# inside FILE OUTER INNER: each range INNER is opened within one that is OUTER
inside()
{
    awk -v outer="$2" -v inner="$3" '
        $2 == "begin" { d = ++depth[$1]; name[$1, d] = $3; if ($3 == inner && name[$1, d - 1] != outer) { bad = 1 } n += $3 == inner }
        $2 == "end" { depth[$1]-- }
        END { exit bad || n == 0 }' "$1" || fail "$1: a range '$3' is not within '$2'"
}

# What a profiler is told, also by runs that fail.
ranges()
{
    profiled="$mlp --set checkpoint.every_steps=2"
    export NVTX_INJECTION64_PATH="$DDP_FAKE_NVTX"
    FAKE_NVTX=ddp.ranges ranks 2 0 $profiled --out ddp
    balanced 2 ddp
    for file in ddp.ranges.*; do
        has_ranges "$file" 'step 1' 'step 5' 'data wait' 'bucket 0' 'update 0' 'save 2' 'save 4' eval
        inside "$file" backward bucket
        inside "$file" step forward
        inside "$file" forward data
        grep -q 'domain ddptrain$' "$file" || fail "$file: no domain"
    done
    has_ranges "$(grep -l 'begin forward 0$' ddp.ranges.*)" 'forward 3' 'backward 0' 'backward 3'
    FAKE_NVTX=host.ranges ranks 2 0 $profiled --set ddp.backend=host --out host
    balanced 2 host
    FAKE_NVTX=dp.ranges run 0 "$program" $profiled --mode dp --devices 0,1 --out dp
    balanced 1 dp
    has_ranges dp.ranges.* 'forward 0' 'backward 7' 'data wait'
    DDP_FAULT=train_forward:1 FAKE_NVTX=lost.ranges ranks 2 1 $profiled --set ddp.timeout_s=3 --out lost
    balanced 2 lost
    DDP_FAULT=dp_forward:1 FAKE_NVTX=dp_lost.ranges run 1 "$program" $profiled --mode dp --devices 0,1 --out dp_lost
    balanced 1 dp_lost
    NVTX_INJECTION64_PATH=/nowhere/profiler.so run 0 "$program" $mlp --out without
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

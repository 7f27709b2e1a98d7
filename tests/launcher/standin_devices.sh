#!/bin/sh
# As standin.sh: what the program says of devices, of their memory, of what they compute and when, and what it refuses.
set -u

here=$(cd "$(dirname "$0")" && pwd)
. "$here/support.sh"
. "$here/standin_support.sh"

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
    says 'on GPU 0000:01:00.0, 4 MiB are free there; use a smaller model, or GPUs with more memory'
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

"$case"
exit "$failed"

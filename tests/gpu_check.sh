#!/bin/sh
# What a machine with one GPU can show in 15 minutes, of a build that is there already: sh tests/gpu_check.sh [BUILD [OUT]]
# BUILD (default: build-gpu) is what `cmake --preset gpu && cmake --build --preset gpu` made, here or on a machine like it. OUT (default:
# gpu_check) gets report.txt, report.json and the logs. Nothing is built. Each check has a limit of time and says passed, failed or
# skipped, with figures. Exit status 1 if one failed.
# Environment: PROGRAM and TESTS (folder of the test programs) instead of BUILD's; MPIRUN; REHEARSAL=1: everything small, for the tests'
# stand-in for a GPU.
# shellcheck disable=SC2086 # MPIRUN and the like are several words
set -u

top=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$top/build-gpu}
out=${2:-gpu_check}
program=${PROGRAM:-$build/ddptrain}
tests=${TESTS:-$build/bin}
mpirun=${MPIRUN:-mpirun --oversubscribe --bind-to none}
rehearsal=${REHEARSAL:-0}
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM

[ -x "$program" ] || { echo "gpu_check: no program $program: cmake --preset gpu && cmake --build --preset gpu"; exit 2; }
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
[ -d "$tests" ] || { echo "gpu_check: no folder $tests with test programs"; exit 2; }
tests=$(cd "$tests" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
text=$out/report.txt
json=$out/report.json
failed=0
first=1
: >"$text"
printf '{"checks":[' >"$json"

# quoted TEXT: one line, as JSON may hold it
quoted()
{
    printf '%s' "$1" | tr '\n\t' '  ' | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g' | cut -c 1-600
}

# check NAME SECONDS FUNCTION: runs it in a shell of its own; its stdout is the log, what it writes to `said` is told.
check()
{
    name=$1
    limit=$2
    : >said
    from=$(date +%s)
    (
        what=$3
        export what
        timeout -k 5 "$limit" sh -c '. "$0"; "$what"' "$work/checks.sh"
    ) >"$out/$name.log" 2>&1 </dev/null
    code=$?
    seconds=$(($(date +%s) - from))
    case $code in
    0) result=passed ;;
    77) result=skipped ;;
    124 | 137) result=failed; echo "not done within $limit s" >>said ;;
    *) result=failed ;;
    esac
    if [ $result = failed ]; then
        failed=1
        [ -s said ] || tail -n 3 "$out/$name.log" >said
    fi
    printf '%-12s %-8s %4d s  %s\n' "$name" $result $seconds "$(tr '\n' ' ' <said)" | tee -a "$text"
    [ $first = 1 ] || printf ',' >>"$json"
    first=0
    printf '\n{"name":"%s","result":"%s","seconds":%d,"said":"%s"}' "$name" $result $seconds "$(quoted "$(cat said)")" >>"$json"
}

# The checks, read by a shell of their own so that a limit ends all of one.
cat >"$work/checks.sh" <<'CHECKS'
short="--set train.log_every=1 --set train.peak_gflops=1 --log error"
mlp="--set data.kind=shapes --set data.samples=200 --set data.test_samples=130 --set train.batch=60 --set train.micro_batch=8
    --set model.kind=mlp --set model.hidden=[24,16] --set model.dropout=0.2 --set train.steps=5 $short"
gpt="--set model.kind=gpt2 --set model.preset=tiny --set data.path=text.txt --set data.test_samples=4 --set train.batch=6
    --set train.micro_batch=2 --set optimizer.clip_norm=1 --set train.steps=5 $short"

losses()
{
    sed -n 's/.*"event":"\(step\|eval\)".*"epoch":[0-9]*,"loss":\([^,}]*\).*/\2/p' "$1/metrics.jsonl"
}

# largest difference of the losses of two runs, relative; fails above LIMIT
near()
{
    losses "$1" >a.txt
    losses "$2" >b.txt
    paste -d ' ' a.txt b.txt | awk -v limit="$3" '
        { d = $1 - $2; d = d < 0 ? -d : d; d /= $2 < 0 ? -$2 : $2; most = d > most ? d : most; n++ }
        END { printf "losses differ by at most %.1e (limit %s)\n", most, limit; exit n < 3 || !(most <= limit) }' | tee -a said
    paste -d ' ' a.txt b.txt | awk -v limit="$3" '{ d = $1 - $2; d = d < 0 ? -d : d; if (!(d <= limit * $2)) exit 1 }'
}

field()
{
    sed -n "s/.*\"event\":\"step\".*\"$2\":\([^,}]*\).*/\1/p" "$1/metrics.jsonl" | tail -n 1
}

make_text()
{
    awk 'BEGIN { for (i = 0; i < 200; i++) print "line " i ": the quick brown fox jumps over the lazy dog" }' >text.txt
}

device()
{
    "$program" --version | tee -a said
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | tee -a said
    "$program" --version | grep -q '^cuda [0-9].* device'
}

# Every kernel against the CPU backend.
kernels()
{
    bad=0
    n=0
    for test in "$tests"/test_cuda_$kernels_pattern; do
        [ -x "$test" ] || continue
        n=$((n + 1))
        echo "=== $test"
        "$test" || { [ $? -eq 77 ] || { bad=$((bad + 1)); echo "$(basename "$test") failed;" >>said; }; }
    done
    echo "$n test programs, $bad failed" >>said
    [ $n -gt 0 ] && [ $bad -eq 0 ]
}

sanitizer()
{
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || { echo 'no compute-sanitizer' >>said; exit 77; }
    bad=0
    for kind in memcheck racecheck; do
        for test in vector norm head optim embedding; do
            [ -x "$tests/test_cuda_$test" ] || continue
            echo "=== $kind $test"
            "$tool" --tool $kind --error-exitcode 9 "$tests/test_cuda_$test" || { bad=1; echo "$kind: $test;" >>said; }
        done
    done
    [ $bad -eq 0 ]
}

# Trainings in float32 against the CPU's.
training()
{
    make_text
    for model in mlp gpt; do
        [ $model = mlp ] && set -- $mlp || set -- $gpt
        "$program" "$@" --set ddp.device=cpu --out cpu.$model || return 1
        "$program" "$@" --set ddp.device=cuda --out gpu.$model || return 1
        near gpu.$model cpu.$model 1e-4 || return 1
    done
}

# Products and attention of the libraries against the plain kernels.
libraries()
{
    make_text
    DDP_CUDA_GEMM=plain DDP_CUDNN_PATH=/nowhere "$program" $gpt --set train.precision=bf16 --out plain || return 1
    "$program" $gpt --set train.precision=bf16 --out libraries || return 1
    near libraries plain 1e-2
}

# Two ranks on this one GPU: the same bits as one, and the fast sum near it.
nccl()
{
    one=$("$program" $mlp --set ddp.backend=nccl --set ddp.reduction=exact --out one) || return 1
    two=$($mpirun -np 2 "$program" $mlp --set ddp.backend=nccl --set ddp.reduction=exact --set ddp.share_gpu=true --out two) || return 1
    $mpirun -np 2 "$program" $mlp --set ddp.backend=nccl --set ddp.share_gpu=true --out fast || return 1
    [ "$one" = "$two" ] && echo "exact: $one on 1 and 2 ranks;" >>said || { echo "exact: '$one' and '$two'" >>said; return 1; }
    near fast one 1e-4
}

# A rank is killed: the other one says so and ends.
watchdog()
{
    $mpirun -np 2 sh -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' sh "$program" $mlp --set ddp.share_gpu=true \
        --set train.steps=1000000 --set ddp.timeout_s=10 --out long >long.log 2>&1 &
    mpi=$!
    tries=0
    until grep -q '"step":3[,}]' long/metrics.jsonl 2>/dev/null || [ $tries -ge 100 ]; do
        sleep 0.3
        tries=$((tries + 1))
    done
    kill -9 "$(cat pid.1)"
    from=$(date +%s)
    wait $mpi
    code=$?
    echo "ended $(($(date +%s) - from)) s after the kill, status $code; $(grep -m 1 '^ddptrain' long.log)" >>said
    tries=0
    while grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$(cat pid.0)/status" 2>/dev/null; do
        sleep 0.5
        tries=$((tries + 1))
        [ $tries -lt 40 ] || { echo 'rank 0 still runs' >>said; return 1; }
    done
    [ $code -ne 0 ]
}

# fast_gpt ARGUMENT...: GPT-2 on random tokens
fast_gpt()
{
    "$program" --set model.kind=gpt2 $speed_model --set data.path=tokens.u16 --set data.test_samples=1 $speed_run \
        --set model.dropout=0 --set checkpoint.every_epochs=0 --log error "$@"
}

# Tokens a second, and where a step's time goes.
speed()
{
    head -c $((speed_samples * 2200)) /dev/urandom | LC_ALL=C tr '\200-\377' '\000-\177' >tokens.u16
    fast_gpt --out speed || return 1
    for name in tokens_per_s step_ms forward_ms backward_ms exposed_comm_ms mfu; do
        echo "$name $(field speed $name)" >>said
    done
    cp speed/metrics.jsonl "$out/speed.jsonl"
}

# Steps as CUDA graphs: the same bits, and the time of a step with and without, of a small model, whose kernels are short, and
# of the one before.
graphs()
{
    make_text
    for way in false true; do
        "$program" $gpt --set model.dropout=0.1 --set train.steps=$graph_steps --set ddp.reduction=exact --set train.graphs=$way \
            --out small.$way >weights.$way || return 1
        echo "graphs $way: small step_ms $(field small.$way step_ms);" >>said
    done
    cmp weights.false weights.true || { echo 'other weights with graphs' >>said; return 1; }
    sed -n 's/.*"event":"end".*"graph_share":\([^,]*\).*/share \1/p' small.true/metrics.jsonl >>said
    fast_gpt --set train.graphs=true --out speed.graphs || return 1
    echo "124m tokens_per_s $(field speed tokens_per_s), with graphs $(field speed.graphs tokens_per_s)" >>said
}

pytorch()
{
    python3 -c 'import torch' 2>/dev/null || { echo 'no torch' >>said; exit 77; }
    python3 "$top/tests/gpu_check_torch.py" $torch_options | tee -a said
}
CHECKS

kernels_pattern='*'
speed_model='--set model.preset=124m --set model.context=1024'
speed_run='--set train.batch=64 --set train.micro_batch=32 --set train.steps=30 --set train.log_every=10 --set train.precision=bf16'
speed_samples=2000
graph_steps=200
torch_options='--batch 32'
if [ "$rehearsal" = 1 ]; then
    kernels_pattern=vector
    speed_model='--set model.preset=tiny --set model.vocab=32768'
    speed_run='--set train.batch=2 --set train.micro_batch=1 --set train.steps=1 --set train.precision=bf16 --set train.peak_gflops=1'
    speed_samples=2
    graph_steps=4
    torch_options='--device cpu --layers 1 --channels 64 --heads 2 --context 32 --batch 2 --steps 2'
fi
export program tests mpirun out top kernels_pattern speed_model speed_run speed_samples graph_steps torch_options

check device 30 device
check kernels 220 kernels
check training 60 training
check libraries 60 libraries
check nccl 90 nccl
check watchdog 60 watchdog
check speed 100 speed
check graphs 60 graphs
check pytorch 100 pytorch
check sanitizer 120 sanitizer

printf '\n],"rehearsal":%s,"failed":%s,"date":"%s"}\n' "$([ "$rehearsal" = 1 ] && echo true || echo false)" \
    "$([ $failed = 1 ] && echo true || echo false)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >>"$json"
echo "report: $text, $json"
exit $failed

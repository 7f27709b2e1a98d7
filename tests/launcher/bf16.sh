#!/bin/sh
# Training with train.precision bf16; its bits are in tokens.sh. Usage: sh bf16.sh CASE DDPTRAIN MPIRUN [mpirun
# option...]
set -u

. "$(dirname "$0")/support.sh"

cnn="--set model.kind=cnn --set data.kind=shapes --set data.samples=120 --set data.test_samples=130
    --set train.batch=32 --set train.micro_batch=4"
gpt2="--set model.kind=gpt2 --set model.preset=tiny --set model.dropout=0.1 --set data.path=text.txt
    --set train.batch=12 --set train.micro_batch=2"

# loss FOLDER: that of the last evaluation
loss()
{
    sed -n 's/.*"event":"eval".*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" | tail -n 1
}

# train NAME BOUND ARGUMENT...: with bf16 the test loss falls below BOUND, and is about that of float32.
train()
{
    name=$1
    bound=$2
    shift 2
    for precision in float32 bf16; do
        ranks 2 0 "$@" --set train.precision=$precision --log error --out "$name-$precision"
    done
    awk -v a="$(loss "$name-bf16")" -v b="$(loss "$name-float32")" -v bound="$bound" -v name="$name" 'BEGIN {
        print name ": test loss " a " in bf16, " b " in float32"
        exit !(a > 0 && a < bound && a < 1.05 * b && b < 1.05 * a)
    }' || fail "$name: bf16 does not train as float32 does"
}

losses()
{
    seq 1 3000 | tr '\n' ' ' >text.txt
    train cnn 1.0 $cnn --set data.samples=2000 --set data.test_samples=500 --set train.epochs=2
    train mlp 1.6 $cnn --set data.samples=3000 --set data.test_samples=500 --set train.epochs=3 --set model.kind=mlp
    train gpt2 2.45 $gpt2 --set train.epochs=4 --set optimizer.lr=0.005
}

# Which way it goes is in the start event and in the dry run; ranks that go different ways have the same bits.
ways()
{
    short="$cnn --set train.steps=2 --set train.precision=bf16 --log error"
    run 0 env DDP_BF16=emulate $mpirun -np 2 "$program" $short --out slow
    one=$(weights)
    holds slow/metrics.jsonl '"event":"start".*"bf16":"emulated".*"train.precision":"bf16"'
    run 0 $mpirun -np 1 env DDP_BF16=emulate "$program" $short : -np 1 "$program" $short
    same 'one of two ranks emulates'
    run 0 env DDP_BF16=emulate "$program" $short --dry-run
    holds out '^precision bf16, emulated'
    run 0 "$program" $cnn --dry-run
    grep -q '^precision' out && fail 'a dry run in float32 speaks of bf16'
    if grep -q avx512_bf16 /proc/cpuinfo && [ -z "${DDP_ISA:-}" ]; then
        ranks 2 0 $short --log warn --out fast
        [ -s err ] && fail "with the instruction: $(cat err)"
        holds fast/metrics.jsonl '"event":"start".*"bf16":"instruction"'
        ranks 1 0 $short --dry-run
        holds out '^precision bf16, by instruction$'
    fi
    run 1 env DDP_BF16=fast $mpirun -np 2 "$program" $short
    says 'DDP_BF16=fast: no such way; use emulate'
}

"$case"
exit $failed

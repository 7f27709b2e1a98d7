# What the scripts share that run the whole program on the stand-in for GPUs: configurations, and how runs are compared.
# shellcheck shell=sh disable=SC2034 # used by who reads this

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

# scales FOLDER: the loss scale of each step
scales()
{
    sed -n 's/.*"event":"step".*"step":\([0-9]*\).*"loss_scale":\([0-9.]*\).*/\1:\2/p' "$1/metrics.jsonl" | tr '\n' ' '
}

#!/bin/sh
# As standin.sh: trainings whose steps go to the GPU as CUDA graphs.
set -u

here=$(cd "$(dirname "$0")" && pwd)
. "$here/support.sh"
. "$here/standin_support.sh"

# graphed NP FOLDER SHARE ARGUMENT...: with graphs the weights are "one", and at least SHARE of the operations came in them
graphed()
{
    np=$1
    folder=$2
    share=$3
    shift 3
    ranks "$np" 0 "$@" --set train.graphs=true --out "$folder"
    same "graphs, $folder"
    sed -n 's/.*"event":"end".*"graphs":\([0-9]*\),"graph_launches":[0-9]*,"graph_share":\([0-9.]*\).*/\1 \2/p' \
        "$folder/metrics.jsonl" | awk -v share="$share" '{ n++ } $1 < 1 || $2 < share { bad = 1 } END { exit bad || n != 1 }' ||
        fail "$folder: too little of it ran as graphs: $(tail -n 1 "$folder/metrics.jsonl")"
}

# Steps as CUDA graphs have the bits of those without: dropout, several micro-batches a rank, a smaller last batch, every way
# to sum, orders of streams, skipped steps, going on in the middle, and DataParallel.
graphs()
{
    long="$mlp --set train.steps=8"
    ranks 2 0 $long --set ddp.reduction=exact --out without
    one=$(weights)
    graphed 2 exact 0.8 $long --set ddp.reduction=exact
    graphed 1 alone 0.8 $long --set ddp.reduction=exact
    for order in lifo random:1; do
        CUSIM_SCHED=$order CUSIM_LAZY=1 graphed 2 "exact.$order" 0.8 $long --set ddp.reduction=exact
    done
    ranks 2 0 $long --set ddp.reduction=exact --set train.graphs=true --set train.steps=5 --set schedule.kind=constant \
        --out half
    ranks 2 0 $long --set ddp.reduction=exact --set schedule.kind=constant --out constant
    one=$(weights)
    graphed 3 half 0 $long --set ddp.reduction=exact --set schedule.kind=constant --resume auto
    run 0 "$program" $long --set ddp.reduction=exact --set schedule.kind=constant --set train.graphs=true --mode dp \
        --devices 0,1 --out dp
    same 'graphs and DataParallel'
    for way in ddp.reduction=fast ddp.backend=host; do
        ranks 2 0 $long --set $way --out "without.$way"
        one=$(weights)
        CUSIM_SCHED=lifo CUSIM_LAZY=1 graphed 2 "$way" 0.7 $long --set $way
    done
    wild="$long --set train.precision=fp16 --set optimizer.kind=sgd --set optimizer.lr=4 --set optimizer.clip_norm=0
        --set ddp.reduction=exact"
    ranks 2 0 $wild --out without.fp16
    one=$(weights)
    holds without.fp16/metrics.jsonl '"skipped":1'
    graphed 2 fp16 0.4 $wild
    [ "$(scales fp16)" = "$(scales without.fp16)" ] || fail "other loss scales: $(scales fp16)"
    run 0 "$program" $mlp --set ddp.device=cpu --set train.graphs=true --log warn --out none
    says 'train.graphs true has no effect: it belongs to ddp.device cuda, and this run has cpu'
}

# Text; what cannot be captured is said once, and has the same bits.
graphs_text()
{
    make_text
    ranks 2 0 $gpt --set ddp.reduction=exact --out gpt
    one=$(weights)
    CUSIM_SCHED=lifo CUSIM_LAZY=1 graphed 2 gpt.graphs 0.7 $gpt --set ddp.reduction=exact
    graphed 1 gpt.blocks 0.7 $gpt --set ddp.reduction=exact --set train.recompute=blocks
    CUSIM_CAPTURE_FAULT=1 ranks 2 0 $gpt --set ddp.reduction=exact --set train.graphs=true --log warn --out gpt.none
    same 'graphs that cannot be captured'
    [ "$(grep -c 'run without CUDA graphs' err)" = 2 ] || fail 'not one line of each rank says that nothing is captured'
    ranks 2 0 $gpt --set train.precision=bf16 --out half
    one=$(weights)
    graphed 2 half.graphs 0.7 $gpt --set train.precision=bf16
}

graphs_models()
{
    three="$cnn --set train.steps=3"
    ranks 2 0 $three --set ddp.reduction=exact --out cnn
    one=$(weights)
    graphed 1 cnn.graphs 0.4 $three --set ddp.reduction=exact
    two="$resnet --set train.steps=2 --set train.batch=2 --set train.micro_batch=1"
    ranks 2 0 $two --set ddp.reduction=exact --out resnet
    one=$(weights)
    graphed 2 resnet.graphs 0.3 $two --set ddp.reduction=exact
}

"$case"
exit "$failed"

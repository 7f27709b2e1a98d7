#!/bin/sh
# DataParallel in the whole program: the weights, files and losses of one rank and of mpirun, on any number of devices.
# Usage: sh dp.sh CASE DDPTRAIN MPIRUN [mpirun option...]
set -u

. "$(dirname "$0")/support.sh"

# 8 micro-batches, a short last batch, dropout and clipping; 20 steps of 5 epochs.
small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=130 --set train.batch=60
    --set train.micro_batch=8 --set train.steps=20 --set model.kind=mlp --set model.hidden=[24,16]
    --set model.dropout=0.2 --set optimizer.clip_norm=0.25 --log error"

# dp DEVICES STATUS ARGUMENT...
dp()
{
    devices=$1
    status=$2
    shift 2
    run "$status" "$program" --mode dp --devices "$devices" "$@"
}

# evaluations FILE: losses and accuracies, without times
evaluations()
{
    sed -n 's/^\({"event":"eval".*\),"seconds.*/\1/p' "$1/metrics.jsonl"
}

# The weights, every byte of the checkpoint, and the evaluations.
bits()
{
    run 0 "$program" $small --out one
    one=$(weights)
    evaluations one >wanted
    [ "$(wc -l <wanted)" -eq 5 ] || fail "evaluations: $(cat wanted)"
    for devices in 0 1,0 2,0,1 3,1,0,2; do
        dp $devices 0 $small --out dp-$devices
        same "devices $devices"
        cmp one/checkpoints/latest.h5 dp-$devices/checkpoints/latest.h5 || fail "devices $devices: another file"
        evaluations dp-$devices | cmp - wanted || fail "devices $devices: another evaluation"
    done
    ranks 3 0 $small --out many
    same '3 ranks'
    evaluations many | cmp - wanted || fail '3 ranks: another evaluation'
    dp 0,1,2 0 $small --set dp.loss=inside --set dp.output_device=1 --set ddp.reduction=exact --out inside
    same 'loss inside'
    dp 0,1,2 0 $small --set dp.loss=mean --out mean
    [ "$(weights)" != "$one" ] || fail 'the mean of means gave the weights of the mean'
    "$program" inspect one/checkpoints/latest.h5 --tensors >tensors
    grep -q 'module\.' tensors && fail 'a prefix in the checkpoint'
}

case $case in
bits)
    bits
    ;;
esac
exit $failed

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

# planned_is_held FOLDER: on every device the most that it held is what was planned, to the byte.
planned_is_held()
{
    for event in start end; do
        grep "^{\"event\":\"$event\"" "$1/metrics.jsonl" | sed 's/.*"\(planned\|device\)_memory_bytes":\[\([^]]*\)\].*/\2/' |
            tr '}' '\n' | sed -n "s/.*\"id\":\([0-9]*\).*\"total\":\([0-9]*\).*/\1 \2/p" >$event.total
        sed -n 's/^\([0-9]*\) .*/\1/p' $event.total >$event.ids
    done
    grep '^{"event":"end"' "$1/metrics.jsonl" | grep -o '"peak":[0-9]*' | sed 's/.*://' | paste -d ' ' end.ids - >peak
    [ -s peak ] && cmp start.total peak || fail "planned $(cat start.total), at most held $(cat peak)"
}

# model NAME ARGUMENT...: one rank, and three devices with the loss outside and inside, the output elsewhere.
model()
{
    kind=$1
    shift
    run 0 "$program" "$@" --out "$kind"
    one=$(weights)
    evaluations "$kind" >wanted
    for loss in outside inside; do
        dp 2,0,1 0 "$@" --set dp.loss=$loss --set dp.output_device=0 --out "$kind-$loss"
        [ "$kind" = resnet ] || same "$kind, loss $loss"
        [ "$kind" = resnet ] || evaluations "$kind-$loss" | cmp - wanted || fail "$kind, loss $loss: another evaluation"
        planned_is_held "$kind-$loss"
    done
}

# Running averages are those of device 0, so a resnet's differ; its parameters do not.
models()
{
    common="--set train.steps=3 --set train.batch=12 --set train.micro_batch=2 --log error"
    shapes="--set data.kind=shapes --set data.samples=40 --set data.test_samples=130"
    seq 3000 >text
    model cnn $common $shapes --set model.kind=cnn --set train.freeze=conv1.* --set train.precision=bf16
    model gpt2 $common --set model.kind=gpt2 --set model.preset=tiny --set data.path=text --set data.test_samples=9 \
        --set model.dropout=0.1 --set train.recompute=blocks --set train.nonfinite=skip
    dp 0,1 0 $common --set model.kind=gpt2 --set model.preset=tiny --set data.path=text --set train.sample_tokens=5 --log info
    holds err 'sample | '
    model resnet $common $shapes --set model.kind=resnet
    run 1 "$program" inspect resnet/checkpoints/latest.h5 resnet-inside/checkpoints/latest.h5
    grep -v running_ out | grep -q bn1 && { fail 'more differs than running averages'; cat out; }
    run 0 "$program" inspect resnet-outside/checkpoints/latest.h5 resnet-inside/checkpoints/latest.h5
}

# From ranks to devices and back, from a file to weights only; every byte of the last checkpoint.
resume()
{
    constant="$small --set schedule.kind=constant --set checkpoint.every_steps=5"
    run 0 "$program" $constant --out whole
    whole=$(weights)
    ranks 3 0 $constant --set train.steps=10 --out ranks
    dp 1,0 0 $constant --out ranks --resume auto
    ends_with "$whole"
    dp 0,1,2 0 $constant --set train.steps=5 --out devices
    ranks 3 0 $constant --out devices --set train.steps=10 --resume auto
    dp 0,3 0 $constant --out devices --resume devices/checkpoints/ckpt-000000000010.h5 --log info
    ends_with "$whole"
    grep -q 'was dp\|now dp\|dp\.' err && { fail 'devices are no part of what a run is'; cat err; }
    for run in ranks devices; do
        cmp whole/checkpoints/latest.h5 $run/checkpoints/latest.h5 || fail "$run: another file"
    done
    dp 0,1 0 $constant --set train.steps=1 --set optimizer.lr=0 --init whole/checkpoints/latest.h5 --out init
    ends_with "$whole"
    run 0 "$program" eval devices/checkpoints/latest.h5
    holds out '^loss [0-9.]* accuracy'
    ranks 2 0 eval devices/checkpoints/latest.h5
}

# Stopped by a signal and by time, and gone on with.
signals()
{
    longer="$small --set train.epochs=2500 --set train.steps=0 --set checkpoint.every_epochs=100"
    for way in USR1 limit; do
        limit=
        [ $way = USR1 ] || limit='--time-limit 1'
        "$program" --mode dp --devices 0,1 $longer $limit --out $way >out 2>err &
        job=$!
        for try in $(seq 100); do
            grep -q '"event":"checkpoint"' $way/metrics.jsonl 2>/dev/null && break
            sleep 0.1
        done
        [ $way = limit ] || kill -USR1 $job
        wait $job
        [ $? -eq 75 ] || { fail "$way: another status than 75"; cat err; }
        holds $way/metrics.jsonl '"event":"stop"'
        stop=$(sed -n 's/.*"event":"stop","step":\([0-9]*\).*/\1/p' $way/metrics.jsonl)
        dp 1 0 $small --set schedule.kind=constant --set train.steps=$((stop + 1)) --out $way --resume auto
    done
}

refusals()
{
    ranks 2 2 $small --mode dp --out none
    says 'run it without mpirun, or leave out --mode dp'
    run 2 "$program" $small --devices 0,1 --out none
    says '--devices is for --mode dp'
    dp 0,1,2,3,4,5,6,7,8 2 $small --out none
    says 'use at most 8 devices, or --set train.micro_batch=7'
    dp 0,1,1 2 $small --out none
    says 'dp.devices names device 1 twice'
    dp 0,64 2 $small --out none
    says 'there is no device 64'
    dp 0,1 2 $small --set dp.output_device=2 --out none
    says "dp.output_device is '2'"
    dp 0,1 2 $small --device-memory 0:5X --out none
    says 'a size as 512M is expected'
    [ ! -e none ] || fail 'a folder of a run that never began'
}

# What a device may hold: refused at set-up or in a step, by name; exactly what was planned is enough.
memory()
{
    wide="$small --set model.hidden=[240,160]"
    dp 1,0 1 $wide --device-memory 1M --out none
    says 'device 1: moments need'
    dp 0,1 1 $wide --device-memory 1:1M --out none
    says 'device 1: gradients need'
    [ ! -e none ] || fail 'a folder of a run that never began'
    dp 0,1 1 $wide --device-memory 1:3M --out step
    says 'device 1: buffers of kernels need'
    dp 0,1 0 $wide --dry-run --device-memory 0:5M,1:1G
    holds out '^0 .* 5\.0: NOT ENOUGH$'
    holds out '^1 .* 1024\.0$'
    dp 0,1 0 $wide --out free
    needed=$(grep -o '"peak":[0-9]*' free/metrics.jsonl | sed 's/.*://' | paste -s -d ' ')
    set -- $needed
    [ "$1" -gt "$2" ] || fail 'device 0 needs no more than device 1'
    dp 0,1 0 $wide --device-memory 0:$1,1:$2 --out enough
    dp 0,1 1 $wide --device-memory 0:$(($1 - 64)) --out less
    says 'device 0: '
}

# A device that fails or hangs ends the run and is named.
failures()
{
    for device in 0 1; do
        DDP_FAULT=dp_forward:$device dp 0,1 1 $small --out failed-$device
        says "device $device: dp_forward: planted fault"
        DDP_FAULT=dp_hang:$device dp 0,1 1 $small --set ddp.timeout_s=0.5 --out hung-$device
        says "device $device made no progress"
    done
}

# What metrics.jsonl says of devices.
metrics()
{
    dp 2,0 0 $small --set train.trace=true --set train.log_every=5 --set checkpoint.every_epochs=0 --out told
    file=told/metrics.jsonl
    holds $file '"mode":"dp","devices":\[2,0\],"output_device":2,'
    [ "$(grep -c '"phases_ms":{"replicate":.*"optimizer":' $file)" -eq 5 ] || fail 'phases of five events expected'
    # phases do not overlap, and between steps a busy machine may do something else
    grep '^{"event":"step","step":20,' $file | sed 's/.*"step_ms":\([0-9.]*\).*"phases_ms":{\([^}]*\)}.*/\1,\2/' |
        awk -F, '{ for (i = 2; i <= NF; i++) { sub(/.*:/, "", $i); sum += $i } exit !(NF == 9 && sum <= $1 && sum > 0.05 * $1) }' ||
        fail "phases: $(grep '"step":20,' $file)"
    # device 1 gets all parameters, half of the pictures of 28 x 28 floats, and the gradient of its half of ten outputs
    bytes=$(sed -n 's/.*"planned_memory_bytes":\[{"id":2,"parameters":\([0-9]*\).*/\1/p' $file)
    samples=$(grep '^{"event":"end"' $file | sed 's/.*"moved_bytes":.*"gather":\([0-9]*\),.*/\1/' | awk '{ print $1 / 40 }')
    holds $file "\"links\":\[\[1,0,[0-9]*\],\[0,1,$((bytes + samples * (28 * 28 + 10) * 4))\]\]"
    for phase in replicate scatter forward gather loss backward reduce optimizer; do
        sed -n '/"event":"trace"/s/.*"spans":\[\[//p' $file | grep -q "\"$phase\"" || fail "no span of $phase"
    done
}

case $case in
bits | models | resume | signals | refusals | memory | failures | metrics)
    $case
    ;;
*)
    fail "no case '$case'"
    ;;
esac
exit $failed

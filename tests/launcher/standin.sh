#!/bin/sh
# The whole program with ddp.device cuda, on the stand-in for GPUs: what it says of devices, and trainings that come out as
# on the CPU. Usage: sh standin.sh CASE DDPTRAIN_STANDIN MPIRUN [mpirun option...]
set -u

. "$(dirname "$0")/support.sh"

CUSIM_DEVICES=2
export CUSIM_DEVICES

# mlp-tiny: 8 micro-batches, a short last batch, dropout and clipping on. A peak that is said is not measured.
mlp="--set data.kind=shapes --set data.samples=200 --set data.test_samples=130 --set train.batch=60
    --set train.micro_batch=8 --set train.steps=5 --set model.kind=mlp --set model.hidden=[24,16]
    --set model.dropout=0.2 --set optimizer.clip_norm=0.25 --set train.peak_gflops=1 --log error"

# What there is, which rank has which, and what is refused.
devices()
{
    run 0 "$program" --version
    holds out '^cuda 13.*, driver 13.*, 2 devices$'
    CUSIM_DEVICES=0 run 0 "$program" --version
    holds out '^cuda: '
    ranks 2 0 $mlp --dry-run
    holds out '^rank 0: GPU 0, cusim, 0000:01:00.0'
    holds out '^rank 1: GPU 1, cusim, 0000:02:00.0'
    holds out "^# memory of rank 0's GPU"
    holds out '  device: cuda'
    ranks 2 0 $mlp --dry-run --set ddp.device=cpu
    holds out '  device: cpu'
    ranks 3 2 $mlp --dry-run
    says 'ranks 0 and 2'
    says 'would share GPU 0000:01:00.0'
    says '--set ddp.share_gpu=true'
    ranks 3 0 $mlp --dry-run --set ddp.share_gpu=true
    holds out '^rank 2: GPU 0'
    CUSIM_DEVICES=0 run 2 "$program" $mlp --set ddp.device=cuda
    says 'ddp.device cuda: no CUDA-capable device is detected'
    run 2 env CUSIM_DEVICES=1 $mpirun -np 1 "$program" $mlp : -np 1 env CUSIM_DEVICES=0 "$program" $mlp
    says 'rank 0'
    says 'sees a GPU and rank 1'
    says '--set ddp.device=cpu'
    run 2 "$program" $mlp --mode dp --devices 0,2
    says 'dp.devices: there is no GPU 2, only 0 to 1'
}

"$case"
exit "$failed"

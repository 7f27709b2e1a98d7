#!/bin/sh
# What a run says about its memory before it takes any, and what it refuses.
# Usage: sh memory.sh CASE DDPTRAIN MPIRUN [mpirun option...]; DDP_PROGRAM_MIB: what program and MPI may take, all ranks.
set -u

. "$(dirname "$0")/support.sh"

# Large enough that the program itself does not hide it.
middle="--set data.kind=shapes --set data.samples=300 --set data.test_samples=64 --set train.batch=64 --set train.micro_batch=16
    --set train.steps=2 --set model.kind=mlp --set model.hidden=[1500,1500] --log error"

# What is planned is what is used, and what does not fit is refused before it is taken.
memory()
{
    for reduction in exact fast; do
        ranks 2 0 $middle --set ddp.reduction=$reduction --out $reduction
        planned=$(sed -n 's/.*"memory_bytes":{.*"machine":\([0-9]*\)}.*/\1/p' $reduction/metrics.jsonl)
        used=$(sed -n 's/.*"event":"end".*"pss_mb":\([0-9]*\).*/\1/p' $reduction/metrics.jsonl)
        # the program and MPI come on top; some of what kernels keep is not touched
        awk -v planned="$planned" -v used="$used" -v most="${DDP_PROGRAM_MIB:-80}" \
            'BEGIN { planned /= 1048576; exit !(planned > 70 && used > planned - 8 && used < planned + most) }' ||
            fail "$reduction: planned $planned bytes, used $used MiB"
    done
    [ "$(sed -n 's/.*"event":"start".*"gradients":\([0-9]*\),.*/\1/p' exact/metrics.jsonl)" -gt \
        "$(sed -n 's/.*"event":"start".*"gradients":\([0-9]*\),.*/\1/p' fast/metrics.jsonl)" ] || fail 'exact needs no more gradients than fast'
    # three arrays of the parameters, as the file has them, in halves; none without checkpoints
    ranks 2 0 $middle --dry-run
    parameters=$(sed -n 's/^total  *\([0-9]*\)$/\1/p' out)
    half=$(awk -v n="$parameters" 'BEGIN { printf "%.1f", n * 12 / 2 / 1048576 }')
    holds out "^snapshot for checkpoints  *$half "
    ranks 2 0 $middle --dry-run --set checkpoint.every_epochs=0
    grep -q snapshot out && fail 'a snapshot without checkpoints'
    wide=65536
    huge="$middle --set model.hidden=[$wide,$wide,$wide,$wide,$wide,$wide,$wide,$wide,$wide,$wide,$wide,$wide,$wide,$wide,$wide,$wide]"
    for np in 1 2; do
        ranks $np 1 $huge --out huge
        says 'memory: the run needs'
        says "use a smaller model, or $([ $np -eq 1 ] && echo 'a machine with more memory' || echo 'more machines with fewer ranks')"
        ranks $np 0 $huge --dry-run
        holds out 'free now: NOT ENOUGH'
    done
    DDP_HOST_SHM=0
    export DDP_HOST_SHM
    ranks 2 0 $middle --dry-run
    # of each bucket, of which there are two, 8 messages of 48 KiB at a time
    holds out '^from other machines  *0.[78]  *0.[78]$'
    holds out '^machine 0 (.*) needs [0-9.]*, free now [0-9.]*$'
    holds out '^machine 1 (.*) needs [0-9.]*, free now [0-9.]*$'
    unset DDP_HOST_SHM
    [ -e huge ] && fail 'a run that does not fit made its folder'
    return 0
}

# limited KIB COMMAND...: with so much address space
limited()
(
    ulimit -v "$1"
    shift
    exec "$@"
)

# A limit of address space, and the change that fits below it.
address_space()
{
    run 1 limited 1500000 "$program" $middle --set model.hidden=[4096,4096,4096] --set train.micro_batch=2
    says 'of address space'
    says 'it fits with ddp.reduction=fast'
}

"$case"
exit $failed

#!/bin/sh
# What goes between machines: the same bits as on one rank, on uneven hosts and over slow links; interfaces.
# Usage: sh across.sh CASE DDPTRAIN
# shellcheck disable=SC1091,SC2015,SC2086,SC2154,SC2317 # run by name; commands of several words
set -u

. "$(dirname "$0")/cluster.sh"

mlp="--set data.kind=shapes --set data.samples=400 --set data.test_samples=40 --set train.batch=64 --set train.steps=6
    --set checkpoint.every_epochs=0 --log error"
cnn="$mlp --set model.kind=cnn --set train.steps=2"
gpt="--set model.kind=gpt2 --set model.preset=tiny --set model.context=16 --set model.channels=32 --set model.heads=4
    --set data.path=text.txt --set train.batch=16 --set train.steps=3 --set checkpoint.every_epochs=0 --log error"

# same NAME HOSTS WANTED OPTION...: a job on hosts ends with the weights WANTED
same()
{
    name=$1
    places=$2
    wanted_weights=$3
    shift 3
    run 0 on node1 mpirun $places "$program" "$@" --out "$name"
    [ "$(weights)" = "$wanted_weights" ] || fail "$name: weights $(weights), not $wanted_weights"
    holds "$name/metrics.jsonl" '"exchange":{"direct":'
}

make_text()
{
    i=0
    while [ $i -lt "$1" ]; do
        echo "line $i of a text that has some words"
        i=$((i + 1))
    done >text.txt
}

# Four hosts of two ranks, unequal hosts, ranks dealt in turn.
bits()
{
    make_text 400
    hosts_up 4
    run 0 on node1 "$program" $mlp --out one
    one=$(weights)
    same block '--host node1:2,node2:2,node3:2,node4:2' "$one" $mlp
    same turn '--map-by node --host node1:2,node2:2,node3:2,node4:2' "$one" $mlp
    same uneven '--host node1:3,node2:5' "$one" $mlp
    same growing '--host node1:1,node2:2,node3:4' "$one" $mlp
    for model in cnn gpt; do
        [ $model = cnn ] && options=$cnn || options=$gpt
        run 0 on node1 "$program" $options --out one_$model
        same block_$model '--host node1:2,node2:2,node3:2,node4:2' "$(weights)" $options
    done
}

# 100 Mbit/s, 1 ms, and one frame of a hundred is lost.
lossy()
{
    hosts_up 3 switch
    run 0 on node1 "$program" $mlp --out one
    one=$(weights)
    link_shape all 100 1000 0 100
    same lost '--host node1:1,node2:2,node3:1' "$one" $mlp
}

# Sums that need not be exact: all hosts have the same weights.
fast()
{
    hosts_up 3
    link_shape all 1000
    for wire in float32 bf16; do
        run 0 on node1 mpirun --host node1:1,node2:2,node3:1 "$program" $mlp --set ddp.reduction=fast --set ddp.wire=$wire \
            --set ddp.checksum_every=2 --out $wire
        holds $wire/metrics.jsonl '"exchange":{"direct":'
        holds $wire/metrics.jsonl '"event":"end"'
    done
    holds bf16/metrics.jsonl '"wire_overflows":0'
}

# Each way to sum between machines comes to its end where messages wait for receives that are not posted yet: over links that are slow
# next to what is sent at once. The rates are nobody's affair here, the results are checked by the program.
ways()
{
    hosts_up 4
    link_shape all 200
    for way in ring halving; do
        run 0 on node1 mpirun --host node1,node2,node3,node4 "$program" bench comm --from 16M --to 16M --rounds 1 --warmup 0 \
            --set ddp.reduction=fast --set ddp.exchange=$way --set ddp.timeout_s=20 --log error
    done
}

# Most of what goes over a slow link goes while backward runs: of gpt-small's four steps, what was left over is less than 0.7.
overlap()
{
    make_text 3000
    hosts_up 4
    link_shape all 500
    run 0 on node1 mpirun --host node1:2,node2:2,node3:2,node4:2 "$program" --set model.kind=gpt2 --set model.layers=4 \
        --set model.heads=4 --set model.channels=256 --set model.context=128 --set data.path=text.txt --set data.test_samples=8 \
        --set train.batch=16 --set train.steps=4 --set train.log_every=1 --set checkpoint.every_epochs=0 \
        --set ddp.bucket_cap_mb=1 --set ddp.tail_bucket_kb=256 --out out_run --log error
    grep '"event":"step"' out_run/metrics.jsonl | sed 's/.*"exposed_comm_ms":\([0-9.e+-]*\).*"comm_ms":\([0-9.e+-]*\).*/\1 \2/' |
        awk '{ left += $1; all += $2 } END { print left, all; exit !(NR == 4 && all > 0 && left < 0.7 * all) }' ||
        fail 'backward hid too little'
}

# An interface that is on every host is used; one that is not on some is an error that names the host.
interfaces()
{
    hosts_up 2
    run 0 on node1 mpirun --host node1:1,node2:1 "$program" $mlp --set 'ddp.interfaces=[10.77.0.0/24]' --out network
    run 0 on node1 mpirun --host node1:1,node2:1 "$program" $mlp --set 'ddp.interfaces=[eth0]' --out name
    run 2 on node1 mpirun --host node1:1,node2:1 "$program" $mlp --set 'ddp.interfaces=[eth7]' --out none
    grep -q 'ddp.interfaces: eth7 is not on node[12], which has ' err || { fail 'no host is named'; cat err; }
    run 2 on node1 mpirun --host node1:1,node2:1 "$program" $mlp --set 'ddp.interfaces=[10.77.0.2]' --out some
    grep -q 'ddp.interfaces: 10.77.0.2 is not on node1, which has ' err || { fail 'the host is not named'; cat err; }
}

"$case"
exit "$failed"

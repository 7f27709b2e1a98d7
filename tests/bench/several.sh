#!/bin/sh
# Measurements over several hosts, which are namespaces of this machine (tests/cluster/README.md): run by hand, as root, with nothing
# else running. Usage: sh several.sh PART DDPTRAIN [NUMBER...]
#   comm [MBIT...]     all-reduce against Open MPI's, four hosts with one rank and two, 4 and 25 MiB
#   plan [MBIT...]     step time that `ddptrain plan` predicts from a run on one host, against runs on 2, 4 and 8 hosts
#   overlap [MBIT...]  share of communication that backward did not hide, of gpt-small on four hosts
#   monitor [ROUNDS]   step time with the monitor and without, in turn, 8 ranks on one host, and the CPU time of its threads
#   restart [ROUNDS]   from the death of a rank to the first step of the next start, under supervise, less its wait
# shellcheck disable=SC1091,SC2086,SC2154,SC2317 # run by name; words
set -u

. "$(dirname "$0")/../cluster/cluster.sh"

python=${DDP_TEST_PYTHON:-/usr/bin/python3}
text=$cluster_here/../../docs/performance.md

# steps FOLDER FIELD: median of a field of its step events, without the first five
steps()
{
    sed -n 's/.*"event":"step".*"'"$2"'":\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl" | tail -n +6 | sort -g |
        awk '{ value[NR] = $1 } END { print NR ? value[int((NR + 1) / 2)] : "none" }'
}

# ratio A B
ratio()
{
    echo "$1 $2" | awk '{ printf "%.3f\n", ($2 > 0 ? $1 / $2 : 0) }'
}

comm()
{
    hosts_up 4
    echo '| ranks a host | Mbit/s | MiB | ddptrain ms | MPI_Allreduce ms | ratio |'
    for ranks in 1 2; do
        for mbit in "${@:-500}"; do
            link_shape all "$mbit"
            for mib in 4 25; do
                on node1 mpirun --host node1:$ranks,node2:$ranks,node3:$ranks,node4:$ranks "$program" bench comm --from ${mib}M --to ${mib}M \
                    --rounds 5 --warmup 1 2>err | awk -v row="| $ranks | $mbit | $mib |" '
                    /^all-reduce  / { own = $5 / 1e3 }
                    /^MPI_Allreduce/ { theirs = $5 / 1e3 }
                    END { printf "%s %.0f | %.0f | %.2f |\n", row, own, theirs, own ? theirs / own : 0 }'
            done
        done
    done
}

# predicts NAME HOSTS MBIT...: the configuration NAME.yaml on each number of HOSTS, against what a run of one rank predicts
predicts()
{
    name=$1
    counts=$2
    shift 2
    run 0 on node1 mpirun --host node1:1 "$program" "$name.yaml" --out "$name.base" --log error
    for mbit in "$@"; do
        link_shape all "$mbit"
        for n in $counts; do
            run 0 on node1 mpirun --host "$(seq -f 'node%g:1' -s , "$n")" "$program" "$name.yaml" --out "$name.$mbit.$n" --log error
            "$program" plan --from "$name.base" --nodes "$n" --ranks-per-node 1 --link "${mbit}Mbit,50us" --json >plan.json 2>err || cat err
            "$python" - "$name" "$n" "$mbit" "$(steps "$name.$mbit.$n" step_ms)" "$(steps "$name.$mbit.$n" exposed_comm_ms)" <<'END'
import json
import sys
name, nodes, mbit, step, exposed = sys.argv[1:]
row = json.load(open("plan.json"))["plan"][0]
print(f"| {name} | {nodes} | {mbit} | {float(step):.1f} | {row['step_ms']:.1f} | {row['step_ms'] / float(step):.2f} | "
      f"{float(exposed):.1f} | {row['exposed_comm_ms']:.1f} |")
END
        done
    done
}

# A model with much to compute on as many hosts as there are cores here, as more would take them from each other; and one with little.
plan()
{
    hosts_up 8
    rest='schedule: {kind: constant}
checkpoint: {every_epochs: 0}
ddp: {trace_buckets: true, bucket_cap_mb: 1, straggler_every: 0}'
    cat >gpt-small.yaml <<END
model: {kind: gpt2, preset: small}
data: {kind: text, path: $text, test_samples: 8}
train: {batch: 8, micro_batch: 1, steps: 25, log_every: 1}
$rest
END
    cat >mlp.yaml <<END
model: {kind: mlp, hidden: [1024, 1024]}
data: {kind: shapes, samples: 2000, test_samples: 8}
train: {batch: 32, micro_batch: 4, steps: 25, log_every: 1}
$rest
END
    echo '| model | hosts | Mbit/s | measured ms | predicted ms | ratio | exposed measured | predicted |'
    predicts gpt-small 2 "${@:-100}"
    predicts mlp '2 4 8' "${@:-100}"
}

overlap()
{
    hosts_up 4
    echo '| Mbit/s | step ms | communication ms | not hidden ms | share |'
    for mbit in "${@:-500}"; do
        link_shape all "$mbit"
        run 0 on node1 mpirun --host node1:2,node2:2,node3:2,node4:2 "$program" --set model.kind=gpt2 --set model.preset=small --set model.context=128 \
            --set data.path="$text" --set data.test_samples=8 --set train.batch=16 --set train.steps=12 --set train.log_every=1 \
            --set checkpoint.every_epochs=0 --set ddp.bucket_cap_mb=1 --set ddp.tail_bucket_kb=256 --out "overlap.$mbit" --log error
        left=$(steps "overlap.$mbit" exposed_comm_ms)
        all=$(steps "overlap.$mbit" comm_ms)
        echo "| $mbit | $(steps "overlap.$mbit" step_ms) | $all | $left | $(ratio "$left" "$all") |"
    done
}

monitor()
{
    hosts_up 1
    echo '| round | with ms | without ms | ratio |'
    for round in $(seq "${1:-5}"); do
        for on in true false; do
            run 0 on node1 mpirun --host node1:8 "$program" --set model.kind=mlp --set 'model.hidden=[512,512]' --set data.kind=shapes \
                --set data.samples=20000 --set data.test_samples=100 --set train.batch=512 --set train.micro_batch=64 --set train.steps=1000 \
                --set train.log_every=10 --set train.eval_every=100000 --set checkpoint.every_epochs=0 --set ddp.monitor=$on \
                --out "monitor.$round.$on" --log error
        done
        with=$(steps "monitor.$round.true" step_ms)
        without=$(steps "monitor.$round.false" step_ms)
        echo "| $round | $with | $without | $(ratio "$with" "$without") |"
    done
}

has_first_step()
{
    [ "$(grep -c '"event":"start"' a/metrics.jsonl)" -ge 2 ] && tail -n 1 a/metrics.jsonl | grep -q '"event":"step"'
}

restart()
{
    hosts_up 3
    small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=64 --set train.batch=60 --set train.micro_batch=8
        --set model.kind=mlp --set model.hidden=[100,16] --set train.steps=10000000 --set train.eval_every=100000000 --set train.log_every=1
        --set checkpoint.every_steps=20 --log warn"
    echo '| round | ms, with a wait of at most 20 |'
    for round in $(seq "${1:-5}"); do
        rm -rf a a.supervise.jsonl
        start node1 "$program" supervise --backoff 0.02 -- mpirun --host node1:2,node2:2,node3:1 -np 5 "$program" $small --out a >out 2>err
        await 60 test -e a/checkpoints/latest.h5
        begin=$(date +%s%3N)
        kill -9 "$(rank_pid 3)"
        await 60 has_first_step
        echo "| $round | $(($(date +%s%3N) - begin)) |"
        kill "$job"
        wait "$job"
        nothing_left 20
    done
}

"$case" "$@"
exit "$failed"

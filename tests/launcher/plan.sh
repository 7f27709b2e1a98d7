#!/bin/sh
# The command `plan`: from steps made here and from a run's folder; wrong usage.
# Usage: sh plan.sh CASE DDPTRAIN MPIRUN [mpirun option...]
set -u

. "$(dirname "$0")/support.sh"

small="--set model.kind=mlp --set model.hidden=[24] --set data.kind=shapes --set data.samples=300 --set train.batch=64
    --log error"
long="--set schedule.kind=wsd --set schedule.warmup_steps=100 --set schedule.decay_steps=50" # for more steps than are made

here()
{
    run 0 env TMPDIR="$folder" "$program" plan $small $long --steps 6 --nodes 1,2,32 --ranks-per-node 2 --link 1Gbit,50us --svg p.svg
    holds out '^mlp, batch 64, 16 micro-batches, from here: '
    holds out '^ *2 *4 '
    holds out 'At most 16 ranks share this batch'
    python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' p.svg || fail 'no picture'
    [ -z "$(find . -name 'ddptrain-plan*')" ] || fail 'its folder is left'
}

# JSON says what the table says; the run is not changed.
from()
{
    ranks 2 0 $small --set train.steps=8 --set train.log_every=1 --set ddp.trace_buckets=true --out a
    sum=$(cksum <a/metrics.jsonl)
    run 0 "$program" plan --from a --nodes 1,2 --link 10Gbit,20us --json
    python3 - out <<'END' || fail 'not the JSON that was expected'
import json, sys
got = json.load(open(sys.argv[1]))
assert got["measured"]["ranks"] == 2 and got["measured"]["ready_times_measured"] is True
assert [row["ranks"] for row in got["plan"]] == [2, 4]
for row in got["plan"]:
    assert row["step_ms"] >= row["compute_ms"] > 0 and 0 < row["efficiency"] <= 1.5
    assert abs(row["samples_per_s"] * row["step_ms"] / 1e3 - 64) < 1e-6 * 64
END
    [ "$(cksum <a/metrics.jsonl)" = "$sum" ] || fail 'the run was changed'
    ranks 1 0 $small --set train.steps=3 --out b
    run 0 "$program" plan --from b --nodes 1
    holds out 'does not tell when gradients were ready'
    run 0 "$program" plan --from b --nodes 1,2 --ranks-per-node 2 --link 1Gbit,50us
    holds out '^Measured with 1 rank on a node, planned with 2'
    run 0 "$program" plan --from a --nodes 1
    ! grep -q '^Measured with' out || fail 'a note where ranks are as many as measured'
}

mistakes()
{
    tells 2 'several nodes need --link' "$program" plan --from a
    tells 2 'a rate in Kbit' "$program" plan --link 3
    tells 2 'each larger than the one before' "$program" plan --nodes 2,1
    tells 2 'a whole number from 1' "$program" plan --ranks-per-node 0
    tells 2 '--mtu is about the rate of --link' "$program" plan --nodes 1 --mtu 1500
    tells 2 'a whole number from 576' "$program" plan --mtu 60
    tells 2 'without run.yaml' "$program" plan x.yaml --from a --nodes 1
    tells 2 'without mpirun' $mpirun -np 2 "$program" plan --nodes 1
    tells 1 "'none/metrics.jsonl'" "$program" plan --from none --nodes 1
    tells 1 'the run ended with 1' "$program" plan --log error --nodes 1 --set data.kind=idx --set data.path=nowhere
    tells 1 'p.svg' "$program" plan $small --steps 3 --nodes 1 --svg none/p.svg
    tells 0 'Usage: ddptrain plan' "$program" plan --help
}

"$case"
exit "$failed"

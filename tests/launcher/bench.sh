#!/bin/sh
# The command `bench`: tables, JSON, checked results, mistakes.
# Usage: sh bench.sh CASE DDPTRAIN MPIRUN [mpirun option...]
set -u

. "$(dirname "$0")/support.sh"

# Every line of `out` is a JSON object with the event $1 in at least one of them.
is_json()
{
    [ "$(grep -c -v '^{"event":".*}$' out)" -eq 0 ] || { fail 'a line is no JSON object:'; cat out; }
    if command -v python3 >/dev/null 2>&1; then
        python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]' <out || fail 'JSON does not parse'
    fi
    holds out "^{\"event\":\"$1\","
}

comm()
{
    sizes='--from 4 --to 100K --factor 50 --rounds 2 --warmup 1'
    run 0 "$program" bench comm $sizes
    holds out '^# 1 rank on 1 machine, median of 2 rounds after 1'
    for np in 1 2; do
        ranks $np 0 bench comm $sizes --json
        is_json comm
        holds out '^{"event":"memory","kind":"triad'
        [ "$(grep -c '"op":"all-reduce","bytes":10000,"count":2500,.*"wrong":0}' out)" -eq 1 ] ||
            fail "no line for an all-reduce of 10000 bytes on $np ranks"
        for op in 'all-reduce (unshared)' MPI_Allreduce 'broadcast (set-up)' 'all-gather (set-up)'; do
            grep -F "\"op\":\"$op\"" out | grep -q '"wrong":0}' || fail "no $op on $np ranks"
        done
    done
    DDP_HOST_SHM=0 ranks 2 0 bench comm $sizes
    holds out 'on 2 machines'
    DDP_FAULT=bench_comm_value:1 ranks 2 1 bench comm $sizes
    says 'values are wrong'
}

# A model so small that what is printed can be counted: 8 micro-batches, each with 3 products forward and 5 backward.
small="--set data.kind=shapes --set data.samples=200 --set data.test_samples=130 --set train.batch=60
    --set train.micro_batch=8 --set model.kind=mlp --set model.hidden=[24,16] --log error"

# number KEY LINES: the value of a key in JSON lines of out
number()
{
    grep -e "$2" out | sed -n "s/.*\"$1\":\([-+.e0-9]*\).*/\1/p"
}

# With one round the phases' means over the ranks, of which none is negative, add up to the step.
phases_add_up()
{
    number ms '"event":"phase"' | awk 'NR <= 6 { sum += $1; if ($1 < 0) bad = 1 } NR == 7 { whole = $1 }
        END { exit !(NR == 8 && !bad && sum > 0.999 * whole && sum < 1.001 * whole) }' || { fail 'phases'; cat out; }
}

# Alone, the update's phase is the work of the reducer: its parts are no more than all of it, and no less.
update_is_its_parts()
{
    { number ms '"phase":"update"'; number ms '"op":"\(reduce bucket\|bucket is ready\|merge subtrees\|sums\|end of step\)"'; } |
        awk 'NR == 1 { whole = $1 } NR > 1 { sum += $1 } END { exit !(NR > 3 && sum > 0.99 * whole && sum < 1.01 * whole) }'
}

step()
{
    # with a schedule for more steps than these
    run 0 "$program" bench step $small --set schedule.warmup_steps=100 --rounds 1 --warmup 1 --json
    is_json phase
    is_json rate
    phases_add_up
    [ "$(number calls '"op":"gemm"')" = 64 ] || { fail 'not 64 products in a step'; cat out; }
    [ "$(number calls '"op":"merge subtrees"')" -gt 0 ] || fail 'no merges of subtrees'
    # a rank that loses its core between two parts counts that to none of them
    tries=1
    until update_is_its_parts; do
        [ $tries -lt 10 ] || { fail 'the update is not its parts'; cat out; break; }
        tries=$((tries + 1))
        run 0 "$program" bench step $small --rounds 1 --warmup 1 --json
    done
    ranks 2 0 bench step $small --rounds 1 --json
    phases_add_up
    ranks 2 0 bench step $small --rounds 2
    holds out '^whole step  *[0-9.]* '
    holds out '^of it after backward '
    holds out 'batch 60 on 2 ranks'
    holds out '^gemm  *32 '
    [ -e runs ] && fail 'a benchmark left a folder'
    return 0
}

ops()
{
    run 0 "$program" bench ops $small --rounds 1 --warmup 0 --json
    is_json op
    # 60 samples in 8 parts: four of 8, four of 7
    [ "$(number calls '"op":"gemm","shape":"8 x 24 x 784 NT"')" = 4 ] || { fail 'not 4 products of 8 samples'; cat out; }
    [ "$(number calls '"op":"gemm","shape":"7 x 24 x 784 NT"')" = 4 ] || { fail 'not 4 products of 7 samples'; cat out; }
    holds out '"op":"optimizer alone","shape":"[0-9]* parameters"'
    ranks 2 0 bench ops $small --rounds 1 --isa all
    holds out '^plain '
    run 0 "$program" bench ops $small --rounds 1 --isa plain
    holds out '^plain '
    DDP_ISA=plain run 2 "$program" bench ops $small --isa avx2
    says '--isa avx2: the best set here is plain'
}

mistakes()
{
    run 2 "$program" bench
    says 'bench of what? See ddptrain bench --help'
    run 2 "$program" bench com
    says "bench 'com': did you mean 'comm'?"
    run 2 "$program" benhc comm
    says "did you mean 'bench'?"
    run 2 "$program" bench comm --out x
    says "unknown option '--out'"
    run 2 "$program" bench comm --from 2K --to 1K
    says 'sizes are 4 bytes or more, and grow'
    run 2 "$program" bench comm --from 1.5
    says "--from '1.5': a whole number"
    run 2 "$program" bench comm --to 1T
    says "--to '1T': a whole number"
    run 2 "$program" bench comm --rounds 4K
    says "--rounds '4K': a whole number"
    run 2 "$program" bench comm --rounds=-1
    says "--rounds '-1': a whole number"
    run 2 "$program" bench comm --rounds 0
    says '1 or more are needed'
    run 2 "$program" bench comm --factor 1
    says '2 or more'
    run 2 "$program" bench step --to 4K
    says '--to is not for bench step'
    run 2 "$program" bench comm --isa all
    says '--isa is not for bench comm'
    run 2 "$program" bench ops --isa sse
    says "--isa 'sse': allowed are"
    run 2 "$program" bench step --set train.batch=frog
    says "train.batch is 'frog'"
    run 2 "$program" bench comm missing.yaml
    says 'missing.yaml: no such file or directory'
    run 2 $mpirun -np 1 "$program" bench comm : -np 1 "$program" bench comm --rounds 5
    says '--rounds 5'
    run 2 $mpirun -np 1 "$program" bench comm : -np 1 "$program"
    says 'has command'
    run 0 "$program" bench --help
    holds out '^Usage: ddptrain bench PART'
    holds out '  comm '
    run 0 "$program" --help
    holds out '  bench '
}

"$case"
exit $failed

#!/bin/sh
# ddptrain inspect, and ddptrain convert between files of weights, as a user starts them.
# Usage: sh weights.sh DDPTRAIN DATA MPIRUN [mpirun option...]
set -u

here=$(cd "$(dirname "$0")" && pwd)
program=$1
data=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0

# run STATUS TEXT COMMAND...: the exit status, and TEXT in what it says.
run()
{
    wanted=$1
    text=$2
    shift 2
    "$@" >out 2>&1
    got=$?
    if [ "$got" -ne "$wanted" ] || ! grep -q -F -e "$text" out; then
        echo "FAILED: exit status $got, wanted $wanted and '$text': $*"
        cat out
        failed=1
    fi
}

# A run's checkpoint to safetensors and back, and weights alone into a new run.
train="--set model.kind=gpt2 --set model.layers=1 --set model.heads=1 --set model.channels=16 --set model.context=8
    --set data.kind=text --set data.path=text --set train.batch=4 --set train.epochs=1"
seq 1 400 >text
# shellcheck disable=SC2086 # a list of words
run 0 'weights' "$@" -np 2 "$program" $train --set train.steps=3 --set checkpoint.every_steps=3 --out run
checkpoint=$(ls run/checkpoints/ckpt-*.h5 | tail -n 1)
run 0 'verified: size and checksum are right' "$program" inspect "$checkpoint" --tensors
grep -q '^step  *3$' out && grep -q 'moment .* optimizer.exp_avg_sq.transformer.wte.weight$' out || { cat out; failed=1; }
run 0 '"kind":"checkpoint","verified":true' "$program" inspect "$checkpoint" --json
run 0 'numbers of a checkpoint file' "$program" convert "$checkpoint" w.safetensors
run 0 '--init takes it' "$program" convert w.safetensors w.h5
run 0 'numbers of a safetensors file' "$program" convert w.safetensors w.npz
run 0 'numbers of a checkpoint file' "$program" convert "$checkpoint" all.npz --all
run 0 'optimizer.exp_avg_sq.transformer.wte.weight' "$program" inspect all.npz --tensors
for file in w.safetensors w.h5 w.npz; do
    run 0 'equal: ' "$program" inspect "$checkpoint" "$file"
done
run 0 'equal: ' "$program" inspect "$checkpoint" "$checkpoint"
# Debian's own Python: another one has no h5py.
if /usr/bin/python3 -c 'import h5py' 2>python; then
    run 0 'read by h5py: 16 tensors' /usr/bin/python3 "$here/read_weights.py" "$here/../../docs/checkpoint.md" "$checkpoint" w.npz w.safetensors
else
    echo 'not read by h5py: apt-get install python3-h5py'
    [ -z "${DDP_LINT_STRICT:-}" ] || failed=1
fi
# shellcheck disable=SC2086
run 0 'weights' "$@" -np 1 "$program" $train --set train.steps=1 --set optimizer.lr=0 --set optimizer.weight_decay=0 \
    --init w.h5 --set checkpoint.every_steps=1 --out again
run 1 'different: the training states' "$program" inspect "$checkpoint" again/checkpoints/ckpt-000000000001.h5
run 0 'equal: ' "$program" inspect w.h5 again/checkpoints/ckpt-000000000001.h5

# Hugging Face's names, and what is left out.
hub=$data/weights/gpt2_hub.safetensors
run 0 "left out: 2 masks of attention: 'transformer.h.0.attn.bias', 'transformer.h.1.attn.bias'" "$program" convert "$hub" g.h5
grep -q "30 names get the prefix 'transformer.'" out && grep -q "'lm_head.weight'" out || { cat out; failed=1; }
run 0 "lose their prefix 'module.' or '_orig_mod.'" "$program" convert "$data/weights/mixed.safetensors" m.h5
run 0 'numbers of a HDF5 file' "$program" convert "$data/weights/plain.h5" p.h5
run 1 "different: 'a.bias' is in the first file alone" "$program" inspect p.h5 m.h5
run 0 '28 tensors' "$program" inspect g.h5
for command in 'eval g.h5' 'generate g.h5 --prompt a' '--resume g.h5 --out anew'; do
    # shellcheck disable=SC2086 # a list of words
    run 1 "'g.h5' holds weights alone, no run: --init takes them" "$program" $command
done

# Damage, mistakes.
cp "$checkpoint" bad.h5
printf 'X' | dd of=bad.h5 bs=1 seek=$(($(wc -c <bad.h5) - 3)) conv=notrunc 2>dd
run 1 'damaged: expected crc32c' "$program" inspect bad.h5
run 1 'damaged: expected crc32c' "$program" convert bad.h5 bad.npz
run 0 'kind          HDF5' "$program" inspect bad.h5 --unverified
run 1 'soft or external link: refused' "$program" convert "$data/weights/soft.h5" bad.npz
run 1 "w.npz': file exists" "$program" convert "$checkpoint" w.npz
run 1 'no such file' "$program" inspect none.h5
run 1 'no such file' "$program" convert none.h5 a.npz
run 1 '--all is for .safetensors and .npz' "$program" convert "$checkpoint" a.h5 --all
run 2 'is a file of weights by its ending' "$program" convert text a.h5 --bytes
run 2 '--all and --unverified are for weights' "$program" convert text a.bin --bytes --all
run 2 'a file is needed' "$program" inspect
run 2 'a file too many' "$program" inspect a b c
run 2 '--json and --tensors are for one' "$program" inspect a b --json
run 2 'start it without mpirun' "$@" -np 2 "$program" inspect w.npz
run 0 'Usage: ddptrain inspect FILE' "$program" inspect --help
[ ! -e a.npz ] && [ ! -e bad.npz ] && [ ! -e bad.npz.part ] || { echo 'FAILED: a file is left'; failed=1; }
exit $failed

#!/bin/sh
# ddptrain inspect, and ddptrain convert between files of weights, as a user starts them.
# Usage: sh weights.sh CASE DDPTRAIN MPIRUN [mpirun option...]     CASE: kinds, names, foreign, mistakes, documented, large; DDP_TEST_DATA: tests/data
# shellcheck disable=SC2086,SC2154,SC2015 # lists of words; support.sh sets `mpirun`; fail() succeeds
set -u

here=$(cd "$(dirname "$0")" && pwd)
. "$(dirname "$0")/support.sh"
weights=$DDP_TEST_DATA/weights

# make_run: a run of three steps, whose last checkpoint is $checkpoint.
make_run()
{
    train="--set model.kind=gpt2 --set model.layers=1 --set model.heads=1 --set model.channels=16 --set model.context=8
        --set data.kind=text --set data.path=text --set train.batch=4 --set train.epochs=1"
    seq 1 400 >text
    ranks 2 0 $train --set train.steps=3 --set checkpoint.every_steps=3 --out run
    checkpoint=$(ls run/checkpoints/ckpt-*.h5 | tail -n 1)
}

# A run's checkpoint to safetensors and back, and weights alone into a new run.
case_kinds()
{
    make_run
    tells 0 'verified: size and checksum are right' "$program" inspect "$checkpoint" --tensors
    holds out '^step  *3$'
    holds out 'moment .* -  optimizer.exp_avg_sq.transformer.wte.weight$'
    tells 0 '"kind":"checkpoint","verified":true' "$program" inspect "$checkpoint" --json
    tells 0 'numbers of a checkpoint file' "$program" convert "$checkpoint" w.safetensors
    tells 0 '--init takes it' "$program" convert w.safetensors w.h5
    tells 0 'numbers of a safetensors file' "$program" convert w.safetensors w.npz
    tells 0 'numbers of a checkpoint file' "$program" convert "$checkpoint" all.npz --all
    tells 0 'optimizer.exp_avg_sq.transformer.wte.weight' "$program" inspect all.npz --tensors
    tells 0 'left out: 32 moments' "$program" convert all.npz without.h5
    tells 0 'equal: 16 tensors' "$program" inspect w.h5 without.h5
    tells 0 'equal: 16 tensors' "$program" inspect all.npz w.npz
    tells 0 '' "$program" convert all.npz all.safetensors --all
    tells 0 'equal: 48 tensors' "$program" inspect "$checkpoint" all.safetensors
    tells 0 '' env DDP_FAULT=npz_large:0 "$program" convert w.safetensors large.npz
    for file in w.safetensors w.h5 w.npz large.npz; do
        tells 0 'equal: ' "$program" inspect "$checkpoint" "$file"
    done
    tells 0 'equal: ' "$program" inspect "$checkpoint" "$checkpoint"
    # Debian's own Python: another one has no h5py.
    if /usr/bin/python3 -c 'import h5py' 2>python; then
        tells 0 'read by h5py: 16 tensors' /usr/bin/python3 "$here/read_weights.py" "$here/../../docs/checkpoint.md" "$checkpoint" \
            w.safetensors w.npz large.npz
    else
        echo 'not read by h5py: apt-get install python3-h5py'
        [ -z "${DDP_LINT_STRICT:-}" ] || failed=1
    fi
    ranks 1 0 $train --set train.steps=1 --set optimizer.lr=0 --set optimizer.weight_decay=0 --init w.h5 \
        --set checkpoint.every_steps=1 --out again
    tells 1 'different: the training states' "$program" inspect "$checkpoint" again/checkpoints/ckpt-000000000001.h5
    tells 0 'equal: ' "$program" inspect w.h5 again/checkpoints/ckpt-000000000001.h5
}

# Hugging Face's names, and what is left out.
case_names()
{
    tells 0 "left out: 2 masks of attention: 'transformer.h.0.attn.bias', 'transformer.h.1.attn.bias'" \
        "$program" convert "$weights/gpt2_hub.safetensors" g.h5
    holds err "30 names get the prefix 'transformer.'"
    holds err "'lm_head.weight'"
    tells 0 "lose their prefix 'module.' or '_orig_mod.'" "$program" convert "$weights/mixed.safetensors" m.h5
    tells 0 'numbers of an HDF5 file' "$program" convert "$weights/plain.h5" p.h5
    tells 1 "different: 'a.bias' is in the first file alone" "$program" inspect p.h5 m.h5
    tells 0 '28 tensors' "$program" inspect g.h5
    for command in 'eval g.h5' 'generate g.h5 --prompt a' '--resume g.h5 --out anew'; do
        tells 1 "'g.h5' holds weights alone, no run: --init takes them" "$program" $command
    done
}

# HDF5 of others: packed or not; and files that take over the process that parses them.
case_foreign()
{
    tells 0 'numbers of an HDF5 file' "$program" convert "$weights/packed.h5" packed.npz
    holds err "left out: 1 arrays that are no floats: 'count'"
    tells 1 "different: 'count' is in the first file alone; 0 of 8 tensors differ" "$program" inspect "$weights/packed.h5" packed.npz
    tells 0 'layers.dense.vars.0' "$program" inspect "$weights/keras.weights.h5" --tensors
    for fault in foreign_dies foreign_eats foreign_writes; do
        for command in "inspect $weights/plain.h5" "convert $weights/plain.h5 none.npz"; do
            tells 1 "plain.h5': damaged or hostile: the process that parsed it" env DDP_FAULT=$fault:0 "$program" $command
            says 'damaged or hostile'
        done
    done
    tells 2 "plain.h5': damaged or hostile" env DDP_FAULT=foreign_dies:0 "$program" inspect packed.npz "$weights/plain.h5"
    [ ! -e none.npz ] && [ ! -e none.npz.part ] || fail 'a file is left'
    tells 2 "@hdf5-reader" "$program" @hdf5-reader "$weights/plain.h5" 0 1 3</dev/null # is no command without its pipe
}

# Damage, mistakes. Two files: exit status 1 says that they differ, so all else is 2.
case_mistakes()
{
    make_run
    tells 0 '' "$program" convert "$checkpoint" w.npz
    cp "$checkpoint" bad.h5
    printf 'X' | dd of=bad.h5 bs=1 seek=$(($(wc -c <bad.h5) - 3)) conv=notrunc 2>dd
    tells 1 'damaged: expected crc32c' "$program" inspect bad.h5
    tells 2 'damaged: expected crc32c' "$program" inspect bad.h5 "$checkpoint"
    tells 2 'damaged: expected crc32c' "$program" inspect "$checkpoint" bad.h5
    tells 1 "'run': a folder, not a regular file; a run has its newest checkpoint under checkpoints/latest.h5" "$program" inspect run
    tells 1 "'run': not a checkpoint of ddptrain: a folder" "$program" eval run
    tells 1 '--init takes checkpoints, and ddptrain convert makes one of such files' "$program" $train --init w.npz
    tells 0 'equal: 16 tensors' "$program" inspect bad.h5 "$checkpoint" --unverified # a moment is damaged
    tells 1 'damaged: expected crc32c' "$program" convert bad.h5 bad.npz
    tells 0 'kind          HDF5' "$program" inspect bad.h5 --unverified
    tells 1 'soft or external link: refused' "$program" convert "$weights/soft.h5" bad.npz
    tells 1 "w.npz': file exists" "$program" convert "$checkpoint" w.npz
    tells 1 'no such file' "$program" inspect none.h5
    tells 2 "none.h5': no such file" "$program" inspect w.npz none.h5
    tells 2 "none.h5': no such file" "$program" inspect none.h5 w.npz
    tells 1 'no such file' "$program" convert none.h5 a.npz
    tells 1 '--all is for .safetensors and .npz' "$program" convert "$checkpoint" a.h5 --all
    tells 2 'is a file of weights by its ending' "$program" convert text a.h5 --bytes
    tells 2 '--all and --unverified are for weights' "$program" convert text a.bin --bytes --all
    tells 2 'a file is needed' "$program" inspect
    tells 2 'a file too many' "$program" inspect a b c
    tells 2 '--json and --tensors are for one' "$program" inspect a b --json
    tells 2 'start it without mpirun' $mpirun -np 2 "$program" inspect w.npz
    tells 0 'Usage: ddptrain inspect FILE' "$program" inspect --help
    [ ! -e a.npz ] && [ ! -e bad.npz ] && [ ! -e bad.npz.part ] || fail 'a file is left'
}

# Every convert and inspect that stands in README.md and docs/, in the order in which it stands there, of files of those names.
case_documented()
{
    make_run
    mkdir build gpt2
    ln -s "$program" build/ddptrain
    cp "$checkpoint" best.h5
    cp "$DDP_TEST_DATA"/bpe/* "$weights/gpt2_model.safetensors" gpt2
    mv gpt2/gpt2_model.safetensors gpt2/model.safetensors
    seq 1 3000 >book.txt
    cat "$here"/../../README.md "$here"/../../docs/*.md | grep -E '^build/ddptrain (convert|inspect) ' >lines
    [ "$(wc -l <lines)" -ge 6 ] || fail 'where are the commands?'
    while read -r line; do
        sh -c "$line" >out 2>err </dev/null || { fail "$line"; cat err; }
    done <lines
    tells 0 'Usage: ddptrain convert IN OUT' "$program" convert --help
    for option in $(grep -o -e ' --[a-z-]*' lines); do
        { "$program" --help; "$program" convert --help; "$program" inspect --help; } >out
        grep -q -e "^  $option " out || fail "$option is in no --help"
    done
}

# An array of more than 4 GB, and one that begins behind them: 4.4 GB are written.
case_large()
{
    [ "$(df -P -k . | awk 'NR == 2 { print $4 }')" -gt 6000000 ] || { echo 'skipped: less than 6 GB are free'; exit 77; }
    header='{"a":{"dtype":"F32","shape":[1100,1000,1000],"data_offsets":[0,4400000000]},'
    header=$header'"z":{"dtype":"F32","shape":[2],"data_offsets":[4400000000,4400000008]}}'
    printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" >large.safetensors
    truncate -s $((4400000008 + ${#header})) large.safetensors
    printf '\0\0\200\077\0\0\0\100' >>large.safetensors # 1 and 2
    tells 0 '1100000002 numbers' "$program" convert large.safetensors large.npz
    tells 0 'equal: 2 tensors' "$program" inspect large.safetensors large.npz
    if /usr/bin/python3 -c 'import numpy' 2>python; then
        tells 0 '[1. 2.] (1100, 1000, 1000)' /usr/bin/python3 -c '
import numpy, zipfile
with zipfile.ZipFile("large.npz") as z, z.open("a.npy") as a:
    numpy.lib.format.read_magic(a)
    print(numpy.load("large.npz")["z"], numpy.lib.format.read_array_header_1_0(a)[0])'
    fi
}

"case_$case"
exit $failed

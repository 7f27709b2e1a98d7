#!/bin/sh
# The program with token data: gpt2 on text and on shards, what it says, and what it refuses.
# Usage: sh tokens.sh CASE DDPTRAIN MPIRUN [mpirun option...]; DDP_EXAMPLES is the folder examples/, DDP_MAKE_HDF5
# makes an HDF5 file.
set -u

. "$(dirname "$0")/support.sh"

# A run of a second: 8 micro-batches, a short last batch, dropout and clipping on.
small="--set model.kind=gpt2 --set model.preset=tiny --set model.context=16 --set model.channels=32
    --set model.dropout=0.2 --set data.path=text.txt --set train.batch=30 --set train.micro_batch=4
    --set train.steps=6 --set optimizer.clip_norm=0.25 --log error"

# Words drawn by a plain generator: WORDS of them.
make_text()
{
    awk -v words="$1" 'BEGIN {
        split("and the lord said unto moses speak children of israel in land went forth", word, " ")
        for (i = 0; i < words; i++) {
            drawn = (drawn * 1103 + 12345) % 65536
            printf "%s%s", word[drawn % 14 + 1], i % 11 == 10 ? ".\n" : " "
        }
    }'
}

# bytes of stdin as integers of WIDTH bytes, little-endian
widen()
{
    printf '%b' "$(od -An -v -to1 | awk -v width="$1" '{
        for (i = 1; i <= NF; i++) {
            printf "\\0%s", $i
            for (zero = 1; zero < width; zero++) printf "\\0000"
        }
    }')"
}

# le32 NUMBER: four bytes
le32()
{
    printf '%b' "$(awk -v n="$1" 'BEGIN { for (i = 0; i < 4; i++) { printf "\\0%03o", n % 256; n = int(n / 256) } }')"
}

# llmc VERSION COUNT: a header of llm.c's shards
llmc()
{
    le32 20240520
    le32 "$1"
    le32 "$2"
    head -c 1012 /dev/zero
}

count_bytes()
{
    wc -c <"$1" | tr -d ' '
}

make_text 900 >text.txt

evaluation()
{
    sed -n 's/.*"event":"eval".*"loss":\([^,]*\),"perplexity":\([^,]*\),"accuracy":\([^,]*\),.*/\1 \2 \3/p' \
        runs/*/metrics.jsonl
}

# Weights and evaluation do not depend on the ranks, nor on how they share memory.
bits()
{
    ranks 1 0 $small
    one=$(weights)
    first=$(evaluation)
    [ -n "$first" ] || fail 'no evaluation with loss, perplexity and accuracy'
    for way in '2' '4' '8' '3 DDP_HOST_SHM=0' '2 DDP_DEVICE_SCHEDULE=defer'; do
        rm -rf runs
        run 0 env $(echo "$way" | cut -s -d ' ' -f 2) $mpirun -np "${way%% *}" "$program" $small
        same "np $way"
        [ "$(evaluation)" = "$first" ] || fail "np $way: evaluation '$(evaluation)' instead of '$first'"
    done
    ranks 2 0 $small --set train.recompute=blocks
    same 'recompute blocks'
    ranks 1 0 $small --set train.seed=2
    [ "$(weights)" != "$one" ] || fail 'another seed gives the same weights'
    ranks 1 0 $small --set model.dropout=0
    [ "$(weights)" != "$one" ] || fail 'dropout changes nothing'
}

# The same tokens as text, as a shard of llm.c, as uint16 and as uint32, whole or in two shards: the same weights.
formats()
{
    size=$(count_bytes text.txt)
    { llmc 1 "$size"; widen 2 <text.txt; } >whole.bin
    widen 2 <text.txt >whole.u16
    widen 4 <text.txt >numbers
    split=$((size / 32 * 16))
    mkdir shards
    # a shard's last token is only a target, so the next one begins with it; text.txt is cut the same way
    head -c $((split + 1)) text.txt >shards/part-0.txt
    tail -c +$((split + 1)) text.txt >shards/part-1.txt
    for part in 0 1; do
        { llmc 1 "$(count_bytes shards/part-$part.txt)"; widen 2 <shards/part-$part.txt; } >shards/part-$part.bin
    done
    "$DDP_MAKE_HDF5" whole.h5 text.txt || fail 'no HDF5 file'
    ranks 1 0 $small
    one=$(weights)
    for set in 'path=whole.bin' 'path=whole.u16' 'path=numbers --set data.kind=tokens --set data.format=uint32' \
        'path=shards/part-?.txt' 'path=shards/part-*.bin' 'path=whole.h5'; do
        ranks 2 0 $small --set model.vocab=256 --set data.$set
        same "$set"
    done
    # a test file of its own: all of data.path is for training
    ranks 2 0 $small --set model.vocab=256 --set data.path=shards/part-0.bin --set data.test_path=shards/part-1.bin --out apart
    holds apart/metrics.jsonl "\"samples\":$((split / 16)),\"test_samples\":$(((size - split - 1) / 16)),"
    ranks 2 0 $small --set model.vocab=256 --set data.path=whole.h5 --set data.test_tokens=tokens \
        --set data.val_fraction=0 --out both
    holds both/metrics.jsonl "\"samples\":$(((size - 1) / 16)),\"test_samples\":$(((size - 1) / 16)),"
    ranks 2 1 $small --set model.vocab=256 --set data.path=whole.h5 --set data.tokens=none
    says "whole.h5': no data set 'none' (data.tokens names it)"
    ranks 2 0 $small --set data.samples=40 --set data.test_samples=7 --out few
    holds few/metrics.jsonl '"samples":40,"test_samples":7,'
}

# What the model writes belongs to the weights and the step, and changes nothing.
sample()
{
    ranks 1 0 $small
    one=$(weights)
    for np in 1 2; do
        ranks $np 0 $small --log info --set train.sample_tokens=60 --set train.eval_every=3
        same "a sample on $np"
        grep '^ddptrain[^|]*sample |' err | sed 's/^[^|]*|//' >"sample-$np"
        [ "$(wc -c <"sample-$np")" -ge 120 ] || fail "two samples of 60 tokens in $(wc -c <"sample-$np") bytes"
    done
    cmp sample-1 sample-2 || fail 'another sample on 2 ranks'
}

# Keys that change what is kept and what is trained.
keys()
{
    ranks 1 0 $small
    one=$(weights)
    ranks 2 0 $small --set optimizer.decay=matrices
    same 'optimizer.decay=matrices, which is the default'
    for set in optimizer.decay=all 'train.freeze=[transformer.h.0.*,*.bias]'; do
        ranks 1 0 $small --set "$set" --log info
        other=$(weights)
        [ "$other" != "$one" ] || fail "$set changes nothing"
        ranks 3 0 $small --set "$set" --out "run-$set"
        [ "$(weights)" = "$other" ] || fail "$set: other weights on 3 ranks"
    done
    # one block: 4 matrices 12 x 32 x 32, biases 9 x 32, norms 4 x 32; the other's biases 11 x 32; the last norm's 32
    holds "run-$set/metrics.jsonl" '"frozen":13088,'
    ranks 2 2 $small --set train.freeze=wte
    says "train.freeze: 'wte' matches no parameter; they have names such as transformer.wte.weight"
    ranks 2 2 $small --set 'train.freeze=*'
    says 'train.freeze leaves nothing to train'
}

# loss of the last evaluation
test_loss()
{
    sed -n 's/.*"event":"eval".*"loss":\([^,]*\),.*/\1/p' runs/*/metrics.jsonl | tail -1
}

# Rounded products: other bits, but the same on any number of ranks, with the instruction and without; nearly the same
# loss.
bf16()
{
    pictures="--set data.kind=shapes --set data.samples=60 --set data.test_samples=40 --set train.batch=30
        --set train.micro_batch=4 --set train.steps=3 --log error"
    for arguments in "$small" "$pictures --set model.kind=cnn" "$pictures --set model.kind=resnet"; do
        rm -rf runs
        ranks 1 0 $arguments
        exact=$(weights)
        loss=$(test_loss)
        rm -rf runs
        ranks 1 0 $arguments --set train.precision=bf16
        one=$(weights)
        [ "$one" != "$exact" ] || fail "bf16 changes nothing: $arguments"
        echo "$loss $(test_loss)" | awk '{ d = $1 - $2; exit !($2 > 0 && d < 0.05 && d > -0.05) }' ||
            fail "loss $(test_loss) with bf16, $loss without: $arguments"
        ranks 3 0 $arguments --set train.precision=bf16
        same "np 3, $arguments"
        DDP_BF16=emulate ranks 2 0 $arguments --set train.precision=bf16 --log warn
        same "without the instruction, $arguments"
        says 'bf16 is emulated here'
    done
    ranks 2 2 $pictures --set model.kind=cnn --set train.precision=bf16 --set model.conv=winograd2
    says 'train.precision bf16 needs direct convolution, but model.conv is winograd2'
}

# What a run says and writes.
files()
{
    ranks 2 0 $small --log info --set train.log_every=2 --out run
    holds err "data text.txt (1 shard), $(count_bytes text.txt) tokens, .* sequences of 16 for training, .*, vocabulary 256"
    holds err 'step 6/6 epoch 1 loss .* tokens_per_s [1-9]'
    holds err 'test epoch 1 step 6 loss .* perplexity [1-9]'
    holds err 'done: 6 steps in .* test perplexity [1-9]'
    head -1 run/metrics.jsonl >first
    holds first "\"context\":16,\"vocab\":256,\"tokens\":$(count_bytes text.txt),"
    [ "$(grep -c '"event":"step".*"tokens_per_s":[1-9]' run/metrics.jsonl)" -eq 4 ] || fail 'steps 1, 2, 4, 6 with tokens_per_s expected'
    sed -n 's/.*"event":"eval".*"loss":\([^,]*\),"perplexity":\([^,]*\),.*/\1 \2/p' run/metrics.jsonl |
        awk '{ r = exp($1) / $2; if (r < 0.999999 || r > 1.000001) exit 1; n++ } END { exit n == 0 }' ||
        fail 'perplexity is not exp(loss)'
    for line in 'kind: text' 'vocab: 256' 'layers: 2' 'channels: 32'; do
        holds run/config.yaml "^  $line\$"
    done
    one=$(weights)
    ranks 1 0 run/config.yaml --out again
    same 'config.yaml of a run'
}

dry()
{
    ranks 2 0 $small --dry-run --set model.preset=124m --set model.context=auto --set model.channels=auto --set model.heads=auto \
        --set model.vocab=50257 --set train.batch=3 --set train.micro_batch=1
    # GPT-2's own count
    holds out '^total .* 124439808$'
    holds out '^  layers: 12$'
    holds out '^h.11 .* 7087872$'
    ranks 1 0 $small --dry-run --set model.layers=3
    holds out '^h.2 '
    holds out '^tokens [0-9]*, 16 in a sequence, vocabulary 256$'
    ranks 1 0 --dry-run --set model.kind=gpt2 --set data.path=text.txt --set train.batch=8
    # what nobody stated: small
    holds out '^  channels: 256$'
    [ -e runs ] && fail '--dry-run wrote something'
    return 0
}

# What does not go together is a line and exit status 2, on any number of ranks.
combinations()
{
    while read -r arguments; do
        read -r line
        ranks 2 2 $small $arguments
        says "$line"
    done <<END
--set model.kind=cnn --set data.kind=text
model.kind cnn takes pictures, but data.kind is text: --set model.kind=gpt2
--set data.kind=shapes
model.kind gpt2 takes tokens, but data.kind is shapes: --set data.kind=text
--set data.path=
model.kind gpt2 needs data.path
--set data.kind=tokens --set data.path=
data.kind tokens needs data.path
--set data.kind=text --set data.path=
data.kind text needs data.path
--set data.kind=tokens
set data.format to uint16 or uint32, or data.kind to text
--set data.augment=pad-crop-flip
data.augment changes pictures, but data.kind is text
--set data.val_fraction=0
data.val_fraction is 0: no test sequences; name a file of them with data.test_path
--set model.vocab=100
vocabulary 100 is too small for text, which needs 256
--set model.context=100000
context 100000 is longer than the data
--set model.context=3000
which cannot be split into training and test data
--set train.batch=4000
train.batch 4000 is larger than the data
--set model.heads=3
32 channels do not divide into 3 heads
END
    ranks 2 2 --set data.kind=shapes --set data.samples=100 --log error
    says 'train.batch 128 is larger than the data, 100 training samples: set it to 100 or less'
    ranks 2 0 $small --log warn --set model.conv=direct
    says 'model.conv direct has no effect: it belongs to model.kind cnn'
}

# Broken files: a line with the file, and exit status 1.
broken()
{
    head -c 200 text.txt | widen 2 >narrow
    { llmc 1 200; cat narrow; } >good.bin
    { llmc 2 200; cat narrow; } >version.bin
    { llmc 1 201; cat narrow; } >short.bin
    { llmc 1 199; cat narrow; } >long.bin
    llmc 1 0 | head -c 600 >header.bin
    { cat narrow; printf x; } >odd.u16
    : >empty.txt
    mkdir folder.bin
    tokens="$small --set model.vocab=256 --set train.batch=4 --set train.micro_batch=1"
    ranks 2 0 $tokens --set data.path=good.bin
    while read -r arguments; do
        read -r line
        ranks 2 1 $tokens --set data.path=$arguments
        says "$line"
    done <<END
none-*.bin
'none-*.bin': no such file, and none matches
none.txt --set data.kind=text
'none.txt': no such file, and none matches
version.bin
'version.bin': offset 4: expected version 1
short.bin
'short.bin': cut short: offset 8 promises 201 tokens
long.bin
'long.bin': offset 1422: expected the end of the file after 199 tokens
header.bin
'header.bin': cut short: expected a header of 1024 bytes
narrow --set data.kind=tokens --set data.format=llmc
'narrow': cut short: expected a header of 1024 bytes
odd.u16
'odd.u16': cut short, or of another type
empty.txt
'empty.txt': expected tokens, found an empty file
folder.bin
'folder.bin': a folder
good.bin --set data.test_path=short.bin
'short.bin': cut short
good.bin --set data.test_path=good.bin --set model.vocab=100
'good.bin': offset 10
END
    # a token that is none, in training (a rank's loader reads it) and in evaluation
    ranks 3 1 $tokens --set data.path=good.bin --set model.vocab=116
    says 'expected tokens below the vocabulary of 116, found 11'
    head -c 100 text.txt | tr 'b-z' a >plain.txt
    widen 2 <plain.txt >plain.u16
    ranks 3 1 $tokens --set data.path=plain.u16 --set data.test_path=good.bin --set model.vocab=110
    says "'good.bin': offset"
    [ -z "$(weights)" ] || fail 'weights of a run that failed'
}

# Machines read their own files.
machines()
{
    mkdir one two
    cp text.txt one/text.txt
    tr a-y b-z <text.txt >two/text.txt
    export DDP_HOST_SHM=0
    run 1 $mpirun -np 1 -wdir "$folder/one" "$program" $small : -np 1 -wdir "$folder/two" "$program" $small
    says 'digest of the training files'
    cp text.txt two/text.txt
    run 0 $mpirun -np 1 -wdir "$folder/one" "$program" $small : -np 1 -wdir "$folder/two" "$program" $small
    printf . >>two/text.txt
    run 1 $mpirun -np 1 -wdir "$folder/one" "$program" $small : -np 1 -wdir "$folder/two" "$program" $small
    says 'digest of the training files'
}

# The file of examples/, with a step or two of it.
example()
{
    make_text 12000 >own.txt
    ranks 2 0 "$DDP_EXAMPLES/gpt-text.yaml" --set data.path=own.txt --set train.steps=2 --set train.batch=8 --set data.test_samples=4 \
        --set schedule.warmup_steps=1 --out run
    holds run/metrics.jsonl '"event":"eval".*"perplexity":'
    [ "$(grep -c 'has no effect' err)" -eq 0 ] || fail 'a key of the example has no effect'
}

# A real text: the King James Bible of Debian's package bible-kjv. Knowing how often each byte is there gives a loss of
# 3.15 nats; knowing the byte before as well, 2.31.
bible()
{
    command -v bible >/dev/null 2>&1 || exit 77
    command bible -f 'gen1:1-rev22:21' >bible.txt
    [ "$(count_bytes bible.txt)" -gt 4000000 ] || fail 'this is not the whole text'
    ranks 2 0 --set model.kind=gpt2 --set model.preset=tiny --set data.path=bible.txt --set train.batch=64 \
        --set train.steps=150 --set optimizer.lr=0.004 --set optimizer.clip_norm=1 --set schedule.warmup_steps=15 \
        --set data.test_samples=500 --log error --out run
    sed -n 's/.*"event":"eval".*"loss":\([^,]*\),.*/\1/p' run/metrics.jsonl | awk '{ exit !($1 < 2.6) }' ||
        fail "loss: $(grep '"event":"eval"' run/metrics.jsonl)"
}

"$case"
exit $failed

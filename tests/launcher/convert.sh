#!/bin/sh
# ddptrain convert as a user starts it: files, lines, exit status. What is in the files is tests/io/test_text.c's matter.
# Usage: sh convert.sh CASE DDPTRAIN MPIRUN [mpirun option...]     CASE: text, mistakes; DDP_TEST_DATA: tests/data
# shellcheck disable=SC2086,SC2154 # mpirun is several words; support.sh sets it
set -u

. "$(dirname "$0")/support.sh"

for i in 1 2 3 4 5 6 7 8 9 10; do
    printf 'line %d of the text, caf\303\251\n' $i
done >text

# A text to tokens and back.
case_text()
{
    tells 0 '261 tokens in 1 file' "$program" convert text bytes.bin --bytes --shard-tokens 1000
    tells 0 'tokens decoded' "$program" convert --decode bytes.bin bytes.txt --bytes
    cmp text bytes.txt || fail "bytes.txt is another text"
    tells 0 'model.vocab at least 1000' "$program" convert text all.bin --bpe "$DDP_TEST_DATA/bpe" --val-fraction=0.3
    holds err 'training, .* tokens in 1 file'
    holds err 'validation, .* tokens in 1 file'
    tells 0 'decoded' "$program" convert --decode all_train.bin train.txt --bpe "$DDP_TEST_DATA/bpe"
    tells 0 'decoded' "$program" convert --decode all_val.bin val.txt --bpe "$DDP_TEST_DATA/bpe"
    cat train.txt val.txt | cmp text - || fail "train.txt and val.txt are another text"
    printf 'a\377b\n' >odd
    tells 0 '1 bytes are not UTF-8, the first at offset 1' "$program" convert odd odd.bin --bpe "$DDP_TEST_DATA/bpe"
}

case_mistakes()
{
    : >there.bin
    tells 0 'Usage: ddptrain convert IN OUT' "$program" convert --help
    tells 2 'two files are needed' "$program" convert text --bytes
    tells 2 'is a file too many' "$program" convert text a b --bytes
    tells 2 '--bpe DIR or --bytes is needed' "$program" convert text a
    tells 2 'exclude each other' "$program" convert text a --bytes --bpe x
    tells 2 'did you mean' "$program" convert text a --byte
    tells 2 '0 < value < 1' "$program" convert text a --bytes --val-fraction 1
    tells 2 'a whole number' "$program" convert text a --bytes --shard-tokens -3
    tells 2 '--end-of-text needs --bpe' "$program" convert text a --bytes --end-of-text
    tells 2 '--decode takes neither' "$program" convert text a --bytes --decode --val-fraction 0.5
    tells 2 'start it without mpirun' $mpirun -np 2 "$program" convert text a --bytes
    tells 1 "there.bin': file exists" "$program" convert text there.bin --bytes
    tells 1 'no such file' "$program" convert none a --bytes
    tells 1 'no encoder.json and no vocab.json' "$program" convert text a --bpe none
    [ ! -e a ] && [ ! -e a.part ] || fail 'a file is left'
}

"case_$case"
exit $failed

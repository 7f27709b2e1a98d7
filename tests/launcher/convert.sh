#!/bin/sh
# ddptrain convert as a user starts it: files, lines, exit status. What is in the files is tests/io/test_text.c's matter.
# Usage: sh convert.sh DDPTRAIN DATA MPIRUN [mpirun option...]
set -u

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

for i in 1 2 3 4 5 6 7 8 9 10; do
    printf 'line %d of the text, caf\303\251\n' $i
done >text

run 0 '261 tokens in 1 file' "$program" convert text bytes.bin --bytes --shard-tokens 1000
run 0 'tokens decoded' "$program" convert --decode bytes.bin bytes.txt --bytes
cmp text bytes.txt || failed=1
run 0 'model.vocab at least 1000' "$program" convert text all.bin --bpe "$data/bpe" --val-fraction=0.3
grep -q 'training, .* tokens in 1 file' out && grep -q 'validation, .* tokens in 1 file' out || { cat out; failed=1; }
run 0 'decoded' "$program" convert --decode all_train.bin train.txt --bpe "$data/bpe"
run 0 'decoded' "$program" convert --decode all_val.bin val.txt --bpe "$data/bpe"
cat train.txt val.txt | cmp text - || failed=1
printf 'a\377b\n' >odd
run 0 '1 bytes are not UTF-8, the first at offset 1' "$program" convert odd odd.bin --bpe "$data/bpe"

run 0 'Usage: ddptrain convert IN OUT' "$program" convert --help
run 2 'two files are needed' "$program" convert text --bytes
run 2 'is a file too many' "$program" convert text a b --bytes
run 2 '--bpe DIR or --bytes is needed' "$program" convert text a
run 2 'exclude each other' "$program" convert text a --bytes --bpe x
run 2 'did you mean' "$program" convert text a --byte
run 2 '0 < value < 1' "$program" convert text a --bytes --val-fraction 1
run 2 'a whole number' "$program" convert text a --bytes --shard-tokens -3
run 2 '--end-of-text needs --bpe' "$program" convert text a --bytes --end-of-text
run 2 '--decode takes neither' "$program" convert text a --bytes --decode --val-fraction 0.5
run 2 'start it without mpirun' "$@" -np 2 "$program" convert text a --bytes
run 1 "bytes.bin': file exists" "$program" convert text bytes.bin --bytes
run 1 'no such file' "$program" convert none a --bytes
run 1 'no encoder.json and no vocab.json' "$program" convert text a --bpe none
[ ! -e a ] && [ ! -e a.part ] || { echo 'FAILED: a file is left'; failed=1; }
exit $failed

#!/bin/sh
# tests/mutants/run.sh [name... | --sample N SEED | --check | --uncovered]: plants one fault at a time in a copy of the sources and checks that the tests named
# in mutants.txt notice. A fault that no test notices is an error. --check only sees that each script still changes its file. The copy is build-mutants/ in the root of the repository.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
copy=$root/build-mutants
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export CMAKE_GENERATOR="${CMAKE_GENERATOR:-Ninja}" # make need not be installed

names=$(sed 's/#.*//' "$here/mutants.txt" | awk -F'|' 'NF { gsub(/ /, "", $1); print $1 }')
if [ "${1-}" = --sample ]; then
    names=$(printf '%s\n' "$names" | awk -v seed="$3" 'BEGIN { srand(seed) } { print rand() "\t" $0 }' | sort | head -n "$2" |
        cut -f2)
elif [ $# -gt 0 ] && [ "$1" != --check ] && [ "$1" != --uncovered ]; then
    names=$*
fi

# fields NAME: the line's file, script and tests. " | " separates fields; "\|" inside the last one is the "or" of the
# regular expression.
fields()
{
    line=$(grep "^$1 |" "$here/mutants.txt") || { echo "no mutant '$1' in mutants.txt"; exit 2; }
    file=$(printf '%s' "$line" | awk -F' \\| ' '{ print $2 }')
    script=$(printf '%s' "$line" | awk -F' \\| ' '{ print $3 }')
    tests=$(printf '%s' "$line" | awk -F' \\| ' '{ print $4 }' | sed 's/\\|/|/g')
}

# Barriers of kernels, and waits and records of the streams' events, that no fault of the list takes away.
if [ "${1-}" = --uncovered ]; then
    cd "$root"
    removed=$(
        for name in $names; do
            fields "$name"
            sed "$script" "$file" | diff "$file" - | sed -n "s|^\([0-9][0-9,]*\)[acd].*|$file,\1|p"
        done | awk -F, '{ for (i = $2; i <= (NF > 2 ? $3 : $2); i++) { print $1 ":" i ":" } }'
    )
    grep -n -E '__syncthreads|cudaStreamWaitEvent\(|cudaEventRecord\(|ddp_event_record\(|ddp_stream_wait_event\(' kernels/cuda/*.cu \
        kernels/cuda/*.h kernels/cuda/*.c ddp/reducer_nccl*.c ddp/nccl*.c ddp/reducer_host.c nn/tape_upload.c |
        grep -v -F "${removed:-nothing}"
    exit 0
fi

if [ "${1-}" = --check ]; then
    stale=0
    for name in $names; do
        fields "$name"
        if sed "$script" "$root/$file" | cmp -s "$root/$file" -; then
            echo "$name: the sed script changes nothing in $file"
            stale=1
        fi
    done
    exit $stale
fi

mkdir -p "$copy/src"
# Only what differs, and as of now: with the times of the sources a build would take objects of an earlier state for new.
(cd "$root" && git ls-files | while read -r file; do
    cmp -s "$file" "$copy/src/$file" || cp --parents -t "$copy/src" "$file"
done)
cmake -S "$copy/src" -B "$copy/build" -DCMAKE_BUILD_TYPE=RelWithDebInfo >"$copy/log" 2>&1 || { cat "$copy/log"; exit 1; }

# build TESTS: the programs that these tests (a regular expression) start, and no others.
build()
{
    programs=$(ctest --test-dir "$copy/build" -N -V -R "$1" | grep -v 'Working Directory' |
        grep -o "$copy/build/\(bin/[a-z0-9_]*\|ddptrain\)" | sed 's/.*\///' | sort -u)
    # shellcheck disable=SC2086 # a list of words
    cmake --build "$copy/build" -j2 --target ${programs:-all} >"$copy/log" 2>&1
}

# pass TESTS: whether they do.
pass()
{
    ctest --test-dir "$copy/build" -R "$1" --no-tests=error --stop-on-failure >"$copy/log" 2>&1
}

missed=0
for name in $names; do
    fields "$name"
    if ! build "$tests"; then
        tail -n 30 "$copy/log"
        exit 1
    fi
    if ! pass "$tests"; then
        echo "$name: $tests fails without the fault"
        missed=1
        continue
    fi
    sed "$script" "$root/$file" >"$copy/src/$file"
    if cmp -s "$root/$file" "$copy/src/$file"; then
        echo "$name: the sed script changes nothing in $file"
        missed=1
        continue
    fi
    if ! build "$tests"; then
        echo "$name: does not compile"
        tail -n 5 "$copy/log"
        missed=1
    elif pass "$tests"; then
        echo "$name: NOT noticed by $tests"
        missed=1
    else
        echo "$name: noticed by $(awk '/\*\*\*/ { sub(/.*Test +#[0-9]+: /, ""); print $1; exit }' "$copy/log")"
    fi
    cp "$root/$file" "$copy/src/$file"
done
exit $missed

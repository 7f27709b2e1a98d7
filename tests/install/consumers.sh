#!/bin/sh
# Builds the consumer and the examples against the installed prefix, through find_package or through pkg-config, into
# SCRATCH/<way>/. They are run by tests of their own.
# Usage: sh consumers.sh WAY SOURCE SCRATCH C_COMPILER     WAY: find_package pkg_config
set -eu

way=$1
source=$2
scratch=$3
compiler=$4
prefix=$scratch/root/opt/ddptrain
out=$scratch/$way

rm -rf "$out"
mkdir -p "$out"
case $way in
find_package)
    for project in tests/install/consumer examples; do
        cmake -S "$source/$project" -B "$out/build-${project##*/}" -DCMAKE_C_COMPILER="$compiler" \
            -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$out"
        cmake --build "$out/build-${project##*/}"
    done
    ;;
pkg_config)
    pc=$(find "$prefix" -name ddptrain.pc)
    export PKG_CONFIG_PATH="${pc%/*}"
    for file in "$source"/tests/install/consumer/*.c "$source"/examples/*.c; do
        program=${file##*/}
        # shellcheck disable=SC2046 # words
        "$compiler" -std=c11 -O2 -Wall -Wextra -Werror "$file" $(pkg-config --cflags --libs ddptrain) -o "$out/${program%.c}"
    done
    ;;
esac
"$out/consumer"
[ "$("$out/small")" = "out of memory" ]

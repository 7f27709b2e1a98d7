#!/bin/sh
# Configuring on a machine without the libraries fails with one line that names the Debian packages.
# Usage: sh missing_library.sh SOURCE SCRATCH C_COMPILER
set -eu

source=$1
scratch=$2
compiler=$3

fail()
{
    echo "$*" >&2
    cat "$scratch/output" >&2
    exit 1
}

# configure PKG_CONFIG_FOLDER: must fail; its output is in $scratch/output.
configure()
{
    rm -rf "$scratch/build"
    if PKG_CONFIG_LIBDIR=$1 PKG_CONFIG_PATH="" cmake -S "$source" -B "$scratch/build" -DCMAKE_C_COMPILER="$compiler" \
        -DDDP_BUILD_TESTS=OFF >"$scratch/output" 2>&1; then
        fail "configuring passed without its libraries"
    fi
}

rm -rf "$scratch"
mkdir -p "$scratch/none" "$scratch/some"
configure "$scratch/none"
[ "$(grep -c 'apt-get install' "$scratch/output")" -eq 1 ] || fail "not one line with a command"
for package in libopenmpi-dev libcyaml-dev libyaml-dev libcjson-dev libxxhash-dev zlib1g-dev libpcre2-dev \
    libhwloc-dev libhdf5-dev; do
    grep 'apt-get install' "$scratch/output" | grep -q -w -e "$package" || fail "$package is not named"
done

# All but one: that one alone is named.
for folder in $(pkg-config --variable pc_path pkg-config | tr ':' ' '); do
    [ -d "$folder" ] && find "$folder" -name '*.pc' ! -name libcjson.pc -exec ln -s -f {} "$scratch/some/" \;
done
configure "$scratch/some"
grep -q 'missing: libcjson; to install: apt-get install libcjson-dev$' "$scratch/output" || fail "not libcjson-dev alone"

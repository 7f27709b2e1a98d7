#!/bin/sh
# Installs the build into a scratch root and looks at what came out: files, headers alone, no trace of the build tree.
# Usage: sh install.sh SOURCE BUILD SCRATCH C_COMPILER
set -eu

source=$1
build=$2
scratch=$3
compiler=$4
prefix=$scratch/root/opt/ddptrain

fail()
{
    echo "$*" >&2
    exit 1
}

rm -rf "$scratch"
mkdir -p "$scratch"
DESTDIR=$scratch/root cmake --install "$build" --prefix /opt/ddptrain >"$scratch/log"

config=$(find "$prefix" -name ddptrainConfig.cmake)
pc=$(find "$prefix" -name ddptrain.pc)
[ -n "$config" ] || fail "ddptrainConfig.cmake is not installed"
[ -n "$pc" ] || fail "ddptrain.pc is not installed"
[ -x "$prefix/bin/ddptrain" ] || fail "the program is not installed"
! find "$prefix" -name '*_internal.h' | grep . || fail "private headers are installed"

# Text only: the debug information of the archives names sources by right.
! grep -r -n -F -e "$source" -e "$scratch" "$prefix/include" "$(dirname "$config")" "$pc" ||
    fail "an installed file names a folder of this build"

# The program loads its libraries and answers without the build tree.
"$prefix/bin/ddptrain" --version

# A user's compiler knows nothing of our options: strict C11, no feature macros, every header alone.
export PKG_CONFIG_PATH="${pc%/*}"
pkg-config --exists --print-errors ddptrain
(cd "$prefix/include/ddptrain" && find . -name '*.h') >"$scratch/headers"
[ -s "$scratch/headers" ] || fail "no header is installed"
while read -r header; do
    printf '#include "%s"\nint main(void) { return 0; }\n' "${header#./}" >"$scratch/one.c"
    # shellcheck disable=SC2046 # words
    "$compiler" -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags ddptrain) -fsyntax-only "$scratch/one.c" ||
        fail "$header does not compile alone"
done <"$scratch/headers"
echo "$(wc -l <"$scratch/headers") headers compile alone"

#!/bin/sh
# From a bare Debian 12 to a trained classifier: installs what is missing, builds, trains with two ranks.
# Usage: sh launcher/quickstart.sh [options of ddptrain]     e.g. --set train.epochs=1
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
log=$top/build/quickstart.log
step=1/3
. "$top/base/packages.sh"

# shellcheck disable=SC2086 # a list of words
ensure_packages $packages_build

step=2/3
tests=""
[ -f "$top/build/CMakeCache.txt" ] || tests="-DDDP_BUILD_TESTS=OFF" # a folder that has tests keeps them
# shellcheck disable=SC2086 # one word or none
configure_and_build "the program" ddptrain $tests

# A core each; on a machine with one core a second rank would only take turns with the first.
ranks=2
[ "$cores" -ge 2 ] || ranks=1
# Open MPI counts physical cores; two hardware threads of one core would be refused without --oversubscribe.
set -- mpirun --oversubscribe --bind-to none -np "$ranks" "$top/build/ddptrain" "$@"
say "3/3 run: $*"
exec "$@"

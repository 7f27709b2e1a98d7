#!/bin/sh
# Installs what is missing, builds, runs the tests: those with label `quick`, or all of them with --full, of which those on
# several hosts want root.
# Usage: sh tests/run.sh [--full] [options of ctest]     e.g. -R ddp.reducer
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
log=$top/build/tests.log
step=1/3
. "$top/base/packages.sh"

label="-L quick"
more=""
if [ "${1:-}" = --full ]; then
    label=""
    more="$packages_full $packages_cluster"
    shift
fi

# shellcheck disable=SC2086 # lists of words
ensure_packages $packages_build $packages_test $more
ensure_python

step=2/3
configure_and_build "program and tests" all -DDDP_BUILD_TESTS=ON

# Many tests wait more than they compute.
parallel=$((cores + cores / 2))
say "3/3 tests: ctest --test-dir build ${label:-(all)} $*"
# shellcheck disable=SC2086 # two words or none
exec ctest --test-dir "$top/build" --output-on-failure --no-tests=error --parallel "$parallel" $label "$@"

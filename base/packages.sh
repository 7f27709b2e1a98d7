# shellcheck shell=sh disable=SC2034,SC2154 # variables pass between this file and the script that sources it
# Sourced by launcher/quickstart.sh, tests/run.sh and .ci/run (POSIX sh): the Debian packages, named once, and the steps
# that the three share. The caller sets `top` (the repository), `log` (a file for details) and `step` (e.g. "1/4").

# To build and run; the default run trains on dataset-fashion-mnist.
packages_build="gcc libc6-dev cmake ninja-build pkgconf openmpi-bin libopenmpi-dev libhdf5-dev libcyaml-dev libyaml-dev
    libcjson-dev libxxhash-dev zlib1g-dev libpcre2-dev libhwloc-dev
    dataset-fashion-mnist"
# To build and run the tests: Check, what results are compared with, a text to train on, and another
# reader of HDF5; what Debian does not have of Python is in ensure_python.
packages_test="check g++ binutils libopenblas-serial-dev libonnx-testdata bible-kjv procps
    python3-h5py python3-venv"
# For all tests: a browser for the page of `compare`, and what draws its picture.
packages_full="chromium gnuplot-nox"
# For tests on several hosts (label `cluster`): networks in namespaces, and Slurm. Nothing of them runs outside of a test.
packages_cluster="iproute2 slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge"
# What only CI insists on: the second compiler, the one version of the formatter that lint asks for, and a look at templates.
packages_ci="clang clang-format-14 shellcheck"

say()
{
    printf '%s\n' "$*"
}

# die TEXT: one line on stderr, the end of the log where there is one, exit 1.
die()
{
    say "$*" >&2
    if [ -s "$log" ]; then
        say "--- the last lines of $log:" >&2
        tail -n 30 "$log" >&2
    fi
    exit 1
}

is_installed()
{
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# How to become root, in as_root ("" for root itself); fails where there is no way.
find_root()
{
    as_root=""
    [ "$(id -u)" -eq 0 ] && return 0
    command -v sudo >/dev/null 2>&1 || return 1
    as_root="sudo"
    sudo -n true 2>/dev/null && return 0
    [ -t 0 ] # sudo may ask for the password
}

# ensure_packages PACKAGE...: installs what is missing and nothing else.
ensure_packages()
{
    missing=""
    if ! command -v dpkg-query >/dev/null 2>&1; then
        say "$step packages: not a Debian or Ubuntu system, so nothing is installed; needed are, by Debian's names:" "$@"
        return 0
    fi
    for package in "$@"; do
        is_installed "$package" || missing="$missing $package"
    done
    if [ -z "$missing" ]; then
        say "$step packages: all $# are there"
        return 0
    fi
    if ! find_root; then
        say "packages are missing and you are not root here; ask the administrator for: apt-get install$missing" >&2
        exit 1
    fi
    say "$step packages: installing$missing"
    # Old lists name files that are gone from the mirror, so refresh them once before an install.
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get update >>"$log" 2>&1 ||
        say "$step packages: apt-get update failed, going on with the lists that are there (details: $log)"
    # shellcheck disable=SC2086 # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing >>"$log" 2>&1 ||
        die "installing failed; the command was: apt-get install --no-install-recommends$missing"
}

# ensure_python: DDP_TEST_PYTHON, unless it is set, is Debian's Python with h5py and, from PyPI, the package safetensors, in
# build/python. Where that cannot be had, the tests that read with it are skipped.
ensure_python()
{
    if [ -z "${DDP_TEST_PYTHON:-}" ]; then
        DDP_TEST_PYTHON=$top/build/python/bin/python
        export DDP_TEST_PYTHON
    fi
    "$DDP_TEST_PYTHON" -c 'import h5py, numpy, safetensors' 2>/dev/null && return 0
    [ "$DDP_TEST_PYTHON" = "$top/build/python/bin/python" ] || return 0
    say "$step packages: installing safetensors from PyPI into build/python"
    if ! /usr/bin/python3 -m venv --system-site-packages "$top/build/python" >>"$log" 2>&1 ||
        ! "$DDP_TEST_PYTHON" -m pip install --only-binary :all: safetensors==0.8.0 >>"$log" 2>&1; then
        say "$step packages: safetensors cannot be installed, its tests are skipped (details: $log)"
    fi
}

# configure_and_build WHAT TARGET CMAKE_OPTION...: builds in $top/build; a folder configured before keeps its generator.
configure_and_build()
{
    what=$1
    target=$2
    shift 2
    [ -f "$top/build/CMakeCache.txt" ] || set -- -GNinja "$@"
    say "$step build: $what in build/"
    cmake -S "$top" -B "$top/build" "$@" >>"$log" 2>&1 || die "configuring failed"
    cmake --build "$top/build" --parallel "$cores" --target "$target" >>"$log" 2>&1 || die "building failed"
}

cores=$(nproc 2>/dev/null || echo 1)
if ! mkdir -p "$top/build" 2>/dev/null || ! (: >"$log") 2>/dev/null; then
    say "$log cannot be written: run this as the owner of $top" >&2
    exit 1
fi
# mpirun refuses root unless told twice; here root is what a container has.
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

#!/bin/sh
# Rules of the style guide that a machine can check. Prints "file:line: what is wrong", exit 1; 77: not checked here.
# Usage: sh lint.sh RULE ROOT [ARCHIVE...]     RULE: layers calls anatomy format size text docs shell names
# shellcheck disable=SC2086,SC2046,SC2013,SC2015 # lists of words are split on purpose
set -u

rule=$1
root=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
cd "$root" || exit 1

# The one version: another one formats a few constructs differently.
formatter=clang-format-14

list()
{
    for folder in base kernels nn ddp io dp_compat launcher examples tests; do
        [ -d "$folder" ] && find "$folder" -type f \( "$@" \)
    done | LC_ALL=C sort
}

c_files=$(list -name '*.[ch]')
cxx_files=$(list -name '*.cu' -o -name '*.cpp') # kernels, and the stand-in for a GPU that tests run them on
text_files=$(
    list -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp' -o -name '*.sh' -o -name '*.awk' -o -name '*.py' -o -name '*.cmake' -o -name CMakeLists.txt
    find . -maxdepth 1 -type f \( -name '*.md' -o -name '*.json' -o -name CMakeLists.txt \)
    find docs cluster .ci -type f 2>/dev/null
)
if [ -z "$c_files" ]; then
    echo "$root: no C file here" >&2
    exit 1
fi
set -f # the lists below are split at blanks, never expanded

# none TEXT: passes if nothing comes in; otherwise prints it, TEXT behind each line.
none()
{
    awk -v text="$1" '{ print $0 "   <- " text } END { exit NR > 0 }'
}

# in_code FILTER PATTERN: lines of code (no comments, no strings) in files that match FILTER.
in_code()
{
    awk -f "$here/strip.awk" $c_files $cxx_files | grep -E "^($1)" | grep -E "^[^:]*:[0-9]*:.*($2)"
}

begin='(^|:|[^A-Za-z0-9_])'
failed=0

check_layers()
{
    awk -f "$here/layers.awk" $c_files
}

check_calls()
{
    in_code '(kernels|nn|io|dp_compat)/' "${begin}MPI_[A-Z][A-Za-z0-9_]*[ ]*\(" |
        none "MPI is called in base/ and ddp/ only" || failed=1
    in_code 'launcher/' "${begin}MPI_[A-Z][A-Za-z0-9_]*[ ]*\(" |
        grep -E -v 'MPI_(Init_thread|Initialized|Finalize|Finalized|Abort|Query_thread)[ ]*\(' |
        none "launcher/ starts and ends MPI, the rest is for ddp/" || failed=1
    in_code '(base|kernels|nn|ddp|io|dp_compat)/' "${begin}MPI_COMM_WORLD($|[^A-Za-z0-9_])" |
        none "a library duplicates the communicator it is given" || failed=1
    in_code '(base|kernels|nn|ddp|dp_compat|launcher)/' "${begin}H5[A-Z]+[a-z_][A-Za-z0-9_]*[ ]*\(" |
        none "HDF5 is called in io/ only" || failed=1
    in_code '(base|kernels|nn|io|dp_compat|launcher)/' "${begin}p?nccl[A-Z][A-Za-z0-9_]*[ ]*\(" |
        none "NCCL is called in ddp/ only" || failed=1
    in_code '(base|kernels|nn|ddp|io|dp_compat)/' "${begin}(exit|abort|printf|puts|putchar|perror)[ ]*\(" |
        none "a library never prints, exits or aborts" || failed=1
    in_code '(base|kernels|nn|ddp|io|dp_compat|launcher|examples)/' "${begin}(sprintf|strcpy|strcat|gets|atoi|atol|atof)[ ]*\(" |
        none "no bound, or no error: use snprintf, strtol and the like" || failed=1
    return $failed
}

check_anatomy()
{
    headers=" $(echo $c_files | tr ' ' '\n' | grep '\.h$' | tr '\n' ' ') "
    awk -v headers="$headers" -f "$here/anatomy.awk" $c_files || failed=1
    # What is neither private by its name nor listed as a header would not be installed, and never compiled alone.
    for folder in base kernels nn ddp io dp_compat; do
        [ -f "$folder/CMakeLists.txt" ] && grep -q 'HEADERS' "$folder/CMakeLists.txt" || continue
        for header in $(echo $c_files | tr ' ' '\n' | grep "^$folder/[^/]*\.h$" | grep -v '_internal\.h$'); do
            grep -q -w -F "${header#*/}" "$folder/CMakeLists.txt" && continue
            echo "$header:1: neither in HEADERS of $folder/CMakeLists.txt nor named ..._internal.h"
            failed=1
        done
    done
    return $failed
}

check_format()
{
    if ! command -v "$formatter" >/dev/null 2>&1; then
        echo "not checked: apt-get install $formatter"
        [ -n "${DDP_LINT_STRICT:-}" ] && return 1
        return 77
    fi
    "$formatter" --style=file --dry-run --Werror $c_files $cxx_files
}

check_size()
{
    for file in $(echo $text_files | tr ' ' '\n' | grep -v '\.md$'); do
        lines=$(wc -l <"$file")
        [ "$lines" -gt 500 ] && echo "$file:$lines: more than 500 lines: one idea a file?"
        [ "$lines" -gt 600 ] && failed=1
    done
    return $failed
}

check_text()
{
    others=$(echo $text_files | tr ' ' '\n' | grep -v '^tests/lint/')
    grep -n -E '(^|[^A-Za-z0-9_.])/(work|farm|home|root)/' $others /dev/null |
        none "a path of one machine" || failed=1
    grep -n -E '(TODO|FIXME)' $others /dev/null | grep -v -E '(TODO|FIXME)\(#[0-9]+\)' |
        none "name the issue: TODO(#12)" || failed=1
    grep -n -E '[[:blank:]]$' $others /dev/null | none "blanks at the end of a line" || failed=1
    in_code '[a-z_]*/' '//' | none "comments are /* */" || failed=1
    in_code '[a-z_]*/' '# *define +_(GNU|POSIX_C|XOPEN)_SOURCE' | none "defined for all files by CMake" || failed=1
    in_code '[a-z_]*/' '# *pragma +once' | none "headers have guards" || failed=1
    grep -n -E 'CMAKE_C_FLAGS|CMAKE_EXE_LINKER_FLAGS' $(echo $others | tr ' ' '\n' | grep -E '(CMakeLists.txt|\.cmake)$') \
        /dev/null | none "options belong to the target ddp_options" || failed=1
    return $failed
}

# Links between pages lead somewhere.
check_docs()
{
    for page in $(find . -maxdepth 1 -name '*.md') $(find docs cluster tests/cluster -name '*.md' 2>/dev/null); do
        for link in $(grep -o '](\([^)]*\))' "$page" | sed 's/^](//; s/)$//; s/#.*//' | grep -v -E '^(https?:|mailto:|$)'); do
            [ -e "$(dirname "$page")/$link" ] && continue
            echo "$page: link to '$link', which is not there"
            failed=1
        done
    done
    return $failed
}

check_shell()
{
    for script in $(echo $text_files | tr ' ' '\n' | grep -E '(\.sh|^\.ci/run)$'); do
        sh -n "$script" || failed=1
    done
    # What users copy is looked at more closely.
    templates=$(find cluster -name '*.sbatch' 2>/dev/null)
    if [ -n "$templates" ] && command -v shellcheck >/dev/null 2>&1; then
        LC_ALL=C.UTF-8 shellcheck --shell=bash $templates || failed=1
    elif [ -n "$templates" ] && [ -n "${DDP_LINT_STRICT:-}" ]; then
        echo "not checked: apt-get install shellcheck"
        failed=1
    fi
    return $failed
}

# Every symbol that the archives define for others begins with ddp_.
check_names()
{
    for archive in "$@"; do
        [ -s "$archive" ] || { echo "$archive: not built"; failed=1; continue; }
        nm --extern-only --defined-only --format=posix "$archive" |
            awk -v archive="${archive##*/}" 'NF >= 2 && $1 !~ /^ddp_/ && $1 !~ /:$/ { print archive ": " $1 }' |
            none "exported without ddp_" || failed=1
    done
    return $failed
}

case $rule in
layers | calls | anatomy | format | size | text | docs | shell | names)
    "check_$rule" "$@"
    ;;
*)
    echo "no rule '$rule'" >&2
    exit 2
    ;;
esac

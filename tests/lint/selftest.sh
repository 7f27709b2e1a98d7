#!/bin/sh
# Each rule of lint.sh lets a clean tree pass and catches a violation planted in it.
# Usage: sh selftest.sh SCRATCH_FOLDER C_COMPILER
set -u

scratch=$1
compiler=$2
here=$(cd "$(dirname "$0")" && pwd)
lint=$here/lint.sh
tree=$scratch/tree
failures=0
checks=0

fresh_tree()
{
    rm -rf "$tree"
    mkdir -p "$tree/base" "$tree/kernels/cpu" "$tree/nn" "$tree/ddp" "$tree/io" "$tree/launcher" "$tree/docs" "$tree/tests"
    printf '/** @file Something. */\n#ifndef DDP_THING_H_\n#define DDP_THING_H_\n\nint ddp_thing(void);\n\n#endif\n' \
        >"$tree/base/thing.h"
    printf '#include "base/thing.h"\n\nint ddp_thing(void)\n{\n    return 1; /* MPI_Send( is only named */\n}\n' \
        >"$tree/base/thing.c"
    printf 'ddp_add_library(base HEADERS thing.h SOURCES thing.c)\n' >"$tree/base/CMakeLists.txt"
    printf 'A page. [The other](docs/page.md)\n' >"$tree/README.md"
    printf 'Another.\n' >"$tree/docs/page.md"
    printf '#!/bin/sh\necho fine\n' >"$tree/tests/run.sh"
    cp "$here/../../.clang-format" "$tree/"
}

fail()
{
    echo "FAILED: $*"
    sed 's/^/    /' "$scratch/output"
    failures=$((failures + 1))
}

# run RULE [ARCHIVE]: status in $status, text in $scratch/output.
run()
{
    DDP_LINT_STRICT="" sh "$lint" "$1" "$tree" ${2:+"$2"} >"$scratch/output" 2>&1
    status=$?
    checks=$((checks + 1))
}

# caught RULE TEXT: after a violation was planted, the rule fails and its output has the text.
caught()
{
    run "$1"
    if [ "$status" -eq 77 ]; then
        echo "rule $1 cannot be checked here"
    elif [ "$status" -ne 1 ]; then
        fail "rule $1 let this pass: $2"
    elif ! grep -q -F -e "$2" "$scratch/output"; then
        fail "rule $1 does not say: $2"
    fi
    fresh_tree
}

passes()
{
    run "$@"
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || fail "rule $1 refuses a clean tree"
}

# plant FILE LINE...: a new file, or more lines of an old one.
plant()
{
    file=$tree/$1
    shift
    mkdir -p "$(dirname "$file")"
    printf '%s\n' "$@" >>"$file"
}

compile_archive()
{
    rm -f "$scratch/t.a"
    printf '%s\n' "$1" >"$scratch/t.c"
    "$compiler" -c "$scratch/t.c" -o "$scratch/t.o" && ar rc "$scratch/t.a" "$scratch/t.o"
}

mkdir -p "$scratch"
fresh_tree
for rule in layers calls anatomy format size text docs shell; do
    passes "$rule"
done

plant base/a.c '#include "nn/tape.h"'
caught layers 'base/a.c:1: base/ may not include "nn/tape.h"'
plant kernels/a.c '#include "ddp/comm.h"'
caught layers 'kernels/ may not include "ddp/comm.h"'
plant io/a.c '#include "dp_compat/dp.h"'
caught layers 'io/ may not include "dp_compat/dp.h"'
plant io/a.c '#include "ddp/comm_internal.h"'
caught layers '"ddp/comm_internal.h" is private to ddp/'
plant nn/a.c '#include "kernels/cpu/table.h"'
caught layers '"kernels/cpu/table.h" is private to kernels/'
plant ddp/reducer.h '#include "nn/tape.h"'
caught layers 'public headers of ddp/ include no header of nn/'
plant base/a.c '#include "thing.h"'
caught layers 'include by its path in the repository'
plant kernels/a.c '#include <mpi.h>'
caught layers 'MPI is for base/, ddp/ and launcher/ only'
plant nn/a.c '#include <hdf5.h>'
caught layers 'HDF5 is for io/ only'
plant io/a.c '#include <nccl.h>'
caught layers 'NCCL is for ddp/ only'

plant nn/a.c 'int f(void) { return MPI_Barrier(x); }'
caught calls 'nn/a.c:1:'
plant launcher/a.c '    MPI_Bcast(x);'
caught calls 'launcher/ starts and ends MPI'
plant launcher/a.c '    MPI_Finalize();'
passes calls
fresh_tree
plant ddp/a.c '    comm = MPI_COMM_WORLD;'
caught calls 'a library duplicates the communicator'
plant ddp/a.c '    H5Fopen(x);'
caught calls 'HDF5 is called in io/ only'
plant io/a.c '    ncclCommAbort(x);'
caught calls 'NCCL is called in ddp/ only'
plant ddp/a.c '    exit(1);'
caught calls 'a library never prints, exits or aborts'
plant launcher/a.c '    n = atoi(text);'
caught calls 'no bound, or no error'

plant base/b.h '#ifndef DDP_B_H_' '#define DDP_B_H_' '#endif'
caught anatomy 'base/b.h:1: a header begins with /** @file'
plant base/b.h '/** @file B. */' '#ifndef B_H' '#define B_H' '#endif'
caught anatomy 'guard B_H is not DDP_...B_H_'
plant base/b.h '/** @file B. */' 'int x;'
caught anatomy 'no guard'
plant nn/thing.h '/** @file B. */' '#ifndef DDP_THING_H_' '#define DDP_THING_H_' '#endif'
caught anatomy 'guard DDP_THING_H_ is also that of base/thing.h'
printf '#include <stdio.h>\n#include "base/thing.h"\n' >"$tree/base/thing.c"
caught anatomy 'its own header "base/thing.h" is included first'
plant base/b.h '/** @file B. */' '#ifndef DDP_B_H_' '#define DDP_B_H_' '#endif'
caught anatomy 'base/b.h:1: neither in HEADERS'

plant base/thing.c 'int  ddp_other( void );'
caught format 'base/thing.c:'

awk 'BEGIN { for (i = 0; i < 601; i++) print "/* line */" }' >"$tree/base/long.c"
caught size 'base/long.c:601:'

plant README.md "See /""work/main."
caught text 'a path of one machine'
plant base/a.c '/* TO''DO: later */'
caught text 'name the issue'
plant base/a.c 'int x; // why'
caught text 'comments are /* */'
plant base/a.c '#define _GNU_SOURCE'
caught text 'defined for all files by CMake'
plant base/a.h '#pragma once'
caught text 'headers have guards'
plant base/a.c 'int x; '
caught text 'blanks at the end of a line'
plant base/CMakeLists.txt 'set(CMAKE_C_FLAGS -O3)'
caught text 'options belong to the target ddp_options'

plant README.md '[gone](docs/gone.md)'
caught docs "link to 'docs/gone.md'"

plant tests/run.sh 'if true; then'
caught shell 'tests/run.sh'

compile_archive 'int ddp_good(void); int ddp_good(void) { return 0; } static int hidden; int *ddp_p(void); int *ddp_p(void) { return &hidden; }'
passes names "$scratch/t.a"
compile_archive 'int helper(void); int helper(void) { return 0; }'
run names "$scratch/t.a"
{ [ "$status" -eq 1 ] && grep -q 't.a: helper' "$scratch/output"; } || fail "rule names let a function without ddp_ pass"
compile_archive 'int table[4] = {1};'
run names "$scratch/t.a"
{ [ "$status" -eq 1 ] && grep -q 't.a: table' "$scratch/output"; } || fail "rule names let a variable without ddp_ pass"
run names "$scratch/none.a"
[ "$status" -eq 1 ] || fail "rule names passes without an archive"

echo "$checks checks, $failures failures"
[ "$failures" -eq 0 ]

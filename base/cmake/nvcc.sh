#!/bin/sh
# Runs nvcc and keeps what it prints in a file; shows it where it fails. Usage: sh nvcc.sh LOG NVCC ARGUMENT...
log=$1
shift
if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi

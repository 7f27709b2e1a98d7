#!/bin/sh
# The example under DataParallel: the same weights on 1, 2 and 3 devices, without MPI, and the numbers that the example
# of ranks prints.
# Usage: sh own_model_dp.sh FOLDER MPIRUN...     FOLDER: where both programs are
set -eu

folder=$1
shift
one=$("$folder/own_model_dp" 1)
for devices in 2 3; do
    many=$("$folder/own_model_dp" "$devices")
    [ "$many" = "$one" ] || { echo "$devices devices: '$many', one: '$one'"; exit 1; }
done
ranks=$("$@" -np 2 "$folder/own_model")
[ "${one% weights *}" = "$ranks" ] || { echo "devices: '$one', ranks: '$ranks'"; exit 1; }
if "$folder/own_model_dp" 9 2>/dev/null; then
    echo "9 devices: the program has 8"
    exit 1
fi

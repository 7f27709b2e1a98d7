#!/bin/sh
# What ptxas said of each kernel: fails for one that spills registers to memory or takes more of them than a block of 256
# threads can have twice on a multiprocessor. Usage: sh ptxas.sh LOG...     the logs are beside the objects of nvcc
set -u

cat "$@" | awk -v most_registers=128 -v most_spill=16 '
/Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; target = part[4]; count++ }
/bytes spill stores/ {
    split($0, part, ",")
    for (i in part) {
        if (part[i] ~ /spill stores/) { split(part[i], n, " "); stores = n[1] }
        if (part[i] ~ /spill loads/) { split(part[i], n, " "); loads = n[1] }
    }
}
/Used [0-9]+ registers/ {
    for (i = 1; i < NF; i++) { if ($i == "Used") { registers = $(i + 1) } }
    verdict = ""
    if (stores + loads > most_spill) { verdict = " <- spills more than " most_spill " bytes"; failed = 1 }
    if (registers > most_registers) { verdict = verdict " <- more than " most_registers " registers"; failed = 1 }
    printf "%-6s %3d registers, %3d bytes spilled  %s%s\n", target, registers, stores + loads, kernel, verdict
}
END {
    if (count == 0) { print "no kernel in the logs"; failed = 1 }
    exit failed
}'

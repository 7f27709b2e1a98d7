# Reads C files; reports every #include "..." that crosses a layer the wrong way, or reaches into another folder's
# private headers. The table is section 1 of the style guide; an arrow never points back.
BEGIN {
    may["base"] = "base"
    may["kernels"] = "base kernels"
    may["nn"] = "base kernels nn"
    may["ddp"] = "base kernels nn ddp"
    may["io"] = "base kernels nn ddp io"
    may["dp_compat"] = "base kernels nn ddp dp_compat"
    may["launcher"] = "base kernels nn ddp io dp_compat launcher"
    may["examples"] = "base kernels nn ddp io dp_compat"
    may["tests"] = "base kernels nn ddp io dp_compat launcher tests"
}

function is_private(header)
{
    return header ~ /_internal\.h$/ || header ~ /^kernels\/cpu\//
}

function report(text)
{
    print FILENAME ":" FNR ": " text
    failed = 1
}

/^[ \t]*#[ \t]*include[ \t]*"/ {
    folder = FILENAME
    sub(/\/.*/, "", folder)
    header = $0
    sub(/^[^"]*"/, "", header)
    sub(/".*/, "", header)
    from = header
    sub(/\/.*/, "", from)

    if (header !~ /\//) {
        report("\"" header "\": include by its path in the repository")
    } else if (index(" " may[folder] " ", " " from " ") == 0) {
        report(folder "/ may not include \"" header "\"")
    } else if (is_private(header) && from != folder && folder != "tests") {
        report("\"" header "\" is private to " from "/")
    } else if (from == "nn" && FILENAME ~ /^ddp\/[^\/]*\.h$/ && !is_private(FILENAME)) {
        report("public headers of ddp/ include no header of nn/")
    }
}

/^[ \t]*#[ \t]*include[ \t]*<mpi\.h>/ {
    if (FILENAME !~ /^(base|ddp|launcher|tests|examples)\//) {
        report("MPI is for base/, ddp/ and launcher/ only")
    }
}

/^[ \t]*#[ \t]*include[ \t]*<hdf5[a-z_]*\.h>/ {
    if (FILENAME !~ /^(io|tests)\//) {
        report("HDF5 is for io/ only")
    }
}

/^[ \t]*#[ \t]*include[ \t]*<nccl\.h>/ {
    if (FILENAME !~ /^(ddp|tests)\//) {
        report("NCCL is for ddp/ only")
    }
}

END {
    exit failed
}

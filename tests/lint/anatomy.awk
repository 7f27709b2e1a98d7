# Reads headers and sources; reports what a file must have: /** @file */ and a guard named after the header, once in the
# whole repository; a source's own header first.
function report(text)
{
    print FILENAME ":" FNR ": " text
    failed = 1
}

function finish_header()
{
    if (last == "" || last !~ /\.h$/) {
        return
    }
    if (!has_file) {
        print last ":1: a header begins with /** @file ... */"
        failed = 1
    }
    if (guard == "" || !guard_defined) {
        print last ":1: no guard #ifndef, #define " wanted
        failed = 1
    } else if (guard !~ /^DDP_/ || substr(guard, length(guard) - length(wanted) + 1) != wanted) {
        print last ":1: guard " guard " is not DDP_..." wanted
        failed = 1
    } else if (guard in seen) {
        print last ":1: guard " guard " is also that of " seen[guard]
        failed = 1
    }
    seen[guard] = last
}

FNR == 1 {
    finish_header()
    last = FILENAME
    has_file = 0
    guard = ""
    guard_defined = 0
    includes = 0
    wanted = FILENAME
    sub(/.*\//, "", wanted)
    sub(/^ddp_/, "", wanted)
    sub(/\.h$/, "_H_", wanted)
    wanted = toupper(wanted)
    gsub(/[^A-Z0-9]/, "_", wanted)
}

FNR <= 2 && /@file / {
    has_file = 1
}

/^#ifndef / && guard == "" {
    guard = $2
}

/^#define / && $2 == guard {
    guard_defined = 1
}

/^[ \t]*#[ \t]*include/ {
    includes++
    own = FILENAME
    sub(/\.c$/, ".h", own)
    if (includes == 1 && FILENAME ~ /\.c$/ && index(headers, " " own " ") &&
        $0 !~ ("\"" substr(own, 1, length(own) - 2) "(_internal)?[.]h\"")) {
        report("its own header \"" own "\" is included first")
    }
}

END {
    finish_header()
    exit failed
}

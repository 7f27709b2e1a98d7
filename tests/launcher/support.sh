# Read by the scripts beside it: arguments CASE DDPTRAIN MPIRUN [mpirun option...], a folder of its own, and checks.
# shellcheck disable=SC2034,SC2086,SC2164 # read by the scripts; a command of several words; `cd` is checked

case=$1
program=$2
shift 2
mpirun=$*

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0

fail()
{
    echo "FAILED: $*"
    failed=1
}

# is_running PID: and no zombie that only waits to be asked for
is_running()
{
    grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$1/status" 2>/dev/null
}

# run STATUS COMMAND...: stdout into out, stderr into err; the exit status must be STATUS.
run()
{
    wanted=$1
    shift
    "$@" >out 2>err
    got=$?
    if [ "$got" -ne "$wanted" ]; then
        fail "exit status $got instead of $wanted: $*"
        cat out err
    fi
}

# ranks N STATUS ARGUMENT...: the program on N ranks.
ranks()
{
    np=$1
    status=$2
    shift 2
    run "$status" $mpirun -np "$np" "$program" "$@"
}

# says TEXT: err holds exactly one line of ddptrain, and TEXT is in it.
says()
{
    count=$(grep -c '^ddptrain' err)
    if [ "$count" -ne 1 ] || ! grep '^ddptrain' err | grep -q -F -e "$1"; then
        fail "'$1' expected in exactly one line, got $count:"
        cat err
    fi
}

# tells STATUS TEXT COMMAND...: the exit status, TEXT on stdout or stderr, and at most one line of ddptrain where it fails.
tells()
{
    status=$1
    text=$2
    shift 2
    run "$status" "$@"
    cat out err >both
    grep -q -F -e "$text" both || { fail "'$text' expected: $*"; cat both; }
    if [ "$status" -ne 0 ] && [ "$(grep -c '^ddptrain' err)" -gt 1 ]; then
        fail "more than one line: $*"
        cat err
    fi
}

holds()
{
    grep -q -e "$2" "$1" || { fail "'$2' is not in $1:"; cat "$1"; }
}

weights()
{
    sed -n '$s/^weights //p' out
}

# ends_with WANTED: the last run's weights are these
ends_with()
{
    if [ "$(weights)" != "$1" ] || [ -z "$1" ]; then
        fail "weights '$(weights)' instead of '$1'"
        cat err
    fi
}

# same NAME ARGUMENT...: the weights are those of the one-rank run in $one.
same()
{
    name=$1
    if [ "$(weights)" != "$one" ] || [ -z "$one" ]; then
        fail "$name: weights '$(weights)' instead of '$one'"
    fi
}

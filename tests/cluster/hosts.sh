# shellcheck shell=sh disable=SC2015,SC2034,SC2154 # variables pass between this and the scripts that source it
# Hosts node1, node2 ... on one machine, each with a network, a name and a /dev/shm of its own, and the links between them.
# Sourced by cluster.sh. A host lasts as long as its first process, whose pid is in $DDP_CLUSTER/HOST/pid; the set's own
# network is the switch between them, host I is on its port pI.

# cluster_begin FOLDER: where the hosts' files go. What an administrator would set for Open MPI is set for all hosts.
cluster_begin()
{
    DDP_CLUSTER=$1/c
    export DDP_CLUSTER
    mkdir "$DDP_CLUSTER" || exit 1
    cluster_kind=bridge
    cluster_params=/etc/openmpi/openmpi-mca-params.conf
    {
        echo "plm_rsh_agent = sh $cluster_here/rsh_agent.sh"
        echo 'hwloc_base_binding_policy = none'
        echo 'rmaps_base_oversubscribe = 1'
        echo 'mpi_yield_when_idle = 1'
        echo 'btl_base_warn_component_unused = 0'
    } >"$DDP_CLUSTER/mca-params.conf"
    [ -f "$cluster_params" ] || cluster_needs "$cluster_params: apt-get install openmpi-common"
    mount --bind "$DDP_CLUSTER/mca-params.conf" "$cluster_params" || exit 1
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
}

# await SECONDS COMMAND...: until it succeeds
await()
{
    await_end=$(($(date +%s) + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -le $await_end ] || return 1
        sleep 0.05
    done
}

# host_begin I: its first process, with the network that the switch's port pI leads to
host_begin()
{
    host_folder=$DDP_CLUSTER/node$1
    rm -rf "$host_folder"
    mkdir -p "$host_folder/tmp"
    # shellcheck disable=SC2016 # for the inner shell
    unshare --net --uts --ipc --mount sh -c 'hostname "node$1" && mount --bind "$2/hosts" /etc/hosts &&
        mount -t tmpfs -o mode=1777 shm /dev/shm && ip link set lo up && : >"$2/node$1/ready" && exec sleep infinity' \
        host "$1" "$DDP_CLUSTER" </dev/null >/dev/null 2>"$host_folder/log" &
    host_holder=$!
    await 20 test -e "$host_folder/ready" || { cat "$host_folder/log"; cluster_needs 'mounts in namespaces'; }
    host_address=$(printf '02:dd:00:00:00:%02x' "$1") # as it was before the power went: others remember it for a minute
    if [ "$cluster_kind" = bridge ]; then
        ip link add "p$1" type veth peer name eth0 address "$host_address" netns "$host_holder" && ip link set "p$1" master br0 up
    else
        ip link set "p$1" netns "$host_holder" &&
            nsenter -t "$host_holder" -n ip link set "p$1" name eth0 address "$host_address" mtu 9000
    fi || { echo "node$1 gets no network"; exit 1; }
    nsenter -t "$host_holder" -n ip addr add "10.77.0.$1/24" dev eth0
    nsenter -t "$host_holder" -n ip link set eth0 up
    echo "$host_holder" >"$host_folder/pid"
}

# hosts_up N [switch]: node1 .. nodeN, 10.77.0.1 .. N. With `switch` a program carries the frames, which can do more (link_shape).
hosts_up()
{
    hosts=$1
    {
        echo '127.0.0.1 localhost'
        for host_number in $(seq "$1"); do
            echo "10.77.0.$host_number node$host_number"
        done
    } >"$DDP_CLUSTER/hosts"
    ip link set lo up
    if [ "${2:-bridge}" = bridge ]; then
        ip link add br0 type bridge && ip link set br0 up || cluster_needs 'a kernel with bridges'
    else
        cluster_kind=switch
        [ -e /dev/net/tun ] || cluster_needs /dev/net/tun
        mkfifo "$DDP_CLUSTER/switch"
        # shellcheck disable=SC2046 # a list of words
        "$DDP_SLOW_SWITCH" "$DDP_CLUSTER/switch" $(seq -f 'p%g' "$1") >"$DDP_CLUSTER/switch.log" 2>&1 &
        await 20 grep -q ready "$DDP_CLUSTER/switch.log" || { cat "$DDP_CLUSTER/switch.log"; exit 1; }
    fi
    for host_number in $(seq "$1"); do
        host_begin "$host_number"
    done
}

# on HOST COMMAND...: and its exit status
on()
{
    sh "$cluster_here/on.sh" "$@"
}

# start HOST COMMAND...: in the background; `job` is the command's pid
start()
{
    sh "$cluster_here/on.sh" "$@" &
    job=$!
}

# host_pids HOST [NAME]: what runs there, but for the process that holds it; with NAME only what has this name
host_pids()
{
    read -r host_holder <"$DDP_CLUSTER/$1/pid" || return 0
    find /proc -maxdepth 3 -path '/proc/[0-9]*/ns/net' -lname "$(readlink "/proc/$host_holder/ns/net" | sed 's/[][]/\\&/g')" 2>/dev/null |
        cut -d / -f 3 | while read -r host_pid; do
        [ "$host_pid" != "$host_holder" ] && is_running "$host_pid" || continue
        [ -n "${2:-}" ] && [ "$(cat "/proc/$host_pid/comm" 2>/dev/null)" != "$2" ] || echo "$host_pid"
    done
}

# host_kill HOST: all that runs there ends, in one moment; its kernel goes on and tells the others so
host_kill()
{
    for host_round in 1 2 3; do # what was about to start something has started it
        host_victims=$(host_pids "$1")
        [ -n "$host_victims" ] || break
        # shellcheck disable=SC2086 # a list
        kill -9 $host_victims 2>/dev/null
    done
}

# host_off HOST [SECONDS]: without power, from one moment to the next, and nobody is told; but with SECONDS mpirun's ssh, which
# finds by then that nobody answers (its ServerAliveInterval)
host_off()
{
    link_cut "$1"
    [ -z "${2:-}" ] || { sleep "$2" && rm -f "$DDP_CLUSTER/$1/silent"; } &
    host_kill "$1"
    kill -9 "$(cat "$DDP_CLUSTER/$1/pid")"
    rm -f "$DDP_CLUSTER/$1/pid"
}

# host_on HOST: again with power, and empty; not with a switch
host_on()
{
    ip link delete "p${1#node}" 2>/dev/null # connections that were cut keep the network they belong to for minutes
    await 10 port_is_gone "p${1#node}"
    host_begin "${1#node}"
}

port_is_gone()
{
    ! ip link show "$1"
}

# link_cut HOST, link_mend HOST: nothing comes or goes, silently
link_cut()
{
    : >"$DDP_CLUSTER/$1/silent" # for rsh_agent.sh
    if [ "$cluster_kind" = bridge ]; then
        ip link set "p${1#node}" down
    else
        echo "cut ${1#node} 1" >"$DDP_CLUSTER/switch"
    fi
}

link_mend()
{
    rm -f "$DDP_CLUSTER/$1/silent"
    if [ "$cluster_kind" = bridge ]; then
        ip link set "p${1#node}" up
    else
        echo "cut ${1#node} 0" >"$DDP_CLUSTER/switch"
    fi
}

# link_shape HOST|all MBIT [DELAY_US [JITTER_US [LOSS]]]: of what the host sends, and without a switch what it gets too. 0
# MBIT: no limit. LOSS is frames of 10000. Delay, jitter and loss need `hosts_up N switch`.
link_shape()
{
    if [ "$cluster_kind" = switch ]; then
        echo "shape $(echo "${1#node}" | sed 's/all/0/') $2 ${3:-0} ${4:-0} ${5:-0}" >"$DDP_CLUSTER/switch"
        return
    fi
    [ "${3:-0}${4:-0}${5:-0}" -eq 0 ] || { echo 'link_shape: delay and loss need a switch'; exit 1; }
    for shaped in $(if [ "$1" = all ]; then seq "$hosts"; else echo "${1#node}"; fi); do
        link_rate "$2" "p$shaped"
        link_rate "$2" eth0 on "node$shaped"
    done
}

# link_rate MBIT DEVICE [on HOST]
link_rate()
{
    rate=$1
    device=$2
    shift 2
    "$@" tc qdisc del dev "$device" root 2>/dev/null
    [ "$rate" = 0 ] || "$@" tc qdisc add dev "$device" root tbf rate "${rate}mbit" burst 64kb latency 200ms
}

# rank_pid RANK: of a running $program, started by mpirun or srun
rank_pid()
{
    for rank_pid in $(program_pids); do
        if tr '\0' '\n' <"/proc/$rank_pid/environ" 2>/dev/null | grep -q "^PMIX_RANK=$1\$"; then
            echo "$rank_pid"
            return
        fi
    done
}

# program_pids: processes that run $program, on any host, lowest first
program_pids()
{
    for program_pid in $(cd /proc && printf '%s\n' [0-9]* | sort -n); do
        if [ "$(readlink "/proc/$program_pid/exe" 2>/dev/null)" = "$(readlink -f "$program")" ] && is_running "$program_pid"; then
            echo "$program_pid"
        fi
    done
}

# nothing_left SECONDS: no rank and none of mpirun's daemons is left on any host by then
nothing_left()
{
    await "$1" no_job_runs || { fail 'left behind:'; job_processes; }
}

no_job_runs()
{
    [ -z "$(job_processes)" ]
}

job_processes()
{
    for program_pid in $(program_pids) $(pgrep -x 'mpirun|orterun|orted|srun' 2>/dev/null); do
        is_running "$program_pid" && echo "$program_pid $(tr '\0' ' ' <"/proc/$program_pid/cmdline" 2>/dev/null)"
    done
}

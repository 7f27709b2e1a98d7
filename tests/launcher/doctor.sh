#!/bin/sh
# The command `doctor`: what it finds alone and on several ranks, in bad folders and under limits, and mistakes.
# Usage: sh doctor.sh CASE DDPTRAIN MPIRUN [mpirun option...]
set -u

. "$(dirname "$0")/support.sh"

# finds LEVEL NAME TEXT: a line of out
finds()
{
    grep "^$1 *$2: " out | grep -q -F -e "$3" || { fail "no line '$1 $2' with '$3'"; cat out err; }
}

# no_fail: whatever this machine is like
no_fail()
{
    grep '^fail' out && fail 'something is bad here'
    holds out '^[0-9]* ok, [0-9]* warn, 0 fail$'
}

alone()
{
    run 0 "$program" doctor
    no_fail
    finds ok ranks.launcher 'started alone'
    finds ok ranks.hosts '1 rank on 1 machine'
    finds '[a-z]*' folder.space "'.' on"
    [ "$(find . | wc -l)" -eq 3 ] || fail "something stays behind: $(find .)" # out and err
    [ ! -s err ] || { fail 'words on stderr:'; cat err; }
    # what the two forms say of this machine changes with the time, but not which findings there are
    sed -n 's/^[a-z]*  *\([a-z_]*\.[a-z_0-9]*\): .*/\1/p' out >names
    run 0 "$program" doctor --json
    python3 - names out <<'END' || fail 'JSON and lines differ'
import json, sys
found = json.loads(open(sys.argv[2]).read())
names = [f["group"] + "." + f["name"] for f in found["findings"]]
assert found["event"] == "doctor" and found["fail"] == 0
assert found["ok"] + found["warn"] == len(names)
assert names == open(sys.argv[1]).read().split(), names
END
    DDP_ISA=plain run 0 "$program" doctor
    finds ok cpu.isa plain
}

several()
{
    ranks 3 0 doctor
    no_fail
    finds ok ranks.launcher mpirun
    finds ok ranks.hosts '3 ranks on 1 machine'
    finds ok program.binary ddptrain
    DDP_TEST_MACHINES=0,1,0 ranks 3 0 doctor
    no_fail
    finds ok ranks.hosts '3 ranks on 2 machines'
    finds ok folder.shared 'all machines see it'
    finds ok network.clock 'give or take'
    finds '[a-z]*' network.link ' us, '
    finds warn ranks.shared_machine 'are one machine'
    # each rank is a machine
    DDP_HOST_SHM=0 ranks 3 0 doctor --json
    holds out '"text":"3 ranks on 3 machines: '
    DDP_ISA=plain ranks 1 0 doctor : -np 2 "$program" doctor
}

folders()
{
    run 0 "$program" doctor --out not/there/yet
    finds '[a-z]*' folder.space "'not/there/yet' on"
    [ ! -e not ] || fail 'the folder was made'
    : >file
    run 1 "$program" doctor --out file
    finds fail folder.space 'is no folder'
    run 1 "$program" doctor --out /proc/1
    finds fail folder.space '/proc/1'
    ranks 2 1 doctor --out file
    finds fail folder.space 'is no folder'
    [ "$(grep -c '^ddptrain' err)" -eq 0 ] || fail 'a finding is no error of the program'
    mkdir closed
    chmod a-w closed
    if ! touch closed/x 2>/dev/null; then # root may write anywhere
        run 1 "$program" doctor --out closed
        finds fail folder.space 'cannot be written'
    fi
    chmod u+w closed
    if [ "$(id -u)" -eq 0 ] && mkdir small && unshare --mount sh -c 'mount -t tmpfs -o ro none small' 2>/dev/null; then
        # shellcheck disable=SC2016 # for the other shell
        run 1 unshare --mount sh -c 'mount -t tmpfs -o ro none small && exec "$0" doctor --out small' "$program"
        finds fail folder.space 'read-only file system'
        # shellcheck disable=SC2016
        run 1 unshare --mount sh -c 'mount -t tmpfs -o size=64k none small && exec "$0" doctor --out small' "$program"
        finds fail folder.space 'no space left on device'
    fi
}

limits()
{
    (
        ulimit -n 64
        run 1 "$program" doctor
        finds fail limits.nofile '64 on rank 0'
        exit $failed
    ) || failed=1
    (
        ulimit -c 0
        run 0 "$program" doctor
        finds ok limits.core ': 0'
        exit $failed
    ) || failed=1
}

# A disk that does not answer is a finding, and holds up neither the rest nor the end.
disk()
{
    for np in 1 2; do
        run 1 $mpirun -np $np env SHIM_UNDER=.ddptrain-doctor SHIM_AT=1 SHIM_DO=hang LD_PRELOAD="$SHIM" "$program" doctor \
            --set ddp.timeout_s=4
        finds fail folder.space 'does not answer for 2 s'
        finds ok gpu.driver ''
        rm -f .ddptrain-doctor*
    done
}

# Would a configuration run here?
config()
{
    small='--set data.kind=shapes --set data.samples=200 --set data.test_samples=130 --set train.batch=64'
    ranks 2 0 doctor $small --set train.micro_batch=8 --set model.kind=mlp
    no_fail
    finds ok run.configuration accepted
    finds ok run.ranks '8 micro-batches in a step for 2 ranks'
    finds ok run.data '200 samples'
    finds ok run.memory MiB
    finds ok run.disk MiB
    ranks 3 0 doctor $small --set train.micro_batch=8 --set model.kind=mlp
    finds warn run.ranks '8 micro-batches in a step for 3 ranks'
    ranks 3 1 doctor $small --set train.micro_batch=32
    finds fail run.configuration '2'
    run 1 "$program" doctor --set data.kind=idx --set data.path=nowhere
    finds fail run.configuration nowhere
    wide=65536,65536 # more than any machine has
    run 1 "$program" doctor $small --set model.kind=mlp --set model.hidden=[$wide,$wide,$wide,$wide]
    finds fail run.configuration memory
    run 0 "$program" doctor $small --set train.mode=dp --set dp.devices=0 --set model.kind=mlp
    finds ok run.configuration accepted
    ranks 2 1 doctor $small --set train.mode=dp --set dp.devices=0 --set model.kind=mlp
    finds fail run.configuration 'without mpirun'
    [ ! -e runs ] || fail 'a folder was made'
}

# A rank that stops in between is named, and nothing hangs.
silent()
{
    DDP_FAULT=doctor_stop:2 ranks 3 1 doctor --set ddp.timeout_s=2
    finds fail ranks.answer 'rank 2'
    holds err 'rank 2'
}

# On the stand-in for GPUs: what is found, and what is refused before anything runs.
gpus()
{
    CUSIM_DEVICES=3
    export CUSIM_DEVICES
    ranks 2 0 doctor
    finds ok gpu.driver 'CUDA 13'
    finds ok gpu.device 'GPU 2, cusim, 0000:03:00.0'
    holds out '^ok    gpu.nccl: '
    holds out 'gpu.cudnn: '
    ranks 4 0 doctor
    finds warn gpu.ranks 'has 4 ranks and 3 GPUs'
    CUSIM_DEVICES=0 run 0 "$program" doctor
    finds ok gpu.driver 'training is on CPUs'
    run 1 $mpirun -np 1 "$program" doctor : -np 1 env CUSIM_DEVICES=0 "$program" doctor
    finds fail gpu.driver 'rank 0 on'
    finds fail gpu.driver '--set ddp.device=cpu'
    ranks 2 0 doctor --set data.kind=shapes --set data.samples=200 --set model.kind=mlp --set train.batch=60
    finds ok run.configuration accepted
    tells 2 '4 devices, but 3 GPUs are here' "$program" compare --devices 2,4 --out none
    CUSIM_DEVICES=1 tells 2 '2 devices, but 1 GPU is here' "$program" compare --out none
    [ ! -e none ] || fail 'something was tried'
    CUSIM_DEVICES=0 tells 2 '--set ddp.device=cpu' "$program" --set ddp.device=cuda
}

mistakes()
{
    tells 2 "did you mean '--json'" "$program" doctor --jsno
    tells 2 'nowhere.yaml' "$program" doctor nowhere.yaml
    tells 2 'run.yaml' "$program" doctor a.yaml b.yaml
    tells 2 'model.knid' "$program" doctor --set model.knid=mlp
    tells 2 'name of a folder' "$program" doctor --out ''
    tells 2 '--out' "$program" doctor --out
    tells 0 'first thing to run' "$program" doctor --help
    tells 0 'doctor' "$program" --help
    ranks 2 2 doctor --set model.knid=mlp
    says model.knid
    run 1 sh -c '"$0" doctor >/dev/full' "$program"
    says 'stdout: cannot be written'
}

"$case"
exit $failed

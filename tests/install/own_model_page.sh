#!/bin/sh
# docs/own-model.md: its commands run as they stand there, with what is installed, and its lines of C are those of the
# examples. Usage: sh own_model_page.sh SOURCE SCRATCH C_COMPILER MPIRUN...
set -eu

source=$1
prefix=$2/root/opt/ddptrain
work=$2/page
compiler=$3
shift 3
page=$source/docs/own-model.md

# block LANGUAGE: the lines of its blocks
block()
{
    awk -v begin="^\`\`\`$1\$" '$0 ~ begin { on = 1; next } /^```/ { on = 0 } on' "$page"
}

rm -rf "$work"
mkdir -p "$work/bin"
cd "$work"
ln -s "$source/examples" examples
ln -s "$(command -v "$compiler")" bin/cc
printf '#!/bin/sh\nexec %s "$@"\n' "$*" >bin/mpirun
chmod +x bin/mpirun
PATH=$work/bin:$prefix/bin:$PATH
pc=$(find "$prefix" -name ddptrain.pc)
PKG_CONFIG_PATH=${pc%/*}
export PATH PKG_CONFIG_PATH

block c >lines
[ "$(grep -c '' lines)" -ge 8 ] || { echo 'the page has other lines than expected'; exit 1; }
while IFS= read -r line; do
    grep -q -F -x -e "$line" examples/own_model.c examples/own_resume.c || { echo "in no example: $line"; exit 1; }
done <lines

block sh >lines
[ "$(grep -c '' lines)" -ge 8 ] || { echo 'the page has other commands than expected'; exit 1; }
number=0
while IFS= read -r line; do
    number=$((number + 1))
    wanted=0
    case $line in
    *'exit status '*) wanted=${line##*exit status } && wanted=${wanted%%[!0-9]*} ;;
    esac
    got=0
    sh -c "$line" </dev/null >"out$number" 2>"err$number" || got=$?
    [ "$got" -eq "$wanted" ] || { echo "exit status $got: $line"; cat "out$number" "err$number"; exit 1; }
done <lines

same()
{
    [ "$(grep "^$1" "$2")" = "$(grep "^$1" "$3")" ] && grep -q "^$1" "$2" || { echo "$2 and $3 differ"; exit 1; }
}

same 'loss ' out2 out3
grep -q 'began after step 100,' out7
same 'weights ' out7 out8
same 'weights ' out7 out11

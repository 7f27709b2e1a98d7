# shellcheck shell=sh disable=SC2034 # for the scripts that read this
# Numbers that are drawn, by those tests on several hosts that need some; DDP_TEST_SEED repeats them.

seed=${DDP_TEST_SEED:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
state=$seed

# draw N: a number from 0 to N - 1 into `drawn`
draw()
{
    state=$(((state * 1103515245 + 12345) % 2147483648))
    drawn=$((state / 65536 % $1))
}

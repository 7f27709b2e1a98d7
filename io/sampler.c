#include "io/sampler.h"

#include "kernels/ops.h"

#define SAMPLER_KEY UINT64_C(0x73616d706c6572) /* apart from other uses of the same seed */
#define ROUNDS      8                          /* small domains mix slowly */
#define LEAST_BITS  8                          /* with less, orders of few samples are not equally likely */

/*
 * A Feistel network over `bits` bits, halves of high and low bits: each round adds (xor) a keyed function of
 * one half to the other, which can be undone, so the whole is a bijection. Luby and Rackoff 1988.
 */
static uint64_t feistel(uint64_t key, uint64_t epoch, unsigned bits, uint64_t value)
{
    const unsigned low_bits = bits / 2;
    const uint32_t low_mask = (uint32_t)((UINT64_C(1) << low_bits) - 1);
    const uint32_t top_mask = (uint32_t)((UINT64_C(1) << (bits - low_bits)) - 1);
    uint32_t       low      = (uint32_t)value & low_mask;
    uint32_t       top      = (uint32_t)(value >> low_bits) & top_mask;
    uint32_t       random[4];

    for (uint32_t round = 0; round < ROUNDS; round += 2) {
        const uint32_t of_low[4] = {low, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};

        ddp_philox(key, of_low, random);
        top ^= random[0] & top_mask;
        {
            const uint32_t of_top[4] = {top, round + 1, (uint32_t)epoch, (uint32_t)(epoch >> 32)};

            ddp_philox(key, of_top, random);
            low ^= random[0] & low_mask;
        }
    }
    return (uint64_t)top << low_bits | low;
}

size_t ddp_sampler_index(uint64_t seed, uint64_t epoch, size_t samples, size_t i)
{
    unsigned bits  = LEAST_BITS;
    uint64_t value = i;

    while (bits < 64 && (UINT64_C(1) << bits) < samples) {
        bits++;
    }
    do { /* walk the cycle until it is back inside: it starts inside, so it comes back */
        value = feistel(seed ^ SAMPLER_KEY, epoch, bits, value);
    } while (value >= samples);
    return (size_t)value;
}

uint64_t ddp_sampler_batches(size_t samples, size_t batch)
{
    return samples / batch + (samples % batch != 0 ? 1 : 0);
}

ddp_batch_range_t ddp_sampler_batch(size_t samples, size_t batch, uint64_t step)
{
    const uint64_t    batches = ddp_sampler_batches(samples, batch);
    ddp_batch_range_t range   = {.epoch = step / batches, .batch_in_epoch = step % batches};
    size_t            left;

    range.first = (size_t)range.batch_in_epoch * batch;
    left        = samples - range.first;
    range.count = left < batch ? left : batch;
    return range;
}

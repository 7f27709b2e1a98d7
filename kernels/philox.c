#include "kernels/philox_internal.h"

void ddp_philox(uint64_t key, const uint32_t counter[4], uint32_t random[4])
{
    ddp_philox_draw(key, counter, random);
}

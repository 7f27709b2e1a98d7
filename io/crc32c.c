#include "io/crc32c_internal.h"

#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82F63B78U /* bits reversed */
#define BITS       32

#if defined(__x86_64__)
#define HAS_INSTRUCTION 1
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *data,
                                                                 size_t bytes)
{
    uint64_t sum = crc;
    uint64_t word;

    for (; bytes >= sizeof(word); bytes -= sizeof(word), data += sizeof(word)) {
        memcpy(&word, data, sizeof(word));
        sum = __builtin_ia32_crc32di(sum, word);
    }
    for (; bytes > 0; bytes--, data++) {
        sum = __builtin_ia32_crc32qi((uint32_t)sum, *data);
    }
    return (uint32_t)sum;
}
#endif

static uint32_t by_bits(uint32_t crc, const uint8_t *data, size_t bytes)
{
    for (; bytes > 0; bytes--, data++) {
        crc ^= *data;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? POLYNOMIAL : 0);
        }
    }
    return crc;
}

uint32_t ddp_crc32c(uint32_t crc, const void *data, size_t bytes)
{
#ifdef HAS_INSTRUCTION
    if (__builtin_cpu_supports("sse4.2")) {
        return ~by_instruction(~crc, data, bytes);
    }
#endif
    return ~by_bits(~crc, data, bytes);
}

/* A linear map of 32 bits: column i is the image of bit i. */
typedef struct map {
    uint32_t column[BITS];
} map_t;

static uint32_t apply(const map_t *map, uint32_t vector)
{
    uint32_t sum = 0;

    for (int i = 0; vector != 0; i++, vector >>= 1) {
        sum ^= (vector & 1) != 0 ? map->column[i] : 0;
    }
    return sum;
}

static map_t square(const map_t *map)
{
    map_t result;

    for (int i = 0; i < BITS; i++) {
        result.column[i] = apply(map, map->column[i]);
    }
    return result;
}

/* What one byte of zeros behind the data does to the sum. */
static map_t zero_byte(void)
{
    map_t map;

    for (int i = 0; i < BITS; i++) {
        const uint8_t zero = 0;

        map.column[i] = by_bits((uint32_t)1 << i, &zero, 1);
    }
    return map;
}

/* As many zeros behind the first piece as the second is long, by repeated squaring; sums are linear. */
uint32_t ddp_crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes)
{
    map_t power = zero_byte();

    for (; second_bytes > 0; second_bytes >>= 1) {
        if ((second_bytes & 1) != 0) {
            first = apply(&power, first);
        }
        power = square(&power);
    }
    return first ^ second;
}

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cpu/table.h"
#include "kernels/device.h"

#define ISA_COUNT 3

static const char *const names[ISA_COUNT] = {"plain", "avx2", "avx512"};

static ddp_isa_t processor_isa(void)
{
#ifdef DDP_ISA_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
            return DDP_ISA_AVX512;
        }
        return DDP_ISA_AVX2;
    }
#endif
    return DDP_ISA_PLAIN;
}

bool ddp_isa_has_bf16(ddp_isa_t isa)
{
#ifdef DDP_ISA_X86
    const char *text = getenv("DDP_BF16");

    return isa == DDP_ISA_AVX512 && __builtin_cpu_supports("avx512bf16") &&
           (text == NULL || strcmp(text, "emulate") != 0);
#else
    (void)isa;
    return false;
#endif
}

/* What DDP_ISA asks for; -1 if it asks for nothing, ISA_COUNT if for something unknown. */
static int wanted_isa(void)
{
    const char *text = getenv("DDP_ISA");
    int         isa  = 0;

    if (text == NULL || text[0] == '\0') {
        return -1;
    }
    while (isa < ISA_COUNT && strcmp(text, names[isa]) != 0) {
        isa++;
    }
    return isa;
}

ddp_isa_t ddp_isa_detect(void)
{
    ddp_isa_t best   = processor_isa();
    int       wanted = wanted_isa();

    return wanted >= 0 && wanted < (int)best ? (ddp_isa_t)wanted : best;
}

const char *ddp_isa_name(ddp_isa_t isa)
{
    return (unsigned)isa < ISA_COUNT ? names[isa] : "unknown";
}

ddp_status_t ddp_isa_check(void)
{
    ddp_status_t status = DDP_OK;
    ddp_isa_t    best   = processor_isa();
    int          wanted = wanted_isa();
    const char  *bf16   = getenv("DDP_BF16");

    DDP_REQUIRE(bf16 == NULL || bf16[0] == '\0' || strcmp(bf16, "emulate") == 0, DDP_ERR_UNSUPPORTED,
                "DDP_BF16=%s: no such way; use emulate, or leave it unset", bf16);
    DDP_REQUIRE(wanted < ISA_COUNT, DDP_ERR_UNSUPPORTED, "DDP_ISA=%s: no such set; use plain, avx2 or avx512",
                getenv("DDP_ISA"));
    DDP_REQUIRE(wanted <= (int)best, DDP_ERR_UNSUPPORTED,
                "DDP_ISA=%s: this processor has at most %s; unset DDP_ISA or use that", names[wanted],
                names[best]);
out:
    return status;
}

const ddp_cpu_kernels_t *ddp_cpu_kernels(ddp_isa_t isa)
{
#ifdef DDP_ISA_X86
    if (isa == DDP_ISA_AVX512) {
        return &ddp_kernels_avx512;
    }
    if (isa == DDP_ISA_AVX2) {
        return &ddp_kernels_avx2;
    }
#endif
    (void)isa;
    return &ddp_kernels_plain;
}

#include "launcher/convert_weights.h"

#include "base/error.h"
#include "base/log.h"
#include "io/weights.h"

static void say(void *ctx, const char *line)
{
    ddp_log(DDP_LOG_INFO, "'%s': %s", (const char *)ctx, line);
}

ddp_status_t ddp_convert_weights(const char *in, const char *out, bool all, bool unverified)
{
    ddp_status_t         status  = DDP_OK;
    ddp_weights_params_t params  = DDP_WEIGHTS_PARAMS_INIT;
    ddp_weights_t       *weights = NULL;
    ddp_weights_kind_t   kind    = DDP_WEIGHTS_CHECKPOINT;
    ddp_weights_kind_t   from;
    uint64_t             n = 0;

    DDP_REQUIRE(ddp_weights_kind_of_ending(out, &kind), DDP_ERR_CONFIG,
                "'%s': its ending tells no kind of file: .h5, .safetensors or .npz", out);
    DDP_REQUIRE(!all || kind != DDP_WEIGHTS_CHECKPOINT, DDP_ERR_CONFIG,
                "--all is for .safetensors and .npz: what is made of them is weights alone");
    params.unverified = unverified;
    params.reader     = "/proc/self/exe";
    DDP_TRY(ddp_weights_open(in, &params, &weights));
    from = ddp_weights_kind(weights);
    DDP_TRY(ddp_weights_adopt(weights, all, say, (void *)(uintptr_t)in)); /* say() only reads it */
    DDP_TRY(ddp_weights_write(weights, out, kind, all, "ddptrain " DDP_VERSION));
    for (size_t i = 0; i < ddp_weights_count(weights); i++) {
        n += all || ddp_weights_tensors(weights)[i].array == DDP_CHECKPOINT_VALUES
                 ? ddp_weights_tensors(weights)[i].desc.count
                 : 0;
    }
    ddp_log(DDP_LOG_INFO, "'%s': %llu numbers of %s %s file%s", out, (unsigned long long)n,
            from == DDP_WEIGHTS_NPZ || from == DDP_WEIGHTS_HDF5 ? "an" : "a", ddp_weights_kind_name(from),
            kind == DDP_WEIGHTS_CHECKPOINT ? "; ddptrain --init takes it" : "");
out:
    ddp_weights_close(&weights);
    return status;
}

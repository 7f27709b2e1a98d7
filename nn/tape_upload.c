/* Samples on their way from host memory to a tape. Copies from page-locked memory run while the host goes on,
 * so each goes through a piece of the tape's own, which is written again only after its copy ran. */
#include <string.h>

#include "base/error.h"
#include "nn/tape_internal.h"

void ddp_tape_free_stages(ddp_tape_t *tape)
{
    const ddp_allocator_t *memory = NULL;

    if (tape->stage_allocations == 0) {
        return;
    }
    memory = ddp_device_host_allocator(ddp_stream_device(tape->stream));
    for (size_t i = 0; i < DDP_TAPE_STAGES; i++) {
        memory->release(memory->ctx, tape->stages[i].memory);
        ddp_event_destroy(&tape->stages[i].copied);
    }
}

/* Nothing reads the stage's old memory any more. */
static ddp_status_t grow(ddp_tape_t *tape, ddp_tape_stage_t *stage, size_t bytes)
{
    ddp_status_t           status = DDP_OK;
    ddp_device_t          *device = ddp_stream_device(tape->stream);
    const ddp_allocator_t *memory = ddp_device_host_allocator(device);

    if (stage->bytes >= bytes) {
        return DDP_OK;
    }
    if (stage->copied == NULL) {
        DDP_TRY(ddp_event_create(device, &stage->copied));
    }
    memory->release(memory->ctx, stage->memory);
    stage->memory = NULL;
    stage->bytes  = 0;
    tape->stage_allocations++;
    DDP_TRY(memory->acquire(memory->ctx, "samples on their way to the device", bytes, &stage->memory));
    stage->bytes = bytes;
out:
    return status;
}

static ddp_status_t send(ddp_tape_t *tape, const void *host, size_t bytes, void *to)
{
    ddp_status_t      status = DDP_OK;
    ddp_tape_stage_t *stage  = &tape->stages[tape->next_stage];

    tape->next_stage = (tape->next_stage + 1) % DDP_TAPE_STAGES;
    if (stage->copied != NULL) {
        DDP_TRY(ddp_event_synchronize(stage->copied, -1));
    }
    DDP_TRY(grow(tape, stage, bytes));
    memcpy(stage->memory, host, bytes);
    DDP_TRY(ddp_stream_copy(tape->stream, to, stage->memory, bytes));
    DDP_TRY(ddp_event_record(stage->copied, tape->stream));
out:
    return status;
}

ddp_status_t ddp_tape_upload(ddp_tape_t *tape, const void *host, size_t bytes, const void **device_p)
{
    ddp_status_t        status = DDP_OK;
    const ddp_device_t *device = ddp_stream_device(tape->stream);
    void               *memory = NULL;

    DDP_REQUIRE(tape->begun, DDP_ERR_STATE, "ddp_tape_begin() comes before an upload");
    DDP_REQUIRE(host != NULL && bytes > 0, DDP_ERR_INVALID_ARG, "an upload needs data");
    if (ddp_device_kind(device) == DDP_DEVICE_CPU) {
        *device_p = host;
        return DDP_OK;
    }
    DDP_TRY(ddp_tape_keep(tape, bytes, &memory));
    if (!ddp_device_is_dry(device)) {
        DDP_TRY(send(tape, host, bytes, memory));
    }
    *device_p = memory;
out:
    return status;
}

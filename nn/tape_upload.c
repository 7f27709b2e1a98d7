/* What changes from micro-batch to micro-batch, on its way from host memory to a tape: samples, and the place
 * in the training. Copies from page-locked memory run while the host goes on, so each goes through a piece of
 * the tape's own, which is written again only after its copy ran. */
#include <string.h>

#include "base/error.h"
#include "nn/tape_internal.h"

static void free_ring(ddp_tape_t *tape, ddp_tape_ring_t *ring)
{
    const ddp_allocator_t *memory = ddp_device_host_allocator(ddp_stream_device(tape->stream));

    for (size_t i = 0; i < DDP_TAPE_STAGES; i++) {
        memory->release(memory->ctx, ring->stages[i].memory);
        ddp_event_destroy(&ring->stages[i].copied);
    }
}

void ddp_tape_free_stages(ddp_tape_t *tape)
{
    const ddp_allocator_t *memory = NULL;

    if (tape->stage_allocations > 0) {
        free_ring(tape, &tape->samples);
        free_ring(tape, &tape->places);
    }
    if (tape->place != NULL) {
        memory = ddp_device_allocator(ddp_stream_device(tape->stream));
        memory->release(memory->ctx, tape->place);
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

static ddp_status_t send(ddp_tape_t *tape, ddp_tape_ring_t *ring, const void *host, size_t bytes, void *to)
{
    ddp_status_t      status = DDP_OK;
    ddp_tape_stage_t *stage  = &ring->stages[ring->next];

    ring->next = (ring->next + 1) % DDP_TAPE_STAGES;
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
        DDP_TRY(send(tape, &tape->samples, host, bytes, memory));
    }
    *device_p = memory;
out:
    return status;
}

ddp_status_t ddp_tape_make_place(ddp_tape_t *tape)
{
    ddp_status_t           status = DDP_OK;
    ddp_device_t          *device = ddp_stream_device(tape->stream);
    const ddp_allocator_t *memory = ddp_device_allocator(device);
    void                  *place  = NULL;

    if (ddp_stream_has_graphs(tape->stream)) {
        DDP_TRY(memory->acquire(memory->ctx, "the place of a micro-batch", sizeof(*tape->place), &place));
        tape->place = place;
        for (size_t i = 0; i < DDP_TAPE_STAGES; i++) {
            DDP_TRY(grow(tape, &tape->places.stages[i], sizeof(*tape->place)));
        }
    }
out:
    return status;
}

ddp_status_t ddp_tape_send_place(ddp_tape_t *tape)
{
    const ddp_rng_place_t place = {.step = tape->begin.step, .first_row = tape->begin.first_row};

    return tape->place != NULL && tape->begin.training
               ? send(tape, &tape->places, &place, sizeof(place), tape->place)
               : DDP_OK;
}

ddp_rng_key_t ddp_tape_next_key(ddp_tape_t *tape)
{
    return (ddp_rng_key_t){.seed  = tape->begin.seed,
                           .step  = tape->place == NULL ? tape->begin.step : 0,
                           .layer = tape->dropout_layers++,
                           .place = tape->place};
}

uint64_t ddp_tape_first_row(const ddp_tape_t *tape)
{
    return tape->place == NULL ? tape->begin.first_row : 0;
}

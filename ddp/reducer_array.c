/* The arrays of a reducer, for host code that wants to know nothing of devices: who has which part of them,
 * and copies to and from host memory. */
#include <string.h>

#include "base/error.h"
#include "ddp/reducer_path_internal.h"

size_t ddp_reducer_slots(const ddp_reducer_t *reducer)
{
    return ddp_optim_slots(&reducer->params.optim);
}

int ddp_reducer_holder(const ddp_reducer_t *reducer, int array, size_t offset, size_t *count_p)
{
    if (reducer->path->holder != NULL) {
        return reducer->path->holder(reducer, array, offset, count_p);
    }
    *count_p = reducer->total - offset;
    return DDP_REDUCER_EVERYBODY;
}

bool ddp_reducer_is_writer(const ddp_reducer_t *reducer, int rank)
{
    for (int m = 0; !reducer->path->is_on_device && m < reducer->machines; m++) {
        if (ddp_comm_machine_first(reducer->comm, m) == rank) {
            return true;
        }
    }
    return reducer->path->is_on_device;
}

static ddp_status_t check_range(const ddp_reducer_t *r, int array, size_t offset, size_t count)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(array >= DDP_REDUCER_VALUES && array < (int)ddp_reducer_slots(r), DDP_ERR_INVALID_ARG,
                "reducer: there is no array %d: parameters are %d, moments 0 .. %d", array,
                DDP_REDUCER_VALUES, (int)ddp_reducer_slots(r) - 1);
    DDP_REQUIRE(offset <= r->total && count <= r->total - offset, DDP_ERR_INVALID_ARG,
                "reducer: elements %zu .. %zu of an array of %zu", offset, offset + count, r->total);
out:
    return status;
}

static float *find_place(const ddp_reducer_t *r, int array, size_t offset, size_t *count_p)
{
    if (r->path->place != NULL) {
        return r->path->place(r, array, offset, count_p);
    }
    *count_p = r->total - offset;
    return (array == DDP_REDUCER_VALUES ? r->values : r->slots[array]) + offset;
}

static ddp_status_t copy(const ddp_reducer_t *r, float *to, const float *from, size_t count)
{
    if (r->path->is_on_device) {
        return ddp_stream_copy(r->compute, to, from, count * sizeof(*to));
    }
    memcpy(to, from, count * sizeof(*to));
    return DDP_OK;
}

/* Nothing reads or writes it any more on the device. */
static ddp_status_t settle(const ddp_reducer_t *r)
{
    return r->path->is_on_device || r->device_values != NULL ? ddp_stream_synchronize(r->compute, -1)
                                                             : DDP_OK;
}

ddp_status_t ddp_reducer_read(ddp_reducer_t *reducer, int array, size_t offset, size_t count, float *to)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(check_range(reducer, array, offset, count));
    DDP_TRY(settle(reducer)); /* a copy to pageable memory would wait, without a deadline */
    while (count > 0) {
        size_t       n    = 0;
        const float *from = find_place(reducer, array, offset, &n);

        DDP_REQUIRE(from != NULL, DDP_ERR_STATE, "reducer: this rank does not hold element %zu of array %d",
                    offset, array);
        n = n < count ? n : count;
        DDP_TRY(copy(reducer, to, from, n));
        to += n;
        offset += n;
        count -= n;
    }
    DDP_TRY(settle(reducer));
out:
    return status;
}

ddp_status_t ddp_reducer_write(ddp_reducer_t *reducer, int array, size_t offset, size_t count,
                               const float *from)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(check_range(reducer, array, offset, count));
    DDP_TRY(settle(reducer));
    while (ddp_reducer_is_writer(reducer, reducer->rank) && count > 0) {
        size_t n  = 0;
        float *to = find_place(reducer, array, offset, &n);

        n = n < count ? n : count;
        if (to != NULL) {
            DDP_TRY(copy(reducer, to, from, n));
        }
        from += n;
        offset += n;
        count -= n;
    }
    DDP_TRY(settle(reducer));
out:
    return status;
}

/* Send and receive: what a group has of them is one operation of the stream, which goes on with whichever of
 * them can. Between two ranks messages keep their order. */
#include "tests/cusim/nccl_world.h"

#include "tests/cusim/runtime.h"
#include "tests/cusim/sanitizer.h"
#include <stdio.h>
#include <string.h>

static cusim_channel_t *channel_of(const ncclComm *comm, int from, int to)
{
    char *channels = comm->world->pieces + (size_t)comm->size * CUSIM_PIECE_BYTES;

    return reinterpret_cast<cusim_channel_t *>(channels) + (from * comm->size + to);
}

size_t cusim_nccl_world_bytes(int size)
{
    return sizeof(cusim_world_t) + (size_t)size * CUSIM_PIECE_BYTES +
           (size_t)size * (size_t)size * sizeof(cusim_channel_t);
}

static size_t piece_of(const cusim_message_t *m)
{
    const size_t left = m->bytes - m->offset;

    return left < CUSIM_CHANNEL_BYTES ? left : (size_t)CUSIM_CHANNEL_BYTES;
}

/* A piece of the message, if the channel is free; true if something moved. */
static bool send_piece(ncclComm *comm, cusim_message_t *m)
{
    cusim_channel_t *channel = channel_of(comm, comm->rank, m->peer);
    const size_t     bytes   = piece_of(m);

    if (channel->taken.load() != channel->posted.load()) {
        return false;
    }
    cusim_touch(m->memory + m->offset, bytes, false);
    memcpy(channel->piece, m->memory + m->offset, bytes);
    channel->bytes = m->bytes;
    m->offset += bytes;
    channel->posted.fetch_add(1);
    return true;
}

/* < 0: the other side sends another number of bytes. */
static int receive_piece(ncclComm *comm, cusim_message_t *m)
{
    cusim_channel_t *channel = channel_of(comm, m->peer, comm->rank);
    const size_t     bytes   = piece_of(m);

    if (channel->taken.load() == channel->posted.load()) {
        return 0;
    }
    if (channel->bytes != m->bytes) {
        fprintf(stderr, "cusim-nccl: rank %d receives %zu bytes from rank %d, which sends %zu\n", comm->rank,
                m->bytes, m->peer, channel->bytes);
        return -1;
    }
    cusim_touch(m->memory + m->offset, bytes, true);
    memcpy(m->memory + m->offset, channel->piece, bytes);
    m->offset += bytes;
    channel->taken.fetch_add(1);
    return 1;
}

/* Later messages between the same two ranks wait for the earlier ones. */
static bool is_first(const std::vector<cusim_message_t> &messages, size_t k)
{
    for (size_t i = 0; i < k; i++) {
        if (messages[i].is_send == messages[k].is_send && messages[i].peer == messages[k].peer &&
            messages[i].offset < messages[i].bytes) {
            return false;
        }
    }
    return true;
}

int cusim_nccl_exchange(ncclComm *comm, std::vector<cusim_message_t> &messages)
{
    bool is_done = true;

    if (comm->is_aborted != 0 || comm->error != 0) {
        return 1;
    }
    if (comm->is_stuck != 0) {
        return 0;
    }
    for (size_t k = 0; k < messages.size(); k++) {
        cusim_message_t *m = &messages[k];

        while (m->offset < m->bytes && is_first(messages, k)) {
            const int moved = m->is_send ? (send_piece(comm, m) ? 1 : 0) : receive_piece(comm, m);

            if (moved < 0) {
                comm->error = ncclInvalidUsage;
                return -(int)cudaErrorUnknown;
            }
            if (moved == 0) {
                break;
            }
        }
        is_done = is_done && m->offset >= m->bytes;
    }
    return is_done ? 1 : 0;
}

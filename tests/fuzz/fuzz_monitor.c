/* What comes in at the monitor's port, as from who has the token and as from who has not. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/monitor_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define RANKS 7

static void read_payload(const ddp_message_t *message)
{
    uint8_t       nonce[DDP_NONCE_BYTES];
    ddp_verdict_t verdict;
    ddp_view_t    view;
    int           machine = 0;
    int           rank    = 0;

    if (ddp_hello_read(message, 3, RANKS, &machine, &rank, nonce) &&
        (machine < 0 || machine >= 3 || rank < 0 || rank >= RANKS)) {
        abort();
    }
    if (ddp_verdict_read(message, RANKS, &verdict) && (verdict.rank < 0 || verdict.rank >= RANKS)) {
        abort();
    }
    for (size_t at = 0; at + DDP_ENTRY_BYTES <= message->bytes; at += DDP_ENTRY_BYTES) {
        if (ddp_entry_read(message->payload + at, RANKS, 0, &view, &rank) && (rank < 0 || rank >= RANKS)) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const uint8_t key[DDP_KEY_BYTES] = {1};
    ddp_message_t        message            = {.type = DDP_MESSAGE_HELLO, .payload = data, .bytes = bytes};
    size_t               size;

    read_payload(&message);
    message.type = DDP_MESSAGE_VERDICT;
    read_payload(&message);
    size = ddp_message_size(data, bytes, DDP_MESSAGE_GUEST);
    if (size != 0 && size != (size_t)-1) {
        if (size > bytes || size > DDP_MESSAGE_GUEST) {
            abort();
        }
        (void)ddp_message_open(key, data, size, &message);
    }
    return 0;
}

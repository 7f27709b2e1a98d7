/* What crosses the network between monitors: little-endian, each message sealed with the connection's key.
 *
 *     head     magic u32, version u8, type u8, 0 u16, payload bytes u32, 0 u32, sequence u64
 *     payload
 *     tail     SipHash of all before
 */
#include <string.h>

#include "base/clock.h"
#include "ddp/monitor_internal.h"

#define MAGIC   UINT32_C(0x4d504444) /* "DDPM" */
#define VERSION 1

static void put(uint8_t *text, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        text[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get(const uint8_t *text, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)text[i] << (8 * i);
    }
    return value;
}

static uint64_t rotate(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

uint64_t ddp_siphash(const uint8_t key[DDP_KEY_BYTES], const void *data, size_t bytes)
{
    const uint8_t *text = data;
    const uint64_t k0   = get(key, 8);
    const uint64_t k1   = get(key + 8, 8);
    const size_t   rest = bytes % 8;
    uint64_t       v[4] = {UINT64_C(0x736f6d6570736575) ^ k0, UINT64_C(0x646f72616e646f6d) ^ k1,
                           UINT64_C(0x6c7967656e657261) ^ k0, UINT64_C(0x7465646279746573) ^ k1};

    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        sip_word(v, get(text + i, 8));
    }
    sip_word(v, get(text + bytes - rest, rest) | (uint64_t)bytes << 56);
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++) {
        sip_round(v);
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void ddp_message_key(const uint8_t token[DDP_KEY_BYTES], const uint8_t server[DDP_NONCE_BYTES],
                     const uint8_t client[DDP_NONCE_BYTES], uint8_t key[DDP_KEY_BYTES])
{
    uint8_t text[1 + 2 * DDP_NONCE_BYTES];

    memcpy(text + 1, server, DDP_NONCE_BYTES);
    memcpy(text + 1 + DDP_NONCE_BYTES, client, DDP_NONCE_BYTES);
    for (uint8_t half = 0; half < 2; half++) {
        text[0] = half;
        put(key + (size_t)8 * half, ddp_siphash(token, text, sizeof(text)), 8);
    }
}

size_t ddp_message_seal(const uint8_t key[DDP_KEY_BYTES], ddp_message_type_t type, uint64_t sequence,
                        uint8_t *text, size_t payload_bytes)
{
    const size_t before = DDP_MESSAGE_HEAD + payload_bytes;

    put(text, MAGIC, 4);
    put(text + 4, VERSION, 1);
    put(text + 5, (uint64_t)type, 1);
    put(text + 6, 0, 2);
    put(text + 8, payload_bytes, 4);
    put(text + 12, 0, 4);
    put(text + 16, sequence, 8);
    put(text + before, ddp_siphash(key, text, before), DDP_MESSAGE_TAIL);
    return before + DDP_MESSAGE_TAIL;
}

size_t ddp_message_size(const uint8_t *text, size_t bytes, size_t most)
{
    uint8_t magic[4];
    size_t  size;

    put(magic, MAGIC, 4);
    if (memcmp(text, magic, bytes < 4 ? bytes : 4) != 0) {
        return (size_t)-1;
    }
    if (bytes < DDP_MESSAGE_HEAD) {
        return 0;
    }
    size = (size_t)get(text + 8, 4);
    if (text[4] != VERSION || text[5] == 0 || text[5] >= DDP_MESSAGE_TYPES || get(text + 6, 2) != 0 ||
        get(text + 12, 4) != 0 || size > most || DDP_MESSAGE_HEAD + size + DDP_MESSAGE_TAIL > most) {
        return (size_t)-1;
    }
    size += DDP_MESSAGE_HEAD + DDP_MESSAGE_TAIL;
    return bytes < size ? 0 : size;
}

bool ddp_message_open(const uint8_t key[DDP_KEY_BYTES], const uint8_t *text, size_t bytes,
                      ddp_message_t *message_p)
{
    const size_t before = bytes - DDP_MESSAGE_TAIL;

    if (get(text + before, DDP_MESSAGE_TAIL) != ddp_siphash(key, text, before)) {
        return false;
    }
    *message_p = (ddp_message_t){.type     = (ddp_message_type_t)text[5],
                                 .sequence = get(text + 16, 8),
                                 .payload  = text + DDP_MESSAGE_HEAD,
                                 .bytes    = before - DDP_MESSAGE_HEAD};
    return true;
}

/* Milliseconds that something is old; what never was is as old as can be. */
static uint64_t age_ms(int64_t now_ns, int64_t then_ns)
{
    const int64_t age = (now_ns - then_ns) / DDP_NS_PER_MS;

    return age < 0 ? 0 : age > UINT32_MAX ? UINT32_MAX : (uint64_t)age;
}

static int64_t age_get(const uint8_t *text, int64_t now_ns)
{
    return now_ns - (int64_t)get(text, 4) * DDP_NS_PER_MS;
}

void ddp_entry_write(const ddp_view_t *view, int rank, int64_t now_ns, uint8_t *text)
{
    put(text, (uint64_t)rank, 4);
    text[4] = (uint8_t)view->life;
    text[5] = (uint8_t)view->phase;
    text[6] = view->is_out_of_memory ? 1 : 0;
    text[7] = view->is_sent_away ? 1 : 0;
    put(text + 8, view->bucket, 4);
    put(text + 12, (uint32_t)view->waits_for, 4);
    put(text + 16, (uint32_t)view->wait_status, 4);
    put(text + 20, age_ms(now_ns, view->moved_ns), 4);
    put(text + 24, age_ms(now_ns, view->beat_ns), 4);
    put(text + 28, age_ms(now_ns, view->heard_ns), 4);
    put(text + 32, age_ms(now_ns, view->life_ns), 4);
    put(text + 36, 0, 4);
    put(text + 40, view->step, 8);
    put(text + 48, view->progress, 8);
    put(text + 56, view->shares.steps, 8);
    put(text + 64, view->shares.compute_us, 8);
    put(text + 72, view->shares.wait_us, 8);
    put(text + 80, view->shares.comm_us, 8);
}

bool ddp_entry_read(const uint8_t *text, int size, int64_t now_ns, ddp_view_t *view_p, int *rank_p)
{
    const uint64_t rank  = get(text, 4);
    const int32_t  waits = (int32_t)(uint32_t)get(text + 12, 4);

    if (rank >= (uint64_t)size || text[4] >= DDP_LIVES || text[5] >= DDP_STAGES || text[6] > 1 ||
        text[7] > 1 || waits < DDP_WAIT_ALL || waits >= size) {
        return false;
    }
    *rank_p = (int)rank;
    *view_p =
        (ddp_view_t){.progress         = get(text + 48, 8),
                     .moved_ns         = age_get(text + 20, now_ns),
                     .beat_ns          = age_get(text + 24, now_ns),
                     .heard_ns         = age_get(text + 28, now_ns),
                     .life_ns          = age_get(text + 32, now_ns),
                     .step             = get(text + 40, 8),
                     .phase            = (ddp_stage_t)text[5],
                     .bucket           = (uint32_t)get(text + 8, 4),
                     .waits_for        = waits,
                     .life             = (ddp_life_t)text[4],
                     .wait_status      = (int32_t)(uint32_t)get(text + 16, 4),
                     .is_out_of_memory = text[6] != 0,
                     .is_sent_away     = text[7] != 0,
                     .shares = {get(text + 56, 8), get(text + 64, 8), get(text + 72, 8), get(text + 80, 8)}};
    return true;
}

void ddp_hello_write(int machine, int rank, const uint8_t nonce[DDP_NONCE_BYTES], uint8_t *text)
{
    put(text, (uint64_t)machine, 4);
    put(text + 4, (uint64_t)rank, 4);
    memcpy(text + 8, nonce, DDP_NONCE_BYTES);
}

bool ddp_hello_read(const ddp_message_t *message, int machines, int size, int *machine_p, int *rank_p,
                    uint8_t nonce[DDP_NONCE_BYTES])
{
    if (message->type != DDP_MESSAGE_HELLO || message->bytes != DDP_HELLO_BYTES ||
        get(message->payload, 4) >= (uint64_t)machines || get(message->payload + 4, 4) >= (uint64_t)size) {
        return false;
    }
    *machine_p = (int)get(message->payload, 4);
    *rank_p    = (int)get(message->payload + 4, 4);
    memcpy(nonce, message->payload + 8, DDP_NONCE_BYTES);
    return true;
}

void ddp_verdict_write(const ddp_verdict_t *verdict, uint8_t *text)
{
    put(text, (uint64_t)verdict->kind, 4);
    put(text + 4, (uint32_t)verdict->rank, 4);
    put(text + 8, (uint32_t)verdict->other, 4);
    put(text + 12, (uint64_t)verdict->phase, 4);
    put(text + 16, verdict->step, 8);
    put(text + 24, verdict->bucket, 4);
    put(text + 28, (uint32_t)verdict->signal, 4);
    put(text + 32, (uint32_t)verdict->code, 4);
    put(text + 36, (verdict->is_out_of_memory ? 1U : 0U) | (verdict->is_whole_machine ? 2U : 0U), 4);
    put(text + 40, (uint64_t)(verdict->seconds * 1e3), 8);
}

bool ddp_verdict_read(const ddp_message_t *message, int size, ddp_verdict_t *verdict_p)
{
    const uint8_t *text = message->payload;
    ddp_verdict_t  verdict;

    if (message->type != DDP_MESSAGE_VERDICT || message->bytes != DDP_VERDICT_BYTES) {
        return false;
    }
    verdict = (ddp_verdict_t){.kind             = (ddp_fault_kind_t)get(text, 4),
                              .rank             = (int)(int32_t)(uint32_t)get(text + 4, 4),
                              .other            = (int)(int32_t)(uint32_t)get(text + 8, 4),
                              .step             = get(text + 16, 8),
                              .phase            = (ddp_stage_t)get(text + 12, 4),
                              .bucket           = (uint32_t)get(text + 24, 4),
                              .signal           = (int)(int32_t)(uint32_t)get(text + 28, 4),
                              .code             = (int)(int32_t)(uint32_t)get(text + 32, 4),
                              .is_out_of_memory = (get(text + 36, 4) & 1) != 0,
                              .is_whole_machine = (get(text + 36, 4) & 2) != 0,
                              .seconds          = (double)get(text + 40, 8) / 1e3};
    if (get(text, 4) == 0 || get(text, 4) > DDP_FAULT_LAUNCHER || get(text + 12, 4) >= DDP_STAGES ||
        verdict.rank < 0 || verdict.rank >= size || verdict.other < -1 || verdict.other >= size) {
        return false;
    }
    *verdict_p = verdict;
    return true;
}

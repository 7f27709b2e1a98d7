/* The names that models here have, from those that others write. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/weights_internal.h"

#define HEAD      "lm_head.weight"
#define WORDS     "wte.weight"
#define MOMENT    "optimizer."
#define GPT2      "transformer."
#define LINE_SIZE 256
#define MAX_NAMED 2

typedef struct adopt {
    ddp_weights_t         *w;
    ddp_weights_said_fn_t *said; /* may be NULL */
    void                  *ctx;
} adopt_t;

static void say(const adopt_t *adopt, const char *line)
{
    if (adopt->said != NULL) {
        adopt->said(adopt->ctx, line);
    }
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t length = strlen(name);
    const size_t n      = strlen(ending);

    return length >= n && strcmp(name + length - n, ending) == 0;
}

static void free_name(ddp_weights_tensor_t *tensor)
{
    free((char *)(uintptr_t)tensor->desc.name); /* from strdup() */
}

/* "dropped: 12 arrays that are no floats: 'a', 'b', ..." */
typedef bool is_dropped_fn_t(const ddp_weights_tensor_t *tensor);

static void drop(adopt_t *adopt, is_dropped_fn_t *is_dropped, const char *what)
{
    ddp_weights_t *w                = adopt->w;
    size_t         kept             = 0;
    size_t         n                = 0;
    int            length           = 0;
    char           named[LINE_SIZE] = "";
    char           line[2 * LINE_SIZE];

    for (size_t i = 0; i < w->n; i++) {
        if (!is_dropped(&w->tensors[i])) {
            w->tensors[kept++] = w->tensors[i];
            continue;
        }
        if (n < MAX_NAMED && length < LINE_SIZE) {
            length += snprintf(named + length, LINE_SIZE - (size_t)length, "%s'%.100s'", n > 0 ? ", " : "",
                               w->tensors[i].desc.name);
        }
        free_name(&w->tensors[i]);
        n++;
    }
    w->n = kept;
    if (n > 0) {
        snprintf(line, sizeof(line), "left out: %zu %s: %s%s", n, what, named, n > MAX_NAMED ? ", ..." : "");
        say(adopt, line);
    }
}

static bool is_no_float(const ddp_weights_tensor_t *tensor)
{
    return tensor->type == DDP_WEIGHTS_OTHER;
}

static bool is_mask(const ddp_weights_tensor_t *tensor)
{
    return ends_with(tensor->desc.name, ".attn.bias") || ends_with(tensor->desc.name, ".attn.masked_bias");
}

bool ddp_weights_is_moment(const ddp_weights_tensor_t *tensor)
{
    return tensor->array != DDP_CHECKPOINT_VALUES || strncmp(tensor->desc.name, MOMENT, strlen(MOMENT)) == 0;
}

/* A checkpoint's are kept apart from its parameters, and need no dropping. */
static bool is_stray_moment(const ddp_weights_tensor_t *tensor)
{
    return tensor->array == DDP_CHECKPOINT_VALUES && ddp_weights_is_moment(tensor);
}

static bool is_head(const ddp_weights_tensor_t *tensor)
{
    return strcmp(tensor->desc.name, HEAD) == 0;
}

static ddp_status_t rename_tensor(ddp_weights_t *w, size_t i, const char *prefix, const char *rest)
{
    ddp_status_t status = DDP_OK;
    char         name[2 * DDP_WEIGHTS_NAME_SIZE];
    char        *copy = NULL;

    snprintf(name, sizeof(name), "%s%s", prefix, rest);
    copy = strdup(name);
    DDP_REQUIRE(copy != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", w->path);
    free_name(&w->tensors[i]);
    w->tensors[i].desc.name = copy;
out:
    return status;
}

/* DistributedDataParallel and DataParallel write `module.`, torch.compile() `_orig_mod.`, in any order. */
static ddp_status_t drop_prefixes(adopt_t *adopt)
{
    static const char *const prefixes[] = {"module.", "_orig_mod."};
    ddp_status_t             status     = DDP_OK;
    size_t                   n          = 0;
    char                     line[LINE_SIZE];

    for (size_t i = 0; i < adopt->w->n; i++) {
        const char *name = adopt->w->tensors[i].desc.name;
        const char *rest = name;

        for (size_t p = 0; p < 2; p++) {
            const size_t length = strlen(prefixes[p]);

            if (strncmp(rest, prefixes[p], length) == 0 && rest[length] != '\0') {
                rest += length;
                p = (size_t)-1; /* from the first one again */
            }
        }
        if (rest != name) {
            DDP_TRY(rename_tensor(adopt->w, i, "", rest));
            n++;
        }
    }
    if (n > 0) {
        snprintf(line, sizeof(line), "%zu names lose their prefix 'module.' or '_orig_mod.'", n);
        say(adopt, line);
    }
out:
    return status;
}

/* The hub's files are of GPT2Model, which is `transformer` in GPT2LMHeadModel and here. */
static ddp_status_t add_transformer(adopt_t *adopt)
{
    static const char *const parts[] = {"wte.", "wpe.", "h.", "ln_f."};
    ddp_status_t             status  = DDP_OK;
    ddp_weights_t           *w       = adopt->w;
    size_t                   n       = 0;
    char                     line[LINE_SIZE];

    if (ddp_weights_find(w, WORDS) == w->n || ddp_weights_find(w, "h.0.ln_1.weight") == w->n) {
        return DDP_OK;
    }
    for (size_t i = 0; i < w->n; i++) {
        for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
            if (strncmp(w->tensors[i].desc.name, parts[p], strlen(parts[p])) == 0) {
                char name[DDP_WEIGHTS_NAME_SIZE];

                snprintf(name, sizeof(name), "%s", w->tensors[i].desc.name);
                DDP_TRY(rename_tensor(w, i, GPT2, name));
                n++;
                break;
            }
        }
    }
    snprintf(line, sizeof(line), "%zu names get the prefix '" GPT2 "': the model of the language head", n);
    say(adopt, line);
out:
    return status;
}

/* The output layer is the embedding again. */
static ddp_status_t check_head(adopt_t *adopt, size_t head, size_t words)
{
    ddp_status_t             status = DDP_OK;
    ddp_weights_t           *w      = adopt->w;
    const ddp_tensor_desc_t *a      = &w->tensors[head].desc;
    const ddp_tensor_desc_t *b      = &w->tensors[words].desc;
    float                   *x      = malloc(2 * DDP_WEIGHTS_CHUNK * sizeof(*x));
    bool                     equal  = a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof(a->shape)) == 0;

    DDP_REQUIRE(x != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", w->path);
    for (size_t first = 0; first < a->count && equal; first += DDP_WEIGHTS_CHUNK) {
        const size_t n = a->count - first < DDP_WEIGHTS_CHUNK ? a->count - first : DDP_WEIGHTS_CHUNK;

        DDP_TRY(ddp_weights_read(w, head, first, n, x));
        DDP_TRY(ddp_weights_read(w, words, first, n, x + DDP_WEIGHTS_CHUNK));
        equal = memcmp(x, x + DDP_WEIGHTS_CHUNK, n * sizeof(*x)) == 0;
    }
    DDP_REQUIRE(equal, DDP_ERR_FORMAT,
                "'%s': '" HEAD "' is not '" GPT2 WORDS "': in GPT-2 they are one matrix", w->path);
out:
    free(x);
    return status;
}

static ddp_status_t adopt_gpt2(adopt_t *adopt)
{
    ddp_status_t status = DDP_OK;
    size_t       head;
    size_t       words;

    DDP_TRY(add_transformer(adopt));
    words = ddp_weights_find(adopt->w, GPT2 WORDS);
    if (words == adopt->w->n) {
        return DDP_OK;
    }
    drop(adopt, is_mask, "masks of attention");
    words = ddp_weights_find(adopt->w, GPT2 WORDS);
    head  = ddp_weights_find(adopt->w, HEAD);
    if (head < adopt->w->n) {
        DDP_TRY(check_head(adopt, head, words));
        drop(adopt, is_head, "matrix equal to '" GPT2 WORDS "'");
    }
out:
    return status;
}

ddp_status_t ddp_weights_adopt(ddp_weights_t *weights, bool moments, ddp_weights_said_fn_t *said, void *ctx)
{
    ddp_status_t status = DDP_OK;
    adopt_t      adopt  = {weights, said, ctx};

    drop(&adopt, is_no_float, "arrays that are no floats");
    if (!moments) {
        drop(&adopt, is_stray_moment, "moments");
    }
    DDP_TRY(drop_prefixes(&adopt));
    DDP_TRY(adopt_gpt2(&adopt));
    DDP_TRY(ddp_weights_check_names(weights));
out:
    return status;
}

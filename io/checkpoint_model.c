/* Does a checkpoint fit a model? */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "io/checkpoint.h"

#define MAX_NAMED 3 /* differences told in full */

typedef struct difference {
    size_t count;
    char   text[384];
} difference_t;

static void tell(difference_t *difference, const char *what, const char *name, const char *detail)
{
    const size_t used = strlen(difference->text);

    if (difference->count < MAX_NAMED) {
        snprintf(difference->text + used, sizeof(difference->text) - used, "%s%s'%s'%s",
                 difference->count > 0 ? ", " : "", what, name, detail);
    }
    difference->count++;
}

static bool is_allowed(const char *name, const char *const *allow, size_t n_allow)
{
    for (size_t i = 0; i < n_allow; i++) {
        if (fnmatch(allow[i], name, 0) == 0) {
            return true;
        }
    }
    return false;
}

static void shape_text(const ddp_tensor_desc_t *desc, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");

    for (size_t d = 0; d < desc->ndim && used < size; d++) {
        used += (size_t)snprintf(text + used, size - used, "%s%zu", d > 0 ? ", " : "", desc->shape[d]);
    }
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
}

static void compare(const ddp_tensor_desc_t *saved, const ddp_tensor_desc_t *wanted, difference_t *difference)
{
    char detail[160];
    char is[64];
    char want[64];

    if (saved->ndim == wanted->ndim &&
        memcmp(saved->shape, wanted->shape, saved->ndim * sizeof(saved->shape[0])) == 0) {
        return;
    }
    shape_text(saved, is, sizeof(is));
    shape_text(wanted, want, sizeof(want));
    snprintf(detail, sizeof(detail), " is %s, the model wants %s", is, want);
    tell(difference, "", saved->name, detail);
}

ddp_status_t ddp_checkpoint_check_model(const ddp_checkpoint_t *checkpoint, const ddp_tensor_desc_t *tensors,
                                        size_t n, const char *const *allow, size_t n_allow)
{
    ddp_status_t                   status     = DDP_OK;
    const ddp_checkpoint_tensor_t *saved      = ddp_checkpoint_tensors(checkpoint);
    const size_t                   n_saved    = ddp_checkpoint_count(checkpoint);
    difference_t                   difference = {0, ""};
    size_t                         found      = 0;

    for (size_t i = 0; i < n; i++) {
        const size_t at = ddp_checkpoint_find(checkpoint, tensors[i].name);

        if (at < n_saved) {
            found++;
            compare(&saved[at].desc, &tensors[i], &difference);
        } else if (!is_allowed(tensors[i].name, allow, n_allow)) {
            tell(&difference, "no ", tensors[i].name, "");
        }
    }
    for (size_t i = 0; i < n_saved && found < n_saved; i++) {
        size_t at = 0;

        while (at < n && strcmp(saved[i].desc.name, tensors[at].name) != 0) {
            at++;
        }
        if (at == n && !is_allowed(saved[i].desc.name, allow, n_allow)) {
            tell(&difference, "the model has no ", saved[i].desc.name, "");
        }
    }
    DDP_REQUIRE(difference.count == 0, DDP_ERR_MISMATCH, "%zu tensors differ from the model's: %s%s",
                difference.count, difference.text, difference.count > MAX_NAMED ? ", ..." : "");
out:
    return status;
}

ddp_status_t ddp_checkpoint_check_run(const ddp_checkpoint_t *checkpoint, const char *path, bool training)
{
    ddp_status_t                status = DDP_OK;
    const ddp_training_state_t *state  = ddp_checkpoint_state(checkpoint);

    DDP_REQUIRE(strcmp(state->optimizer, "none") != 0 || (!training && state->config[0] != '#'),
                DDP_ERR_MISMATCH, "'%s' holds weights alone, no run: --init takes them into a new one", path);
out:
    return status;
}

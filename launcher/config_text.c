#include "launcher/config_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* `word` is one of "a|b|c". */
static bool is_among(const char *word, const char *words)
{
    const size_t length = strlen(word);

    for (const char *at = words; at != NULL; at = strchr(at, '|')) {
        at += *at == '|' ? 1 : 0;
        if (strcspn(at, "|") == length && strncmp(at, word, length) == 0) {
            return true;
        }
    }
    return false;
}

bool ddp_config_no_effect(const ddp_config_t *config, size_t i, char *text, size_t size)
{
    const ddp_key_t *key = &ddp_keys[i];
    ddp_config_t     defaults;
    char             mine[DDP_CONFIG_TEXT_SIZE];
    char             other[DDP_CONFIG_TEXT_SIZE];
    char             section[32];
    char             name[32];
    const char      *kinds;

    if (key->only == NULL) {
        return false;
    }
    ddp_config_defaults(&defaults);
    ddp_config_value(config, i, mine, sizeof(mine));
    ddp_config_value(&defaults, i, other, sizeof(other));
    if (strcmp(mine, other) == 0) {
        return false;
    }
    snprintf(section, sizeof(section), "%.*s", (int)strcspn(key->only, "."), key->only);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(strchr(key->only, '.') + 1, "="),
             strchr(key->only, '.') + 1);
    kinds = strchr(key->only, '=') + 1;
    ddp_config_value(config, ddp_config_find(section, name), other, sizeof(other));
    if (is_among(other, kinds)) {
        return false;
    }
    snprintf(text, size, "%s.%s %s has no effect: it belongs to %s.%s %s, and this run has %s", key->section,
             key->name, mine, section, name, kinds, other);
    return true;
}

bool ddp_config_drop_ranks(ddp_config_t *config, char *text, size_t size)
{
    static const char *const keys[][2] = {
        {"ddp", "wire"}, {"ddp", "share_gpu"}, {"ddp", "max_ctas"}, {"optimizer", "shard"}};
    ddp_config_t defaults;
    size_t       used = 0;
    char         mine[DDP_CONFIG_TEXT_SIZE];
    char         other[DDP_CONFIG_TEXT_SIZE];

    text[0] = '\0';
    ddp_config_defaults(&defaults);
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]) && config->train.mode == DDP_MODE_DP; k++) {
        const size_t i = ddp_config_find(keys[k][0], keys[k][1]);

        ddp_config_value(config, i, mine, sizeof(mine));
        ddp_config_value(&defaults, i, other, sizeof(other));
        if (strcmp(mine, other) != 0) {
            if (used < size) {
                used += (size_t)snprintf(text + used, size - used, "%s%s.%s %s", used > 0 ? ", " : "",
                                         keys[k][0], keys[k][1], mine);
            }
            ddp_ignore(ddp_config_parse(config, i, other), "a default is what is allowed");
        }
    }
    if (used > 0 && used < size) {
        (void)snprintf(text + used, size - used, ": no effect with train.mode dp, which has one process");
    }
    return used > 0;
}

bool ddp_config_is_place(size_t i)
{
    static const char *const places[] = {"train.mode",  "train.graphs", "ddp.device",     "ddp.share_gpu",
                                         "ddp.backend", "ddp.max_ctas", "optimizer.shard"};
    const ddp_key_t         *key      = &ddp_keys[i];
    char                     name[64];

    if (strcmp(key->section, "dp") == 0) {
        return strcmp(key->name, "loss") != 0;
    }
    snprintf(name, sizeof(name), "%s.%s", key->section, key->name);
    for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
        if (strcmp(name, places[p]) == 0) {
            return true;
        }
    }
    return false;
}

/* A path may hold anything: YAML's double quotes, in which control characters have an escape. */
static void dump_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            fprintf(out, "\\x%02x", (unsigned)*text);
        } else {
            fprintf(out, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
        }
    }
    fputs("\"\n", out);
}

char *ddp_config_dump(const ddp_config_t *config, bool with_place)
{
    char       *text    = NULL;
    size_t      size    = 0;
    const char *section = "";
    FILE       *out     = open_memstream(&text, &size);
    char        value[DDP_CONFIG_TEXT_SIZE];

    if (out == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < ddp_keys_count; i++) {
        if (!with_place && ddp_config_is_place(i)) {
            continue;
        }
        if (strcmp(ddp_keys[i].section, section) != 0) {
            section = ddp_keys[i].section;
            fprintf(out, "%s:\n", section);
        }
        ddp_config_value(config, i, value, sizeof(value));
        fprintf(out, "  %s: ", ddp_keys[i].name);
        if (ddp_keys[i].type == KEY_TEXT) {
            dump_text(out, value);
        } else {
            fprintf(out, "%s\n", value);
        }
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

void ddp_config_help(FILE *out)
{
    const char *section = "";
    char        range[128];
    char        left[64];

    fprintf(out,
            "# Every key with its default. This text is itself a valid run.yaml; keys may be left out.\n");
    for (size_t i = 0; i < ddp_keys_count; i++) {
        const ddp_key_t *key = &ddp_keys[i];

        if (strcmp(key->section, section) != 0) {
            section = key->section;
            fprintf(out, "%s:\n", section);
        }
        if (key->type == KEY_CHOICE) {
            snprintf(range, sizeof(range), "%s", key->choices);
        } else if (key->type == KEY_BOOL) {
            snprintf(range, sizeof(range), "true|false");
        } else if (key->type == KEY_TEXT || key->type == KEY_WORDS) {
            snprintf(range, sizeof(range), key->type == KEY_TEXT ? "text" : "list of texts");
        } else {
            ddp_key_range(key, range, sizeof(range));
        }
        snprintf(left, sizeof(left), "  %s: %s", key->name, key->value);
        fprintf(out, "%-24s # [%s%s%s]%s%s%s %s\n", left, range, key->unit[0] != '\0' ? " " : "", key->unit,
                key->only != NULL ? " (" : "", key->only != NULL ? key->only : "",
                key->only != NULL ? ")" : "", key->help);
    }
}

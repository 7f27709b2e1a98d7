#include "launcher/config_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/suggest.h"

static const char *const sections[] = {"model",    "data", "train", "optimizer",
                                       "schedule", "ddp",  "dp",    "checkpoint"};
#define N_SECTIONS (sizeof(sections) / sizeof(sections[0]))

static void *at(ddp_config_t *config, const ddp_key_t *key)
{
    return (char *)config + key->offset;
}

static const void *at_const(const ddp_config_t *config, const ddp_key_t *key)
{
    return (const char *)config + key->offset;
}

size_t ddp_config_keys(void)
{
    return ddp_keys_count;
}

const char *ddp_config_section(size_t i)
{
    return ddp_keys[i].section;
}

const char *ddp_config_name(size_t i)
{
    return ddp_keys[i].name;
}

bool ddp_config_is_list(size_t i)
{
    return ddp_keys[i].type == KEY_SIZES || ddp_keys[i].type == KEY_WORDS;
}

bool ddp_config_is_words(size_t i)
{
    return ddp_keys[i].type == KEY_WORDS;
}

const char *ddp_config_example(size_t i)
{
    return ddp_keys[i].choices;
}

size_t ddp_config_find(const char *section, const char *name)
{
    size_t i;

    for (i = 0; i < ddp_keys_count; i++) {
        if (strcmp(ddp_keys[i].section, section) == 0 && strcmp(ddp_keys[i].name, name) == 0) {
            break;
        }
    }
    return i;
}

ddp_status_t ddp_config_unknown(const char *section, const char *name)
{
    const char *names[32];
    const char *nearest;
    size_t      n = 0;

    for (size_t i = 0; section != NULL && i < ddp_keys_count && n < 32; i++) {
        if (strcmp(ddp_keys[i].section, section) == 0) {
            names[n++] = ddp_keys[i].name;
        }
    }
    nearest = section != NULL ? ddp_suggest(name, names, n) : ddp_suggest(name, sections, N_SECTIONS);
    return ddp_fail(DDP_ERR_CONFIG, "unknown key '%s'%s%s%s; %s%s%s", name, section != NULL ? " in '" : "",
                    section != NULL ? section : "", section != NULL ? "'" : "",
                    nearest != NULL ? "did you mean '" : "see ddptrain --help-config",
                    nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
}

/* One of "a|b|c": copy number `i` to `text`. */
static bool choice_name(const char *choices, int i, char *text, size_t size)
{
    for (; i > 0 && choices != NULL; i--) {
        choices = strchr(choices, '|');
        choices = choices != NULL ? choices + 1 : NULL;
    }
    if (choices == NULL) {
        return false;
    }
    snprintf(text, size, "%.*s", (int)strcspn(choices, "|"), choices);
    return true;
}

/* "1 .. 65536", "0 <= x < 1", for messages and help. */
void ddp_key_range(const ddp_key_t *key, char *text, size_t size)
{
    if (key->below) {
        snprintf(text, size, "%.12g <= value < %.12g", key->min, key->max);
    } else if (key->max == DDP_KEY_MANY) {
        snprintf(text, size, "%.12g or more", key->min);
    } else {
        snprintf(text, size, "%.12g .. %.12g", key->min, key->max);
    }
}

static ddp_status_t not_allowed(const ddp_key_t *key, const char *text, const char *what)
{
    char range[64];

    ddp_key_range(key, range, sizeof(range));
    return ddp_fail(DDP_ERR_CONFIG, "%s.%s is '%.80s': %s%s%s is allowed (%s)", key->section, key->name, text,
                    what, key->unit[0] != '\0' && key->unit[0] != ' ' ? " of " : "", key->unit, range);
}

static ddp_status_t parse_count(const ddp_key_t *key, const char *text, uint64_t *count_p)
{
    static const char what[] = "a whole number";
    const size_t      length = strlen(text);
    uint64_t          count;

    if (length == 0 || length > 12 || strspn(text, "0123456789") != length) {
        return not_allowed(key, text, what);
    }
    count = strtoull(text, NULL, 10);
    if ((double)count < key->min || (double)count > key->max) {
        return not_allowed(key, text, what);
    }
    *count_p = count;
    return DDP_OK;
}

static ddp_status_t parse_real(const ddp_key_t *key, const char *text, double *real_p)
{
    const size_t length = strlen(text);
    char        *end    = NULL;
    double       real;

    /* strtod() also knows hexadecimal, "inf" and "nan" */
    if (length == 0 || strspn(text, "0123456789+-.eE") != length) {
        return not_allowed(key, text, "a number");
    }
    real = strtod(text, &end);
    if (end != text + length || !(real >= key->min) || real > key->max || (key->below && real == key->max)) {
        return not_allowed(key, text, "a number");
    }
    *real_p = real;
    return DDP_OK;
}

static ddp_status_t parse_bool(const ddp_key_t *key, const char *text, bool *bool_p)
{
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) {
        return ddp_fail(DDP_ERR_CONFIG, "%s.%s is '%.80s': true or false is allowed", key->section, key->name,
                        text);
    }
    *bool_p = text[0] == 't';
    return DDP_OK;
}

static ddp_status_t parse_choice(const ddp_key_t *key, const char *text, int *choice_p)
{
    char name[32];
    char all[128] = "";

    for (int i = 0; choice_name(key->choices, i, name, sizeof(name)); i++) {
        if (strcmp(text, name) == 0) {
            *choice_p = i;
            return DDP_OK;
        }
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i > 0 ? ", " : "", name);
    }
    return ddp_fail(DDP_ERR_CONFIG, "%s.%s is '%.80s': allowed are %s", key->section, key->name, text, all);
}

/* "[512, 256]" or "512,256". */
static ddp_status_t parse_sizes(const ddp_key_t *key, const char *text, size_t *sizes, size_t *n_p)
{
    size_t      values[DDP_MLP_MAX_HIDDEN];
    size_t      n     = 0;
    uint64_t    count = 0;
    char        item[32];
    const char *at         = text + strspn(text, " ");
    const bool  is_bracket = *at == '[';

    at += is_bracket ? 1 : 0;
    at += strspn(at, " ");
    if (strspn(at, " ]") == strlen(at)) {
        return ddp_fail(DDP_ERR_CONFIG, "%s.%s is empty: a list such as %s is expected", key->section,
                        key->name, key->choices);
    }
    for (bool is_more = true; is_more; at += is_more ? 1 : 0) {
        size_t length;

        at += strspn(at, " ");
        length = strcspn(at, " ,]");
        if (n == DDP_MLP_MAX_HIDDEN) {
            return ddp_fail(DDP_ERR_CONFIG, "%s.%s has more than %d numbers", key->section, key->name,
                            DDP_MLP_MAX_HIDDEN);
        }
        snprintf(item, sizeof(item), "%.*s", (int)(length < 31 ? length : 31), at);
        if (parse_count(key, item, &count) != DDP_OK) {
            return DDP_ERR_CONFIG;
        }
        values[n++] = (size_t)count;
        at += length;
        at += strspn(at, " ");
        is_more = *at == ',';
    }
    if (strcmp(at, is_bracket ? "]" : "") != 0) {
        return ddp_fail(DDP_ERR_CONFIG, "%s.%s is '%.80s': a list such as %s is expected", key->section,
                        key->name, text, key->choices);
    }
    memcpy(sizes, values, n * sizeof(values[0]));
    *n_p = n;
    return DDP_OK;
}

static ddp_status_t parse_text(const ddp_key_t *key, const char *text, char *to)
{
    size_t length = strlen(text);

    if (length >= 2 && text[0] == '"' && text[length - 1] == '"') {
        text += 1;
        length -= 2;
    }
    if (length >= DDP_CONFIG_TEXT_SIZE) {
        return ddp_fail(DDP_ERR_CONFIG, "%s.%s has %zu bytes: at most %d are allowed", key->section,
                        key->name, length, DDP_CONFIG_TEXT_SIZE - 1);
    }
    memcpy(to, text, length);
    to[length] = '\0';
    return DDP_OK;
}

bool ddp_config_word(const char *words, size_t i, char *text, size_t size)
{
    for (; i > 0 && words != NULL; i--) {
        words = strchr(words, ',');
        words = words != NULL ? words + 1 : NULL;
    }
    if (words == NULL || *words == '\0') {
        return false;
    }
    snprintf(text, size, "%.*s", (int)strcspn(words, ","), words);
    return true;
}

/* `["conv1.*", fc?.bias]`, or the same without brackets or quotes; "[]" is none. */
static ddp_status_t parse_words(const ddp_key_t *key, const char *text, char *to)
{
    char              words[DDP_CONFIG_TEXT_SIZE] = "";
    size_t            used                        = 0;
    const char *const whole                       = text;
    const char       *end                         = text + strlen(text);

    if (end - text >= 2 && text[0] == '[' && end[-1] == ']') {
        text++;
        end--;
    }
    text += strspn(text, " ");
    while (text < end) {
        const char *comma  = memchr(text, ',', (size_t)(end - text));
        const char *next   = comma != NULL ? comma : end;
        size_t      length = (size_t)(next - text);

        while (length > 0 && text[length - 1] == ' ') {
            length--;
        }
        if (length >= 2 && (text[0] == '"' || text[0] == '\'') && text[length - 1] == text[0]) {
            text++;
            length -= 2;
        }
        if (length == 0 || (comma != NULL && comma + 1 == end) || used + length + 2 > sizeof(words)) {
            return ddp_fail(DDP_ERR_CONFIG,
                            "%s.%s is '%.80s': a list such as %s is expected, of at most %d bytes",
                            key->section, key->name, whole, key->choices, DDP_CONFIG_TEXT_SIZE - 2);
        }
        used += (size_t)snprintf(words + used, sizeof(words) - used, "%s%.*s", used > 0 ? "," : "",
                                 (int)length, text);
        text = comma != NULL ? comma + 1 : end;
        text += strspn(text, " ");
    }
    memset(to, 0, DDP_CONFIG_TEXT_SIZE);
    memcpy(to, words, used);
    return DDP_OK;
}

ddp_status_t ddp_config_parse(ddp_config_t *config, size_t i, const char *text)
{
    const ddp_key_t *key = &ddp_keys[i];

    if (key->is_auto && strcmp(text, "auto") == 0) {
        *(uint64_t *)at(config, key) = 0;
        return DDP_OK;
    }
    if (text[0] == '\0' && key->type != KEY_TEXT) {
        return ddp_fail(DDP_ERR_CONFIG, "%s.%s has no value; its default is %s", key->section, key->name,
                        key->value);
    }
    switch (key->type) {
    case KEY_COUNT:
        return parse_count(key, text, at(config, key));
    case KEY_REAL:
        return parse_real(key, text, at(config, key));
    case KEY_BOOL:
        return parse_bool(key, text, at(config, key));
    case KEY_CHOICE:
        return parse_choice(key, text, at(config, key));
    case KEY_SIZES:
        return parse_sizes(key, text, at(config, key), &config->model.n_hidden);
    case KEY_WORDS:
        return parse_words(key, text, at(config, key));
    case KEY_TEXT:
        break;
    }
    return parse_text(key, text, at(config, key));
}

ddp_status_t ddp_config_set(ddp_config_t *config, const char *assignment)
{
    const char  *equals = strchr(assignment, '=');
    const char  *dot    = strchr(assignment, '.');
    ddp_status_t status = DDP_OK;
    char         section[32];
    char         name[64];
    size_t       i;

    DDP_REQUIRE(equals != NULL && dot != NULL && dot < equals, DDP_ERR_CONFIG,
                "section.key=value is expected, as in --set train.batch=64");
    snprintf(section, sizeof(section), "%.*s", (int)(dot - assignment < 31 ? dot - assignment : 31),
             assignment);
    snprintf(name, sizeof(name), "%.*s", (int)(equals - dot - 1 < 63 ? equals - dot - 1 : 63), dot + 1);
    i = ddp_config_find(section, name);
    if (i == ddp_keys_count) {
        bool known = false;

        for (size_t s = 0; s < N_SECTIONS; s++) {
            known = known || strcmp(sections[s], section) == 0;
        }
        DDP_TRY(known ? ddp_config_unknown(section, name) : ddp_config_unknown(NULL, section));
    }
    DDP_TRY(ddp_config_parse(config, i, equals + 1));
out:
    if (status != DDP_OK) {
        ddp_error_prefix("--set %.120s", assignment);
    }
    return status;
}

void ddp_config_defaults(ddp_config_t *config)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < ddp_keys_count; i++) {
        ddp_ignore(ddp_config_parse(config, i, ddp_keys[i].value), "a test checks that every default parses");
    }
}

/* The shortest text that reads back as the same double. */
static void real_text(double real, char *text, size_t size)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, real);
        if (strtod(text, NULL) == real) {
            return;
        }
    }
}

static void sizes_text(const ddp_config_t *config, char *text, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < config->model.n_hidden && used < size; i++) {
        used +=
            (size_t)snprintf(text + used, size - used, "%s%zu", i == 0 ? "[" : ", ", config->model.hidden[i]);
    }
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
}

/* Quoted unless a number, since `*` and its like mean something else to YAML. */
static void words_text(const char *words, char *text, size_t size)
{
    char   word[DDP_CONFIG_TEXT_SIZE];
    size_t used = (size_t)snprintf(text, size, "[");

    for (size_t i = 0; ddp_config_word(words, i, word, sizeof(word)) && used < size; i++) {
        const char *quote = word[strspn(word, "0123456789")] == '\0' ? "" : "\"";

        used += (size_t)snprintf(text + used, size - used, "%s%s%s%s", i > 0 ? ", " : "", quote, word, quote);
    }
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
}

void ddp_config_value(const ddp_config_t *config, size_t i, char *text, size_t size)
{
    const ddp_key_t *key   = &ddp_keys[i];
    const void      *value = at_const(config, key);

    switch (key->type) {
    case KEY_COUNT:
        if (key->is_auto && *(const uint64_t *)value == 0) {
            snprintf(text, size, "auto");
        } else {
            snprintf(text, size, "%" PRIu64, *(const uint64_t *)value);
        }
        break;
    case KEY_REAL:
        real_text(*(const double *)value, text, size);
        break;
    case KEY_BOOL:
        snprintf(text, size, "%s", *(const bool *)value ? "true" : "false");
        break;
    case KEY_CHOICE:
        if (!choice_name(key->choices, *(const int *)value, text, size)) {
            snprintf(text, size, "?");
        }
        break;
    case KEY_SIZES:
        sizes_text(config, text, size);
        break;
    case KEY_WORDS:
        words_text(value, text, size);
        break;
    case KEY_TEXT:
        snprintf(text, size, "%s", (const char *)value);
        break;
    }
}

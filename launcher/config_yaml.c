#include <cyaml/cyaml.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "launcher/config.h"

#define FILE_LIMIT ((size_t)1 << 20)
#define MAX_KEYS   128

/* libcyaml reads every value as text; its type is checked by the same parsers as --set. Slot i is key i. */
typedef struct slot {
    void    *value; /* char *, or char ** for a list */
    uint32_t count; /* of a list */
} slot_t;

typedef struct document {
    slot_t slot[MAX_KEYS];
} document_t;

/* The schema, built from the table of keys. */
typedef struct schema {
    cyaml_schema_field_t fields[MAX_KEYS + 9]; /* keys, section by section, each closed by an empty one */
    cyaml_schema_field_t sections[10];
    cyaml_schema_value_t item;
    cyaml_schema_value_t top;
} schema_t;

/* What libcyaml says about an error: it has no other way to tell a line and a column than its log. */
typedef struct report {
    char cause[160]; /* "Unexpected key: modle" */
    char field[64];  /* innermost mapping field */
    char outer[64];  /* the one around it */
    int  line, column;
} report_t;

static const cyaml_strval_t no_choice = {"", 0};

static void take_log(cyaml_log_t level, void *ctx, const char *fmt, va_list args)
{
    report_t   *report = ctx;
    char        text[256];
    const char *at;
    const char *name;

    (void)level;
    vsnprintf(text, sizeof(text), fmt, args);
    text[strcspn(text, "\n")] = '\0';
    at                        = strstr(text, "(line: ");
    if (at == NULL) {
        at = strncmp(text, "Load: ", 6) == 0 ? text + 6 : text;
        if (report->cause[0] == '\0' && strcmp(at, "Backtrace:") != 0) {
            snprintf(report->cause, sizeof(report->cause), "%s", at);
        }
        return;
    }
    if (report->line == 0) {
        sscanf(at, "(line: %d, column: %d)", &report->line, &report->column);
    }
    name = strstr(text, "in mapping field '");
    if (name != NULL) {
        char *to = report->field[0] == '\0' ? report->field : report->outer;

        name += strlen("in mapping field '");
        snprintf(to, sizeof(report->field), "%.*s", (int)strcspn(name, "'"), name);
    }
}

/* `wrong` < number of keys: give that key a type that no value has, so that libcyaml tells where its value
 * is. */
static void schema_build(schema_t *schema, size_t wrong)
{
    size_t used       = 0;
    size_t n_sections = 0;

    memset(schema, 0, sizeof(*schema));
    schema->item = (cyaml_schema_value_t){CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0, CYAML_UNLIMITED)};
    for (size_t i = 0; i < ddp_config_keys(); i++) {
        cyaml_schema_field_t *field = &schema->fields[used];

        if (i == 0 || strcmp(ddp_config_section(i), ddp_config_section(i - 1)) != 0) {
            used += i == 0 ? 0 : 1;
            field                          = &schema->fields[used];
            schema->sections[n_sections++] = (cyaml_schema_field_t){
                .key   = ddp_config_section(i),
                .value = {.type      = CYAML_MAPPING,
                          .flags     = CYAML_FLAG_OPTIONAL,
                          .data_size = sizeof(document_t),
                          .mapping   = {.fields = field}},
            };
        }
        field->key = ddp_config_name(i);
        field->data_offset =
            (uint32_t)(offsetof(document_t, slot) + i * sizeof(slot_t) + offsetof(slot_t, value));
        if (i == wrong) {
            field->value = (cyaml_schema_value_t){.type        = CYAML_ENUM,
                                                  .flags       = CYAML_FLAG_STRICT | CYAML_FLAG_OPTIONAL,
                                                  .data_size   = sizeof(uint32_t),
                                                  .enumeration = {.strings = &no_choice, .count = 0}};
        } else if (ddp_config_is_list(i)) {
            field->count_offset =
                (uint32_t)(offsetof(document_t, slot) + i * sizeof(slot_t) + offsetof(slot_t, count));
            field->count_size = sizeof(uint32_t);
            field->value      = (cyaml_schema_value_t){.type      = CYAML_SEQUENCE,
                                                       .flags     = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                                                       .data_size = sizeof(char *),
                                                       .sequence  = {.entry = &schema->item,
                                                                     .min   = ddp_config_is_words(i) ? 0 : 1,
                                                                     .max   = CYAML_UNLIMITED}};
        } else {
            field->value       = schema->item;
            field->value.flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL;
        }
        used++;
    }
    schema->top =
        (cyaml_schema_value_t){CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, document_t, schema->sections)};
}

static cyaml_err_t load(const char *text, size_t length, const schema_t *schema, report_t *report,
                        document_t **document_p)
{
    const cyaml_config_t config = {.log_fn    = take_log,
                                   .log_ctx   = report,
                                   .mem_fn    = cyaml_mem,
                                   .log_level = CYAML_LOG_WARNING,
                                   .flags     = CYAML_CFG_NO_ALIAS};

    memset(report, 0, sizeof(*report));
    return cyaml_load_data((const uint8_t *)text, length, &config, &schema->top, (cyaml_data_t **)document_p,
                           NULL);
}

static void document_free(const schema_t *schema, document_t *document)
{
    const cyaml_config_t config = {.mem_fn = cyaml_mem, .log_level = CYAML_LOG_ERROR};

    ddp_ignore(cyaml_free(&config, &schema->top, document, 0) == CYAML_OK ? DDP_OK : DDP_ERR_STATE,
               "memory of one small document");
}

static bool is_key(const char *text, const char *c, const char *key)
{
    const size_t length = strlen(key);

    return strncmp(c, key, length) == 0 && strchr(" \t:\"'", c[length]) != NULL &&
           (c == text || strchr(" \t\n,{\"'", c[-1]) != NULL);
}

/* libcyaml gives the place before an unknown or repeated key: go on to the key itself. */
static void find_key(const char *text, const char *key, report_t *report)
{
    int line   = 1;
    int column = 1;

    for (const char *c = text; *c != '\0'; c++) {
        const bool is_after = line > report->line || (line == report->line && column >= report->column);

        if (is_after && is_key(text, c, key)) {
            report->line   = line;
            report->column = column;
            return;
        }
        if (is_after && *c == '#') {
            while (c[1] != '\0' && c[1] != '\n') {
                c++;
            }
        }
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n' ? 1 : 0;
    }
}

/* Turn libcyaml's words into ours. */
static ddp_status_t explain(const char *text, cyaml_err_t error, report_t *report)
{
    static const char unexpected[] = "Unexpected key: ";
    static const char repeated[]   = "Mapping field already seen: ";
    static const char parser[]     = "libyaml: ";

    if (strncmp(report->cause, unexpected, strlen(unexpected)) == 0) {
        const char *key = report->cause + strlen(unexpected);

        find_key(text, key, report);
        return ddp_config_unknown(report->field[0] != '\0' ? report->field : NULL, key);
    }
    if (strncmp(report->cause, repeated, strlen(repeated)) == 0) {
        const char *key = report->cause + strlen(repeated);

        find_key(text, key, report);
        return ddp_fail(DDP_ERR_CONFIG, "key '%s' stands here for the second time", key);
    }
    if (strncmp(report->cause, parser, strlen(parser)) == 0) {
        return ddp_fail(DDP_ERR_CONFIG, "not YAML: %s", report->cause + strlen(parser));
    }
    if (error == CYAML_ERR_ALIAS) {
        return ddp_fail(DDP_ERR_CONFIG, "aliases (*name) are not supported: write the value");
    }
    if (strncmp(report->cause, "Expecting MAPPING", 17) == 0 && report->field[0] == '\0') {
        report->line = 1, report->column = 1;
        return ddp_fail(DDP_ERR_CONFIG, "sections are expected, as in 'train: {batch: 64}'");
    }
    if (strncmp(report->cause, "Expecting MAPPING", 17) == 0) {
        return ddp_fail(DDP_ERR_CONFIG,
                        "'%s' is a section: keys are expected in it, as in 'train: {batch: 64}'",
                        report->field);
    }
    if (strncmp(report->cause, "Expecting STRING", 16) == 0) {
        return ddp_fail(DDP_ERR_CONFIG, "%s.%s is a list or a section: one value is expected", report->outer,
                        report->field);
    }
    if (strncmp(report->cause, "Expecting SEQUENCE", 18) == 0 || strstr(report->cause, "entries") != NULL) {
        const size_t i        = ddp_config_find(report->outer, report->field);
        const bool   is_words = i < ddp_config_keys() && ddp_config_is_words(i);

        return ddp_fail(DDP_ERR_CONFIG, "%s.%s: a list %sis expected, as in %s", report->outer, report->field,
                        is_words ? "" : "of at least one ",
                        i < ddp_config_keys() ? ddp_config_example(i) : "[512, 512]");
    }
    return ddp_fail(DDP_ERR_CONFIG, "%s",
                    report->cause[0] != '\0' ? report->cause : "a key has to be a single word");
}

static ddp_status_t fail_at(const char *path, const report_t *report)
{
    if (report->line > 0) {
        ddp_error_prefix("%s:%d:%d", path, report->line, report->column);
    } else {
        ddp_error_prefix("%s", path);
    }
    return DDP_ERR_CONFIG;
}

/* One key of the document into the configuration; a list becomes the text "a,b,c" that --set takes. */
static ddp_status_t take(ddp_config_t *config, size_t i, const slot_t *slot)
{
    const char *const unwanted  = ddp_config_is_words(i) ? "," : " ,[]";
    char              text[512] = "";
    size_t            used      = 0;

    if (!ddp_config_is_list(i)) {
        return ddp_config_parse(config, i, slot->value);
    }
    for (uint32_t j = 0; j < slot->count && used < sizeof(text); j++) {
        const char *item = ((char **)slot->value)[j];

        if (item[0] == '\0' || strpbrk(item, unwanted) != NULL) {
            return ddp_fail(DDP_ERR_CONFIG, "%s.%s holds '%.80s': a list of %s is expected",
                            ddp_config_section(i), ddp_config_name(i), item,
                            ddp_config_is_words(i) ? "words without a comma" : "numbers, as in [512, 512],");
        }
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", j > 0 ? "," : "[", item);
    }
    snprintf(text + (used < sizeof(text) - 2 ? used : sizeof(text) - 2), 2, "]");
    return ddp_config_parse(config, i, text);
}

static ddp_status_t load_text(ddp_config_t *config, const char *path, const char *text, size_t length)
{
    ddp_status_t status   = DDP_OK;
    document_t  *document = NULL;
    schema_t     schema;
    report_t     report;
    cyaml_err_t  error;

    schema_build(&schema, ddp_config_keys());
    error = load(text, length, &schema, &report, &document);
    if (error != CYAML_OK) {
        status = explain(text, error, &report);
        return fail_at(path, &report);
    }
    DDP_REQUIRE(document != NULL, DDP_ERR_CONFIG, "%s: no key in it; without a file the default is trained",
                path);
    DDP_REQUIRE(report.cause[0] == '\0', DDP_ERR_CONFIG, "%s: more than one YAML document in one file", path);
    for (size_t i = 0; i < ddp_config_keys(); i++) {
        if (document->slot[i].value == NULL) {
            continue;
        }
        status = take(config, i, &document->slot[i]);
        if (status != DDP_OK) {
            schema_t    wrong;
            document_t *nothing = NULL;

            schema_build(&wrong, i);
            if (load(text, length, &wrong, &report, &nothing) == CYAML_OK) {
                document_free(&wrong, nothing);
            }
            status = fail_at(path, &report);
            break;
        }
    }
out:
    document_free(&schema, document);
    return status;
}

static ddp_status_t read_file(const char *path, char **text_p, size_t *length_p)
{
    ddp_status_t status = DDP_OK;
    char        *text   = NULL;
    const int    fd     = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block */
    FILE        *file   = fd >= 0 ? fdopen(fd, "rb") : NULL;
    struct stat  info;
    size_t       length;

    DDP_REQUIRE(file != NULL && fstat(fd, &info) == 0, DDP_ERR_CONFIG, "%s: %s", path, ddp_errno_text(errno));
    DDP_REQUIRE(S_ISREG(info.st_mode), DDP_ERR_CONFIG, "%s: %s, not a YAML file", path,
                S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    text = malloc(FILE_LIMIT + 1);
    DDP_REQUIRE(text != NULL, DDP_ERR_NO_MEMORY, "no memory to read %s", path);
    length = fread(text, 1, FILE_LIMIT + 1, file);
    DDP_REQUIRE(ferror(file) == 0, DDP_ERR_CONFIG, "%s: %s", path, ddp_errno_text(errno));
    DDP_REQUIRE(length > 0, DDP_ERR_CONFIG, "%s: empty file; without a file the default is trained", path);
    DDP_REQUIRE(length <= FILE_LIMIT, DDP_ERR_CONFIG, "%s: more than 1 MiB: not a configuration", path);
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];

        DDP_REQUIRE(c >= 0x20 || c == '\t' || c == '\n' || c == '\r', DDP_ERR_CONFIG,
                    "%s: byte 0x%02x at offset %zu: not a YAML text", path, c, i);
    }
    text[length] = '\0';
    *text_p      = text;
    *length_p    = length;
    text         = NULL;
out:
    free(text);
    if (file != NULL) {
        fclose(file);
    }
    return status;
}

ddp_status_t ddp_config_load(ddp_config_t *config, const char *path)
{
    ddp_status_t status = DDP_OK;
    ddp_config_t loaded = *config;
    char        *text   = NULL;
    size_t       length = 0;

    DDP_TRY(read_file(path, &text, &length));
    DDP_TRY(load_text(&loaded, path, text, length));
    *config = loaded;
out:
    free(text);
    return status;
}

ddp_status_t ddp_config_load_text(ddp_config_t *config, const char *name, const char *text)
{
    ddp_status_t status = DDP_OK;
    ddp_config_t loaded = *config;

    DDP_TRY(load_text(&loaded, name, text, strlen(text)));
    *config = loaded;
out:
    return status;
}

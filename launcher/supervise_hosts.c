/* Where ranks run: Open MPI's hostfile, "name slots=2" a line, or its --host, "a:2,b". */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_open.h"
#include "launcher/supervise.h"

#define TEXT_SIZE  4096 /* of a line, with its end */
#define MOST_HOSTS 100000
#define MOST_SLOTS 1000000
#define SPACE      " \t\r\n"
#define NAME_ENDS  " \t\r\n#:,"

void ddp_supervise_hosts_free(ddp_supervise_hosts_t *hosts)
{
    free(hosts->host);
    *hosts = (ddp_supervise_hosts_t){0};
}

static ddp_supervise_host_t *find_exactly(const ddp_supervise_hosts_t *hosts, const char *name)
{
    for (size_t i = 0; i < hosts->n; i++) {
        if (strcmp(hosts->host[i].name, name) == 0) {
            return &hosts->host[i];
        }
    }
    return NULL;
}

ddp_supervise_host_t *ddp_supervise_hosts_find(const ddp_supervise_hosts_t *hosts, const char *name)
{
    ddp_supervise_host_t *found  = find_exactly(hosts, name);
    const size_t          length = strcspn(name, ".");
    size_t                n      = 0;

    if (found != NULL || length == 0 || strspn(name, "0123456789.") == strlen(name)) {
        return found; /* the first parts of addresses are no names */
    }
    for (size_t i = 0; i < hosts->n; i++) {
        const char *other = hosts->host[i].name;

        if (strcspn(other, ".") == length && strncmp(other, name, length) == 0 &&
            (other[length] == '\0' || name[length] == '\0')) {
            found = &hosts->host[i];
            n++;
        }
    }
    return n == 1 ? found : NULL;
}

/* The name at the start of `text`, without "user@"; false: there is none. */
static bool take_name(const char *text, char *name, size_t size)
{
    const char *at     = text + strspn(text, SPACE);
    size_t      length = strcspn(at, NAME_ENDS);
    const char *user   = memchr(at, '@', length);

    if (user != NULL) {
        length -= (size_t)(user + 1 - at);
        at = user + 1;
    }
    if (length == 0 || length >= size) {
        return false;
    }
    memcpy(name, at, length);
    name[length] = '\0';
    return true;
}

/* One more mention of a host; `slots` 0: not told. */
static ddp_status_t add_host(ddp_supervise_hosts_t *hosts, const char *name, uint64_t slots)
{
    ddp_status_t          status = DDP_OK;
    ddp_supervise_host_t *host   = find_exactly(hosts, name);
    ddp_supervise_host_t *more   = NULL;

    if (host != NULL) {
        if (host->slots == 0 && !host->is_listed) {
            host->is_listed = true;
            host->slots     = 1; /* the first mention is one slot too */
        }
        host->slots += slots > 0 ? slots : 1;
        return DDP_OK;
    }
    DDP_REQUIRE(hosts->n < MOST_HOSTS, DDP_ERR_FORMAT, "more than %d hosts", MOST_HOSTS);
    more = realloc(hosts->host, (hosts->n + 1) * sizeof(*more));
    DDP_REQUIRE(more != NULL, DDP_ERR_NO_MEMORY, "no memory for hosts");
    hosts->host = more;
    host        = &hosts->host[hosts->n++];
    *host       = (ddp_supervise_host_t){.slots = slots, .failed_s = -1};
    (void)snprintf(host->name, sizeof(host->name), "%s", name);
out:
    return status;
}

/* The number behind "slots=", or behind what else Open MPI takes for it; 0: there is none. */
static uint64_t slots_of(const char *line)
{
    static const char *const keys[] = {"slots", "count", "cpus"};

    for (const char *at = line + strcspn(line, SPACE); *at != '\0' && *at != '#'; at += strcspn(at, SPACE)) {
        at += strspn(at, SPACE);
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
            const size_t length = strlen(keys[i]);

            if (strncmp(at, keys[i], length) == 0 && (at[length] == '=' || at[length] == ':')) {
                const unsigned long long n = strtoull(at + length + 1, NULL, 10);

                return n <= MOST_SLOTS ? n : 0;
            }
        }
    }
    return 0;
}

static ddp_status_t open_file(const char *path, FILE **file_p)
{
    const ddp_status_t status = ddp_file_open(path, file_p);

    if (status != DDP_OK) {
        ddp_error_prefix("hostfile");
    }
    return status == DDP_ERR_IO ? DDP_ERR_CONFIG : status;
}

ddp_status_t ddp_supervise_hosts_read(const char *path, ddp_supervise_hosts_t *hosts)
{
    ddp_status_t          status = DDP_OK;
    ddp_supervise_hosts_t read   = {0};
    FILE                 *file   = NULL;
    char                  line[TEXT_SIZE];
    char                  name[DDP_SUPERVISE_HOST];

    DDP_TRY(open_file(path, &file));
    while (fgets(line, sizeof(line), file) != NULL) {
        DDP_REQUIRE(strchr(line, '\n') != NULL || feof(file) != 0, DDP_ERR_CONFIG,
                    "hostfile '%s': a line of more than %d characters", path, TEXT_SIZE - 2);
        if (take_name(line, name, sizeof(name))) {
            DDP_TRY(add_host(&read, name, slots_of(line)));
        }
    }
    DDP_REQUIRE(ferror(file) == 0, DDP_ERR_CONFIG, "hostfile '%s': %s", path, ddp_errno_text(errno));
    DDP_REQUIRE(read.n > 0, DDP_ERR_CONFIG, "hostfile '%s': no hosts in it", path);
    *hosts = read;
    read   = (ddp_supervise_hosts_t){0};
out:
    if (file != NULL) {
        (void)fclose(file);
    }
    ddp_supervise_hosts_free(&read);
    return status;
}

/* Each of "a:2,b" in turn; the rest into *at_p. False at the end. */
static bool next_of_list(const char **at_p, const char **item_p, size_t *length_p)
{
    if (**at_p == '\0') {
        return false;
    }
    *item_p   = *at_p;
    *length_p = strcspn(*at_p, ",");
    *at_p += *length_p + ((*at_p)[*length_p] == ',' ? 1 : 0);
    return true;
}

ddp_status_t ddp_supervise_hosts_parse(const char *list, ddp_supervise_hosts_t *hosts)
{
    ddp_status_t          status = DDP_OK;
    ddp_supervise_hosts_t read   = {0};
    const char           *at     = list;
    const char           *item   = NULL;
    size_t                length = 0;
    char                  name[DDP_SUPERVISE_HOST];

    while (next_of_list(&at, &item, &length)) {
        const char              *colon = memchr(item, ':', length);
        const unsigned long long n     = colon != NULL ? strtoull(colon + 1, NULL, 10) : 1;

        DDP_REQUIRE(take_name(item, name, sizeof(name)), DDP_ERR_CONFIG, "--host '%.80s': an empty name",
                    list);
        DDP_TRY(add_host(&read, name, n <= MOST_SLOTS ? n : 0)); /* ":*" is all there are: not told */
    }
    DDP_REQUIRE(read.n > 0, DDP_ERR_CONFIG, "--host '': no hosts");
    *hosts = read;
    read   = (ddp_supervise_hosts_t){0};
out:
    ddp_supervise_hosts_free(&read);
    return status;
}

size_t ddp_supervise_hosts_left(const ddp_supervise_hosts_t *hosts)
{
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        n += hosts->host[i].is_dropped ? 0 : 1;
    }
    return n;
}

static bool is_dropped(const ddp_supervise_hosts_t *hosts, const char *text)
{
    char                        name[DDP_SUPERVISE_HOST];
    const ddp_supervise_host_t *host = take_name(text, name, sizeof(name)) ? find_exactly(hosts, name) : NULL;

    return host != NULL && host->is_dropped;
}

ddp_status_t ddp_supervise_hosts_write(const ddp_supervise_hosts_t *hosts, const char *path, int fd)
{
    ddp_status_t status = DDP_OK;
    FILE        *file   = NULL;
    char         line[TEXT_SIZE];

    DDP_TRY(open_file(path, &file));
    while (fgets(line, sizeof(line), file) != NULL) {
        if (!is_dropped(hosts, line)) {
            DDP_REQUIRE(dprintf(fd, "%s", line) >= 0, DDP_ERR_IO, "a copy of hostfile '%s': %s", path,
                        ddp_errno_text(errno));
        }
    }
out:
    if (file != NULL) {
        (void)fclose(file);
    }
    return status;
}

char *ddp_supervise_hosts_list(const ddp_supervise_hosts_t *hosts, const char *list)
{
    char       *left   = calloc(strlen(list) + 1, 1);
    size_t      used   = 0;
    const char *at     = list;
    const char *item   = NULL;
    size_t      length = 0;

    while (left != NULL && next_of_list(&at, &item, &length)) {
        if (!is_dropped(hosts, item)) {
            if (used > 0) {
                left[used++] = ',';
            }
            memcpy(left + used, item, length);
            used += length;
        }
    }
    return left;
}

/* ranks * part / whole, rounded down, where the product may be too large. */
static uint64_t share(uint64_t ranks, uint64_t part, uint64_t whole)
{
    return ranks / whole * part + ranks % whole * part / whole;
}

uint64_t ddp_supervise_hosts_ranks(const ddp_supervise_hosts_t *hosts, uint64_t ranks, uint64_t per_host)
{
    const uint64_t left   = ddp_supervise_hosts_left(hosts);
    uint64_t       before = 0;
    uint64_t       after  = 0;
    bool           is_all = true;

    for (size_t i = 0; i < hosts->n; i++) {
        is_all = is_all && hosts->host[i].slots > 0;
        before += hosts->host[i].slots;
        after += hosts->host[i].is_dropped ? 0 : hosts->host[i].slots;
    }
    if (is_all && ranks <= before) {
        ranks = ranks < after ? ranks : after;
    } else if (is_all) {
        ranks = share(ranks, after, before);
    } else if (hosts->n > 0) {
        ranks = share(ranks, left, hosts->n);
    }
    return per_host > 0 && left > 0 && ranks / left >= per_host ? per_host * left : ranks;
}

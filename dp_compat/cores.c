/* Which cores there are, and how unlike devices are. */
#include <sched.h>
#include <stdio.h>

#include "base/log.h"
#include "dp_compat/dp_internal.h"

#define UNLIKE 0.75 /* the less of the more: below it somebody waits for a quarter of the time */

int ddp_dp_cores(int *cores, int capacity)
{
    cpu_set_t cpus;
    int       n = 0;

    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) {
        return 0;
    }
    for (int c = 0; c < CPU_SETSIZE && n < capacity; c++) {
        if (CPU_ISSET((size_t)c, &cpus)) {
            cores[n++] = c;
        }
    }
    return n;
}

/* kHz; 1 where the system does not tell: then all cores count alike */
static double frequency(const char *root, int core)
{
    char   path[256];
    double khz  = 0;
    FILE  *file = NULL;

    snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq", root, core);
    file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%lf", &khz) != 1) {
            khz = 0;
        }
        (void)fclose(file); /* was only read */
    }
    return khz > 0 ? khz : 1;
}

double ddp_dp_speed(const char *root, const int *ids, size_t n, size_t index, const int *cores, int n_cores)
{
    const int core   = ids[index] % n_cores;
    size_t    shares = 0;

    for (size_t k = 0; k < n; k++) {
        shares += ids[k] % n_cores == core ? 1 : 0;
    }
    return frequency(root, cores[core]) / (double)shares;
}

void ddp_dp_warn_unlike(const int *ids, const double *value, size_t n, const char *what)
{
    size_t least = n;
    size_t most  = n;

    for (size_t k = 0; k < n; k++) {
        if (value[k] > 0) {
            least = least == n || value[k] < value[least] ? k : least;
            most  = most == n || value[k] > value[most] ? k : most;
        }
    }
    if (least < n && value[least] < UNLIKE * value[most]) {
        ddp_log(
            DDP_LOG_WARN,
            "device %d has %.0f %% of the %s of device %d: all wait for it in every step; leave it out, or "
            "use equal ones",
            ids[least], 100 * value[least] / value[most], what, ids[most]);
    }
}

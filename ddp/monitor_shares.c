/* Where the time of ranks goes, and who is slowest. */
#include "ddp/monitor.h"

/* Time of own work in a step, from a rank's place in the table. */
static double work_ms(const double step_ms[3])
{
    return step_ms[0] + step_ms[1];
}

/* The rank's number among the sorted work times: the middle one, without sorting. */
static double median_work(double (*step_ms)[3], int size)
{
    for (int r = 0; r < size; r++) {
        int less = 0;

        for (int other = 0; other < size; other++) {
            const double a = work_ms(step_ms[other]);
            const double b = work_ms(step_ms[r]);

            less += a < b || (a == b && other < r) ? 1 : 0;
        }
        if (less == (size - 1) / 2) {
            return work_ms(step_ms[r]);
        }
    }
    return 0;
}

ddp_straggler_t ddp_straggler_look(const ddp_shares_t *before, const ddp_shares_t *after, int size,
                                   double (*step_ms)[3])
{
    ddp_straggler_t result = {.is_whole = true};

    for (int r = 0; r < size; r++) {
        const double steps = (double)(after[r].steps - before[r].steps) * 1e3;

        if (after[r].steps <= before[r].steps) {
            result.is_whole = false;
            return result;
        }
        step_ms[r][0] = (double)(after[r].compute_us - before[r].compute_us) / steps;
        step_ms[r][1] = (double)(after[r].wait_us - before[r].wait_us) / steps;
        step_ms[r][2] = (double)(after[r].comm_us - before[r].comm_us) / steps;
        if (work_ms(step_ms[r]) > work_ms(step_ms[result.slowest])) {
            result.slowest = r;
        }
    }
    result.slowest_ms = work_ms(step_ms[result.slowest]);
    result.median_ms  = median_work(step_ms, size);
    return result;
}

/* LD_PRELOAD library: the time of day is wrong by DDP_WRONG_TIME seconds, for what this process asks itself.
 * Files keep the kernel's. There is no namespace for this clock; waits until a time of day end at once with
 * it, where it is behind. */
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t wrong_by_s;

/* Once, before there are threads: MPI_Init sets variables while other threads ask for the time, and getenv
 * must not meet that. */
__attribute__((constructor)) static void read_wrong_by(void)
{
    const char *seconds = getenv("DDP_WRONG_TIME");

    wrong_by_s = seconds != NULL ? (time_t)strtol(seconds, NULL, 10) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int code = (int)syscall(SYS_clock_gettime, clock, now);

    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec += wrong_by_s;
    }
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact = {0};
    const int       code  = clock_gettime(CLOCK_REALTIME, &exact);

    (void)zone;
    now->tv_sec  = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return code;
}

time_t time(time_t *now_p)
{
    struct timespec exact = {0};

    (void)clock_gettime(CLOCK_REALTIME, &exact);
    if (now_p != NULL) {
        *now_p = exact.tv_sec;
    }
    return exact.tv_sec;
}

/* A clock that the tests set, for one server: preloaded (LD_PRELOAD) it adds the offset in the file that
 * FAULTS_CLOCK names, a number of microseconds as 8 bytes in the machine's order, to the time of day.
 * The monotonic clock keeps running as it is, as when an operator or NTP sets a machine's clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS_CLOCK");
    int fd = path ? open(path, O_RDONLY) : -1;
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) _exit(97);
    offset = p;
}

static void add(struct timespec *t) {
    int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + (offset ? *offset * 1000 : 0);
    t->tv_sec = ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
}

int clock_gettime(clockid_t id, struct timespec *t) {
    int r = (int)syscall(SYS_clock_gettime, id, t);
    if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) add(t);
    return r;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec s;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &s) != 0) return -1;
    if (t) t->tv_sec = s.tv_sec, t->tv_usec = s.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t) {
    struct timespec s;
    if (clock_gettime(CLOCK_REALTIME, &s) != 0) return -1;
    if (t) *t = s.tv_sec;
    return s.tv_sec;
}

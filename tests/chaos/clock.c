/*
 * A wall clock that can be set for one group of processes: preloaded, it adds the nanoseconds in the file CLOCK_FILE to
 * what the machine's clock says. It also ends their waits when their clock says so, as the kernel does: a wait until a
 * time of day takes longer when the clock goes back.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000000, SLICE = 50 * 1000 * 1000 };

static volatile int64_t none, *offset = &none;
static int (*machine)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    machine = dlsym(RTLD_NEXT, "clock_gettime");
    int file = open(getenv("CLOCK_FILE"), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    void *shared = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (shared != MAP_FAILED)
        offset = shared;
}

static int64_t nanoseconds(const struct timespec *at) { return at->tv_sec * SECOND + at->tv_nsec; }

static struct timespec timespec_of(int64_t at) { return (struct timespec){at / SECOND, at % SECOND}; }

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!machine)
        begin();
    int failed = machine(clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        *at = timespec_of(nanoseconds(at) + *offset);
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *at = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

int timespec_get(struct timespec *at, int base) { return clock_gettime(CLOCK_REALTIME, at) ? 0 : base; }

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return at ? (*at = now.tv_sec) : now.tv_sec;
}

/* Return until when to wait before looking at the clock again, by the clock that nobody sets; 0 if the time has come. */
static int next_look(const struct timespec *until, struct timespec *look) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t left = nanoseconds(until) - nanoseconds(&now);
    machine(CLOCK_MONOTONIC, &now);
    *look = timespec_of(nanoseconds(&now) + (left < SLICE ? left : SLICE));
    return left > 0;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    if (condition->__data.__wrefs & 2) /* glibc: the condition waits by the monotonic clock */
        return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, until);
    struct timespec look;
    while (next_look(until, &look)) {
        int answer = pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &look);
        if (answer != ETIMEDOUT)
            return answer;
    }
    return ETIMEDOUT;
}

/* librdkafka waits with this one. In glibc, both types are those of pthreads. */
int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until) {
    int answer = pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until);
    return answer == ETIMEDOUT ? thrd_timedout : answer ? thrd_error : thrd_success;
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    struct timespec look;
    while (next_look(until, &look)) {
        if (!sem_clockwait(semaphore, CLOCK_MONOTONIC, &look))
            return 0;
        if (errno != ETIMEDOUT)
            return -1;
    }
    errno = ETIMEDOUT;
    return -1;
}

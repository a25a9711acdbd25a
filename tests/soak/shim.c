/*
 * Preloaded into the stile under test: a real-time clock that jumps. The offset in nanoseconds
 * stands in the file SOAK_CLOCK, which run.py writes to; a jump of the machine's own clock would be
 * everybody's. SOAK_PROVE makes a fault on purpose, so that it can be shown that the soak sees it:
 * `memory` keeps some of each accepted connection, `descriptor` a copy of each 16th, `term` is deaf
 * to the end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS	   1000000000LL
#define KEPT_BYTES 2048

static const _Atomic int64_t *offset_ns;
static int (*real_clock)(clockid_t, struct timespec *); /* the one without a system call */
static const char *prove = "";
static void *_Atomic kept; /* a chain, so that no leak checker takes it for lost */

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("SOAK_CLOCK"), *what = getenv("SOAK_PROVE");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *m = MAP_FAILED;

	if (fd >= 0) {
		m = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (m != MAP_FAILED)
		offset_ns = m;
	/* a copy: stile clears its environment once it has read it */
	if (what && (what = strdup(what)))
		prove = what;
	*(void **)&real_clock = dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	int64_t ns;

	if (real_clock ? real_clock(clock, t) : (int)syscall(SYS_clock_gettime, clock, t))
		return -1;
	if (offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		ns = (int64_t)t->tv_sec * NS + t->tv_nsec + *offset_ns;
		t->tv_sec = ns / NS;
		t->tv_nsec = ns % NS;
	}
	return 0;
}

time_t time(time_t *ret)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	if (ret)
		*ret = t.tv_sec;
	return t.tv_sec;
}

int gettimeofday(struct timeval *ret, void *zone)
{
	struct timespec t;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &t);
	ret->tv_sec = t.tv_sec;
	ret->tv_usec = t.tv_nsec / 1000;
	return 0;
}

int accept4(int sock, struct sockaddr *addr, socklen_t *n, int flags)
{
	static _Atomic unsigned count;
	int fd = (int)syscall(SYS_accept4, sock, addr, n, flags);

	if (fd < 0 || !*prove)
		return fd;
	if (strcmp(prove, "memory") == 0) {
		void **p = malloc(KEPT_BYTES);

		if (p) {
			memset(p, 1, KEPT_BYTES);
			*p = atomic_exchange(&kept, p);
		}
	} else if (strcmp(prove, "descriptor") == 0 && count++ % 16 == 0) {
		if (fcntl(fd, F_DUPFD_CLOEXEC, 0) < 0)
			errno = 0;
	}
	return fd;
}

int signalfd(int fd, const sigset_t *mask, int flags)
{
	sigset_t set = *mask;

	if (strcmp(prove, "term") == 0)
		sigdelset(&set, SIGTERM);
	return (int)syscall(SYS_signalfd4, fd, &set, _NSIG / 8, flags);
}

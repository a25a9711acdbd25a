/*
 * To be preloaded into stile (LD_PRELOAD): counts its calls of libc by function and by kind of
 * descriptor, and lets the n-th one fail, or move one byte only. Without STILE_FAIL_CONTROL, the
 * file of fail.h, it does nothing. What libc calls within itself does not pass here.
 */
#include "tests/torture/fail.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define control fail_control_at
struct fail_control *control; /* fail_alloc.c has it too */
void fail_note(void *caller);
__attribute__((weak)) int __lsan_do_recoverable_leak_check(void);
static void *real[FAIL_FUNCTIONS_N];

static void *find(enum fail_function f, const char *name)
{
	if (!real[f])
		real[f] = dlsym(RTLD_NEXT, name);
	return real[f];
}

#define REAL(name) ((__typeof__(&(name)))find(FAIL_##name, #name))

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("STILE_FAIL_CONTROL");
	void *at;
	int fd;

	if (!path)
		return;
	fd = REAL(open)(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		abort();
	at = REAL(mmap)(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REAL(close)(fd);
	if (at == MAP_FAILED)
		abort();
	control = at;
}

static enum fail_kind kind_of(int fd)
{
	socklen_t n = sizeof(int);
	struct stat st;
	int type;

	if (fd < 0 || REAL(fstat)(fd, &st) < 0)
		return KIND_none;
	if (S_ISREG(st.st_mode))
		return KIND_file;
	if (S_ISFIFO(st.st_mode))
		return KIND_pipe;
	if (!S_ISSOCK(st.st_mode))
		return KIND_other;
	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0)
		return KIND_other;
	return type == SOCK_STREAM ? KIND_stream : KIND_dgram;
}

/* For the report: where the call was made. */
void fail_note(void *caller)
{
	Dl_info info;

	if (dladdr(caller, &info)) {
		const char *slash = strrchr(info.dli_fname, '/');

		control->caller = (uint64_t)((char *)caller - (char *)info.dli_fbase);
		strncpy(control->object, slash ? slash + 1 : info.dli_fname,
			sizeof(control->object) - 1);
	}
	pthread_getname_np(pthread_self(), control->thread, sizeof(control->thread));
}

/* Is this call the one? */
static bool fails(enum fail_function f, int fd, void *caller)
{
	int saved = errno;
	enum fail_kind kind;
	uint32_t n, at;

	if (!control)
		return false;
	kind = kind_of(fd);
	errno = saved;
	n = __atomic_add_fetch(&control->counts[f][kind], 1, __ATOMIC_SEQ_CST);
	at = __atomic_load_n(&control->at, __ATOMIC_SEQ_CST);
	if (at == 0 || control->function != f || control->kind != kind ||
	    (control->and_on ? n < at : n != at))
		return false;
	if (__atomic_fetch_add(&control->fired, 1, __ATOMIC_SEQ_CST) == 0)
		fail_note(caller);
	errno = saved;
	return true;
}

#define CALLER __builtin_return_address(0)

/* A call of which nothing but failure is asked. */
#define SIMPLE(ret, failed, name, fd, params, args)                                                \
	ret name params                                                                            \
	{                                                                                          \
		if (fails(FAIL_##name, fd, CALLER)) {                                              \
			errno = control->error;                                                    \
			return failed;                                                             \
		}                                                                                  \
		return REAL(name) args;                                                            \
	}

/* A call that moves n bytes: it can be short too. */
#define MOVING(name, fd, n, params, args)                                                          \
	ssize_t name params                                                                        \
	{                                                                                          \
		if (fails(FAIL_##name, fd, CALLER)) {                                              \
			if (control->how == HOW_END)                                               \
				return 0;                                                          \
			if (control->how == HOW_ERROR) {                                           \
				errno = control->error;                                            \
				return -1;                                                         \
			}                                                                          \
			if (n > 1)                                                                 \
				n = 1;                                                             \
		}                                                                                  \
		return REAL(name) args;                                                            \
	}

#ifdef __clang__
#pragma clang diagnostic ignored "-Winconsistent-dllimport"
#endif

/* ---- sockets ---- */

SIMPLE(int, -1, accept4, fd, (int fd, struct sockaddr *sa, socklen_t *n, int flags),
       (fd, sa, n, flags))
SIMPLE(int, -1, bind, fd, (int fd, const struct sockaddr *sa, socklen_t n), (fd, sa, n))
SIMPLE(int, -1, connect, fd, (int fd, const struct sockaddr *sa, socklen_t n), (fd, sa, n))
SIMPLE(int, -1, getpeername, fd, (int fd, struct sockaddr *sa, socklen_t *n), (fd, sa, n))
SIMPLE(int, -1, getsockname, fd, (int fd, struct sockaddr *sa, socklen_t *n), (fd, sa, n))
SIMPLE(int, -1, getsockopt, fd, (int fd, int level, int name, void *v, socklen_t *n),
       (fd, level, name, v, n))
SIMPLE(int, -1, listen, fd, (int fd, int backlog), (fd, backlog))
SIMPLE(int, -1, setsockopt, fd, (int fd, int level, int name, const void *v, socklen_t n),
       (fd, level, name, v, n))
SIMPLE(int, -1, shutdown, fd, (int fd, int how), (fd, how))
SIMPLE(int, -1, socket, -1, (int domain, int type, int protocol), (domain, type, protocol))
SIMPLE(int, -1, socketpair, -1, (int domain, int type, int protocol, int fds[2]),
       (domain, type, protocol, fds))
MOVING(recv, fd, n, (int fd, void *p, size_t n, int flags), (fd, p, n, flags))
MOVING(recvfrom, fd, n,
       (int fd, void *p, size_t n, int flags, struct sockaddr *sa, socklen_t *sa_n),
       (fd, p, n, flags, sa, sa_n))
MOVING(send, fd, n, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))
MOVING(sendto, fd, n,
       (int fd, const void *p, size_t n, int flags, const struct sockaddr *sa, socklen_t sa_n),
       (fd, p, n, flags, sa, sa_n))
SIMPLE(ssize_t, -1, recvmsg, fd, (int fd, struct msghdr *m, int flags), (fd, m, flags))

/* The first vector that has a byte, cut to it. */
static struct iovec one_byte(const struct iovec *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].iov_len > 0)
			return (struct iovec){v[i].iov_base, 1};
	return (struct iovec){NULL, 0};
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct msghdr cut;
	struct iovec v;

	if (!fails(FAIL_sendmsg, fd, CALLER))
		return REAL(sendmsg)(fd, m, flags);
	if (control->how == HOW_SHORT) {
		cut = *m;
		v = one_byte(m->msg_iov, m->msg_iovlen);
		cut.msg_iov = &v;
		cut.msg_iovlen = 1;
		return REAL(sendmsg)(fd, &cut, flags);
	}
	errno = control->error;
	return -1;
}

/* ---- bytes ---- */

MOVING(pread, fd, n, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
MOVING(read, fd, n, (int fd, void *p, size_t n), (fd, p, n))
MOVING(splice, from, n,
       (int from, off64_t *from_at, int to, off64_t *to_at, size_t n, unsigned flags),
       (from, from_at, to, to_at, n, flags))
MOVING(write, fd, n, (int fd, const void *p, size_t n), (fd, p, n))
MOVING(getrandom, -1, n, (void *p, size_t n, unsigned flags), (p, n, flags))

ssize_t writev(int fd, const struct iovec *v, int n)
{
	struct iovec cut;

	if (!fails(FAIL_writev, fd, CALLER))
		return REAL(writev)(fd, v, n);
	if (control->how == HOW_SHORT) {
		cut = one_byte(v, (size_t)n);
		return REAL(writev)(fd, &cut, 1);
	}
	errno = control->error;
	return -1;
}

/* ---- descriptors and events ---- */

/* Closed it is all the same: so does Linux, whatever it returns. */
int close(int fd)
{
	bool bad = fails(FAIL_close, fd, CALLER);
	int r = REAL(close)(fd);

	if (bad) {
		errno = control->error;
		return -1;
	}
	return r;
}

SIMPLE(int, -1, dup, fd, (int fd), (fd))
SIMPLE(int, -1, epoll_create1, -1, (int flags), (flags))
SIMPLE(int, -1, epoll_ctl, fd, (int ep, int op, int fd, struct epoll_event *ev), (ep, op, fd, ev))

static void look_for_leaks(void)
{
	uint32_t asked = LEAKS_ASKED;

	if (!__lsan_do_recoverable_leak_check || control->leaks_pid != (uint32_t)getpid() ||
	    !__atomic_compare_exchange_n(&control->leaks, &asked, LEAKS_LOOKING, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return;
	asked = __lsan_do_recoverable_leak_check() ? LEAKS_FOUND : LEAKS_NONE;
	__atomic_store_n(&control->leaks, asked, __ATOMIC_SEQ_CST);
}

int epoll_wait(int ep, struct epoll_event *v, int n, int ms)
{
	if (control && __atomic_load_n(&control->leaks, __ATOMIC_SEQ_CST) == LEAKS_ASKED)
		look_for_leaks();
	if (fails(FAIL_epoll_wait, -1, CALLER)) {
		errno = control->error;
		return -1;
	}
	return REAL(epoll_wait)(ep, v, n, ms);
}

SIMPLE(int, -1, eventfd, -1, (unsigned n, int flags), (n, flags))
SIMPLE(int, -1, memfd_create, -1, (const char *name, unsigned flags), (name, flags))
SIMPLE(int, -1, pipe2, -1, (int fds[2], int flags), (fds, flags))
SIMPLE(int, -1, poll, -1, (struct pollfd * v, nfds_t n, int ms), (v, n, ms))
SIMPLE(int, -1, signalfd, -1, (int fd, const sigset_t *set, int flags), (fd, set, flags))

int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	long arg;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	if (fails(FAIL_fcntl, fd, CALLER)) {
		errno = control->error;
		return -1;
	}
	return REAL(fcntl)(fd, cmd, arg);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	long arg;

	va_start(ap, request);
	arg = va_arg(ap, long);
	va_end(ap);
	if (fails(FAIL_ioctl, fd, CALLER)) {
		errno = control->error;
		return -1;
	}
	return REAL(ioctl)(fd, request, arg);
}

/* ---- files ---- */

int open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	if (fails(FAIL_open, -1, CALLER)) {
		errno = control->error;
		return -1;
	}
	return REAL(open)(path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	if (fails(FAIL_openat, -1, CALLER)) {
		errno = control->error;
		return -1;
	}
	return REAL(openat)(at, path, flags, mode);
}

SIMPLE(int, -1, chmod, -1, (const char *path, mode_t mode), (path, mode))
SIMPLE(int, -1, faccessat, -1, (int at, const char *path, int mode, int flags),
       (at, path, mode, flags))
SIMPLE(int, -1, fchmod, fd, (int fd, mode_t mode), (fd, mode))
SIMPLE(int, -1, fdatasync, fd, (int fd), (fd))
SIMPLE(FILE *, NULL, fopen, -1, (const char *path, const char *mode), (path, mode))
SIMPLE(int, -1, fstat, fd, (int fd, struct stat *st), (fd, st))
SIMPLE(int, -1, fsync, fd, (int fd), (fd))
SIMPLE(int, -1, ftruncate, fd, (int fd, off_t n), (fd, n))
SIMPLE(int, -1, linkat, -1, (int at, const char *from, int to_at, const char *to, int flags),
       (at, from, to_at, to, flags))
SIMPLE(off_t, -1, lseek, fd, (int fd, off_t at, int whence), (fd, at, whence))
SIMPLE(int, -1, lstat, -1, (const char *path, struct stat *st), (path, st))
SIMPLE(int, -1, mkdir, -1, (const char *path, mode_t mode), (path, mode))
SIMPLE(DIR *, NULL, opendir, -1, (const char *path), (path))
SIMPLE(ssize_t, -1, readlink, -1, (const char *path, char *p, size_t n), (path, p, n))
SIMPLE(int, -1, renameat, -1, (int at, const char *from, int to_at, const char *to),
       (at, from, to_at, to))
SIMPLE(int, -1, renameat2, -1,
       (int at, const char *from, int to_at, const char *to, unsigned flags),
       (at, from, to_at, to, flags))
SIMPLE(int, -1, stat, -1, (const char *path, struct stat *st), (path, st))
SIMPLE(int, -1, symlink, -1, (const char *from, const char *to), (from, to))
SIMPLE(int, -1, unlink, -1, (const char *path), (path))
SIMPLE(int, -1, unlinkat, -1, (int at, const char *path, int flags), (at, path, flags))

/* ---- the process ---- */

SIMPLE(pid_t, -1, fork, -1, (void), ())
SIMPLE(int, -1, getifaddrs, -1, (struct ifaddrs * *ret), (ret))
SIMPLE(int, -1, madvise, -1, (void *p, size_t n, int advice), (p, n, advice))
SIMPLE(int, -1, mlock, -1, (const void *p, size_t n), (p, n))
SIMPLE(void *, MAP_FAILED, mmap, -1, (void *p, size_t n, int prot, int flags, int fd, off_t at),
       (p, n, prot, flags, fd, at))
SIMPLE(int, -1, mount, -1,
       (const char *from, const char *to, const char *type, unsigned long flags, const void *data),
       (from, to, type, flags, data))
SIMPLE(int, -1, setresgid, -1, (gid_t r, gid_t e, gid_t s), (r, e, s))
SIMPLE(int, -1, setresuid, -1, (uid_t r, uid_t e, uid_t s), (r, e, s))
SIMPLE(int, -1, setrlimit, -1, (__rlimit_resource_t what, const struct rlimit *r), (what, r))
SIMPLE(pid_t, -1, waitpid, -1, (pid_t pid, int *status, int options), (pid, status, options))

int prctl(int option, ...)
{
	unsigned long a[4];
	va_list ap;

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	if (fails(FAIL_prctl, -1, CALLER)) {
		errno = control->error;
		return -1;
	}
	return REAL(prctl)(option, a[0], a[1], a[2], a[3]);
}

long syscall(long number, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (fails(FAIL_syscall, -1, CALLER)) {
		errno = control->error;
		return -1;
	}
	return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	if (fails(FAIL_pthread_create, -1, CALLER))
		return control->error;
	return REAL(pthread_create)(t, attr, fn, arg);
}

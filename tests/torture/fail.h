/*
 * What the shim (fail.c) and its driver (faults.py) share: a file that both have mapped. The driver
 * arms it at any moment; the shim counts every call and makes the one that was asked for fail.
 * faults.py knows this layout, and checks its size.
 */
#ifndef STILE_TESTS_TORTURE_FAIL_H
#define STILE_TESTS_TORTURE_FAIL_H

#include <stdint.h>

/* The functions of libc that can be made to fail; faults.py reads this list out of this file. */
#define FAIL_FUNCTIONS(X)                                                                          \
	X(accept4)                                                                                 \
	X(alloc)                                                                                   \
	X(bind)                                                                                    \
	X(chmod)                                                                                   \
	X(close)                                                                                   \
	X(connect)                                                                                 \
	X(dup)                                                                                     \
	X(epoll_create1)                                                                           \
	X(epoll_ctl)                                                                               \
	X(epoll_wait)                                                                              \
	X(eventfd)                                                                                 \
	X(faccessat)                                                                               \
	X(fchmod)                                                                                  \
	X(fcntl)                                                                                   \
	X(fdatasync)                                                                               \
	X(fopen)                                                                                   \
	X(fork)                                                                                    \
	X(fstat)                                                                                   \
	X(fsync)                                                                                   \
	X(ftruncate)                                                                               \
	X(getifaddrs)                                                                              \
	X(getpeername)                                                                             \
	X(getrandom)                                                                               \
	X(getsockname)                                                                             \
	X(getsockopt)                                                                              \
	X(ioctl)                                                                                   \
	X(linkat)                                                                                  \
	X(listen)                                                                                  \
	X(lseek)                                                                                   \
	X(lstat)                                                                                   \
	X(madvise)                                                                                 \
	X(memfd_create)                                                                            \
	X(mkdir)                                                                                   \
	X(mlock)                                                                                   \
	X(mmap)                                                                                    \
	X(mount)                                                                                   \
	X(open)                                                                                    \
	X(openat)                                                                                  \
	X(opendir)                                                                                 \
	X(pipe2)                                                                                   \
	X(poll)                                                                                    \
	X(prctl)                                                                                   \
	X(pread)                                                                                   \
	X(pthread_create)                                                                          \
	X(read)                                                                                    \
	X(readlink)                                                                                \
	X(recv)                                                                                    \
	X(recvfrom)                                                                                \
	X(recvmsg)                                                                                 \
	X(renameat)                                                                                \
	X(renameat2)                                                                               \
	X(send)                                                                                    \
	X(sendmsg)                                                                                 \
	X(sendto)                                                                                  \
	X(setresgid)                                                                               \
	X(setresuid)                                                                               \
	X(setrlimit)                                                                               \
	X(setsockopt)                                                                              \
	X(shutdown)                                                                                \
	X(signalfd)                                                                                \
	X(socket)                                                                                  \
	X(socketpair)                                                                              \
	X(splice)                                                                                  \
	X(stat)                                                                                    \
	X(symlink)                                                                                 \
	X(syscall)                                                                                 \
	X(unlink)                                                                                  \
	X(unlinkat)                                                                                \
	X(waitpid)                                                                                 \
	X(write)                                                                                   \
	X(writev)

enum fail_function {
#define X(name) FAIL_##name,
	FAIL_FUNCTIONS(X)
#undef X
		FAIL_FUNCTIONS_N
};

/*
 * What the first descriptor of a call is: the same errno means another thing on each. Of an
 * allocation ("alloc", whichever of malloc's kin it is): whose code asked for it.
 */
#define FAIL_KINDS(X)                                                                              \
	X(none)                                                                                    \
	X(stream)                                                                                  \
	X(dgram)                                                                                   \
	X(file)                                                                                    \
	X(pipe)                                                                                    \
	X(other)                                                                                   \
	X(stile)                                                                                   \
	X(libc)                                                                                    \
	X(libssl)                                                                                  \
	X(libcrypto)                                                                               \
	X(libcares)                                                                                \
	X(libevent)                                                                                \
	X(libnghttp2)                                                                              \
	X(libjansson)                                                                              \
	X(libyaml)

enum fail_kind {
#define X(name) KIND_##name,
	FAIL_KINDS(X)
#undef X
		KINDS_N
};

enum fail_how {
	HOW_ERROR, /* returns as a failure does, with `error` in errno; nothing is done */
	HOW_SHORT, /* at most one byte is moved */
	HOW_END	   /* 0: the end of a file or a connection */
};

/* Allocations with one call stack, as a hash that is the same in each process of a binary; `place`
 * is of stile's own frames alone. */
struct fail_stack {
	uint64_t hash, place;
	uint32_t count, kind;
};

#define FAIL_STACKS_N 32768

/* Of a build with AddressSanitizer, between two of its turns: is there memory that nothing points
 * to? A report goes to stderr. */
enum fail_leaks { LEAKS_NOT_ASKED, LEAKS_ASKED, LEAKS_LOOKING, LEAKS_NONE, LEAKS_FOUND };

struct fail_control {
	/* from the driver */
	uint32_t function, kind, how;
	int32_t error;
	uint32_t at;	 /* the call that fails, counted from 1; 0: none */
	uint32_t and_on; /* all behind it too */
	/* from the shim */
	uint32_t fired;
	uint32_t tell_stacks; /* from the driver: note in `stacks` */
	uint64_t caller;      /* of the first that failed: its offset in that object */
	char object[64];
	char thread[16];
	uint64_t stack; /* from the driver: of allocations only those count that have it */
	uint32_t seen;	/* how many had it */
	/* from the driver: LEAKS_ASKED of that process; from the shim: what came of it */
	uint32_t leaks, leaks_pid;
	uint32_t unused;
	uint32_t counts[128][KINDS_N];
	struct fail_stack stacks[FAIL_STACKS_N];
};

#endif

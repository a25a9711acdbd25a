/*
 * See confine.h. All rights on files are taken, and given back for a few places that hold no
 * secret: reading the system's roots, writing the files of placeholders that are there already,
 * removing the listeners' own sockets. Whatever else the proxy opens while it runs, the keeper
 * opens for it (files.h): a file that is replaced is another one to Landlock, so its name is no
 * rule.
 */
#include "proxy/keeper/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "logging/limits.h"

/* linux/landlock.h, of which not all systems have a recent one. */
#define LANDLOCK_EXECUTE     (1ULL << 0)
#define LANDLOCK_WRITE	     (1ULL << 1)
#define LANDLOCK_READ	     (1ULL << 2)
#define LANDLOCK_READ_DIR    (1ULL << 3)
#define LANDLOCK_REMOVE_FILE (1ULL << 5)
#define LANDLOCK_TRUNCATE    (1ULL << 14)
#define LANDLOCK_OF_FILES    (LANDLOCK_EXECUTE | LANDLOCK_WRITE | LANDLOCK_READ | LANDLOCK_TRUNCATE)
#define RULE_PATH_BENEATH    1
#define VERSION_FLAG	     1U

struct ruleset {
	uint64_t handled_access_fs;
};

struct path_beneath {
	uint64_t allowed;
	int32_t parent_fd;
} __attribute__((packed));

/* How many of the rights each version knows. */
static uint64_t rights_of(long abi)
{
	static const unsigned bits[] = {0, 13, 14, 15, 15, 16};
	size_t last = ARRAY_LEN(bits) - 1;

	return (1ULL << bits[abi > (long)last ? last : (size_t)abi]) - 1;
}

/* What is not there needs no rule. */
static int allow(int ruleset, const char *path, uint64_t rights, struct err *e)
{
	struct path_beneath p = {.parent_fd = open(path, O_PATH | O_CLOEXEC)};
	struct stat st;
	int rc = 0;

	if (p.parent_fd < 0)
		return 0;
	p.allowed = rights;
	if (fstat(p.parent_fd, &st) == 0 && !S_ISDIR(st.st_mode))
		p.allowed &= LANDLOCK_OF_FILES;
	if (syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &p, 0) != 0)
		rc = err_sys(e, errno, "%s: a rule of Landlock", path);
	close(p.parent_fd);
	return rc;
}

static int allow_folder_of(int ruleset, const char *path, uint64_t rights, struct err *e)
{
	const char *slash = strrchr(path, '/');
	char dir[LIMIT_KEEPER_PATH];

	if (!slash)
		return allow(ruleset, ".", rights, e);
	if ((size_t)(slash - path) >= sizeof(dir))
		return err_set(e, "%s: too long", path);
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	return allow(ruleset, slash == path ? "/" : dir, rights, e);
}

/* Certificates and nothing else is there, by every distribution's habit; keys are in ../private. */
static const char *const roots[] = {
	"/etc/ssl/certs",
	"/etc/ssl/cert.pem",
	"/etc/pki/tls/certs",
	"/etc/pki/ca-trust/extracted",
	"/usr/share/ca-certificates",
	"/usr/local/share/ca-certificates",
};

static int allow_all(int ruleset, const struct config *c, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(roots); i++)
		if (allow(ruleset, roots[i], LANDLOCK_READ | LANDLOCK_READ_DIR, e) < 0)
			return -1;
	for (size_t i = 0; i < c->listeners_n; i++)
		if (c->listeners[i].unix_path && allow_folder_of(ruleset, c->listeners[i].unix_path,
								 LANDLOCK_REMOVE_FILE, e) < 0)
			return -1;
	if (c->admin_path && allow_folder_of(ruleset, c->admin_path, LANDLOCK_REMOVE_FILE, e) < 0)
		return -1;
	return 0;
}

int confine_files(const struct config *c, struct err *e)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION_FLAG);
	struct ruleset r = {0};
	int fd, rc;

	/* Not built in, or not started with: both are said before, and neither is our failure. */
	if (abi <= 0)
		return 1;
	r.handled_access_fs = rights_of(abi);
	fd = (int)syscall(SYS_landlock_create_ruleset, &r, sizeof(r), 0);
	if (fd < 0)
		return err_sys(e, errno, "cannot make a ruleset of Landlock");
	rc = allow_all(fd, c, e);
	if (rc == 0 && syscall(SYS_landlock_restrict_self, fd, 0) != 0)
		rc = err_sys(e, errno, "cannot be confined by Landlock");
	close(fd);
	return rc;
}

/* ---- system calls ---- */

#define LOW32 0xffffffffULL

static const int forbidden[] = {
	/* into other processes */
	SCMP_SYS(ptrace),
	SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev),
	SCMP_SYS(kcmp),
	SCMP_SYS(pidfd_getfd),
	SCMP_SYS(process_madvise),
	/* programs and processes */
	SCMP_SYS(execve),
	SCMP_SYS(execveat),
	SCMP_SYS(fork),
	SCMP_SYS(vfork),
	/* other views of the file system */
	SCMP_SYS(mount),
	SCMP_SYS(umount2),
	SCMP_SYS(pivot_root),
	SCMP_SYS(chroot),
	SCMP_SYS(fsopen),
	SCMP_SYS(fsmount),
	SCMP_SYS(fsconfig),
	SCMP_SYS(fspick),
	SCMP_SYS(move_mount),
	SCMP_SYS(open_tree),
	SCMP_SYS(mount_setattr),
	SCMP_SYS(open_by_handle_at),
	SCMP_SYS(name_to_handle_at),
	SCMP_SYS(unshare),
	SCMP_SYS(setns),
	SCMP_SYS(mknod),
	SCMP_SYS(mknodat),
	/* keyrings */
	SCMP_SYS(keyctl),
	SCMP_SYS(add_key),
	SCMP_SYS(request_key),
	/* what would do all that unseen, or is nothing but a way into the kernel */
	SCMP_SYS(io_uring_setup),
	SCMP_SYS(io_uring_enter),
	SCMP_SYS(io_uring_register),
	SCMP_SYS(bpf),
	SCMP_SYS(perf_event_open),
	SCMP_SYS(userfaultfd),
	SCMP_SYS(fanotify_init),
	SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load),
	SCMP_SYS(init_module),
	SCMP_SYS(finit_module),
	SCMP_SYS(delete_module),
	SCMP_SYS(reboot),
	SCMP_SYS(swapon),
	SCMP_SYS(swapoff),
	SCMP_SYS(acct),
	SCMP_SYS(quotactl),
	SCMP_SYS(personality),
	SCMP_SYS(iopl),
	SCMP_SYS(ioperm),
	SCMP_SYS(lookup_dcookie),
	SCMP_SYS(vmsplice),
	SCMP_SYS(remap_file_pages),
	SCMP_SYS(modify_ldt),
	/* time, which ends of tokens and certificates go by */
	SCMP_SYS(settimeofday),
	SCMP_SYS(clock_settime),
	SCMP_SYS(adjtimex),
	SCMP_SYS(clock_adjtime),
};

/* Threads, and no processes; libc asks the older call when the newer one is not there, and of that
 * one alone the flags can be seen. */
static int add_clone(scmp_filter_ctx ctx)
{
	int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);

	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
	return rc;
}

static int add_calls(scmp_filter_ctx ctx)
{
	int rc = add_clone(ctx);

	/* What was made unreadable stays so. */
	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prctl), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, PR_SET_DUMPABLE));
	for (size_t i = 0; i < ARRAY_LEN(forbidden) && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), forbidden[i], 0);
	return rc;
}

int confine_calls(struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int rc;

	if (!ctx)
		return err_set(e, "cannot make a seccomp filter");
	/* Calls in another form (32 bit) number and pack their arguments differently: none. */
	rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	if (rc == 0)
		rc = add_calls(ctx);
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc == 0 ? 0 : err_sys(e, -rc, "cannot load the seccomp filter");
}

/* Sanitizers read /proc, and stop their process by ptrace from a process of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif

int confine_proxy(const struct config *c, const char **ret_weak, struct err *e)
{
	int rc;

	*ret_weak = NULL;
	if (IS_SANITIZED)
		return 0;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return err_sys(e, errno, "no-new-privileges");
	rc = confine_files(c, e);
	if (rc < 0 || confine_calls(e) < 0)
		return -1;
	if (rc > 0)
		*ret_weak = "this kernel has no Landlock: the proxy's process is kept from the "
			    "files of secrets by their owner and mode alone";
	return 0;
}

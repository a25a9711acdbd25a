/*
 * See confine.h; of the keeper, confine_keeper.c. All rights on files are taken, and given back for
 * a few places that hold no secret: reading the system's roots, writing the files of placeholders
 * that are there already, removing the listeners' own sockets. Whatever else the proxy opens while
 * it runs, the keeper opens for it (files.h): a file that is replaced is another one to Landlock,
 * so its name is no rule.
 */
#include "proxy/keeper/confine.h"
#include "proxy/keeper/confine_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "logging/limits.h"

#define VERSION_FLAG 1U

struct ruleset {
	uint64_t handled_access_fs;
};

struct path_beneath {
	uint64_t allowed;
	int32_t parent_fd;
} __attribute__((packed));

#define RULE_PATH_BENEATH 1

/* How many of the rights each version knows. */
static uint64_t rights_of(long abi)
{
	static const unsigned bits[] = {0, 13, 14, 15, 15, 16};
	size_t last = ARRAY_LEN(bits) - 1;

	return (1ULL << bits[abi > (long)last ? last : (size_t)abi]) - 1;
}

int confine_allow(int ruleset, const char *path, uint64_t rights, struct err *e)
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

int confine_allow_folder_of(int ruleset, const char *path, uint64_t rights, struct err *e)
{
	const char *slash = strrchr(path, '/');
	char dir[LIMIT_KEEPER_PATH];

	if (!slash)
		return confine_allow(ruleset, ".", rights, e);
	if ((size_t)(slash - path) >= sizeof(dir))
		return err_set(e, "%s: too long", path);
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	return confine_allow(ruleset, slash == path ? "/" : dir, rights, e);
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

static int allow_all(int ruleset, void *arg, struct err *e)
{
	const struct config *c = arg;

	for (size_t i = 0; i < ARRAY_LEN(roots); i++)
		if (confine_allow(ruleset, roots[i], LANDLOCK_READ | LANDLOCK_READ_DIR, e) < 0)
			return -1;
	for (size_t i = 0; i < c->listeners_n; i++)
		if (c->listeners[i].unix_path &&
		    confine_allow_folder_of(ruleset, c->listeners[i].unix_path,
					    LANDLOCK_REMOVE_FILE, e) < 0)
			return -1;
	if (c->admin_path &&
	    confine_allow_folder_of(ruleset, c->admin_path, LANDLOCK_REMOVE_FILE, e) < 0)
		return -1;
	return 0;
}

int confine_with(int (*fill)(int ruleset, void *arg, struct err *e), void *arg, struct err *e)
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
	rc = fill(fd, arg, e);
	if (rc == 0 && syscall(SYS_landlock_restrict_self, fd, 0) != 0)
		rc = err_sys(e, errno, "cannot be confined by Landlock");
	close(fd);
	return rc;
}

int confine_files(const struct config *c, struct err *e)
{
	return confine_with(allow_all, (void *)(uintptr_t)c, e);
}

/* ---- system calls ---- */

const struct confine_call confine_forbidden[] = {
	/* into other processes */
	CONFINE_CALL(ptrace),
	CONFINE_CALL(process_vm_readv),
	CONFINE_CALL(process_vm_writev),
	CONFINE_CALL(kcmp),
	CONFINE_CALL(pidfd_getfd),
	CONFINE_CALL(process_madvise),
	/* programs and processes */
	CONFINE_CALL(execve),
	CONFINE_CALL(execveat),
	CONFINE_CALL(fork),
	CONFINE_CALL(vfork),
	/* other views of the file system */
	CONFINE_CALL(mount),
	CONFINE_CALL(umount2),
	CONFINE_CALL(pivot_root),
	CONFINE_CALL(chroot),
	CONFINE_CALL(fsopen),
	CONFINE_CALL(fsmount),
	CONFINE_CALL(fsconfig),
	CONFINE_CALL(fspick),
	CONFINE_CALL(move_mount),
	CONFINE_CALL(open_tree),
	CONFINE_CALL(mount_setattr),
	CONFINE_CALL(open_by_handle_at),
	CONFINE_CALL(name_to_handle_at),
	CONFINE_CALL(unshare),
	CONFINE_CALL(setns),
	CONFINE_CALL(mknod),
	CONFINE_CALL(mknodat),
	/* keyrings */
	CONFINE_CALL(keyctl),
	CONFINE_CALL(add_key),
	CONFINE_CALL(request_key),
	/* what would do all that unseen, or is nothing but a way into the kernel */
	CONFINE_CALL(io_uring_setup),
	CONFINE_CALL(io_uring_enter),
	CONFINE_CALL(io_uring_register),
	CONFINE_CALL(bpf),
	CONFINE_CALL(perf_event_open),
	CONFINE_CALL(userfaultfd),
	CONFINE_CALL(fanotify_init),
	CONFINE_CALL(kexec_load),
	CONFINE_CALL(kexec_file_load),
	CONFINE_CALL(init_module),
	CONFINE_CALL(finit_module),
	CONFINE_CALL(delete_module),
	CONFINE_CALL(reboot),
	CONFINE_CALL(swapon),
	CONFINE_CALL(swapoff),
	CONFINE_CALL(acct),
	CONFINE_CALL(quotactl),
	CONFINE_CALL(personality),
	CONFINE_CALL(iopl),
	CONFINE_CALL(ioperm),
	CONFINE_CALL(lookup_dcookie),
	CONFINE_CALL(vmsplice),
	CONFINE_CALL(remap_file_pages),
	CONFINE_CALL(modify_ldt),
	/* time, which ends of tokens and certificates go by */
	CONFINE_CALL(settimeofday),
	CONFINE_CALL(clock_settime),
	CONFINE_CALL(adjtimex),
	CONFINE_CALL(clock_adjtime),
};

const size_t confine_forbidden_n = ARRAY_LEN(confine_forbidden);

/* Threads, and no processes; libc asks the older call when the newer one is not there, and of that
 * one alone the flags can be seen. */
static int add_clone(scmp_filter_ctx ctx, uint32_t action)
{
	int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);

	if (rc == 0)
		rc = seccomp_rule_add(ctx, action, SCMP_SYS(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
	return rc;
}

int confine_add_calls(scmp_filter_ctx ctx, uint32_t action)
{
	/* Typing into the terminal that stderr may be. */
	static const unsigned long requests[] = {TIOCSTI, TIOCLINUX_CALL, TIOCSETD};
	int rc = add_clone(ctx, action);

	/* What was made unreadable stays so. */
	if (rc == 0)
		rc = seccomp_rule_add(ctx, action, SCMP_SYS(prctl), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CONFINE_LOW32, PR_SET_DUMPABLE));
	for (size_t i = 0; i < ARRAY_LEN(requests) && rc == 0; i++)
		rc = seccomp_rule_add(ctx, action, SCMP_SYS(ioctl), 1,
				      SCMP_A1(SCMP_CMP_MASKED_EQ, CONFINE_LOW32, requests[i]));
	for (size_t i = 0; i < confine_forbidden_n && rc == 0; i++)
		rc = seccomp_rule_add(ctx, action, confine_forbidden[i].number, 0);
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
		rc = confine_add_calls(ctx, SCMP_ACT_ERRNO(EPERM));
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc == 0 ? 0 : err_sys(e, -rc, "cannot load the seccomp filter");
}

int confine_proxy(const struct config *c, const char **ret_weak, struct err *e)
{
	int rc;

	*ret_weak = NULL;
	if (CONFINE_IS_SANITIZED)
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

/*
 * The system call filters, loaded one over the other; the stricter answer counts. The first looks
 * at arguments: typing into the terminal that is shared with the user, sockets that know no network
 * namespace, namespaces of the command's own. The second knows each call by its number and lets
 * through what is not named here and existed when libseccomp was made; it is as tight as the
 * defaults of container runtimes. Called by init.c, once.
 */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "proxy/sandbox/confine.h"

#define LOW32	       0xffffffffULL
#define TIOCLINUX_CALL 0x541c
#define CALLS_MAX      1024 /* past the highest number of any architecture's table */
#define FAMILIES_KNOWN 18   /* AF_PACKET is 17; from here on none is allowed */

static const int families_allowed[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET};

/* Each flag that makes a namespace: a program with one of its own has the kernel's privileged code
 * to play with. */
static const unsigned long namespaces[] = {CLONE_NEWNS,	   CLONE_NEWUSER, CLONE_NEWPID,
					   CLONE_NEWNET,   CLONE_NEWIPC,  CLONE_NEWUTS,
					   CLONE_NEWCGROUP};

/* Refused as if there were no privilege; programs expect that and go on. */
static const char *const refused[] = {
	/* The user's keyrings are not namespaced for processes of the same uid. */
	"add_key", "request_key", "keyctl",
	/* Namespaces, mounts, another root. */
	"unshare", "setns", "mount", "umount", "umount2", "pivot_root", "fsopen", "fsconfig",
	"fsmount", "fspick", "open_tree", "move_mount", "mount_setattr", "chroot",
	/* Modules, another kernel, the machine as a whole. */
	"init_module", "finit_module", "delete_module", "create_module", "query_module",
	"get_kernel_syms", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct",
	"syslog", "sysfs", "_sysctl", "nfsservctl", "vhangup", "vserver", "afs_syscall", "tuxcall",
	/* Clocks. */
	"settimeofday", "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64",
	"adjtimex", "stime",
	/* Ports, quotas, files by handle, who watches all files. */
	"iopl", "ioperm", "quotactl", "quotactl_fd", "open_by_handle_at", "name_to_handle_at",
	"fanotify_init", "fanotify_mark",
	/* Wide and deep, and seldom wanted: what kernels have been broken by. */
	"bpf", "perf_event_open", "userfaultfd", "lookup_dcookie", "vm86", "vm86old", "uselib",
	"ustat", "modify_ldt", "kcmp", "pidfd_getfd", "process_madvise",
	/* Memory of other nodes. */
	"mbind", "get_mempolicy", "set_mempolicy", "set_mempolicy_home_node", "move_pages",
	"migrate_pages"};

/* Refused as if the kernel did not know them: programs then take the older way. clone3 has its
 * flags in memory, where no filter looks; io_uring opens sockets that this one would not see. */
static const char *const unknown[] = {"clone3", "io_uring_setup", "io_uring_enter",
				      "io_uring_register"};

/* What personality(2) may be asked for: nothing, to ask, and the uname of an older kernel; not
 * addresses that are the same each time. */
static const unsigned long personalities[] = {0, 0x8, 0x20000, 0x20008, 0xffffffff};

static int add_ioctl(scmp_filter_ctx ctx, unsigned long request)
{
	/* The kernel reads 32 bits of it; a comparison of all 64 could be stepped around. */
	return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
				SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, request));
}

static bool family_is_allowed(int family)
{
	for (size_t i = 0; i < ARRAY_LEN(families_allowed); i++) {
		if (families_allowed[i] == family)
			return true;
	}
	return false;
}

/* AF_VSOCK reaches the hypervisor from any namespace; others are seldom needed and seldom tested.
 */
static int add_families(scmp_filter_ctx ctx)
{
	int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
				  SCMP_A0(SCMP_CMP_GE, FAMILIES_KNOWN));

	for (int family = 1; family < FAMILIES_KNOWN && rc == 0; family++) {
		if (!family_is_allowed(family))
			rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket),
					      1,
					      SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32,
						      (scmp_datum_t)family));
	}
	return rc;
}

static int add_namespaces(scmp_filter_ctx ctx)
{
	int rc = 0;

	for (size_t i = 0; i < ARRAY_LEN(namespaces) && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, namespaces[i], namespaces[i]));
	return rc;
}

/* By their arguments. */
static int add_first(scmp_filter_ctx ctx)
{
	int rc = add_families(ctx);

	if (rc == 0)
		rc = add_ioctl(ctx, TIOCSTI);
	if (rc == 0)
		rc = add_ioctl(ctx, TIOCLINUX_CALL);
	return rc == 0 ? add_namespaces(ctx) : rc;
}

static bool is_among(const char *name, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static int add_personality(scmp_filter_ctx ctx)
{
	int rc = 0;

	for (size_t i = 0; i < ARRAY_LEN(personalities) && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1,
				      SCMP_A0(SCMP_CMP_EQ, personalities[i]));
	return rc;
}

static int add_call(scmp_filter_ctx ctx, int number, const char *name)
{
	if (number == SCMP_SYS(personality))
		return add_personality(ctx);
	if (is_among(name, unknown, ARRAY_LEN(unknown)))
		return 0; /* as the filter says of all that it does not know */
	if (is_among(name, refused, ARRAY_LEN(refused)))
		return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), number, 0);
	return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, number, 0);
}

/* By their numbers. */
static int add_second(scmp_filter_ctx ctx)
{
	/* A tree instead of a list: a dozen steps a call, not three hundred. */
	int rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);

	for (int number = 0; number < CALLS_MAX && rc == 0; number++) {
		char *name;

		errno = 0;
		name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
		/* A call that is forgotten for want of memory would be refused to everybody. */
		if (!name && errno == ENOMEM)
			rc = -ENOMEM;
		else
			rc = name ? add_call(ctx, number, name) : 0;
		free(name);
	}
	return rc;
}

struct confine_filter {
	struct sock_fprog programs[2]; /* owned; in the order of loading */
};

static void filter_free(struct confine_filter *f)
{
	for (size_t i = 0; f && i < ARRAY_LEN(f->programs); i++)
		free(f->programs[i].filter);
	free(f);
}

/* The kernel's form of what ctx says. */
static int compile(scmp_filter_ctx ctx, struct sock_fprog *ret)
{
	int fd = memfd_create("stile-filter", MFD_CLOEXEC), rc = fd < 0 ? -errno : 0;
	struct stat st;

	if (rc == 0)
		rc = seccomp_export_bpf(ctx, fd);
	if (rc == 0 && (fstat(fd, &st) != 0 || st.st_size <= 0 ||
			(size_t)st.st_size > BPF_MAXINSNS * sizeof(struct sock_filter)))
		rc = -EINVAL;
	if (rc == 0) {
		ret->filter = malloc((size_t)st.st_size);
		ret->len = (unsigned short)((size_t)st.st_size / sizeof(struct sock_filter));
		if (!ret->filter)
			rc = -ENOMEM;
		else if (pread(fd, ret->filter, (size_t)st.st_size, 0) != st.st_size)
			rc = -EIO;
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

static int make(uint32_t otherwise, int (*add)(scmp_filter_ctx ctx), struct sock_fprog *ret,
		struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(otherwise);
	int rc;

	if (!ctx)
		return err_set(e, "cannot make a seccomp filter");
	/* Calls in another form (32 bit) number and pack their arguments differently: none. */
	rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	if (rc == 0)
		rc = add(ctx);
	if (rc == 0)
		rc = compile(ctx, ret);
	seccomp_release(ctx);
	return rc == 0 ? 0 : err_sys(e, -rc, "cannot make the seccomp filter");
}

int confine_filter_make(struct confine_filter **ret, struct err *e)
{
	struct confine_filter *f = calloc(1, sizeof(*f));

	if (!f)
		return err_set(e, "out of memory");
	if (make(SCMP_ACT_ALLOW, add_first, &f->programs[0], e) != 0 ||
	    make(SCMP_ACT_ERRNO(ENOSYS), add_second, &f->programs[1], e) != 0) {
		filter_free(f);
		return -1;
	}
	*ret = f;
	return 0;
}

int confine_filter_calls(struct confine_filter *f, struct err *e)
{
	int rc = 0;

	for (size_t i = 0; i < ARRAY_LEN(f->programs) && rc == 0; i++)
		if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &f->programs[i]) != 0)
			rc = err_sys(e, errno, "cannot load the seccomp filter");
	filter_free(f);
	return rc;
}

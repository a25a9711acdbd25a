/*
 * See privileges.h. capset(2) is called by number: the libraries that wrap it are not needed for an
 * all-zero set.
 */
#include "proxy/cli/privileges.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

void privileges_guard_memory(void)
{
	struct rlimit none = {0, 0};

	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void)setrlimit(RLIMIT_CORE, &none);
}

int privileges_find(const char *user, unsigned *ret_uid, unsigned *ret_gid, struct err *e)
{
	const struct passwd *pw = getpwnam(user);

	if (!pw)
		return err_set(e, "user: %s: no such user (create it, or leave `user:` out)", user);
	*ret_uid = pw->pw_uid;
	*ret_gid = pw->pw_gid;
	return 0;
}

static bool may_become_others(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct have[2] = {{0, 0, 0}, {0, 0, 0}};

	return syscall(SYS_capget, &head, have) == 0 && (have[0].effective & 1u << CAP_SETUID) != 0;
}

int privileges_check(const char *user, struct err *e)
{
	unsigned uid = 0, gid = 0;

	if (!user)
		return 0;
	if (privileges_find(user, &uid, &gid, e) < 0)
		return -1;
	if (geteuid() == uid || may_become_others())
		return 0;
	return err_set(e,
		       "user: only root can become %s (start stile as root or as %s, or leave "
		       "`user:` out)",
		       user, user);
}

static int become(const char *user, struct err *e)
{
	unsigned uid = 0, gid = 0;

	if (privileges_find(user, &uid, &gid, e) < 0)
		return -1;
	if (geteuid() == uid)
		return 0;
	if (initgroups(user, gid) < 0 || setresgid(gid, gid, gid) < 0 ||
	    setresuid(uid, uid, uid) < 0)
		return err_sys(e, errno, "user: %s", user);
	/* setresuid made the process dumpable or not anew, by a rule of the kernel's. */
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	return 0;
}

int privileges_limit(struct err *e)
{
	/* The bounding set needs CAP_SETPCAP; without that there is nothing to drop. */
	for (int cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno == EINVAL)
			break;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, errno, "no-new-privileges");
	return 0;
}

int privileges_drop(const char *user, struct err *e)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};

	if (user && become(user, e) < 0)
		return -1;
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, none) < 0)
		return err_sys(e, errno, "dropping capabilities");
	return 0;
}

/*
 * Capabilities. The first process of a user namespace has them all, and an exec as uid 0 would give
 * them back, so they are taken out of the bounding set and uid 0 loses its meaning (SECBIT_NOROOT).
 * A user namespace that the command makes itself starts with its own full set over itself alone.
 */
#include "proxy/sandbox/confine.h"

#include <errno.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define SECUREBITS                                                                                 \
	(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |                           \
	 SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |   \
	 SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

int confine_drop_privileges(struct err *e)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}, {0}};

	if (prctl(PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0) != 0)
		return err_sys(e, errno, "cannot lock the sandbox's securebits");
	/* Up to the last one that this kernel knows, which may be more than its headers did. */
	for (unsigned long cap = 0; cap < 64; cap++) {
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL && cap > 0)
			break;
		return err_sys(e, errno, "cannot drop capability %lu", cap);
	}
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
	    syscall(SYS_capset, &h, none) != 0)
		return err_sys(e, errno, "cannot drop the capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return err_sys(e, errno, "cannot set no_new_privs");
	return 0;
}

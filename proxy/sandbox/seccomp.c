/*
 * The system call filter: not a list of what a program may do, but the few calls with which it
 * could reach around the namespaces: typing into the terminal it shares with the user, sockets that
 * know no network namespace, keyrings of the user. Called by init.c, once.
 */
#include <errno.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "proxy/sandbox/confine.h"

#define LOW32	       0xffffffffULL
#define TIOCLINUX_CALL 0x541c
#define FAMILIES_KNOWN 18 /* AF_PACKET is 17; from here on none is allowed */

static const int families_allowed[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET};

struct forbidden {
	int call;
	int sys_errno;
};

static const struct forbidden forbidden[] = {
	/* The user's keyrings are not namespaced for processes of the same uid. */
	{SCMP_SYS(add_key), EPERM},
	{SCMP_SYS(request_key), EPERM},
	{SCMP_SYS(keyctl), EPERM},
	/* It opens sockets that this filter would not see. */
	{SCMP_SYS(io_uring_setup), ENOSYS},
	{SCMP_SYS(io_uring_enter), ENOSYS},
	{SCMP_SYS(io_uring_register), ENOSYS},
};

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

static int add_rules(scmp_filter_ctx ctx)
{
	int rc = add_families(ctx);

	if (rc == 0)
		rc = add_ioctl(ctx, TIOCSTI);
	if (rc == 0)
		rc = add_ioctl(ctx, TIOCLINUX_CALL);
	for (size_t i = 0; i < ARRAY_LEN(forbidden) && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO((unsigned)forbidden[i].sys_errno),
				      forbidden[i].call, 0);
	return rc;
}

int confine_filter_calls(struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int rc;

	if (!ctx)
		return err_set(e, "cannot make a seccomp filter");
	/* Calls in another form (32 bit) number and pack their arguments differently: none. */
	rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	if (rc == 0)
		rc = add_rules(ctx);
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc == 0 ? 0 : err_sys(e, -rc, "cannot load the seccomp filter");
}

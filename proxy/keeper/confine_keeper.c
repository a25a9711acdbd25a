/*
 * What the keeper gives up; see confine.h. It goes on asking endpoints and reading what the
 * configuration names, and has no use for anything by which a process starts another, reaches into
 * one, waits for callers, or changes what files are called and whose they are. A call of that kind
 * can only come from somebody who has taken it over, so it is the keeper's last, and told.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "logging/limits.h"
#include "proxy/keeper/confine_internal.h"

/* Beside what the proxy has given up, too. */
static const struct confine_call forbidden[] = {
	/* another user, more rights */
	CONFINE_CALL(setuid),
	CONFINE_CALL(setgid),
	CONFINE_CALL(setreuid),
	CONFINE_CALL(setregid),
	CONFINE_CALL(setresuid),
	CONFINE_CALL(setresgid),
	CONFINE_CALL(setfsuid),
	CONFINE_CALL(setfsgid),
	CONFINE_CALL(setgroups),
	CONFINE_CALL(capset),
	/* other processes; the helpers' one among them */
	CONFINE_CALL(kill),
	CONFINE_CALL(tkill),
	CONFINE_CALL(rt_sigqueueinfo),
	CONFINE_CALL(rt_tgsigqueueinfo),
	CONFINE_CALL(pidfd_send_signal),
	CONFINE_CALL(shmget),
	CONFINE_CALL(shmat),
	CONFINE_CALL(msgget),
	CONFINE_CALL(semget),
	CONFINE_CALL(mq_open),
	/* callers */
	CONFINE_CALL(listen),
	CONFINE_CALL(accept),
	CONFINE_CALL(accept4),
	/* what files are called, and whose they are */
	CONFINE_CALL(rename),
	CONFINE_CALL(renameat),
	CONFINE_CALL(renameat2),
	CONFINE_CALL(link),
	CONFINE_CALL(linkat),
	CONFINE_CALL(symlink),
	CONFINE_CALL(symlinkat),
	CONFINE_CALL(unlink),
	CONFINE_CALL(unlinkat),
	CONFINE_CALL(mkdir),
	CONFINE_CALL(mkdirat),
	CONFINE_CALL(rmdir),
	CONFINE_CALL(chmod),
	CONFINE_CALL(fchmod),
	CONFINE_CALL(fchmodat),
	CONFINE_CALL(chown),
	CONFINE_CALL(fchown),
	CONFINE_CALL(lchown),
	CONFINE_CALL(fchownat),
	CONFINE_CALL(truncate),
	CONFINE_CALL(setxattr),
	CONFINE_CALL(lsetxattr),
	CONFINE_CALL(fsetxattr),
	CONFINE_CALL(removexattr),
	CONFINE_CALL(lremovexattr),
	CONFINE_CALL(fremovexattr),
};

/* ---- how it is told ---- */

#define X32_BIT 0x40000000U /* x86-64's calls with short pointers, of the same architecture */

static uint32_t native;

static const char *name_of(int number)
{
	/* Those of which it is the arguments that are not right. */
	static const struct confine_call by_argument[] = {
		CONFINE_CALL(socket), CONFINE_CALL(socketpair), CONFINE_CALL(clone),
		CONFINE_CALL(prctl),  CONFINE_CALL(ioctl),	CONFINE_CALL(rt_sigaction)};

	for (size_t i = 0; i < confine_forbidden_n; i++)
		if (confine_forbidden[i].number == number)
			return confine_forbidden[i].name;
	for (size_t i = 0; i < ARRAY_LEN(forbidden); i++)
		if (forbidden[i].number == number)
			return forbidden[i].name;
	for (size_t i = 0; i < ARRAY_LEN(by_argument); i++)
		if (by_argument[i].number == number)
			return by_argument[i].name;
	return "unknown";
}

/* In whatever state the process is: no memory, no lock, no buffer. */
static void on_forbidden(int sig, siginfo_t *si, void *context)
{
	static const char before[] = "stile: keeper: the system call `";
	static const char behind[] = "` is not one that it makes: it was taken over, or a library "
				     "does what stile does not know of; it ends\n";
	bool is_native = si->si_arch == native && !((unsigned)si->si_syscall & X32_BIT);
	const char *name = is_native ? name_of(si->si_syscall) : "of another form";

	(void)sig;
	(void)context;
	(void)!write(STDERR_FILENO, before, sizeof(before) - 1);
	(void)!write(STDERR_FILENO, name, strlen(name));
	(void)!write(STDERR_FILENO, behind, sizeof(behind) - 1);
	_exit(CONFINE_ENDED);
}

static int listen_for_it(struct err *e)
{
	struct sigaction act = {.sa_sigaction = on_forbidden, .sa_flags = SA_SIGINFO};
	sigset_t only;

	native = seccomp_arch_native();
	sigfillset(&act.sa_mask);
	sigemptyset(&only);
	sigaddset(&only, SIGSYS);
	/* Where it is blocked the process dies of it without a word. */
	if (sigaction(SIGSYS, &act, NULL) != 0 || sigprocmask(SIG_UNBLOCK, &only, NULL) != 0)
		return err_sys(e, errno, "SIGSYS");
	return 0;
}

/* ---- system calls ---- */

/* Of an IP family, neither a stream nor datagrams; what lies above the type are flags. */
static int add_types(scmp_filter_ctx ctx, unsigned family)
{
	const struct scmp_arg_cmp types[] = {SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, SOCK_RAW),
					     SCMP_A1(SCMP_CMP_MASKED_EQ, 0x4, 0x4),
					     SCMP_A1(SCMP_CMP_MASKED_EQ, 0x8, 0x8)};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_LEN(types) && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_TRAP, SCMP_SYS(socket), 2,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CONFINE_LOW32, family), types[i]);
	return rc;
}

/* To endpoints and to servers of names, over IP; the kernel's list of addresses; pairs. Where all
 * 64 bits are compared, a call with bits that the kernel does not look at is refused as well. */
static int add_sockets(scmp_filter_ctx ctx)
{
	int rc = seccomp_rule_add(ctx, SCMP_ACT_TRAP, SCMP_SYS(socketpair), 1,
				  SCMP_A0(SCMP_CMP_NE, AF_UNIX, 0));

	for (unsigned f = 0; f < AF_NETLINK && rc == 0; f++)
		if (f != AF_INET && f != AF_INET6)
			rc = seccomp_rule_add(ctx, SCMP_ACT_TRAP, SCMP_SYS(socket), 1,
					      SCMP_A0(SCMP_CMP_MASKED_EQ, CONFINE_LOW32, f));
	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_TRAP, SCMP_SYS(socket), 1,
				      SCMP_A0(SCMP_CMP_GT, AF_NETLINK, 0));
	if (rc == 0)
		rc = add_types(ctx, AF_INET);
	if (rc == 0)
		rc = add_types(ctx, AF_INET6);
	/* NETLINK_ROUTE is 0. */
	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_TRAP, SCMP_SYS(socket), 2,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CONFINE_LOW32, AF_NETLINK),
				      SCMP_A2(SCMP_CMP_NE, 0, 0));
	return rc;
}

static int add_all(scmp_filter_ctx ctx)
{
	int rc = confine_add_calls(ctx, SCMP_ACT_TRAP);

	for (size_t i = 0; i < ARRAY_LEN(forbidden) && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_TRAP, forbidden[i].number, 0);
	if (rc == 0)
		rc = add_sockets(ctx);
	/* What is told stays told. */
	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_TRAP, SCMP_SYS(rt_sigaction), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CONFINE_LOW32, SIGSYS));
	return rc;
}

int confine_keeper_calls(struct err *e)
{
	scmp_filter_ctx ctx;
	int rc;

	if (listen_for_it(e) < 0)
		return -1;
	ctx = seccomp_init(SCMP_ACT_ALLOW);
	if (!ctx)
		return err_set(e, "cannot make a seccomp filter");
	rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_TRAP);
	if (rc == 0)
		rc = add_all(ctx);
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc == 0 ? 0 : err_sys(e, -rc, "cannot load the keeper's seccomp filter");
}

/* ---- files ---- */

#define READING (LANDLOCK_READ | LANDLOCK_READ_DIR)
#define LOGGING (LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_MAKE_REG)

struct scope {
	const struct config *config;
	const char *log_to;
};

/* The system's own: libraries, time zones, how names are found, roots. */
static const char *const system_files[] = {
	"/etc", "/usr", "/lib", "/lib64", "/run/systemd/resolve", "/run/resolvconf"};

/* Its folder, since it may be replaced; and that of what it is a link to. */
static int allow_file(int ruleset, const char *path, uint64_t rights, struct err *e)
{
	char real[PATH_MAX];

	if (confine_allow_folder_of(ruleset, path, rights, e) < 0)
		return -1;
	return realpath(path, real) ? confine_allow_folder_of(ruleset, real, rights, e) : 0;
}

static int allow_sources(int ruleset, const struct config *c, struct err *e)
{
	const char *path;

	for (size_t i = 0; i < c->credentials_n; i++)
		for (size_t n = 0; (path = config_credential_file(&c->credentials[i], n)); n++)
			if (allow_file(ruleset, path, READING, e) < 0)
				return -1;
	return 0;
}

/* Whatever is not one of the writer's other targets is a path. */
static bool is_file(const char *log_to)
{
	return strcmp(log_to, "stdout") != 0 && strncmp(log_to, "syslog:", 7) != 0;
}

static int allow_all(int ruleset, void *arg, struct err *e)
{
	const struct scope *s = arg;
	const char *log_to = s->log_to ? s->log_to : s->config->log_to;

	for (size_t i = 0; i < ARRAY_LEN(system_files); i++)
		if (confine_allow(ruleset, system_files[i], READING, e) < 0)
			return -1;
	if (allow_file(ruleset, "/etc/resolv.conf", READING, e) < 0 ||
	    confine_allow(ruleset, "/dev/null", LANDLOCK_READ | LANDLOCK_WRITE, e) < 0 ||
	    confine_allow(ruleset, "/dev/urandom", LANDLOCK_READ, e) < 0)
		return -1;
	for (size_t i = 0; i < s->config->trust_n; i++)
		if (strcmp(s->config->trust[i], "system") != 0 &&
		    allow_file(ruleset, s->config->trust[i], READING, e) < 0)
			return -1;
	if (log_to && is_file(log_to) && allow_file(ruleset, log_to, LOGGING, e) < 0)
		return -1;
	return allow_sources(ruleset, s->config, e);
}

int confine_keeper_files(const struct config *c, const char *log_to, struct err *e)
{
	struct scope s = {.config = c, .log_to = log_to};

	return confine_with(allow_all, &s, e);
}

int confine_keeper(const struct config *c, const char *log_to, bool reloads, struct err *e)
{
	if (CONFINE_IS_SANITIZED)
		return 0;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return err_sys(e, errno, "no-new-privileges");
	if (!reloads && confine_keeper_files(c, log_to, e) < 0)
		return -1;
	return confine_keeper_calls(e);
}

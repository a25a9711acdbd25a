/*
 * Pid 1 of the sandbox. It makes the place ready, gives up its privileges, starts the command,
 * reaps what the command leaves behind, and takes everything with it when it ends. It is a copy of
 * stile's process, so it makes itself unreadable: what stile's memory holds is not the sandbox's.
 */
#include "proxy/net/poll_again.h"
#include "proxy/sandbox/init.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "proxy/sandbox/canary.h"
#include "proxy/sandbox/channel.h"
#include "proxy/sandbox/command.h"
#include "proxy/sandbox/confine.h"
#include "proxy/sandbox/namespace.h"

#define STATUS_NO_SANDBOX 125

ATTR_NORETURN static void give_up(int channel, const struct err *e)
{
	struct channel_msg m = {.kind = CHANNEL_FAILED};

	snprintf(m.text, sizeof(m.text), "%s", e->text);
	if (channel_send(channel, &m, -1) != 0)
		_exit(STATUS_NO_SANDBOX);
	_exit(STATUS_NO_SANDBOX);
}

/* The environment and the arguments that stile was started with still lie in this copy. */
static void forget_start(const struct init_options *o)
{
	static const char name[] = "stile-init";

	for (char **p = environ; *p; p++)
		explicit_bzero(*p, strlen(*p));
	if (o->args_len > sizeof(name)) {
		explicit_bzero(o->args, o->args_len);
		memcpy(o->args, name, sizeof(name));
	}
	prctl(PR_SET_NAME, name, 0, 0, 0);
}

/* In the sandbox's own /proc, and before that is closed. */
static int bound_pids(const struct init_options *o, struct err *e)
{
	struct err why = ERR_INIT;

	if (o->pids_by != LIMITS_PIDS_NOT &&
	    limits_bound_pids(o->pids_by, limits_pids_of(o->limits), &why) == 0)
		return 0;
	return o->pids_needed ? err_set(e, "--pids cannot be kept to: %s", why.text) : 0;
}

static int hand_out(int channel, const struct engine_socket *sockets, int n, struct err *e)
{
	int rc = 0;

	for (int i = 0; i < n; i++) {
		struct channel_msg m = {
			.kind = CHANNEL_SOCKET,
			.number = sockets[i].kind,
			.more = (uint32_t)(n - i - 1),
		};

		if (rc == 0 && channel_send(channel, &m, sockets[i].fd) != 0)
			rc = err_set(e, "stile went away");
		close(sockets[i].fd);
	}
	return rc;
}

/* As far as the sockets that stile outside will serve. The canary comes before any route. */
static int prepare_network(const struct init_options *o, struct err *e)
{
	struct engine_socket sockets[DOORS_SOCKETS_MAX];
	int n;

	if (namespace_map_ids(o->uid, o->gid, e) != 0)
		return -1;
	/* From here on nobody of this user, inside or outside, reads this process. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		return err_sys(e, errno,
			       "cannot protect the memory of the sandbox's first process");
	if (namespace_loopback_up(e) != 0 || files_enter(e) != 0 || bound_pids(o, e) != 0 ||
	    canary_check(e) != 0)
		return -1;
	n = doors_open(o->doors, o->proxy_port, sockets, e);
	return n < 0 ? -1 : hand_out(o->channel, sockets, n, e);
}

static int prepare_files(const struct init_options *o, struct err *e)
{
	struct channel_msg m;
	struct files_trust trust;
	struct confine_filter *filter = NULL;
	int fd, rc;

	/* While stile outside makes its engine ready. On failure this process ends. */
	if (confine_filter_make(&filter, e) != 0)
		return -1;
	if (channel_recv(o->channel, &m, &fd) != 0 || m.kind != CHANNEL_TRUST)
		return err_set(e, "stile went away");
	trust = (struct files_trust){m.text, fd, m.number, m.more};
	rc = files_arrange(o->files, &trust, e);
	if (fd >= 0)
		close(fd);
	if (rc != 0 || limits_bound_command(o->limits, e) != 0 || confine_drop_privileges(e) != 0 ||
	    confine_filter_calls(filter, e) != 0)
		return -1;
	m = (struct channel_msg){.kind = CHANNEL_READY};
	if (channel_send(o->channel, &m, -1) != 0 || channel_recv(o->channel, &m, &fd) != 0 ||
	    m.kind != CHANNEL_GO)
		return err_set(e, "stile went away");
	return 0;
}

/* However it was stopped: stile outside, which is the job that the user's shell knows, stops as
 * well. */
static void on_stop(int channel)
{
	struct channel_msg m = {.kind = CHANNEL_STOPPED};

	if (channel_send(channel, &m, -1) != 0)
		_exit(STATUS_NO_SANDBOX);
}

/* Until there is nothing more to reap just now. Ends the sandbox when the command has ended. */
static void reap(int channel, pid_t command)
{
	siginfo_t si;

	for (;;) {
		si.si_pid = 0;
		if (waitid(P_ALL, 0, &si, WEXITED | WSTOPPED | WNOHANG) != 0 || si.si_pid == 0)
			return;
		if (si.si_pid != command)
			continue;
		if (si.si_code == CLD_STOPPED)
			on_stop(channel);
		else if (si.si_code == CLD_EXITED)
			_exit(si.si_status);
		else if (si.si_code == CLD_KILLED || si.si_code == CLD_DUMPED)
			_exit(128 + si.si_status);
	}
}

static void on_message(int channel, pid_t command)
{
	struct channel_msg m;
	int fd;

	/* Without stile there is no way out and no record: nothing here goes on alone. */
	if (channel_recv(channel, &m, &fd) != 0)
		_exit(STATUS_NO_SANDBOX);
	if (fd >= 0)
		close(fd);
	if (m.kind != CHANNEL_SIGNAL)
		return;
	kill(command, (int)m.number);
	/* A group that was stopped goes on as a group. */
	if (m.number == SIGCONT && getpgid(command) > 0)
		kill(-getpgid(command), SIGCONT);
}

ATTR_NORETURN static void watch(int channel, int signals, pid_t command)
{
	struct pollfd p[2] = {{.fd = signals, .events = POLLIN}, {.fd = channel, .events = POLLIN}};
	struct signalfd_siginfo si;
	unsigned failures = 0;

	for (;;) {
		reap(channel, command);
		if (poll(p, 2, -1) < 0) {
			if (!poll_again(&failures))
				_exit(STATUS_NO_SANDBOX);
			continue;
		}
		failures = 0;
		if (p[0].revents && read(signals, &si, sizeof(si)) < 0 && errno != EAGAIN)
			_exit(STATUS_NO_SANDBOX);
		if (p[1].revents)
			on_message(channel, command);
	}
}

void init_main(const struct init_options *o)
{
	struct err e = ERR_INIT;
	sigset_t chld;
	pid_t command;
	int signals;

	/* Readable just long enough to write its own maps; stile may have closed itself before. */
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (prepare_network(o, &e) != 0)
		give_up(o->channel, &e);
	forget_start(o);
	if (prepare_files(o, &e) != 0)
		give_up(o->channel, &e);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	command = signals < 0 ? -1 : fork();
	if (command < 0) {
		err_sys(&e, errno, "cannot start a process in the sandbox");
		give_up(o->channel, &e);
	}
	if (command == 0)
		command_exec(o->argv, o->envp, o->mask);
	command_let_go_of_terminal();
	watch(o->channel, signals, command);
}

/*
 * Signals and the terminal. The command stands in stile's own process group, so what the terminal
 * sends (Ctrl-C, Ctrl-\, Ctrl-Z) reaches it by itself: stile takes no notice of those and passes on
 * what was sent to it alone. It neither judges nor logs. Called by run.c.
 */
#include "proxy/sandbox/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <sys/signalfd.h>
#include <sys/wait.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/net/poll_again.h"
#include "proxy/sandbox/channel.h"

#define TICK_MS 250

static const int passed_on[] = {SIGTERM, SIGHUP,  SIGINT,  SIGQUIT,
				SIGTSTP, SIGUSR1, SIGUSR2, SIGCONT};

int supervisor_init(struct supervisor *s, struct err *e)
{
	sigset_t set;

	*s = (struct supervisor){.signals = -1, .tty = -1};
	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(passed_on); i++)
		sigaddset(&set, passed_on[i]);
	sigaddset(&set, SIGCHLD);
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signals < 0)
		return err_sys(e, errno, "cannot watch for signals");
	/* So that a stile in the background may give the terminal back, and may write to it. */
	sigaddset(&set, SIGTTOU);
	/* Meant for the command, which stops by it; stile follows. */
	sigaddset(&set, SIGTTIN);
	sigprocmask(SIG_BLOCK, &set, &s->outer);
	s->tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	s->foreground = s->tty >= 0 ? tcgetpgrp(s->tty) : -1;
	return 0;
}

static void take_terminal_back(const struct supervisor *s)
{
	/* Only what was ours: in the background it belongs to somebody else. */
	if (s->tty >= 0 && s->foreground == getpgrp() && tcgetpgrp(s->tty) != s->foreground)
		tcsetpgrp(s->tty, s->foreground);
}

void supervisor_clear(struct supervisor *s)
{
	take_terminal_back(s);
	if (s->tty >= 0)
		close(s->tty);
	if (s->signals >= 0)
		close(s->signals);
	s->tty = s->signals = -1;
}

/* Is it the terminal's, and so with the command already? */
static bool is_terminals(const struct signalfd_siginfo *si)
{
	return si->ssi_code == SI_KERNEL &&
	       (si->ssi_signo == SIGINT || si->ssi_signo == SIGQUIT || si->ssi_signo == SIGTSTP);
}

static void pass_on(int channel, uint32_t signo)
{
	struct channel_msg m = {.kind = CHANNEL_SIGNAL, .number = signo};

	/* A pid 1 that is gone has ended, which the next turn finds out. */
	if (channel_send(channel, &m, -1) != 0)
		return;
}

static void on_signals(const struct supervisor *s, int channel)
{
	struct signalfd_siginfo si;

	while (read(s->signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (si.ssi_signo != SIGCHLD && si.ssi_signo != SIGCONT && !is_terminals(&si))
			pass_on(channel, si.ssi_signo);
	}
}

/* The job that the user's shell knows is stile. So stile stops when the command has, not before
 * (the shell would read the terminal while the command still does) and not when the command takes
 * no notice of Ctrl-Z. Whoever continues stile continues both. */
static void stop_with_command(const struct supervisor *s, int channel)
{
	pid_t had = s->tty >= 0 ? tcgetpgrp(s->tty) : -1;

	take_terminal_back(s);
	kill(getpid(), SIGSTOP);
	if (had > 0 && had != getpgrp() && tcgetpgrp(s->tty) == getpgrp())
		tcsetpgrp(s->tty, had);
	pass_on(channel, SIGCONT);
}

/* False when the other end is closed. timed: there is a time to be watched, so without a terminal,
 * from which somebody could continue it, stile does not stop. */
static bool on_message(const struct supervisor *s, int channel, bool timed)
{
	struct channel_msg m;
	int fd;

	if (channel_recv(channel, &m, &fd) != 0)
		return false;
	/* Nothing that runs in the sandbox holds this socket, but a descriptor is never kept
	 * unasked. */
	if (fd >= 0)
		close(fd);
	if (m.kind == CHANNEL_STOPPED && (s->tty >= 0 || !timed))
		stop_with_command(s, channel);
	return true;
}

/* ---- the time that the command has ---- */

struct allowance {
	uint64_t ends_ms; /* 0: it has all the time */
	uint64_t killed_ms;
	bool over;
};

/* Also while the machine sleeps: the wall clock's time, which nobody can set. */
static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void check_allowance(struct allowance *a, pid_t init, int channel)
{
	uint64_t now = a->ends_ms ? now_ms() : 0;

	if (!a->ends_ms || now < a->ends_ms)
		return;
	if (!a->over) {
		log_error("the command is ended: its time is over");
		a->over = true;
		a->killed_ms = now + LIMIT_MS_RUN_GRACE;
		pass_on(channel, SIGTERM);
		pass_on(channel, SIGCONT); /* one that is stopped hears nothing */
	} else if (now >= a->killed_ms) {
		kill(init, SIGKILL);
	}
}

int supervisor_wait(struct supervisor *s, pid_t init, int channel, struct engine *g,
		    uint64_t timeout_s)
{
	struct allowance a = {.ends_ms = timeout_s ? now_ms() + timeout_s * 1000 : 0};
	struct pollfd p[2] = {{.fd = s->signals, .events = POLLIN},
			      {.fd = channel, .events = POLLIN}};
	int status;

	for (;;) {
		pid_t got = waitpid(init, &status, WNOHANG);

		if (got == init)
			break;
		if (got < 0 && errno != EINTR)
			return 125;
		if (poll_calmly(p, 2, TICK_MS) > 0) {
			if (p[0].revents)
				on_signals(s, channel);
			if (p[1].revents && !on_message(s, channel, timeout_s > 0))
				p[1].fd = -1;
		}
		check_allowance(&a, init, channel);
		if (!engine_is_whole(g)) {
			log_error("the command is ended: without its keeper stile has neither "
				  "certificates nor credentials");
			kill(init, SIGKILL);
			(void)waitpid(init, &status, 0);
			return 125;
		}
	}
	if (a.over)
		return SUPERVISOR_TIMED_OUT;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

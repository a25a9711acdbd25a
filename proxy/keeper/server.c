/*
 * See server.h. One thread reads the sockets and answers, one message a socket and turn, so that
 * none can hold up another; a socket whose answer does not fit is not read until it does. The
 * broker's thread asks the sources. It ends when the proxy's end of the main socket is closed, by
 * whatever.
 */
#include "proxy/keeper/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "logging/log.h"
#include "proxy/credentials/helpers.h"
#include "proxy/credentials/slot.h"
#include "proxy/keeper/confine.h"
#include "proxy/keeper/core.h"
#include "proxy/net/poll_again.h"

struct channel {
	int fd; /* -1: closed */
	enum core_channel kind;
	struct core_reply reply; /* what did not fit; kind 0: nothing waits */
};

struct server {
	/* owned */
	struct channel *channels; /* the first is the main one */
	struct pollfd *polls;	  /* one for each, and two: wake, helpers */
	struct keeper_core *core;
	struct broker *broker;
	struct helpers *helpers; /* NULL: no program is ever started */
	struct ca *ca;
	char *body;
	/* plain */
	size_t n;
	int wake;	 /* a slot has news */
	bool is_pushing; /* news did not fit into the main socket */
	bool is_short;	 /* the kernel had no memory for what was to be sent */
};

static void send_failed(int fd, const struct err *e)
{
	char reason = (char)e->reason;
	struct str parts[] = {str_from(&reason, 1), str_from_c(e->text)};

	(void)wire_send(fd, WIRE_FAILED, 0, parts, 2, -1);
}

/* ---- the start ---- */

/* What the terminal, an operator or the manager of services says is said to the proxy. The keeper
 * ends when that does. */
static void ignore_signals(void)
{
	static const int all[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,
				  SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGALRM};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		(void)signal(all[i], SIG_IGN);
	(void)signal(SIGCHLD, SIG_DFL);
}

static int by_number(const void *a, const void *b)
{
	const int *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Nothing of what the proxy had open stays, but for stderr. */
static int keep_descriptors(const struct server_fds *fds, struct err *e)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	size_t n = 0;
	int *own = calloc(fds->n + 2, sizeof(*own)), next = STDERR_FILENO + 1;

	if (null < 0 || !own || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0) {
		free(own);
		return err_sys(e, errno, "the keeper's descriptors");
	}
	own[n++] = fds->main;
	own[n++] = fds->files;
	for (size_t i = 0; i < fds->n; i++)
		own[n++] = fds->leaves[i];
	qsort(own, n, sizeof(*own), by_number);
	for (size_t i = 0; i < n; i++) {
		if (own[i] > next)
			(void)close_range((unsigned)next, (unsigned)own[i] - 1, 0);
		next = own[i] + 1;
	}
	(void)close_range((unsigned)next, ~0U, 0);
	free(own);
	return 0;
}

static int guard(struct err *e)
{
	struct rlimit none = {0, 0};

	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		return err_sys(e, errno, "cannot protect the keeper's memory");
	(void)setrlimit(RLIMIT_CORE, &none);
	(void)prctl(PR_SET_NAME, "stile-keeper", 0, 0, 0);
	return 0;
}

static void on_news(void *arg)
{
	struct server *s = arg;
	uint64_t one = 1;

	(void)!write(s->wake, &one, sizeof(one));
}

static int make_channels(struct server *s, const struct server_fds *fds, struct err *e)
{
	s->n = fds->n + 2;
	s->channels = calloc(s->n, sizeof(*s->channels));
	s->polls = calloc(s->n + 2, sizeof(*s->polls));
	s->body = malloc(LIMIT_KEEPER_MESSAGE);
	if (!s->channels || !s->polls || !s->body)
		return err_set(e, "out of memory");
	s->channels[0] = (struct channel){.fd = fds->main, .kind = CORE_MAIN};
	s->channels[1] = (struct channel){.fd = fds->files, .kind = CORE_FILES};
	for (size_t i = 0; i < fds->n; i++)
		s->channels[2 + i] = (struct channel){.fd = fds->leaves[i], .kind = CORE_LEAVES};
	for (size_t i = 0; i < s->n; i++) {
		strbuf_init(&s->channels[i].reply.body, LIMIT_KEEPER_MESSAGE + 1);
		s->channels[i].reply.fd = -1;
		if (fcntl(s->channels[i].fd, F_SETFL, O_NONBLOCK) < 0)
			return err_sys(e, errno, "the keeper's sockets");
	}
	s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return s->wake < 0 ? err_sys(e, errno, "eventfd") : 0;
}

/* Whether there may be a program to start. What `run` was started with is all that it ever has. */
static bool needs_helpers(const struct keeper_options *o)
{
	bool any = o->reloads;

	for (size_t i = 0; i < o->config->credentials_n; i++)
		any |= o->config->credentials[i].source == CREDENTIAL_FROM_EXEC;
	return any;
}

/* Before there is a secret in this process, of which that one has a copy. */
static int split_helpers(struct server *s, const struct keeper_options *o, struct err *e)
{
	const struct helpers_options h = {.config = o->config, .become = o->become};

	return needs_helpers(o) ? helpers_start(&h, &s->helpers, e) : 0;
}

/* Reads all that it is to keep, as who it still is; becomes who it will be and gives up what it
 * needs no more; only then asks. */
static int begin(struct server *s, const struct keeper_options *o, struct err *e)
{
	struct core_options co = {.config = o->config,
				  .policy_name = o->policy_name,
				  .log_to = o->log_to,
				  .reloads = o->reloads};

	slot_tell(on_news, s);
	if (split_helpers(s, o, e) < 0 || credential_env_capture(o->config, e) < 0 ||
	    broker_new(s->helpers, &s->broker, e) < 0)
		return -1;
	if ((o->ca_dir ? ca_load_or_create(o->ca_dir, &s->ca, e)
		       : ca_new_memory(LIMIT_CA_RUN_DAYS, &s->ca, e)) < 0)
		return err_wrap(e, "ca");
	co.ca = s->ca;
	co.broker = s->broker;
	co.helpers = s->helpers;
	if (core_new(&co, &s->core, e) < 0 || core_open(s->core, e) < 0)
		return -1;
	if (o->become && o->become(o->config->user, e) < 0)
		return -1;
	if (confine_keeper(o->config, o->log_to, o->reloads, e) < 0)
		return -1;
	return broker_start(s->broker, e);
}

static int send_ca(const struct server *s, struct err *e)
{
	struct strbuf pem;
	struct str part;
	int rc = -1;

	strbuf_init(&pem, LIMIT_KEEPER_MESSAGE);
	if (ca_add_pem(s->ca, &pem, e) == 0) {
		part = strbuf_str(&pem);
		rc = wire_send(s->channels[0].fd, WIRE_READY, 0, &part, 1, -1);
		if (rc < 0)
			err_sys(e, errno, "the proxy went away");
	}
	strbuf_clear(&pem);
	return rc;
}

/* ---- the sockets ---- */

/* Behind a send that failed: true if it may go well later. */
static bool is_for_later(struct server *s)
{
	bool is_short = errno == ENOBUFS || errno == ENOMEM;

	s->is_short = s->is_short || is_short;
	return errno == EAGAIN || is_short;
}

/* 0: sent, or nobody is there; 1: it does not go now. */
static int send_reply(struct server *s, struct channel *c)
{
	struct core_reply *r = &c->reply;
	struct str parts[] = {strbuf_str(&r->body), r->value ? secret_value(r->value) : STR_NONE};

	if (wire_send(c->fd, r->kind, r->id, parts, 2, r->fd) < 0 && is_for_later(s))
		return 1;
	secret_unref(r->value);
	r->value = NULL;
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	r->kind = 0;
	return 0;
}

/* -1: what came is nothing that a proxy of ours says. */
static int on_readable(struct server *s, struct channel *c, struct err *e)
{
	struct wire_msg m = {.body = s->body};
	int got = wire_recv(c->fd, &m);

	if (got < 0 && errno == EAGAIN)
		return 0;
	if (got < 0)
		return err_sys(e, errno, "a message");
	if (got == 0) {
		close(c->fd);
		c->fd = -1;
		return 0;
	}
	if (m.fd != -1) {
		if (m.fd >= 0)
			close(m.fd);
		return err_set(e, "a descriptor that nobody asked for");
	}
	strbuf_reset(&c->reply.body);
	if (core_handle(s->core, c->kind, &m.head, m.body, &c->reply, e) < 0)
		return -1;
	if (c->reply.kind != 0)
		(void)send_reply(s, c);
	return 0;
}

static int push_one(void *arg, uint32_t store, size_t i, const struct slot_state *st)
{
	struct server *s = arg;
	struct str value = st->value ? secret_value(st->value) : STR_NONE;
	struct str why = str_from_c(st->why);
	struct wire_credential c = {
		.life_us = st->life_us,
		.next_us = st->next_us,
		.index = (uint32_t)i,
		.has_value = st->value != NULL,
		.value_n = (uint32_t)value.n,
		.why_n = (uint32_t)why.n,
	};
	struct str parts[] = {str_from((const char *)&c, sizeof(c)), value, why};

	if (wire_send(s->channels[0].fd, WIRE_CREDENTIAL, store, parts, 3, -1) < 0)
		return is_for_later(s) ? -1 : 0;
	return 0;
}

static void push(struct server *s)
{
	s->is_pushing = core_push(s->core, push_one, s) < 0;
}

static void fill_polls(struct server *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct channel *c = &s->channels[i];

		s->polls[i] =
			(struct pollfd){.fd = c->fd, .events = c->reply.kind ? POLLOUT : POLLIN};
	}
	if (s->is_pushing)
		s->polls[0].events |= POLLOUT;
	s->polls[s->n] = (struct pollfd){.fd = s->wake, .events = POLLIN};
	s->polls[s->n + 1] =
		(struct pollfd){.fd = s->helpers ? helpers_fd(s->helpers) : -1, .events = POLLIN};
}

static int turn(struct server *s, struct err *e)
{
	uint64_t news;

	for (size_t i = 0; i < s->n; i++) {
		struct channel *c = &s->channels[i];
		short got = s->polls[i].revents;

		if (c->fd < 0 || !got)
			continue;
		if (c->reply.kind) {
			if (send_reply(s, c) == 0)
				continue;
		} else if ((got & (POLLIN | POLLHUP | POLLERR)) && on_readable(s, c, e) < 0) {
			return -1;
		}
	}
	if (s->polls[s->n].revents)
		(void)!read(s->wake, &news, sizeof(news));
	if (s->polls[s->n + 1].revents)
		helpers_look(s->helpers);
	push(s);
	return 0;
}

/* 0: the proxy has gone. */
static int serve(struct server *s, struct err *e)
{
	const struct timespec pause = {.tv_nsec = LIMIT_MS_ACCEPT_PAUSE * 1000000L};
	int64_t ticked_us = 0;
	unsigned failures = 0;

	while (s->channels && s->channels[0].fd >= 0) {
		int n;

		if (s->is_short) /* that there is room says nothing of the kernel's memory */
			nanosleep(&pause, NULL);
		s->is_short = false;
		fill_polls(s);
		n = poll(s->polls, (nfds_t)s->n + 2, LIMIT_MS_SECRET_REREAD);
		if (n < 0 && !poll_again(&failures))
			return err_sys(e, errno, "poll");
		if (n >= 0)
			failures = 0;
		if (n > 0 && turn(s, e) < 0)
			return -1;
		core_tick(s->core, &ticked_us);
	}
	return 0;
}

/* In order: nobody asks any more, then the sources end, then what they were read with. */
static void end(struct server *s)
{
	for (size_t i = 0; s->channels && i < s->n; i++) {
		if (s->channels[i].fd >= 0)
			close(s->channels[i].fd);
		if (s->channels[i].reply.fd >= 0)
			close(s->channels[i].reply.fd);
		secret_unref(s->channels[i].reply.value);
		strbuf_clear(&s->channels[i].reply.body);
	}
	core_free(s->core);
	broker_free(s->broker);
	helpers_stop(s->helpers);
	ca_unref(s->ca);
	free(s->channels);
	free(s->polls);
	free(s->body);
}

void server_main(const struct keeper_options *o, const struct server_fds *fds)
{
	struct server s = {.wake = -1};
	struct err e = ERR_INIT;
	int rc;

	ignore_signals();
	rc = guard(&e);
	if (rc == 0)
		rc = keep_descriptors(fds, &e);
	if (rc == 0)
		rc = make_channels(&s, fds, &e);
	if (rc == 0)
		rc = begin(&s, o, &e);
	if (rc == 0)
		rc = send_ca(&s, &e);
	if (rc < 0) {
		send_failed(fds->main, &e);
	} else {
		rc = serve(&s, &e);
		if (rc < 0)
			log_error("keeper: %s (the proxy is not to be trusted; both end)", e.text);
	}
	end(&s);
	exit(rc < 0 ? 1 : 0);
}

/*
 * See link.h.
 */
#include "proxy/state/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "certs/trust.h"
#include "proxy/net/dial.h"

struct link {
	/* owned */
	struct resolve *question;
	struct dial *dial;
	struct stream *s; /* while its TLS comes up */
	struct resp *resp;
	struct timer timer; /* all of it */
	struct timer later; /* what was known at once is told from the loop */
	/* plain */
	struct link_options o;
	struct resolved found;
	struct err why; /* for `later` */
	bool failed, over;
};

static void free_link(void *obj)
{
	free(obj);
}

static void bury(struct link *l)
{
	l->over = true;
	if (l->question)
		resolve_cancel(l->question);
	dial_cancel(l->dial);
	stream_close(l->s);
	resp_free(l->resp);
	timer_clear(&l->timer);
	timer_clear(&l->later);
	l->question = NULL;
	l->dial = NULL;
	l->s = NULL;
	l->resp = NULL;
	loop_bury(l->o.loop, l, free_link);
}

void link_cancel(struct link *l)
{
	if (l && !l->over)
		bury(l);
}

static void fail(struct link *l, const struct err *why)
{
	struct link_options o = l->o;
	struct err e = *why;

	if (l->over)
		return;
	bury(l);
	o.done(o.arg, NULL, &e);
}

static void fail_text(struct link *l, const char *text)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, "%s", text);
	fail(l, &e);
}

static void on_timer(void *arg)
{
	fail_text(arg, "it could not be connected to in time");
}

/* ---- logging in ---- */

static void succeed(struct link *l)
{
	struct link_options o = l->o;
	struct resp *r = l->resp;

	l->resp = NULL;
	bury(l);
	o.done(o.arg, r, NULL);
}

static void on_selected(void *arg, const struct resp_value *v)
{
	if (!str_eq(resp_text(v), STR("OK")) || v->kind == RESP_ERROR)
		fail_text(arg, resp_complaint(v));
	else
		succeed(arg);
}

/* Said for database 0 as well: an answer shows that whoever is there lets us in. */
static void select_db(struct link *l)
{
	struct err e = ERR_INIT;
	char text[16];
	struct str argv[] = {STR("SELECT"), STR_NONE};

	(void)snprintf(text, sizeof(text), "%u", l->o.to->db);
	argv[1] = str_from_c(text);
	if (resp_ask(l->resp, ARRAY_LEN(argv), argv, on_selected, l, &e) < 0)
		fail(l, &e);
}

static void on_authenticated(void *arg, const struct resp_value *v)
{
	if (!str_eq(resp_text(v), STR("OK")) || v->kind == RESP_ERROR)
		fail_text(arg, resp_complaint(v));
	else
		select_db(arg);
}

static void log_in(struct link *l)
{
	struct str argv[3] = {STR("AUTH")};
	struct err e = ERR_INIT;
	struct strbuf user, password;
	size_t n = 1;
	int rc = 0;

	strbuf_init(&user, LIMIT_SECRET_BYTES);
	strbuf_init(&password, LIMIT_SECRET_BYTES);
	if (l->o.login)
		rc = l->o.login(l->o.auth_arg, &user, &password, &e);
	if (rc == 0 && password.len > 0) {
		if (user.len > 0)
			argv[n++] = strbuf_str(&user);
		argv[n++] = strbuf_str(&password);
		rc = resp_ask(l->resp, n, argv, on_authenticated, l, &e);
	}
	strbuf_wipe(&user);
	strbuf_wipe(&password);
	if (rc < 0)
		fail(l, &e);
	else if (n == 1)
		select_db(l);
}

static void on_failed(void *arg, const struct err *why)
{
	fail(arg, why);
}

static void speak(struct link *l)
{
	struct resp_options o = {
		.s = l->s,
		.loop = l->o.loop,
		.failed = on_failed,
		.arg = l,
	};
	struct err e = ERR_INIT;

	l->s = NULL;
	if (resp_new(&o, &l->resp, &e) < 0)
		fail(l, &e);
	else
		log_in(l);
}

/* ---- connecting ---- */

static void on_stream(void *arg, unsigned events)
{
	struct link *l = arg;
	struct err e = ERR_INIT;

	if (events & STREAM_HANDSHAKED) {
		speak(l);
	} else if (events & (STREAM_ERROR | STREAM_EOF)) {
		if (l->o.to->tls)
			(void)trust_explain(stream_ssl(l->s), &e);
		fail_text(l, e.text[0] ? e.text : "it closed the connection");
	}
}

static int take_socket(struct link *l, int fd, struct err *e)
{
	SSL *ssl = NULL;

	if (stream_new(l->o.loop, fd, on_stream, l, &l->s, e) < 0)
		return -1;
	if (!l->o.to->tls)
		return 0;
	return l->o.tls(l->o.auth_arg, &ssl, e) < 0 ? -1 : stream_start_tls(l->s, ssl, e);
}

static void on_dialled(void *arg, int fd, const struct ipaddr *addr, const struct err *why)
{
	struct link *l = arg;
	struct err e = ERR_INIT;

	(void)addr;
	l->dial = NULL;
	if (fd < 0)
		fail(l, why);
	else if (take_socket(l, fd, &e) < 0)
		fail(l, &e);
	else if (!l->o.to->tls)
		speak(l);
}

static int dial(struct link *l, struct err *e)
{
	l->o.found(l->o.arg, l->found.addrs, l->found.n);
	return dial_start(l->o.loop, l->found.addrs, l->found.n, l->o.to->port,
			  LIMIT_MS_STATE_CONNECT, on_dialled, l, &l->dial, e);
}

static void on_resolved(void *arg, const struct resolved *found, const struct err *why)
{
	struct link *l = arg;
	struct err e = ERR_INIT;

	l->question = NULL;
	if (!found) {
		fail(l, why);
		return;
	}
	l->found = *found;
	if (dial(l, &e) < 0)
		fail(l, &e);
}

static int open_unix(const char *path, int *ret, struct err *e)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof(sa.sun_path))
		return err_set(e, "%s: too long", path);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, errno, "socket");
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
		int why = errno;

		close(fd);
		return err_sys(e, why, "%s", path);
	}
	*ret = fd;
	return 0;
}

static void on_later(void *arg)
{
	struct link *l = arg;

	if (l->failed)
		fail(l, &l->why);
	else
		speak(l);
}

static int begin(struct link *l, struct err *e)
{
	int fd = -1;

	if (l->o.to->unix_path) {
		if (open_unix(l->o.to->unix_path, &fd, e) < 0 || take_socket(l, fd, e) < 0)
			return -1;
		timer_arm(&l->later, 0);
		return 0;
	}
	switch (resolve_start(l->o.resolver, &l->o.to->host, LIMIT_MS_STATE_CONNECT, on_resolved, l,
			      &l->found, &l->question, e)) {
	case RESOLVE_DONE: return dial(l, e);
	case RESOLVE_PENDING: return 0;
	case RESOLVE_FAILED: break;
	}
	return -1;
}

int link_start(const struct link_options *o, struct link **ret, struct err *e)
{
	struct link *l = calloc(1, sizeof(*l));

	if (!l)
		return err_set(e, "out of memory");
	l->o = *o;
	if (timer_init(&l->timer, o->loop, on_timer, l) < 0 ||
	    timer_init(&l->later, o->loop, on_later, l) < 0) {
		timer_clear(&l->timer);
		free(l);
		return err_set(e, "out of memory");
	}
	timer_arm(&l->timer, LIMIT_MS_STATE_CONNECT);
	*ret = l;
	if (begin(l, &l->why) < 0) {
		l->failed = true;
		timer_arm(&l->later, 0);
	}
	return 0;
}

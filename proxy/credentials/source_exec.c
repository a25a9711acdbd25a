/*
 * A helper program that prints the secret. It is started by a process of its own (helpers.h), and
 * what it prints is read here, bounded. Its time is that process's to keep; should that not say a
 * word, it is over here a little later.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "logging/limits.h"
#include "proxy/credentials/helpers.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"
#include "proxy/credentials/token.h"
#include "proxy/net/watch.h"

struct exec {
	/* borrowed */
	const struct config_credential *c;
	struct loop *loop;
	struct helpers *helpers; /* NULL: there are none */
	/* owned, while a helper runs */
	struct secret *output;
	struct watch *readable, *said;
	/* owned */
	struct timer timer;
	/* plain */
	source_result_fn *on_result;
	void *arg;
	int out, run; /* what it prints, what is said of it; -1: none */
	size_t n;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* The helper, if it runs, ends with this. */
static void end_helper(struct exec *x)
{
	watch_free(x->readable);
	watch_free(x->said);
	x->readable = x->said = NULL;
	timer_stop(&x->timer);
	close_fd(&x->out);
	close_fd(&x->run);
}

static void finish(struct exec *x, struct secret *value, int64_t life_us, const struct err *why)
{
	secret_unref(x->output);
	x->output = NULL;
	x->on_result(x->arg, value, life_us, why);
}

static void give_up(struct exec *x, const char *what)
{
	struct err e = ERR_INIT;

	end_helper(x);
	(void)err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE, "%s", what);
	finish(x, NULL, 0, &e);
}

/* 1: there may be more; 0: no more for now, or its end; -1: too much. */
static int read_some(struct exec *x)
{
	ssize_t got = read(x->out, secret_room(x->output) + x->n, LIMIT_SOURCE_BYTES + 1 - x->n);

	if (got < 0)
		return errno == EINTR ? 1 : 0;
	x->n += (size_t)got;
	if (x->n > LIMIT_SOURCE_BYTES)
		return -1;
	if (got == 0) {
		/* Its end: not to be told again and again until the helper has ended too. */
		watch_free(x->readable);
		x->readable = NULL;
	}
	return got > 0;
}

static void on_readable(void *arg)
{
	struct exec *x = arg;

	if (read_some(x) < 0)
		give_up(x, "its helper printed too much");
}

/* It ended by itself, with that status. */
static void on_exited(struct exec *x, int status)
{
	struct secret *value = NULL;
	struct err e = ERR_INIT;
	int64_t life_us = 0;
	int more;

	do
		more = x->out >= 0 ? read_some(x) : 0;
	while (more > 0);
	if (more < 0) {
		give_up(x, "its helper printed too much");
		return;
	}
	end_helper(x);
	if (status != 0)
		(void)err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE,
				 "its helper ended with status %d (run it by hand to see why)",
				 status);
	else if (token_parse(str_from(secret_room(x->output), x->n), &value, &life_us, &e) < 0)
		value = NULL;
	finish(x, value, life_us, &e);
}

static void on_started(struct exec *x, int *fd)
{
	struct err e = ERR_INIT;

	/* One of its kind that was not asked for is closed by the caller. */
	if (x->out >= 0 || *fd < 0)
		return;
	x->out = *fd;
	*fd = -1;
	if (fcntl(x->out, F_SETFL, O_NONBLOCK) < 0 ||
	    watch_new(x->loop, x->out, on_readable, x, &x->readable, &e) < 0)
		give_up(x, "its helper cannot be watched");
}

static void on_message(struct exec *x, const struct helper_message *m, int *fd)
{
	struct err e = ERR_INIT;

	switch ((enum helper_said)m->said) {
	case HELPER_STARTED: on_started(x, fd); return;
	case HELPER_EXITED: on_exited(x, m->value); return;
	case HELPER_SIGNALED:
		(void)err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE,
				 "its helper was ended by signal %d", m->value);
		break;
	case HELPER_LATE:
		(void)err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE, "its helper took too long");
		break;
	case HELPER_FAILED:
		(void)err_sys(&e, m->value, "its helper cannot be started");
		e.reason = REASON_CREDENTIAL_UNAVAILABLE;
		break;
	case HELPER_TOO_MANY:
		(void)err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE,
				 "its helper cannot be started (%d run already)", LIMIT_HELPERS);
		break;
	case HELPER_UNKNOWN:
	default:
		(void)err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE,
				 "its helper is not in the configuration in force");
		break;
	}
	end_helper(x);
	finish(x, NULL, 0, &e);
}

static void on_said(void *arg)
{
	struct exec *x = arg;
	struct helper_message m;
	int fd = -1, rc = helpers_hear(x->run, &m, &fd);

	if (rc == 0)
		give_up(x, "its helper was left alone: the process that starts them has ended "
			   "(restart stile)");
	else if (rc > 0)
		on_message(x, &m, &fd);
	if (rc > 0)
		close_fd(&fd);
}

static void on_timer(void *arg)
{
	give_up(arg, "its helper took too long");
}

/* ---- starting it ---- */

static int out_of_memory(struct err *e)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
			  "its helper cannot be started: out of memory");
}

static int exec_ask(void *self, struct err *e)
{
	struct exec *x = self;

	x->n = 0;
	x->output = secret_new(LIMIT_SOURCE_BYTES + 1);
	if (!x->output)
		return out_of_memory(e);
	if (helpers_run(x->helpers, x->c, &x->run, e) == 0 &&
	    watch_new(x->loop, x->run, on_said, x, &x->said, e) == 0) {
		timer_arm(&x->timer, x->c->timeout_ms + LIMIT_MS_HELPER_WORD);
		return 0;
	}
	end_helper(x);
	secret_unref(x->output);
	x->output = NULL;
	return -1;
}

static void exec_close(void *self)
{
	struct exec *x = self;

	end_helper(x);
	secret_unref(x->output);
	timer_clear(&x->timer);
	free(x);
}

static int exec_open(const struct source_setting *s, void **ret, struct err *e)
{
	struct exec *x = calloc(1, sizeof(*x));

	if (!x)
		return out_of_memory(e);
	*x = (struct exec){.c = s->c,
			   .loop = s->loop,
			   .helpers = s->helpers,
			   .on_result = s->on_result,
			   .arg = s->arg,
			   .out = -1,
			   .run = -1};
	if (timer_init(&x->timer, s->loop, on_timer, x) < 0) {
		free(x);
		return out_of_memory(e);
	}
	*ret = x;
	return 0;
}

const struct source_ops source_exec_ops = {.open = exec_open, .ask = exec_ask, .close = exec_close};

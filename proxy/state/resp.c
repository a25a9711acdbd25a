/*
 * See resp.h. hiredis' own connections are not used: Debian's has no TLS, it looks names up where
 * nothing may block, and it reads as much as the other side likes to send. Its reader is given a
 * tree of ours to build, so that an array's length alone allocates nothing.
 */
#include "proxy/state/resp.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "logging/limits.h"

struct asked {
	void (*answered)(void *arg, const struct resp_value *v);
	void *arg;
	int64_t end_us;
};

struct resp {
	/* owned */
	struct stream *s;
	redisReader *reader;
	struct timer timer; /* the oldest answer's deadline; or what failed is told from the loop */
	/* plain */
	struct resp_options o;
	struct err why;
	struct asked asked[LIMIT_STATE_ASKED]; /* a ring */
	size_t first, n;
	size_t fed; /* bytes of the answer that is being read */
	bool broken, freed;
};

/* ---- the tree ---- */

static void value_free(void *obj)
{
	struct resp_value *v = obj;

	if (!v)
		return;
	for (size_t i = 0; v->kind == RESP_LIST && i < v->n; i++)
		value_free(v->v[i]);
	free(v->v);
	free(v->bytes);
	free(v);
}

static void *value_add(const redisReadTask *t, struct resp_value *v)
{
	struct resp_value *in = t->parent ? t->parent->obj : NULL;

	if (in)
		in->v[t->idx] = v;
	return v;
}

static struct resp_value *value_new(enum resp_kind kind)
{
	struct resp_value *v = calloc(1, sizeof(*v));

	if (v)
		v->kind = kind;
	return v;
}

static void *make_string(const redisReadTask *t, char *p, size_t n)
{
	struct resp_value *v = value_new(t->type == REDIS_REPLY_ERROR ? RESP_ERROR : RESP_TEXT);

	if (!v)
		return NULL;
	v->bytes = malloc(n + 1);
	if (!v->bytes) {
		value_free(v);
		return NULL;
	}
	memcpy(v->bytes, p, n);
	v->bytes[n] = '\0';
	v->n = n;
	return value_add(t, v);
}

static void *make_list(const redisReadTask *t, long long n)
{
	struct resp_value *v;

	if (n < 0 || n > LIMIT_STATE_ELEMENTS)
		return NULL;
	v = value_new(RESP_LIST);
	if (v && n > 0)
		v->v = calloc((size_t)n, sizeof(struct resp_value *));
	if (!v || (n > 0 && !v->v)) {
		value_free(v);
		return NULL;
	}
	v->n = (size_t)n;
	return value_add(t, v);
}

#if HIREDIS_MAJOR >= 1
static void *make_array(const redisReadTask *t, size_t n)
{
	return make_list(t, n > LIMIT_STATE_ELEMENTS ? -1 : (long long)n);
}

/* Of RESP 3, which is not spoken. */
static void *make_double(const redisReadTask *t, double d, char *p, size_t n)
{
	(void)t, (void)d, (void)p, (void)n;
	return NULL;
}

static void *make_bool(const redisReadTask *t, int b)
{
	(void)t, (void)b;
	return NULL;
}
#else
static void *make_array(const redisReadTask *t, int n)
{
	return make_list(t, n);
}
#endif

static void *make_integer(const redisReadTask *t, long long n)
{
	struct resp_value *v = value_new(RESP_NUMBER);

	if (!v)
		return NULL;
	v->number = n;
	return value_add(t, v);
}

static void *make_nil(const redisReadTask *t)
{
	struct resp_value *v = value_new(RESP_NIL);

	return v ? value_add(t, v) : NULL;
}

static redisReplyObjectFunctions tree = {
	.createString = make_string,
	.createArray = make_array,
	.createInteger = make_integer,
#if HIREDIS_MAJOR >= 1
	.createDouble = make_double,
	.createBool = make_bool,
#endif
	.createNil = make_nil,
	.freeObject = value_free,
};

struct str resp_text(const struct resp_value *v)
{
	return v && (v->kind == RESP_TEXT || v->kind == RESP_ERROR) ? str_from(v->bytes, v->n)
								    : STR_NONE;
}

const char *resp_complaint(const struct resp_value *v)
{
	static const struct {
		const char *code, *text;
	} known[] = {
		{"WRONGPASS", "it does not take the password"},
		{"NOAUTH", "it wants a password (`state.credential`)"},
		{"ERR AUTH", "it has no password for that user"},
		{"ERR invalid password", "it does not take the password"},
		{"NOPERM", "the user may not run the commands that are needed"},
		{"LOADING", "it is still loading its data"},
		{"READONLY", "it is a replica that cannot be written to"},
		{"MASTERDOWN", "it is a replica without its master"},
		{"NOREPLICAS", "it has too few replicas to be written to"},
		{"OOM", "it has no memory left"},
		{"MISCONF", "it cannot write its data to disk"},
		{"BUSY", "it is busy with a script"},
		{"CLUSTERDOWN", "it is a part of a cluster that is down"},
		{"MOVED", "it is a part of a cluster, and the keys are elsewhere"},
		{"ERR DB index", "it has no such database"},
		{"ERR unknown command", "it does not know the commands that are needed (is it a "
					"sentinel?)"},
	};
	struct str s = resp_text(v);

	if (!v || v->kind != RESP_ERROR)
		return "its answer is not what was asked for";
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (str_starts(s, str_from_c(known[i].code)))
			return known[i].text;
	return "it answers with an error";
}

/* ---- the end ---- */

static void on_timer(void *arg);

/* Tells it from the loop. */
static void fail(struct resp *r, const char *what)
{
	if (r->broken || r->freed)
		return;
	r->broken = true;
	(void)err_set(&r->why, "%s", what);
	stream_pause(r->s);
	timer_arm(&r->timer, 0);
}

static void free_resp(void *obj)
{
	struct resp *r = obj;

	redisReaderFree(r->reader);
	free(r);
}

void resp_free(struct resp *r)
{
	if (!r || r->freed)
		return;
	r->freed = true;
	stream_close(r->s);
	timer_clear(&r->timer);
	loop_bury(r->o.loop, r, free_resp);
}

/* ---- answers ---- */

static void look_at_deadline(struct resp *r)
{
	int64_t left;

	if (r->broken || r->freed)
		return;
	if (r->n == 0) {
		timer_stop(&r->timer);
		return;
	}
	left = r->asked[r->first].end_us - loop_now_us(r->o.loop);
	timer_arm(&r->timer, left > 0 ? (uint64_t)left / 1000 + 1 : 0);
}

static void on_timer(void *arg)
{
	struct resp *r = arg;
	struct err why;

	if (!r->broken) {
		if (r->n > 0 && loop_now_us(r->o.loop) < r->asked[r->first].end_us) {
			look_at_deadline(r);
			return;
		}
		r->broken = true;
		(void)err_set(&r->why, "no answer came within %d ms", LIMIT_MS_STATE_ANSWER);
	}
	why = r->why;
	r->o.failed(r->o.arg, &why);
}

/* True: there was one, and another may be here. */
static bool take_answer(struct resp *r)
{
	void *obj = NULL;
	struct asked a;

	if (redisReaderGetReply(r->reader, &obj) != REDIS_OK) {
		fail(r, "its answer is not of the protocol, or too large");
		return false;
	}
	if (!obj)
		return false;
	r->fed = 0;
	if (r->n == 0) {
		value_free(obj);
		fail(r, "it answers what was not asked");
		return false;
	}
	a = r->asked[r->first];
	r->first = (r->first + 1) % LIMIT_STATE_ASKED;
	r->n--;
	look_at_deadline(r);
	a.answered(a.arg, obj);
	value_free(obj);
	return !r->broken && !r->freed;
}

static void on_data(struct resp *r)
{
	struct str in = stream_data(r->s);

	while (in.n > 0 && !r->broken && !r->freed) {
		size_t n = in.n;

		r->fed += n;
		if (r->fed > LIMIT_STATE_ANSWER_BYTES)
			fail(r, "its answer is too large");
		else if (redisReaderFeed(r->reader, in.p, n) != REDIS_OK)
			fail(r, "its answer is not of the protocol, or memory is out");
		else
			stream_consume(r->s, n);
		while (!r->broken && !r->freed && take_answer(r))
			;
		if (r->broken || r->freed)
			return;
		in = stream_data(r->s);
	}
}

static void on_stream(void *arg, unsigned events)
{
	struct resp *r = arg;

	if (events & STREAM_DATA)
		on_data(r);
	if (r->freed)
		return;
	if (events & STREAM_ERROR)
		fail(r, stream_error(r->s)->text);
	else if (events & STREAM_EOF)
		fail(r, "it closed the connection");
}

/* ---- commands ---- */

int resp_ask(struct resp *r, size_t argc, const struct str *argv,
	     void (*answered)(void *arg, const struct resp_value *v), void *arg, struct err *e)
{
	const char *p[LIMIT_STATE_ELEMENTS + 16];
	size_t n[LIMIT_STATE_ELEMENTS + 16];
	char *text = NULL;
	int len;

	if (r->broken || r->freed || r->n == LIMIT_STATE_ASKED || argc > ARRAY_LEN(p))
		return err_set(e, "too much is asked at once");
	for (size_t i = 0; i < argc; i++) {
		p[i] = argv[i].n ? argv[i].p : "";
		n[i] = argv[i].n;
	}
	len = redisFormatCommandArgv(&text, (int)argc, p, n);
	if (len < 0)
		return err_set(e, "out of memory");
	if ((size_t)len > stream_room(r->s)) {
		OPENSSL_cleanse(text, (size_t)len);
		redisFreeCommand(text);
		return err_set(e, "it does not take what is sent");
	}
	r->asked[(r->first + r->n) % LIMIT_STATE_ASKED] =
		(struct asked){answered, arg,
			       loop_clock_us(r->o.loop) + LIMIT_MS_STATE_ANSWER * 1000LL};
	r->n++;
	if (r->n == 1)
		timer_arm(&r->timer, LIMIT_MS_STATE_ANSWER);
	stream_write(r->s, str_from(text, (size_t)len));
	OPENSSL_cleanse(text, (size_t)len);
	redisFreeCommand(text);
	return 0;
}

void resp_set_owner(struct resp *r, void (*failed)(void *arg, const struct err *why), void *arg)
{
	r->o.failed = failed;
	r->o.arg = arg;
}

int resp_new(const struct resp_options *o, struct resp **ret, struct err *e)
{
	struct resp *r = calloc(1, sizeof(*r));

	if (r)
		r->reader = redisReaderCreateWithFunctions(&tree);
	if (!r || !r->reader || timer_init(&r->timer, o->loop, on_timer, r) < 0) {
		if (r && r->reader)
			redisReaderFree(r->reader);
		free(r);
		stream_close(o->s);
		return err_set(e, "out of memory");
	}
	r->o = *o;
	r->s = o->s;
	r->why = ERR_INIT;
	stream_set_owner(r->s, on_stream, r);
	*ret = r;
	return 0;
}

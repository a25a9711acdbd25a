/*
 * What is asked of Redis. README.md says which keys there are. A change is a number in a sorted
 * set: the whole of it is what came after 0, and the news is what came after the last one seen, so
 * both are read in the same way, by pages, and what changes meanwhile comes again with a higher
 * number.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/rand.h>

#include "logging/log.h"
#include "proxy/state/internal.h"

#define KEY_ROOM 192
#define TRIES	 3 /* to give an empty one its epoch */

/* {prefix}:name. The braces keep all keys in one place of a cluster. */
static struct str key(const struct state *st, const char *name, const char *more,
		      char mem[KEY_ROOM])
{
	int n = snprintf(mem, KEY_ROOM, "{%s}:%s%s", st->to->prefix, name, more);

	return str_from(mem, n < 0 || n >= KEY_ROOM ? 0 : (size_t)n);
}

static void broken(struct state *st, const char *what)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, "%s", what);
	state_down(st, &e);
}

static void ask(struct state *st, size_t argc, const struct str *argv,
		void (*answered)(void *arg, const struct resp_value *v))
{
	struct err e = ERR_INIT;

	if (resp_ask(st->resp, argc, argv, answered, st, &e) < 0)
		state_down(st, &e);
}

/* Once for each time that it is in reach: who writes nonsense there may write a lot of it. */
static void complain(struct state *st, const char *what, const char *why)
{
	if (!st->complained)
		log_warn("state: %s in %s is not used: %s", what, st->to->text, why);
	st->complained = true;
}

/* ---- pages ---- */

static void next_page(struct state *st);

static void finish(struct state *st)
{
	st->counter = st->asked_counter;
	if (st->reload) {
		st->ops.whole(st->ops.arg);
		/* All that was forgotten before this reading began is behind it. */
		if (st->cursor < st->floor)
			st->cursor = st->floor;
	}
	st->reload = false;
	state_synced(st);
}

static void take_record(struct state *st, const unsigned char digest[STATE_DIGEST_BYTES],
			const struct resp_value *v)
{
	struct state_record r = {0};
	struct err e = ERR_INIT;

	memcpy(r.digest, digest, sizeof(r.digest));
	if (v->kind == RESP_TEXT && state_record_parse(resp_text(v), &r, &e) == 0) {
		st->ops.put(st->ops.arg, &r);
		return;
	}
	if (v->kind != RESP_NIL)
		complain(st, "a record", e.text[0] ? e.text : "it is no text");
	st->ops.gone(st->ops.arg, digest);
}

static void on_records(void *arg, const struct resp_value *v)
{
	struct state *st = arg;
	bool last = st->page_n < LIMIT_STATE_PAGE;

	if (v->kind != RESP_LIST || v->n != st->page_n) {
		broken(st, resp_complaint(v));
		return;
	}
	for (size_t i = 0; i < v->n; i++)
		take_record(st, st->page[i], v->v[i]);
	st->cursor = st->page_last;
	if (last)
		finish(st);
	else
		next_page(st);
}

static void ask_records(struct state *st)
{
	char mem[LIMIT_STATE_PAGE][KEY_ROOM];
	struct str argv[1 + LIMIT_STATE_PAGE] = {STR("MGET")};
	char hex[STATE_DIGEST_HEX + 1];

	for (size_t i = 0; i < st->page_n; i++) {
		state_digest_write(st->page[i], hex);
		argv[1 + i] = key(st, "token:", hex, mem[i]);
	}
	ask(st, 1 + st->page_n, argv, on_records);
}

/* "name, number, name, number", the numbers ascending. */
static int read_page(struct state *st, const struct resp_value *v)
{
	uint64_t last = st->cursor;

	st->page_n = 0;
	if (v->kind != RESP_LIST || v->n % 2 != 0 || v->n > 2 * LIMIT_STATE_PAGE)
		return -1;
	for (size_t i = 0; i < v->n; i += 2) {
		uint64_t at = 0;

		if (v->v[i + 1]->kind != RESP_TEXT || str_to_u64(resp_text(v->v[i + 1]), &at) < 0 ||
		    at <= last)
			return -1;
		last = at;
		if (v->v[i]->kind == RESP_TEXT &&
		    state_digest_read(resp_text(v->v[i]), st->page[st->page_n]) == 0)
			st->page_n++;
		else
			return -1;
	}
	st->page_last = last;
	return 0;
}

static void on_page(void *arg, const struct resp_value *v)
{
	struct state *st = arg;

	if (v->kind == RESP_ERROR || read_page(st, v) < 0) {
		broken(st, v->kind == RESP_ERROR ? resp_complaint(v)
						 : "its list of tokens is none of stile's");
		return;
	}
	st->loaded += st->page_n;
	if (st->loaded > 4 * LIMIT_SANDBOXES)
		broken(st, "it holds more tokens than any stile makes");
	else if (st->page_n == 0)
		finish(st);
	else
		ask_records(st);
}

static void next_page(struct state *st)
{
	char mem[KEY_ROOM], from[32], count[16];
	struct str argv[] = {STR("ZRANGEBYSCORE"), STR_NONE,	 STR_NONE, STR("+inf"),
			     STR("WITHSCORES"),	   STR("LIMIT"), STR("0"), STR_NONE};

	(void)snprintf(from, sizeof(from), "(%llu", (unsigned long long)st->cursor);
	(void)snprintf(count, sizeof(count), "%d", LIMIT_STATE_PAGE);
	argv[1] = key(st, "changes", "", mem);
	argv[2] = str_from_c(from);
	argv[7] = str_from_c(count);
	ask(st, ARRAY_LEN(argv), argv, on_page);
}

/* ---- versions ---- */

static void on_seeded(void *arg, const struct resp_value *v)
{
	struct state *st = arg;

	/* NIL: another one was first. */
	if (v->kind == RESP_ERROR || v->kind == RESP_LIST || v->kind == RESP_NUMBER)
		broken(st, resp_complaint(v));
	else
		sync_start(st);
}

/* Where there is one already this changes nothing. */
static void write_epoch(struct state *st, void (*answered)(void *arg, const struct resp_value *v))
{
	unsigned char raw[EPOCH_LEN / 2];
	char text[EPOCH_LEN + 1], mem[KEY_ROOM];
	struct str argv[] = {STR("SET"), STR_NONE, STR_NONE, STR("NX")};

	if (RAND_bytes(raw, sizeof(raw)) != 1) {
		broken(st, "no random numbers");
		return;
	}
	for (size_t i = 0; i < sizeof(raw); i++)
		(void)snprintf(text + 2 * i, 3, "%02x", raw[i]);
	argv[1] = key(st, "epoch", "", mem);
	argv[2] = str_from(text, EPOCH_LEN);
	ask(st, ARRAY_LEN(argv), argv, answered);
}

/* It is empty: new, or emptied. */
static void seed(struct state *st)
{
	if (++st->seeds > TRIES) {
		st->seeds = 0;
		broken(st, "it does not keep what is written to it");
		return;
	}
	write_epoch(st, on_seeded);
}

static bool is_epoch(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
			return false;
	return s.n == EPOCH_LEN;
}

static void begin_load(struct state *st, struct str epoch)
{
	memcpy(st->epoch, epoch.p, EPOCH_LEN);
	st->epoch[EPOCH_LEN] = '\0';
	st->phase = PHASE_LOAD;
	st->reload = true;
	st->cursor = 0;
	st->loaded = 0;
	st->complained = false;
	st->ops.begin(st->ops.arg);
	next_page(st);
}

/* Not there: 0. */
static int read_number(const struct resp_value *v, uint64_t *ret)
{
	*ret = 0;
	return v->kind == RESP_NIL ? 0 : str_to_u64(resp_text(v), ret);
}

static void on_versions(void *arg, const struct resp_value *v)
{
	struct state *st = arg;
	struct str epoch;
	uint64_t n = 0, floor = 0;

	if (v->kind != RESP_LIST || v->n != 3) {
		broken(st, resp_complaint(v));
		return;
	}
	epoch = resp_text(v->v[0]);
	if (v->v[0]->kind == RESP_NIL) {
		seed(st);
		return;
	}
	if (!is_epoch(epoch) || read_number(v->v[1], &n) < 0 || read_number(v->v[2], &floor) < 0) {
		broken(st, "its epoch or its version is none of stile's");
		return;
	}
	st->seeds = 0;
	st->asked_counter = n;
	st->floor = floor;
	if (st->reload || !str_eq(epoch, str_from_c(st->epoch)) || n < st->counter ||
	    floor > st->cursor) {
		begin_load(st, epoch);
	} else if (n == st->counter) {
		state_synced(st);
	} else {
		st->loaded = 0;
		next_page(st);
	}
}

static void ask_versions(struct state *st)
{
	char epoch[KEY_ROOM], version[KEY_ROOM], floor[KEY_ROOM];
	struct str argv[] = {STR("MGET"), STR_NONE, STR_NONE, STR_NONE};

	argv[1] = key(st, "epoch", "", epoch);
	argv[2] = key(st, "version", "", version);
	argv[3] = key(st, "floor", "", floor);
	ask(st, ARRAY_LEN(argv), argv, on_versions);
}

static void on_primary(void *arg, const struct resp_value *v)
{
	struct state *st = arg;

	if (v->kind == RESP_ERROR && str_starts(resp_text(v), STR("READONLY"))) {
		broken(st, resp_complaint(v));
		return;
	}
	/* Full, or without a disk: it can still be read. */
	st->primary_at_us = st->sync_at_us;
	ask_versions(st);
}

/* A replica that has lost its master goes on answering, and hears of no end. That it will not write
 * is what tells it from a master, with the commands that we may run anyway. */
void sync_start(struct state *st)
{
	st->busy = true;
	/* In this order: what is asked for behind this is answered by the next one. */
	st->covers = atomic_load(&st->asked);
	st->sync_at_us = state_boot_us();
	if (st->primary_at_us == 0 ||
	    st->sync_at_us - st->primary_at_us >= LIMIT_MS_STATE_PRIMARY * 1000LL)
		write_epoch(st, on_primary);
	else
		ask_versions(st);
}

/* ---- changes of our own ---- */

/* KEYS: epoch, version, changes, ends, the token's, its name's, floor. ARGV: epoch, digest, record,
 * when it may be forgotten, now, when it ends (all in ms), how many there may be, until when those
 * are kept that end now. */
#define NEXT_VERSION                                                                               \
	"local top = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')\n"                       \
	"local v = math.max(tonumber(redis.call('GET', KEYS[2]) or '0') or 0, "                    \
	"tonumber(top[2] or '0')) + 1\n"                                                           \
	"redis.call('SET', KEYS[2], string.format('%.0f', v))\n"                                   \
	"redis.call('ZADD', KEYS[3], v, ARGV[2])\n"                                                \
	"redis.call('ZADD', KEYS[4], ARGV[4], ARGV[2])\n"                                          \
	"return 'OK'"

/* What is forgotten raises the floor: who has not read so far must read all of it. Where there is
 * no room those go first that have ended. */
static const char add_script[] =
	"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'epoch' end\n"
	"local function forget(till)\n"
	"for _, d in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', till, 'LIMIT', 0, 1000)) "
	"do\n"
	"local at = tonumber(redis.call('ZSCORE', KEYS[3], d) or '0')\n"
	"if at > (tonumber(redis.call('GET', KEYS[7]) or '0') or 0) then "
	"redis.call('SET', KEYS[7], string.format('%.0f', at)) end\n"
	"redis.call('ZREM', KEYS[4], d) redis.call('ZREM', KEYS[3], d)\n"
	"end end\n"
	"forget(ARGV[5])\n"
	"if redis.call('EXISTS', KEYS[5]) == 1 then return 'known' end\n"
	"if redis.call('EXISTS', KEYS[6]) == 1 then return 'name' end\n"
	"if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[7]) then forget(ARGV[8]) end\n"
	"if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[7]) then return 'full' end\n"
	"redis.call('SET', KEYS[5], ARGV[3])\n"
	"redis.call('PEXPIREAT', KEYS[5], ARGV[4])\n"
	"redis.call('SET', KEYS[6], ARGV[2])\n"
	"redis.call('PEXPIREAT', KEYS[6], ARGV[6])\n" NEXT_VERSION;

/* DEL first: a Redis without memory runs it, and then lets a script that has begun to write end. So
 * an end is told of even there. */
static const char end_script[] =
	"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'epoch' end\n"
	"if redis.call('DEL', KEYS[5]) == 0 then return 'gone' end\n"
	"redis.call('SET', KEYS[5], ARGV[3])\n"
	"redis.call('PEXPIREAT', KEYS[5], ARGV[4])\n"
	"if redis.call('GET', KEYS[6]) == ARGV[2] then redis.call('DEL', KEYS[6]) "
	"end\n" NEXT_VERSION;

static int run_script(struct state *st, const char *script, const struct state_record *r,
		      void (*answered)(void *arg, const struct resp_value *v), struct err *e)
{
	char keys[7][KEY_ROOM], hex[STATE_DIGEST_HEX + 1];
	char forget[24], now[24], ends[24], most[16], ended[24];
	struct timespec t;
	struct strbuf text;
	int64_t now_ms, forget_ms = r->ends_us / 1000;
	int rc;

	clock_gettime(CLOCK_REALTIME, &t);
	now_ms = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
	if (r->revoked && now_ms < forget_ms)
		forget_ms = now_ms;
	forget_ms += LIMIT_MS_SANDBOX_KEPT;
	(void)snprintf(forget, sizeof(forget), "%lld", (long long)forget_ms);
	(void)snprintf(now, sizeof(now), "%lld", (long long)now_ms);
	(void)snprintf(ends, sizeof(ends), "%lld", (long long)r->ends_us / 1000);
	(void)snprintf(ended, sizeof(ended), "%lld", (long long)now_ms + LIMIT_MS_SANDBOX_KEPT);
	(void)snprintf(most, sizeof(most), "%d", LIMIT_SANDBOXES);
	state_digest_write(r->digest, hex);
	strbuf_init(&text, LIMIT_STATE_RECORD_BYTES);
	rc = state_record_format(r, &text);
	if (rc == 0) {
		struct str argv[] = {
			STR("EVAL"),
			str_from_c(script),
			STR("7"),
			key(st, "epoch", "", keys[0]),
			key(st, "version", "", keys[1]),
			key(st, "changes", "", keys[2]),
			key(st, "ends", "", keys[3]),
			key(st, "token:", hex, keys[4]),
			key(st, "name:", r->name, keys[5]),
			key(st, "floor", "", keys[6]),
			str_from_c(st->epoch),
			str_from_c(hex),
			strbuf_str(&text),
			str_from_c(forget),
			str_from_c(now),
			str_from_c(ends),
			str_from_c(most),
			str_from_c(ended),
		};

		rc = resp_ask(st->resp, ARRAY_LEN(argv), argv, answered, st, e);
	} else {
		(void)err_set(e, "its record is too long");
	}
	strbuf_clear(&text);
	return rc;
}

static void on_ordered(void *arg, const struct resp_value *v)
{
	struct state *st = arg;
	struct state_order *o = st->under_way;
	struct str word = v->kind == RESP_TEXT ? resp_text(v) : STR_NONE;
	struct err e = ERR_INIT;
	int rc = 0;

	if (!o)
		return;
	/* It is known what became of it. */
	o->sent = false;
	if (str_eq(word, STR("OK"))) {
		st->ops.put(st->ops.arg, &o->r);
	} else if (str_eq(word, STR("gone")) && o->kind == STATE_END) {
		st->ops.gone(st->ops.arg, o->r.digest);
	} else if (str_eq(word, STR("name"))) {
		rc = err_set(&e, "a sandbox of the name %s lives (revoke it, or take another name)",
			     o->r.name);
	} else if (str_eq(word, STR("full"))) {
		rc = err_set(&e, "%d sandboxes live, which is the limit (revoke some)",
			     LIMIT_SANDBOXES);
	} else if (str_eq(word, STR("epoch"))) {
		rc = err_set(&e, "the shared state has just been emptied (try again)");
	} else {
		rc = err_set(&e, "the shared state: %s", resp_complaint(v));
	}
	state_order_done(st, o, rc, &e);
}

int sync_order(struct state *st, struct state_order *o, struct err *e)
{
	o->r.revoked = o->kind == STATE_END;
	if (run_script(st, o->kind == STATE_ADD ? add_script : end_script, &o->r, on_ordered, e) <
	    0)
		return -1;
	o->sent = true;
	return 0;
}

static void on_paid(void *arg, const struct resp_value *v)
{
	struct state *st = arg;
	struct str word = v->kind == RESP_TEXT ? resp_text(v) : STR_NONE;
	st->pays = false;
	if (str_eq(word, STR("OK")) || str_eq(word, STR("gone"))) {
		st->ops.gone(st->ops.arg, st->paying.digest);
		log_info("state: the end of sandbox %s has been told of", st->paying.name);
		return;
	}
	state_owe(st, &st->paying);
}

void sync_pay(struct state *st)
{
	struct err e = ERR_INIT;
	bool owes;

	pthread_mutex_lock(&st->lock);
	owes = st->owed_n > 0;
	if (owes)
		st->paying = st->owed[--st->owed_n];
	pthread_mutex_unlock(&st->lock);
	if (!owes)
		return;
	st->paying.revoked = true;
	if (run_script(st, end_script, &st->paying, on_paid, &e) < 0)
		state_owe(st, &st->paying);
	else
		st->pays = true;
}

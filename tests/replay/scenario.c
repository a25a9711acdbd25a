/*
 * See scenario.h. A step is a subject, a verb and words; the table at the end says which there are.
 */
#include "tests/replay/scenario.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/hex.h"
#include "proxy/http/websocket.h"
#include "proxy/session/client.h"
#include "tests/replay/rig.h"

#define WORDS_MAX 40

struct word {
	char *p;
	size_t n;
	bool quoted;
};

struct step {
	unsigned line;
	bool joined; /* the loop does not run after it */
	char *text;  /* as written, for messages */
	char *block; /* indented lines that follow, or NULL */
	struct word words[WORDS_MAX];
	size_t n;
};

static char problem[4096];
static const struct scenario *current;
static bool is_loose;

/* ---- reading ---- */

static void die(const char *file, unsigned line, const char *what)
{
	fprintf(stderr, "%s:%u: %s\n", file, line, what);
	exit(2);
}

static char *copy(const char *p, size_t n)
{
	char *r = fake_calloc(n + 1);

	memcpy(r, p, n);
	return r;
}

/* Text in quotes with \r \n \t \" \\ \xHH; behind it perhaps *N. */
static const char *read_quoted(const char *p, struct word *w)
{
	struct bytes b = {0};
	unsigned long times = 1;

	for (p++; *p && *p != '"'; p++) {
		char c = *p;

		if (c == '\\' && p[1]) {
			c = *++p;
			if (c == 'r' || c == 'n' || c == 't')
				c = c == 'r' ? '\r' : c == 'n' ? '\n' : '\t';
			else if (c == 'x' && hex_value(p[1]) >= 0 && hex_value(p[2]) >= 0) {
				c = (char)(hex_value(p[1]) * 16 + hex_value(p[2]));
				p += 2;
			}
		}
		bytes_add(&b, &c, 1);
	}
	if (*p == '"')
		p++;
	if (*p == '*') {
		char *end;

		times = strtoul(p + 1, &end, 10);
		p = end;
	}
	w->quoted = true;
	w->n = b.n * times;
	w->p = fake_calloc(w->n + 1);
	for (size_t i = 0; i < times && b.n > 0; i++)
		memcpy(w->p + i * b.n, b.p, b.n);
	bytes_clear(&b);
	return p;
}

static void read_words(struct step *s, const char *p)
{
	for (;;) {
		p += strspn(p, " \t");
		if (!*p || *p == '#' || s->n == WORDS_MAX)
			return;
		if (*p == '"') {
			p = read_quoted(p, &s->words[s->n++]);
		} else {
			size_t n = strcspn(p, " \t");

			s->words[s->n++] = (struct word){copy(p, n), n, false};
			p += n;
		}
	}
}

static void append(char **to, const char *line)
{
	size_t had = *to ? strlen(*to) : 0, n = strlen(line);
	char *r = fake_calloc(had + n + 2);

	if (had > 0)
		memcpy(r, *to, had);
	memcpy(r + had, line, n);
	r[had + n] = '\n';
	fake_free(*to);
	*to = r;
}

static void add_step(struct scenario *s, unsigned line, const char *text)
{
	struct step *v = fake_calloc((s->steps_n + 1) * sizeof(*v));
	struct step *st = &v[s->steps_n];

	if (s->steps_n > 0)
		memcpy(v, s->steps, s->steps_n * sizeof(*v));
	fake_free(s->steps);
	s->steps = v;
	s->steps_n++;
	st->line = line;
	st->text = copy(text, strlen(text));
	st->joined = *text == '&';
	read_words(st, text + (st->joined ? 1 : 0));
}

static struct scenario *add_scenario(struct scenarios *all, const char *file, unsigned line,
				     const char *name)
{
	struct scenario *v = fake_calloc((all->n + 1) * sizeof(*v));

	if (all->n > 0)
		memcpy(v, all->v, all->n * sizeof(*v));
	fake_free(all->v);
	all->v = v;
	v[all->n] = (struct scenario){.name = copy(name, strlen(name)), .file = file, .line = line};
	return &v[all->n++];
}

/* An indented line belongs to what stands above it: rules, configuration, a reload's rules. */
static void add_indented(struct scenario *s, const char *head, const char *line)
{
	if (strcmp(head, "policy") == 0)
		append(&s->rules, line);
	else if (strcmp(head, "config") == 0)
		append(&s->config, line + strspn(line, "\t"));
	else if (s->steps_n > 0)
		append(&s->steps[s->steps_n - 1].block, line);
}

void scenarios_read(const char *path, struct scenarios *all)
{
	FILE *f = fopen(path, "r");
	struct scenario *s = NULL;
	char line[16384], head[64] = "";
	unsigned n = 0;

	if (!f)
		die(path, 0, "cannot be read");
	while (fgets(line, sizeof(line), f)) {
		n++;
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "== ", 3) == 0) {
			s = add_scenario(all, path, n, line + 3);
		} else if (line[strspn(line, " \t")] == '\0' || line[0] == '#') {
			continue;
		} else if (!s) {
			die(path, n, "a scenario begins with == and its name");
		} else if (line[0] == ' ' || line[0] == '\t') {
			add_indented(s, head, line);
		} else {
			snprintf(head, sizeof(head), "%.60s", line);
			if (strcmp(line, "policy") != 0 && strcmp(line, "config") != 0)
				add_step(s, n, line);
		}
	}
	fclose(f);
}

void scenarios_free(struct scenarios *all)
{
	for (size_t i = 0; i < all->n; i++) {
		struct scenario *s = &all->v[i];

		for (size_t k = 0; k < s->steps_n; k++) {
			for (size_t w = 0; w < s->steps[k].n; w++)
				fake_free(s->steps[k].words[w].p);
			fake_free(s->steps[k].text);
			fake_free(s->steps[k].block);
		}
		fake_free(s->steps);
		fake_free(s->name);
		fake_free(s->rules);
		fake_free(s->config);
	}
	fake_free(all->v);
	*all = (struct scenarios){0};
}

/* ---- saying what is wrong ---- */

static void wrong(const struct step *s, const char *fmt, ...) ATTR_PRINTF(2, 3);

static void wrong(const struct step *s, const char *fmt, ...)
{
	char text[3000];
	va_list ap;

	if (problem[0])
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(problem, sizeof(problem), "%s:%u: %.900s\n%s", current->file,
		 s ? s->line : current->line, s ? s->text : current->name, text);
}

/* What an expectation found instead, unless nothing is expected of this run. */
#define DIFFERS(...)                                                                               \
	do {                                                                                       \
		if (!is_loose)                                                                     \
			wrong(__VA_ARGS__);                                                        \
	} while (0)

static const char *printable(struct str s)
{
	static char out[1400];
	size_t n = 0;

	for (size_t i = 0; i < s.n && n + 8 < sizeof(out); i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c == '\r' || c == '\n')
			n += (size_t)snprintf(out + n, 8, "\\%c", c == '\r' ? 'r' : 'n');
		else if (c < 32 || c > 126)
			n += (size_t)snprintf(out + n, 8, "\\x%02x", c);
		else
			out[n++] = (char)c;
	}
	out[n] = '\0';
	return out;
}

/* ---- words ---- */

static bool is(const struct step *s, size_t i, const char *word)
{
	return i < s->n && !s->words[i].quoted && strcmp(s->words[i].p, word) == 0;
}

static struct str text_of(const struct word *w)
{
	return str_from(w->p, w->n);
}

static ptrdiff_t find(struct str in, struct str what)
{
	const char *at = in.p && what.p ? memmem(in.p, in.n, what.p, what.n) : NULL;

	return at ? at - in.p : -1;
}

/* "client" is the first one, "origin" the last one; "client2", "origin1" count from 1. */
static struct peer *peer_of(const struct word *w)
{
	bool is_client = strncmp(w->p, "client", 6) == 0;
	struct peer *v = is_client ? rig.clients : rig.origins;
	size_t n = is_client ? rig.clients_n : rig.origins_n;
	size_t i = strtoul(w->p + 6, NULL, 10);

	if (i == 0)
		i = is_client ? 1 : n;
	if (is_client && i > n && rig.worker)
		(void)rig_connect((unsigned)i);
	n = is_client ? rig.clients_n : rig.origins_n;
	return i >= 1 && i <= n ? &v[i - 1] : NULL;
}

/* ---- peers ---- */

static void peer_gets(const struct step *s, struct peer *p)
{
	struct str got = bytes_str(&p->got);
	size_t upto = 0;

	if (is(s, 2, "nothing")) {
		if (got.n > 0)
			DIFFERS(s, "it got: %s", printable(got));
		return;
	}
	for (size_t i = 2; i < s->n; i++) {
		struct str want = text_of(&s->words[i]);
		char status[32];
		ptrdiff_t at;

		if (i == 2 && !s->words[i].quoted) {
			snprintf(status, sizeof(status), "HTTP/1.1 %s ", s->words[i].p);
			want = str_from_c(status);
			if (!str_starts(got, want)) {
				DIFFERS(s, "it got: %s", printable(got));
				return;
			}
		}
		at = find(got, want);
		if (at < 0) {
			DIFFERS(s, "it got: %s", printable(got));
			return;
		}
		if (upto < (size_t)at + want.n)
			upto = (size_t)at + want.n;
	}
	/* A refusal of ours is taken whole: its body says its length. */
	if (!s->words[2].quoted) {
		ptrdiff_t head = find(got, STR("\r\n\r\n"));
		ptrdiff_t at = find(got, STR("Content-Length: "));
		size_t whole = head < 0 ? 0 : (size_t)head + 4;

		if (head > 0 && at > 0 && at < head)
			whole += strtoul(got.p + at + 16, NULL, 10);
		if (whole > upto && whole <= got.n)
			upto = whole;
	}
	bytes_drop(&p->got, upto);
}

/* The 101 that answers the key of what it got, whatever key that is. */
static void peer_accepts(const struct step *s, struct peer *p)
{
	ptrdiff_t at = find(bytes_str(&p->got), STR("Sec-WebSocket-Key: "));
	struct str key = str_head(str_skip(bytes_str(&p->got), (size_t)(at < 0 ? 0 : at) + 19), 24);
	char accept[WEBSOCKET_ACCEPT_MAX], text[200];

	if (at < 0 || websocket_accept(key, accept) < 0) {
		DIFFERS(s, "no key to be answered");
		return;
	}
	snprintf(text, sizeof(text),
		 "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
		 "Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		 accept);
	peer_send(p, str_from_c(text));
}

/* The n-th answer: a status, texts in it; nothing, open, reset. */
static void peer_has(const struct step *s, struct peer *p)
{
	struct h2_peer_stream *a =
		p->h2 ? h2_peer_stream(p->h2, (int)strtol(s->words[2].p, NULL, 10) - 1) : NULL;
	char said[64];

	if (p->h2_failed)
		DIFFERS(s, "what it got is no HTTP/2");
	if (!a) {
		DIFFERS(s, "that was not asked");
		return;
	}
	snprintf(said, sizeof(said), "%u", a->status);
	for (size_t i = 3; i < s->n; i++) {
		bool ok = s->words[i].quoted ? find(bytes_str(&a->got), text_of(&s->words[i])) >= 0
			  : is(s, i, "nothing") ? a->status == 0 && !a->reset
			  : is(s, i, "reset")	? a->reset
			  : is(s, i, "open")	? !a->ended && !a->reset
			  : is(s, i, "whole")	? a->ended
						: is(s, i, said);

		if (!ok)
			DIFFERS(s, "it has: %s%s%s %s", said, a->ended ? " whole" : "",
				a->reset ? " reset" : "", printable(bytes_str(&a->got)));
	}
}

static void peer_sees(const struct step *s, struct peer *p)
{
	const char *seen =
		!p->k->closed ? (p->k->fin ? "eof" : "open") : (p->k->reset ? "reset" : "closed");

	if (!is(s, 2, seen))
		DIFFERS(s, "it sees: %s", seen);
}

static void client_is(const struct step *s, const struct peer *p)
{
	static const char *const names[] = {"accepted", "idle",	  "head",  "token", "exchange",
					    "peek",	"leaf",	  "tls",   "h2",    "tunnel",
					    "refuse",	"linger", "closed"};
	_Static_assert(ARRAY_LEN(names) == CLIENT_CLOSED + 1, "a name for each state");
	const char *state = "closed";
	size_t i = rig.clients_n - 1 - (size_t)(p - rig.clients);

	/* The worker's list has the newest first; those that are gone are no longer in it. */
	for (const struct client *c = rig.worker->clients; c; c = c->next)
		if (!p->k->closed && c->s && stream_fd(c->s) == p->k->fd)
			state = names[c->state];
	for (const struct client *c = rig.worker->clients; c && !p->k->closed; c = c->next)
		if (!c->s && i == 0)
			state = names[c->state];
	if (!is(s, 2, state))
		DIFFERS(s, "it is: %s", state);
}

static void peer_does(const struct step *s, struct peer *p)
{
	if (is(s, 1, "opens")) {
		return; /* peer_of did */
	} else if (is(s, 1, "sends")) {
		for (size_t i = 2; i < s->n; i++)
			peer_send(p, text_of(&s->words[i]));
	} else if (is(s, 1, "accepts")) {
		peer_accepts(s, p);
	} else if (is(s, 1, "dribbles")) {
		for (size_t i = 0; s->n > 2 && i < s->words[2].n; i++) {
			peer_send(p, str_from(s->words[2].p + i, 1));
			rig_settle();
		}
	} else if (is(s, 1, "eof")) {
		peer_close_notify(p);
		p->k->in_eof = true;
	} else if (is(s, 1, "truncates")) {
		p->k->in_eof = true;
	} else if (is(s, 1, "resets")) {
		p->k->in_reset = true;
	} else if (is(s, 1, "takes")) {
		p->k->window = strtoul(s->words[2].p, NULL, 10);
	} else if (is(s, 1, "reads")) {
		p->k->window = SIZE_MAX;
	} else if (is(s, 1, "h2")) {
		peer_start_client_h2(p, s->words[2].p,
				     s->n > 3 ? (unsigned)strtoul(s->words[3].p, NULL, 10) : 0);
	} else if (is(s, 1, "asks") && p->h2) {
		bool open = is(s, s->n - 1, "open");
		const struct word *body = s->n > 4 && s->words[4].quoted ? &s->words[4] : NULL;

		if (h2_peer_ask(p->h2, s->words[2].p, "a.test", s->words[3].p, NULL,
				body ? body->p : NULL, open, 0) < 0)
			wrong(s, "no more streams");
	} else if (is(s, 1, "cancels") && p->h2) {
		h2_peer_cancel(p->h2, (int)strtol(s->words[2].p, NULL, 10) - 1);
	} else if (is(s, 1, "tls") && s->words[0].p[0] == 'o') {
		peer_start_origin_tls(p, s->words[2].p);
	} else if (is(s, 1, "tls")) {
		peer_start_client_tls(p, s->n > 2 ? s->words[2].p : "", !is(s, 3, "distrusting"));
	} else {
		wrong(s, "no such step");
	}
}

static void do_peer(const struct step *s)
{
	struct peer *p = peer_of(&s->words[0]);

	if (!p || s->n < 2) {
		if (!is_loose || s->n < 2)
			wrong(s, "there is no such peer");
		return;
	}
	if (is(s, 1, "gets"))
		peer_gets(s, p);
	else if (is(s, 1, "has") && s->n > 2)
		peer_has(s, p);
	else if (is(s, 1, "sees"))
		peer_sees(s, p);
	else if (is(s, 1, "is"))
		client_is(s, p);
	else
		peer_does(s, p);
}

/* ---- names, connections, time, log ---- */

static void do_resolver(const struct step *s)
{
	struct ipaddr addrs[8];
	size_t n = 0;

	for (size_t i = 3; i < s->n && n < ARRAY_LEN(addrs); i++)
		if (ipaddr_parse(text_of(&s->words[i]), &addrs[n++]) < 0)
			wrong(s, "no address");
	if (is(s, 1, "automatic")) {
		fake_names.automatic = true;
	} else if (is(s, 1, "gets")) {
		const char *name = fake_resolve_pending();

		if (!is(s, 2, name ? name : "nothing"))
			DIFFERS(s, "it is asked for: %s", name ? name : "nothing");
	} else if (is(s, 1, "knows") && n > 0) {
		fake_resolve_cache(s->words[2].p, &addrs[0]);
	} else if (is(s, 1, "answers") || is(s, 1, "fails")) {
		if (!fake_resolve_answer(s->words[2].p, addrs, n))
			DIFFERS(s, "nobody asks for it");
	} else {
		wrong(s, "no such step");
	}
}

static void do_dial(const struct step *s)
{
	const char *to = fake_dial_pending();
	size_t n = 0;
	bool found = true;

	if (is(s, 1, "automatic")) {
		fake_dials.automatic = true;
	} else if (is(s, 1, "gets") && is(s, 2, "nothing")) {
		if (to)
			DIFFERS(s, "dialled: %s", to);
	} else if (is(s, 1, "gets")) {
		for (size_t i = 2; i < s->n; i++) {
			found = found && to && strstr(to, s->words[i].p);
			n += s->words[i].n + (i > 2 ? 1 : 0);
		}
		if (!found || strlen(to) != n)
			DIFFERS(s, "dialled: %s", to ? to : "nothing");
	} else if (is(s, 1, "ok")) {
		found = fake_dial_finish(DIALLED);
	} else if (is(s, 1, "refused")) {
		found = fake_dial_finish(DIAL_REFUSED);
	} else if (is(s, 1, "unreachable")) {
		found = fake_dial_finish(DIAL_UNREACHABLE);
	} else {
		wrong(s, "no such step");
	}
	if (!found)
		DIFFERS(s, "nothing is being dialled");
}

static int64_t read_time(const struct step *s, size_t i)
{
	char *unit;
	int64_t n;

	if (i >= s->n)
		return 0;
	n = (int64_t)strtoul(s->words[i].p + (s->words[i].p[0] == '+' ? 1 : 0), &unit, 10);
	if (strcmp(unit, "ms") == 0)
		return n * 1000;
	if (strcmp(unit, "s") == 0)
		return n * 1000000;
	if (strcmp(unit, "m") == 0)
		return n * 60000000;
	if (strcmp(unit, "h") == 0)
		return n * 3600000000;
	wrong(s, "a time has a unit: ms, s, m, h");
	return 0;
}

static void do_clock(const struct step *s)
{
	fake_clock(read_time(s, 1));
}

static void do_log(const struct step *s)
{
	if (is(s, 1, "holds"))
		fake_log_set(LOG_HOLDS);
	else if (is(s, 1, "fails") && is(s, 2, "at"))
		fake_log.fail_at = strtol(s->words[3].p, NULL, 10);
	else if (is(s, 1, "fails"))
		fake_log_set(LOG_FAILS);
	else if (is(s, 1, "writes") || is(s, 1, "recovers"))
		fake_log_set(LOG_WRITES);
	else if (is(s, 1, "full"))
		fake_log_full(true);
	else if (is(s, 1, "empties"))
		fake_log_full(false);
	else
		wrong(s, "no such step");
}

/* request.end(error=upstream_closed,status=200) */
static bool record_matches(const struct fake_line *l, const char *want)
{
	size_t n = strcspn(want, "(");
	char key[32], value[256], found[512];

	if (strlen(l->event) != n || strncmp(l->event, want, n) != 0)
		return false;
	for (want += n; *want == '(' || *want == ','; want += strcspn(want, ",)")) {
		want++;
		n = strcspn(want, "=");
		snprintf(key, sizeof(key), "%.*s", (int)n, want);
		want += n + 1;
		n = strcspn(want, ",)");
		snprintf(value, sizeof(value), "%.*s", (int)n, want);
		fake_line_value(l, key, found, sizeof(found));
		if (strcmp(value, found) != 0)
			return false;
	}
	return true;
}

static void do_records(const struct step *s)
{
	size_t want = 1, none = is(s, 1, "none") ? 1 : 0;
	char seen[2600] = "";
	size_t n = 0;
	bool same = true;

	/* Lines that nobody waits for may stay in the port for a moment. */
	log_port_flush(rig.worker->log);
	(void)fake_log_write();
	for (size_t i = 0; i < fake_log.n; i++) {
		struct fake_line *l = &fake_log.lines[i];

		if (l->read)
			continue;
		l->read = true;
		if (none || want >= s->n || !record_matches(l, s->words[want++].p))
			same = false;
		if (n + 1 < sizeof(seen))
			n += (size_t)snprintf(seen + n, sizeof(seen) - n, "\n  %.800s", l->text);
	}
	if (!same || (!none && want != s->n))
		DIFFERS(s, "the records are:%s", n ? seen : " none");
}

static void do_reload(const struct step *s)
{
	struct err e = ERR_INIT;

	if (rig_reload(s->block, current->config, &e) < 0 && !is_loose)
		wrong(s, "%s", e.text);
}

static void do_drain(const struct step *s)
{
	if (is(s, 1, "ends")) {
		if (!fake_loop.stopped)
			DIFFERS(s, "it has not ended");
		return;
	}
	worker_drain(rig.worker, (uint64_t)read_time(s, 1) / 1000);
}

static void do_order(const struct step *s)
{
	fake_loop.newest_first = is(s, 1, "newest");
}

static void do_transparent(const struct step *s)
{
	rig_transparent(s->words[1].p, (uint16_t)atol(s->words[2].p));
}

static const struct {
	const char *subject;
	void (*run)(const struct step *s);
} subjects[] = {
	{"client", do_peer},
	{"origin", do_peer},
	{"resolver", do_resolver},
	{"dial", do_dial},
	{"clock", do_clock},
	{"log", do_log},
	{"records", do_records},
	{"reload", do_reload},
	{"drain", do_drain},
	{"order", do_order},
	{"transparent", do_transparent},
};

static void run_step(const struct step *s)
{
	for (size_t i = 0; i < ARRAY_LEN(subjects); i++)
		if (s->n > 0 &&
		    strncmp(s->words[0].p, subjects[i].subject, strlen(subjects[i].subject)) == 0) {
			fake_memory.paused += subjects[i].run == do_peer ? 1 : 0;
			subjects[i].run(s);
			fake_memory.paused -= subjects[i].run == do_peer ? 1 : 0;
			if (!s->joined)
				rig_settle();
			return;
		}
	wrong(s, "no such step");
}

const char *scenario_run(const struct scenario *s, bool loosely, bool trace)
{
	struct err e = ERR_INIT;

	current = s;
	is_loose = loosely;
	problem[0] = '\0';
	fake_moves.trace = trace;
	fake_begin();
	if (rig_start(s->rules, s->config, &e) < 0) {
		if (!loosely)
			wrong(NULL, "%s", e.text);
	} else {
		for (size_t i = 0; i < s->steps_n && !problem[0] && !fake_fault_text(); i++) {
			if (trace)
				fprintf(stderr, "%s\n", s->steps[i].text);
			run_step(&s->steps[i]);
			if (fake_fault_text())
				wrong(&s->steps[i], "%s", fake_fault_text());
		}
	}
	rig_end();
	if (fake_fault_text() && !problem[0])
		wrong(NULL, "%s", fake_fault_text());
	return problem[0] ? problem : NULL;
}

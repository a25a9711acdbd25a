/*
 * Whole connections against the real client, exchange and tunnel, on the fake network of
 * tests/replay. The input is a list of steps: what clients and origins send, in which order the
 * loop hears of it, what DNS and connecting come to, how far the clock moves, when the log fails.
 * What must hold: nothing goes upstream without a written start record (the fake sockets look), no
 * answer reaches a client that did not ask, or out of turn, nothing but what is idempotent is sent
 * twice, memory is bounded by the number of connections, and after enough time everything has
 * ended, each request with its records. An input that begins with 'H' has clients of HTTP/2 within
 * inspected tunnels: there an answer is its own stream's, and what comes is HTTP/2.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/replay/rig.h"

#define CLIENTS	   4
#define TAGS_MAX   64
#define STEPS_MAX  200
#define BYTES_BASE (8u << 20)
#define BYTES_EACH (600u << 10)
#define BYTES_H2   (3u << 20) /* what waits on an HTTP/2 connection, either way */

struct input {
	const uint8_t *p, *end;
};

struct tag {
	size_t client;
	bool once;	/* not idempotent */
	unsigned heads; /* seen by origins */
};

static struct tag tags[TAGS_MAX];
static size_t tags_n;
static bool wild[RIG_PEERS_MAX];      /* this origin sent bytes of the input's */
static size_t read_to[RIG_PEERS_MAX]; /* how far its requests were looked at */
static bool is_full;
static bool speaks_h2;
static bool log_changed;
static bool raw[CLIENTS]; /* this client sent bytes of the input's within its HTTP/2 */

static unsigned take(struct input *in)
{
	return in->p < in->end ? *in->p++ : 0;
}

/* Bytes of the input, without the mark of a tag. */
static struct str take_bytes(struct input *in, char *buf, size_t size)
{
	size_t n = take(in);

	if (n > size)
		n = size;
	if (n > (size_t)(in->end - in->p))
		n = (size_t)(in->end - in->p);
	for (size_t i = 0; i < n; i++)
		buf[i] = (char)(in->p[i] == '@' ? '_' : in->p[i]);
	in->p += n;
	return str_from(buf, n);
}

/* Tunnel, handshake and preface at once. */
static void open_h2(struct peer *c)
{
	static const unsigned windows[] = {0, 10, 1, 70000};

	peer_send(c, STR("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"));
	rig_settle();
	bytes_drop(&c->got, c->got.n); /* the 200 */
	peer_start_client_h2(c, "a.test", windows[(c - rig.clients) % 4]);
	rig_settle();
}

static struct peer *client(unsigned i)
{
	while (rig.clients_n <= i % CLIENTS) {
		struct peer *c = rig_connect((unsigned)rig.clients_n + 1);

		if (!c)
			break;
		if (speaks_h2)
			open_h2(c);
	}
	return i % CLIENTS < rig.clients_n ? &rig.clients[i % CLIENTS] : NULL;
}

static struct peer *origin(unsigned i)
{
	return rig.origins_n > 0 ? &rig.origins[rig.origins_n - 1 - i % rig.origins_n] : NULL;
}

/* ---- requests ---- */

static void ask_h2(struct input *in, struct peer *c)
{
	static const struct {
		const char *method, *authority, *path, *length, *body;
		bool open;
	} forms[] = {
		{"GET", "a.test", "/@%zu@", NULL, NULL, false},
		{"HEAD", "a.test", "/@%zu@", NULL, NULL, false},
		{"POST", "a.test", "/@%zu@", "4", "body", false},
		{"POST", "a.test", "/@%zu@", "9", "body", false},
		{"POST", "a.test", "/@%zu@", "2", "body", false},
		{"POST", "a.test", "/@%zu@", NULL, "body", true},
		{"PUT", "a.test", "/@%zu@", NULL, "body", false},
		{"GET", "a.test", "/@%zu@", "0", NULL, true},
		{"TRACE", "a.test", "/@%zu@", NULL, NULL, false},
		{"GET", "evil.test", "/@%zu@", NULL, NULL, false},
		{"GET", "a.test", "/../@%zu@", NULL, NULL, false},
		{"POST", "a.test", "/@%zu@", "4", NULL, false},
	};
	unsigned how = take(in), form = how % ARRAY_LEN(forms);
	char path[64];

	if (!c || !c->h2 || tags_n == TAGS_MAX)
		return;
	tags[tags_n] = (struct tag){.client = (size_t)(c - rig.clients),
				    .once = strcmp(forms[form].method, "POST") == 0};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(path, sizeof(path), forms[form].path, tags_n);
#pragma GCC diagnostic pop
	(void)h2_peer_ask(c->h2, forms[form].method, forms[form].authority, path,
			  forms[form].length, forms[form].body, forms[form].open, (int)tags_n++);
}

static void ask(struct input *in, struct peer *c)
{
	static const char *const forms[] = {
		"GET http://a.test/@%u@ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET http://b.test/@%u@ HTTP/1.1\r\nHost: b.test\r\n\r\n",
		"GET http://a.test/@%u@ HTTP/1.0\r\n\r\n",
		"HEAD http://a.test/@%u@ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET http://a.test/secret/@%u@ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"POST http://a.test/@%u@ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody",
		"POST http://a.test/@%u@ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\nbody",
		"POST http://a.test/@%u@ HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\n"
		"Content-Length: 4\r\n\r\n",
		"PUT http://a.test/@%u@ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: "
		"chunked\r\n\r\n"
		"4\r\nbody\r\n0\r\n\r\n",
		"CONNECT t.test:22 HTTP/1.1\r\nHost: t.test:22\r\n\r\n",
		"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n",
		"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
		"GET /@%u@ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET http://evil.test/@%u@ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"POST http://a.test/@%u@ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n",
	};
	unsigned form = take(in) % ARRAY_LEN(forms);
	char text[300];

	if (!c || tags_n == TAGS_MAX)
		return;
	tags[tags_n] = (struct tag){.client = (size_t)(c - rig.clients),
				    .once = strncmp(forms[form], "POST", 4) == 0};
	/* The formats are the ones above. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(text, sizeof(text), forms[form], (unsigned)tags_n++);
#pragma GCC diagnostic pop
	peer_send(c, str_from_c(text));
}

/* The next "@N@" in b from *at on. False: none. */
static bool next_tag(const struct bytes *b, size_t *at, size_t *ret)
{
	for (; *at + 2 < b->n; ++*at) {
		size_t i = *at + 1, n = 0;

		if (b->p[*at] != '@')
			continue;
		for (; i < b->n && b->p[i] >= '0' && b->p[i] <= '9' && n < TAGS_MAX; i++)
			n = n * 10 + (size_t)(b->p[i] - '0');
		if (i < b->n && i > *at + 1 && b->p[i] == '@' && n < tags_n) {
			*at = i + 1;
			*ret = n;
			return true;
		}
	}
	return false;
}

/* An answer to the oldest request that this origin has not answered. */
static void answer(struct input *in, struct peer *o)
{
	static const char *const forms[] = {
		"HTTP/1.1 200 OK\r\nX: @%zu@\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nX: @%zu@\r\nContent-Length: 5\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nX: @%zu@\r\nTransfer-Encoding: "
		"chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: @%zu@\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
		"HTTP/1.1 200 OK\r\nX: @%zu@\r\n\r\nok",
		"HTTP/1.1 204 No Content\r\nX: @%zu@\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: @%zu@\r\nContent-Length: "
		"0\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nX: @%zu@\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: "
		"0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: @%zu@\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nX: @%1$zu@\r\nContent-Length: 2\r\n\r\nok"
		"HTTP/1.1 200 OK\r\nX: @%1$zu@\r\nContent-Length: 2\r\n\r\nok",
	};
	unsigned form = take(in) % ARRAY_LEN(forms);
	char text[300];
	size_t tag;

	/* A second answer that is read later than the first may be the one to the next request. */
	if (form == ARRAY_LEN(forms) - 1 && o && o->k->packet != SIZE_MAX)
		form = 0;
	if (!o || wild[o - rig.origins] || !next_tag(&o->got, &read_to[o - rig.origins], &tag))
		return;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(text, sizeof(text), forms[form], tag);
#pragma GCC diagnostic pop
	peer_send(o, str_from_c(text));
	/* Bodies that are not as long as said, and an answer behind the answer, which nobody asked
	 * for and nobody may get: what this origin says next would be nobody's fault. */
	wild[o - rig.origins] = form == 1 || form == 3 || form == ARRAY_LEN(forms) - 1;
}

/* ---- steps ---- */

static void do_peer(struct input *in, unsigned what, struct peer *p)
{
	char buf[256];

	if (!p)
		return;
	switch (what) {
	case 0:
		if (p->h2 && p->ssl)
			raw[p - rig.clients] = true;
		peer_send(p, take_bytes(in, buf, sizeof(buf)));
		break;
	case 1: p->k->in_eof = true; break;
	case 2: p->k->in_reset = true; break;
	case 3: p->k->window = take(in); break;
	case 4: p->k->window = SIZE_MAX; break;
	case 5: p->k->packet = take(in) + 1; break;
	default: break;
	}
}

static void do_names(struct input *in)
{
	static const struct ipaddr answers[] = {{4, {5, 6, 7, 8}},
						{4, {127, 0, 0, 1}},
						{4, {5, 6, 7, 9}},
						{4, {10, 0, 0, 1}}};
	unsigned how = take(in);
	const char *name = fake_resolve_pending();

	if (how % 8 == 7)
		fake_names.automatic = !fake_names.automatic;
	if (name)
		(void)fake_resolve_answer(name, &answers[how % 4], how % 8 == 5 ? 0 : 1);
}

static void do_dial(struct input *in)
{
	unsigned how = take(in) % 8;

	if (how == 7)
		fake_dials.automatic = !fake_dials.automatic;
	(void)fake_dial_finish(how == 5 ? DIAL_REFUSED : how == 6 ? DIAL_UNREACHABLE : DIALLED);
}

static void do_clock(struct input *in)
{
	static const int64_t ms[] = {1, 60, 300, 2000, 3000, 5000, 10000, 30000, 60000, 300000};

	fake_clock(ms[take(in) % ARRAY_LEN(ms)] * 1000);
}

static void set_full(bool full)
{
	if (full != is_full)
		fake_log_full(full);
	is_full = full;
}

static void do_log(struct input *in)
{
	unsigned how = take(in) % 5;

	log_changed = true;
	if (how < 3)
		fake_log_set((enum fake_log_mode)how);
	else
		set_full(how == 3);
}

static void do_reload(void)
{
	struct err e = ERR_INIT;

	CHECK(rig_reload("      - allow: http://a.test/**\n      - allow: tcp://u.test:22\n", NULL,
			 &e) == 0);
}

static void step(struct input *in)
{
	unsigned op = take(in) % 24, who = op < 14 ? take(in) : 0;

	if (op == 1 && speaks_h2 && client(who) && client(who)->h2)
		h2_peer_cancel(client(who)->h2, (int)(who / CLIENTS));
	else if ((op == 0 || op == 20) && speaks_h2)
		ask_h2(in, client(op == 20 ? take(in) : who));
	else if (op == 0 || op == 1)
		ask(in, client(who));
	else if (op == 2 || op == 3)
		answer(in, origin(who));
	else if (op < 9)
		do_peer(in, op - 4 + (op == 8 ? 1 : 0), client(who));
	else if (op < 14) {
		struct peer *o = origin(who);

		if (o && op == 9)
			wild[o - rig.origins] = true;
		do_peer(in, op - 9 + (op == 13 ? take(in) % 2 : 0), o);
	} else if (op < 16)
		do_names(in);
	else if (op < 18)
		do_dial(in);
	else if (op == 18)
		do_clock(in);
	else if (op == 19)
		do_log(in);
	else if (op == 20 && take(in) % 8 == 0)
		do_reload();
	else if (op == 21)
		fake_loop.newest_first = !fake_loop.newest_first;
	else if (op == 22 && take(in) % 16 == 0)
		worker_drain(rig.worker, 10000);
	else if (op == 23)
		(void)fake_turn();
}

/* ---- what must hold ---- */

/* Has that client had an opaque tunnel? rig_connect gave the clients their addresses. */
static bool clients_tunnel(size_t i)
{
	char want[32], client[64];

	(void)snprintf(want, sizeof(want), "192.0.2.%zu:", i + 1);
	for (size_t n = 0; n < fake_log.n; n++) {
		fake_line_value(&fake_log.lines[n], "client", client, sizeof(client));
		if (strcmp(fake_log.lines[n].event, "tunnel.start") == 0 &&
		    strncmp(client, want, strlen(want)) == 0)
			return true;
	}
	return false;
}

/* A record of that stream's request: what was answered was recorded. */
static bool is_recorded(size_t tag)
{
	char mark[16];

	(void)snprintf(mark, sizeof(mark), "@%zu@", tag);
	for (size_t i = 0; i < fake_log.n; i++)
		if (fake_log.lines[i].path && strstr(fake_log.lines[i].path, mark))
			return true;
	return false;
}

/* A client that sent bytes of its own has streams that it does not know of. */
static void check_h2(size_t i)
{
	struct peer *c = &rig.clients[i];
	struct h2_peer_stream *s;

	CHECK(raw[i] || !c->h2_failed);
	for (int n = 0; !raw[i] && (s = h2_peer_stream(c->h2, n)); n++) {
		size_t at = 0, tag;

		while (next_tag(&s->got, &at, &tag))
			CHECK((int)tag == s->tag);
		/* A refusal does not wait for a log that cannot be written. */
		CHECK(s->status == 0 || (log_changed && s->status >= 400) ||
		      is_recorded((size_t)s->tag));
	}
}

static void check_clients(void)
{
	for (size_t i = 0; i < rig.clients_n; i++)
		if (rig.clients[i].h2)
			check_h2(i);
	for (size_t i = 0; i < rig.clients_n; i++) {
		const struct bytes *got = &rig.clients[i].got;
		size_t at = 0, tag, last = 0;

		/* Our own refusals name the URL: also only one's own. Answers come in the order of
		 * the requests, whatever the origins did; but in an opaque tunnel they say what
		 * they like. */
		while (next_tag(got, &at, &tag)) {
			CHECK(tags[tag].client == i);
			CHECK(tag >= last || clients_tunnel(i));
			last = tag + 1;
		}
	}
}

/* Each request was sent once, or twice if it may be, to whatever origins. */
static void check_origins(void)
{
	for (size_t i = 0; i < rig.origins_n; i++) {
		size_t at = 0, tag;

		while (next_tag(&rig.origins[i].got, &at, &tag)) {
			tags[tag].heads++;
			CHECK(tags[tag].heads <= (tags[tag].once ? 1u : 2u));
		}
	}
}

static void check_memory(void)
{
	CHECK(fake_memory.bytes <
	      BYTES_BASE + (BYTES_EACH + (speaks_h2 ? BYTES_H2 : 0)) * fake_sockets_open());
}

/* Origins answer the handshakes that reach them. */
static void start_origins(void)
{
	for (size_t i = 0; speaks_h2 && i < rig.origins_n; i++) {
		struct peer *o = &rig.origins[i];

		if (!o->ssl && o->got.n > 5 && o->got.p[0] == 0x16 && !wild[i])
			peer_start_origin_tls(o, "a.test");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	struct err e = ERR_INIT;
	unsigned joined;

	rig_keeps = true;
	memset(wild, 0, sizeof(wild));
	memset(read_to, 0, sizeof(read_to));
	memset(raw, 0, sizeof(raw));
	log_changed = false;
	speaks_h2 = rig_keeps_no_policy = size > 0 && data[0] == 'H';
	tags_n = 0;
	fake_begin();
	fake_memory.bytes = 0;
	is_full = false;
	CHECK(rig_start(NULL, NULL, &e) == 0);
	fake_names.automatic = fake_dials.automatic = take(&in) % 2;
	if (speaks_h2)
		fake_names.automatic = fake_dials.automatic = take(&in) % 2;
	for (unsigned n = 0; n < STEPS_MAX && in.p < in.end && !fake_fault_text(); n++) {
		joined = *in.p & 0x80;
		step(&in);
		start_origins();
		if (!joined)
			rig_settle();
		check_memory();
	}
	set_full(false);
	rig_settle();
	log_port_flush(rig.worker->log); /* what nobody waits for */
	(void)fake_log_write();
	check_clients();
	check_origins();
	rig_end();
	if (fake_fault_text())
		fprintf(stderr, "%s\n", fake_fault_text());
	CHECK(!fake_fault_text());
	return 0;
}

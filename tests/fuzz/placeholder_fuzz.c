/*
 * Placeholders in heads, bodies and WebSockets. In the input 0x01 stands for the credential's own
 * placeholder, 0x02 for another one's, 0x03 for the first one without its last byte. The first byte
 * says in which places it is swapped.
 * - Any split of a body, or of a WebSocket, gives the same bytes, and the same end.
 * - What was let through has every placeholder that may be swapped there swapped, and no other.
 * - A head that was let through is written whole, with the value where a placeholder was and
 * nowhere else; without one there is none. The client's own head never gets the value.
 */
#include "logging/limits.h"
#include "policy/config.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/swap.h"
#include "proxy/credentials/ws_swap.h"
#include "proxy/http/h1.h"
#include "tests/fuzz/fuzz.h"

#define BOUND (1u << 20)

static const char config_text[] =
	"version: 1\n"
	"credentials:\n"
	"  other: {from: {env: FUZZ_NONE}, as: {placeholder: {env: A, prefix: ghp_}}}\n"
	"  own: {from: {env: FUZZ_NONE}, as: {placeholder: {env: B, prefix: 'ab:', length: 40,\n"
	"    in: [header, basic, query, path, body, websocket], body_bytes: 1KiB}}}\n"
	"policies: {p: {rules: [{allow: a.test, credential: own}, {allow: b.test, credential: "
	"other}]}}\n";

static struct config *config;
static struct placeholders *all;
static struct config_credential own_credential;
static struct config_placeholder how;
static size_t own, other;
static struct secret *value;

static struct str text_of(size_t which)
{
	return needles_text(placeholders_needles(all), which);
}

static void set_up(void)
{
	struct faults f;

	if (config)
		return;
	faults_init(&f, "fuzz.yaml");
	CHECK(config_load_text("fuzz.yaml", STR(config_text), &config, &f) == 0);
	faults_clear(&f);
	/* One that ends with `Z` would come to be of its own beginning and the value behind. */
	do {
		placeholders_free(all);
		CHECK(placeholders_new(config, &all, NULL) == 0);
		CHECK(placeholders_find(all, STR_NONE, "own", &own));
	} while (text_of(own).p[text_of(own).n - 1] == 'Z');
	CHECK(placeholders_find(all, STR_NONE, "other", &other));
	own_credential = *config_credential(config, "own");
	how = *own_credential.placeholder;
	own_credential.placeholder = &how;
	value = secret_new(40);
	CHECK(value);
	memset(secret_room(value), 'Z', 40);
	secret_trim(value, 40);
}

static bool has(struct str in, struct str what)
{
	return in.n > 0 && memmem(in.p, in.n, what.p, what.n) != NULL;
}

static void unfold(struct str in, struct strbuf *out)
{
	strbuf_init(out, BOUND);
	for (size_t i = 0; i < in.n; i++) {
		if (in.p[i] == 1)
			strbuf_add(out, text_of(own));
		else if (in.p[i] == 2)
			strbuf_add(out, text_of(other));
		else if (in.p[i] == 3)
			strbuf_add(out, str_head(text_of(own), text_of(own).n - 1));
		else
			strbuf_addc(out, in.p[i]);
	}
}

static void sink(void *arg, struct str data)
{
	strbuf_add(arg, data);
}

/* ---- streams ---- */

/* r NULL: in one piece. -1: it was refused. */
static int run(bool websocket, bool gives, struct str in, struct fuzz_random *r, struct strbuf *out)
{
	struct ws_swap w;
	struct body_swap *b = &w.text;
	int rc = 0;

	strbuf_init(out, BOUND);
	ws_swap_init(&w, placeholders_needles(all));
	if (gives)
		body_swap_give(b, "own", own, secret_ref(value), how.body_bytes);
	while (rc == 0 && in.n > 0) {
		size_t n = r ? fuzz_piece(r, in.n) : in.n;
		char *copy = fuzz_copy(str_head(in, n));

		rc = websocket ? ws_swap_feed(&w, str_from(copy, n), sink, out, NULL)
			       : body_swap_feed(b, str_from(copy, n), sink, out, NULL);
		free(copy);
		in = str_skip(in, n);
	}
	if (rc == 0 && websocket)
		ws_swap_end(&w, sink, out);
	else if (rc == 0)
		body_swap_end(b, sink, out);
	ws_swap_clear(&w);
	return rc;
}

static void check_stream(bool websocket, bool gives, struct str in, struct fuzz_random *r)
{
	struct strbuf whole, split, want;
	int rc = run(websocket, gives, in, NULL, &whole);

	CHECK(run(websocket, gives, in, r, &split) == rc);
	if (rc == 0)
		fuzz_check_same(&whole, &split);
	CHECK(gives || !has(strbuf_str(&split), secret_value(value)));
	/* However it was split, what went out before a refusal has no placeholder in it. */
	if (!websocket)
		CHECK(!has(strbuf_str(&split), text_of(own)) &&
		      !has(strbuf_str(&split), text_of(other)) &&
		      !has(strbuf_str(&whole), text_of(own)));
	if (rc == 0)
		CHECK(whole.len == in.n);
	if (rc == 0 && !websocket) {
		strbuf_init(&want, BOUND);
		for (size_t at = 0; at < in.n;) {
			if (str_starts(str_skip(in, at), text_of(own))) {
				strbuf_add(&want, secret_value(value));
				at += text_of(own).n;
			} else {
				strbuf_addc(&want, in.p[at++]);
			}
		}
		fuzz_check_same(&whole, &want);
		strbuf_clear(&want);
	}
	strbuf_clear(&whole);
	strbuf_clear(&split);
}

/* ---- heads ---- */

static void check_written(const struct request *r, const struct swap *s, const struct injection *i)
{
	struct request as = *r;
	struct strbuf out;

	strbuf_init(&out, BOUND);
	if (i->path.len > 0)
		as.url.path = strbuf_str(&i->path);
	CHECK(h1_write_request(&as, &i->extra, strbuf_str(&i->query), &out) == 0);
	CHECK(!has(strbuf_str(&out), text_of(own)) && !has(strbuf_str(&out), text_of(other)));
	/* In a pair it is in base64: forty of `Z` make this, whatever stands beside them. */
	CHECK(swap_is_any(s) == (has(strbuf_str(&out), secret_value(value)) ||
				 has(strbuf_str(&out), STR("WlpaWlpaWlpaWlpaWlpa")) ||
				 has(strbuf_str(&out), STR("paWlpaWlpaWlpaWlpaWl")) ||
				 has(strbuf_str(&out), STR("aWlpaWlpaWlpaWlpaWlp"))));
	strbuf_clear(&out);
}

static void check_head(struct str in, enum rule_client client)
{
	struct h1_context where = {.in_tunnel = true, .scheme = SCHEME_HTTPS};
	struct injection i;
	struct request r;
	struct swap s;
	uint16_t port;
	bool none;

	CHECK(url_parse_host_field(STR("a.test"), 443, &where.host, &port, NULL) == 0);
	where.port = port;
	request_init(&r);
	injection_init(&i);
	swap_init(&s);
	if (h1_parse_request(in, &where, &r, NULL) < 0) {
		/* Whatever was read of it. */
		(void)!swap_check_none(all, &r, NULL);
	} else {
		none = swap_check_none(all, &r, NULL) == 0;
		if (swap_take(all, &own_credential, own, client, &r, &s, NULL) == 0) {
			CHECK(none == !swap_is_any(&s));
			if (swap_put(all, &own_credential, own, &r, &s, value, client, &i, NULL) ==
			    0)
				check_written(&r, &s, &i);
		} else {
			CHECK(!none);
		}
		CHECK(!has(r.url.query, secret_value(value)) &&
		      !has(r.url.path, secret_value(value)));
	}
	swap_clear(&s);
	injection_clear(&i);
	request_clear(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_random r = fuzz_random(data, size);
	struct strbuf text;
	unsigned flags;

	/* `Z` and its base64 are the value's. */
	if (size < 2 || size > 4096 || memchr(data, 'Z', size) || memmem(data, size, "Wlpa", 4))
		return 0;
	set_up();
	flags = data[0];
	how.places = flags & 15;
	unfold(str_from(data + 1, size - 1), &text);
	for (int gives = 0; gives < 2; gives++) {
		check_stream(false, gives, strbuf_str(&text), &r);
		if (gives)
			check_stream(true, true, strbuf_str(&text), &r);
	}
	check_head(strbuf_str(&text), flags & 16 ? RULE_CLIENT_PASS : RULE_CLIENT_STRIP);
	strbuf_clear(&text);
	return 0;
}

/*
 * The canonical URL: url_parse_absolute, url_parse_origin_form, url_parse_authority,
 * url_parse_host_field and the writers. The input is one text, read as each of them.
 * - The canonical form is a fixed point: url_add's text parses to the same URL and text, in any
 *   case of scheme and host, and with the default port spelled out.
 * - Canonical text is visible ASCII without fragment, backslash in the path, dot segment (also as a
 *   second decoding would see it behind %2F), encoded control character, encoded unreserved byte
 *   or escape in lower case.
 * - An authority that is read can be written and read again.
 * - A refusal has one of the three reasons; what could be read lies within bounds.
 */
#include "policy/url.h"
#include "tests/fuzz/fuzz.h"

#define TEXT_MAX (2 * LIMIT_URL_BYTES)

static bool is_unreserved(unsigned c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

static int hex_upper(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The path decoded once, with blanks at the ends of segments and parameters gone: no segment is a
 * dot segment. */
static void check_segments(struct str path)
{
	size_t dots = 0, others = 0, blanks = 0;
	bool params = false;

	for (size_t i = 0; i <= path.n; i++) {
		unsigned c = i < path.n ? (unsigned char)path.p[i] : '/';

		if (c == '%') {
			c = (unsigned)(hex_upper(path.p[i + 1]) << 4 | hex_upper(path.p[i + 2]));
			i += 2;
		}
		if (c == '/') {
			CHECK(others > 0 || dots == 0 || dots > 2);
			dots = others = blanks = 0;
			params = false;
		} else if (c == ';') {
			params = true;
		} else if (c == ' ') {
			blanks++;
		} else if (!params) {
			others += blanks + (c != '.');
			dots += c == '.';
			blanks = 0;
		}
	}
}

static void check_path(struct str path)
{
	CHECK(path.n > 0 && path.p[0] == '/');
	for (size_t i = 0; i < path.n; i++) {
		unsigned v;

		CHECK(path.p[i] != '\\' && path.p[i] != '?');
		if (path.p[i] != '%')
			continue;
		CHECK(path.n - i > 2 && hex_upper(path.p[i + 1]) >= 0 &&
		      hex_upper(path.p[i + 2]) >= 0);
		v = (unsigned)(hex_upper(path.p[i + 1]) << 4 | hex_upper(path.p[i + 2]));
		CHECK(v >= 0x20 && v != 0x7f && v != '\\');
		CHECK(v != 0xc0 && v != 0xc1);
		CHECK(!is_unreserved(v));
	}
	check_segments(path);
}

static void check_url(const struct url *u)
{
	struct str query = u->query;

	CHECK(u->host.kind != HOST_NONE && u->port != 0);
	CHECK(u->path.n + u->query.n + u->has_query <= LIMIT_TARGET_BYTES);
	CHECK(u->has_query || query.n == 0);
	for (size_t i = 0; i < query.n; i++)
		if (query.p[i] == '%')
			CHECK(query.n - i > 2);
	if (!str_eq(u->path, STR("*")))
		check_path(u->path);
}

static void check_text(struct str text)
{
	for (size_t i = 0; i < text.n; i++)
		CHECK(text.p[i] > 0x20 && text.p[i] < 0x7f && text.p[i] != '#');
}

static void check_same(const struct url *a, const struct url *b)
{
	CHECK(a->scheme == b->scheme && a->port == b->port && host_eq(&a->host, &b->host));
	CHECK(strcmp(a->host.text, b->host.text) == 0);
	CHECK(str_eq(a->path, b->path) && str_eq(a->query, b->query));
	CHECK(a->has_query == b->has_query);
}

static void check_failure(const struct url *u, const struct err *e)
{
	fuzz_check_err(e);
	CHECK(e->reason == REASON_MALFORMED_REQUEST || e->reason == REASON_AMBIGUOUS_URL ||
	      e->reason == REASON_TARGET_TOO_LONG);
	CHECK(!u || u->path.n + u->query.n <= LIMIT_TARGET_BYTES);
}

static void parses_to(struct str text, const struct url *u)
{
	struct url again;
	struct err e = ERR_INIT;

	CHECK(url_parse_absolute(text, &again, &e) == 0);
	check_same(u, &again);
	url_clear(&again);
}

static void check_absolute_fixed(const struct url *u)
{
	struct strbuf text, other;
	size_t authority;

	strbuf_init(&text, TEXT_MAX);
	strbuf_init(&other, TEXT_MAX);
	strbuf_adds(&other, u->scheme == SCHEME_HTTP ? "HTTP://" : "hTTPS://");
	host_add_url(&u->host, &other);
	for (size_t i = 0; i < other.len; i++)
		if (other.data[i] >= 'a' && other.data[i] <= 'z')
			other.data[i] = (char)(other.data[i] - 'a' + 'A');
	authority = other.len;
	strbuf_addf(&other, ":%u", u->port);
	url_add_target(u, &other);
	url_add(u, &text);
	CHECK(!text.overflowed && !other.overflowed && authority > 0);
	check_text(strbuf_str(&text));
	parses_to(strbuf_str(&text), u);
	parses_to(strbuf_str(&other), u);
	strbuf_clear(&text);
	strbuf_clear(&other);
}

static void check_origin_fixed(const struct url *u)
{
	struct strbuf text;
	struct url again;
	struct err e = ERR_INIT;

	strbuf_init(&text, TEXT_MAX);
	url_add_target(u, &text);
	CHECK(!text.overflowed);
	check_text(strbuf_str(&text));
	CHECK(url_parse_origin_form(u->scheme, &u->host, u->port, strbuf_str(&text), &again, &e) ==
	      0);
	check_same(u, &again);
	url_clear(&again);
	strbuf_clear(&text);
}

static void read_absolute(struct str in)
{
	struct err e = ERR_INIT;
	struct url u;

	if (url_parse_absolute(in, &u, &e) < 0) {
		check_failure(&u, &e);
	} else {
		CHECK(u.scheme == SCHEME_HTTP || u.scheme == SCHEME_HTTPS);
		check_url(&u);
		check_absolute_fixed(&u);
		check_origin_fixed(&u);
	}
	url_clear(&u);
}

static void read_origin(struct str in)
{
	struct err e = ERR_INIT;
	struct host host;
	struct url u;

	CHECK(host_parse(STR("example.com"), &host, NULL) == 0);
	if (url_parse_origin_form(SCHEME_HTTPS, &host, 8443, in, &u, &e) < 0) {
		check_failure(&u, &e);
	} else {
		check_url(&u);
		check_origin_fixed(&u);
		if (!str_eq(u.path, STR("*")))
			check_absolute_fixed(&u);
	}
	url_clear(&u);
}

static void read_authority(struct str in)
{
	struct err e = ERR_INIT;
	struct host host, again;
	uint16_t port = 0, port_again = 0, no_default;
	struct strbuf text;

	strbuf_init(&text, TEXT_MAX);
	if (url_parse_authority(in, &host, &port, &e) < 0) {
		check_failure(NULL, &e);
	} else {
		CHECK(port != 0);
		host_add_url(&host, &text);
		strbuf_addf(&text, ":%u", port);
		CHECK(url_parse_authority(strbuf_str(&text), &again, &port_again, &e) == 0);
		CHECK(host_eq(&host, &again) && port == port_again);
	}
	strbuf_reset(&text);
	e = ERR_INIT;
	if (url_parse_host_field(in, 443, &host, &port, &e) < 0) {
		check_failure(NULL, &e);
		CHECK(url_parse_authority(in, &host, &port, &e) < 0);
	} else {
		struct url u = {.scheme = SCHEME_HTTPS, .host = host, .port = port};

		url_add_authority(&u, &text);
		CHECK(url_parse_host_field(strbuf_str(&text), 443, &again, &port_again, &e) == 0);
		CHECK(host_eq(&host, &again) && port == port_again);
		/* The two differ in nothing but a port that is left out. */
		CHECK(url_parse_host_field(in, 444, &again, &no_default, &e) == 0);
		CHECK((url_parse_authority(in, &again, &port_again, &e) == 0) ==
		      (no_default == port));
	}
	strbuf_clear(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = fuzz_copy(str_from(data, size));
	struct str in = str_from(copy, size);

	read_absolute(in);
	read_origin(in);
	read_authority(in);
	free(copy);
	return 0;
}

/*
 * Reads the target of a rule, `[scheme://]host[:port][/path]`, and refuses whatever could mean
 * something else than its writer meant, with what to write instead. Pure; called by load_rules.c
 * and for --allow.
 */
#include <string.h>

#include <libpsl.h>

#include "policy/load.h"

static int refuse_char(struct str text, size_t at, struct err *e)
{
	unsigned char c = (unsigned char)text.p[at];

	if (c == ' ' || c == '\t' || c == '\n')
		return err_set(e, "`%.*s` holds a blank (one target an item: [a.test, b.test])",
			       SHOW(text));
	if (c == '\\')
		return err_set(e, "`%.*s` holds a backslash (write /)", SHOW(text));
	return err_set(e, "a target holds the control character 0x%02x (remove it)", c);
}

static int check_chars(struct str text, struct err *e)
{
	if (text.n == 0)
		return err_set(e, "an empty target (write a host, such as api.example.com)");
	for (size_t i = 0; i < text.n; i++) {
		unsigned char c = (unsigned char)text.p[i];

		if (c <= ' ' || c == 0x7f || c == '\\')
			return refuse_char(text, i, e);
	}
	if (str_find(text, '#') >= 0)
		return err_set(e, "`%.*s` has a fragment, which no request carries (drop the #...)",
			       SHOW(text));
	if (str_find(text, '?') >= 0)
		return err_set(
			e, "`%.*s` has a query, and rules look at the path alone (drop the ?...)",
			SHOW(text));
	return 0;
}

/* ---- scheme ---- */

static int find_scheme(struct str word, enum scheme *ret, struct err *e)
{
	static const enum scheme all[] = {SCHEME_HTTPS, SCHEME_HTTP, SCHEME_WSS, SCHEME_WS,
					  SCHEME_TCP};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (str_eq_nocase(word, str_from_c(scheme_word(all[i])))) {
			*ret = all[i];
			return 0;
		}
	return err_set(e, "unknown scheme `%.*s` (write https, http, wss, ws or tcp)", SHOW(word));
}

/* https//a.test would be the path //a.test of a host called https. */
static int check_colon(struct str text, struct err *e)
{
	ptrdiff_t slash = str_find(text, '/');
	enum scheme scheme;

	if (slash < 0 || !str_starts(str_skip(text, (size_t)slash), STR("//")) ||
	    find_scheme(str_head(text, (size_t)slash), &scheme, e) < 0)
		return 0;
	return err_set(e, "`%.*s` lacks the colon of its scheme (write %s:%.*s)", SHOW(text),
		       scheme_word(scheme), SHOW(str_skip(text, (size_t)slash)));
}

/* Cuts the scheme off *text, if there is one. */
static int cut_scheme(struct str *text, enum scheme *ret, struct err *e)
{
	struct str word;

	*ret = SCHEME_HTTPS;
	for (size_t i = 0; i < text->n && text->p[i] != '/'; i++) {
		if (text->p[i] != ':')
			continue;
		word = str_head(*text, i);
		if (str_starts(str_skip(*text, i), STR("://"))) {
			*text = str_skip(*text, i + 3);
			return find_scheme(word, ret, e);
		}
		if (i + 1 < text->n && text->p[i + 1] == '/')
			return err_set(e, "`%.*s`: a scheme ends in :// (or a port is missing)",
				       SHOW(*text));
	}
	if (text->p[0] == '/')
		return err_set(e, "`%.*s` has no host (write https://HOST/path)", SHOW(*text));
	return check_colon(*text, e);
}

/* ---- host ---- */

static int refuse_wildcard(struct str host, struct err *e)
{
	struct str tail = host;

	while (tail.n > 0 && (tail.p[0] == '*' || tail.p[0] == '.'))
		tail = str_skip(tail, 1);
	if (tail.n == 0)
		return err_set(e, "the host `%.*s` (write * for any host)", SHOW(host));
	if (str_find(tail, '*') < 0)
		return err_set(e, "the host `%.*s`: a wildcard is one whole label (write *.%.*s)",
			       SHOW(host), SHOW(tail));
	return err_set(e,
		       "the host `%.*s`: a wildcard stands only in front (write *.example.com; it "
		       "covers every depth)",
		       SHOW(host));
}

static int read_wildcard(struct str host, struct target *t, struct err *e)
{
	struct str suffix = str_skip(host, 2);

	if (!str_starts(host, STR("*.")) || suffix.n == 0 || suffix.p[0] == '.' ||
	    str_find(suffix, '*') >= 0)
		return refuse_wildcard(host, e);
	t->host_kind = TARGET_HOST_WILDCARD;
	if (host_parse(suffix, &t->host, e) < 0)
		return err_wrap(e, "the host `%.*s`", SHOW(host));
	if (t->host.kind != HOST_NAME)
		return err_set(e,
			       "the host `%.*s`: nothing is below an address (write `*` with "
			       "`addresses:`)",
			       SHOW(host));
	if (t->host.len > LIMIT_HOST_BYTES - 2)
		return err_set(e,
			       "the host `%.*s` can never match: no name below it is short "
			       "enough",
			       SHOW(host));
	return 0;
}

static int read_host(struct str host, struct target *t, struct err *e)
{
	if (host.n == 0)
		return err_set(e, "the host is missing (write * for any host)");
	for (size_t i = 0; i < host.n; i++)
		if ((unsigned char)host.p[i] >= 0x80)
			return err_set(e,
				       "the host `%.*s` is international (write its A-label, "
				       "xn--...)",
				       SHOW(host));
	if (str_eq(host, STR("*"))) {
		t->host_kind = TARGET_HOST_ANY;
		return 0;
	}
	if (str_find(host, '*') >= 0)
		return read_wildcard(host, t, e);
	if (host.p[0] == '.')
		return err_set(e,
			       "the host `%.*s` begins with a dot (write *%.*s for the names "
			       "below it)",
			       SHOW(host), SHOW(host));
	t->host_kind = TARGET_HOST_EXACT;
	if (host_parse(host, &t->host, e) < 0)
		return err_wrap(e, "the host `%.*s`", SHOW(host));
	return 0;
}

/* ---- port ---- */

static bool read_number(struct str s, uint16_t *ret)
{
	uint64_t n;

	if (s.n == 0 || s.n > 5 || str_to_u64(s, &n) < 0 || n == 0 || n > 65535 || s.p[0] == '0')
		return false;
	*ret = (uint16_t)n;
	return true;
}

static int read_port(struct str s, struct target *t, struct err *e)
{
	struct str last = s, first = str_split(&last, '-');

	if (s.n == 0)
		return err_set(e, "a `:` and no port behind it (write 1 to 65535, a range "
				  "8000-8999, or *; or drop the `:`)");
	if (str_eq(s, STR("*"))) {
		t->port_first = 1;
		t->port_last = 65535;
		return 0;
	}
	if (!read_number(first, &t->port_first) ||
	    !read_number(last.p ? last : first, &t->port_last))
		return err_set(e, "the port `%.*s` (write 1 to 65535, a range 8000-8999, or *)",
			       SHOW(s));
	if (t->port_last < t->port_first)
		return err_set(e, "the port range `%.*s` is empty (write the smaller one first)",
			       SHOW(s));
	return 0;
}

static int default_port(struct str authority, struct target *t, struct err *e)
{
	if (t->scheme == SCHEME_TCP)
		return err_set(e, "tcp:// needs a port (write tcp://%.*s:22, or :* for any)",
			       SHOW(authority));
	t->port_first = t->port_last = scheme_default_port(t->scheme);
	return 0;
}

/* Splits host and port at the last colon that is not within brackets. */
static int read_authority(struct str authority, struct target *t, struct err *e)
{
	struct str host = authority, port = STR_NONE;
	ptrdiff_t colon = str_find(authority, ':');

	if (str_find(authority, '@') >= 0)
		return err_set(e,
			       "a user name or password stands before the host (drop it: secrets "
			       "belong in `credentials:`)");
	if (authority.n > 0 && authority.p[0] == '[') {
		ptrdiff_t end = str_find(authority, ']');

		colon = end >= 0 && (size_t)end + 1 < authority.n ? end + 1 : -1;
		if (colon >= 0 && authority.p[colon] != ':')
			return err_set(e, "`%.*s`: only a port can follow the bracket",
				       SHOW(authority));
	}
	if (colon >= 0) {
		host = str_head(authority, (size_t)colon);
		port = str_skip(authority, (size_t)colon + 1);
		if (str_find(port, ':') >= 0)
			return err_set(e,
				       "`%.*s` has too many colons (an IPv6 address stands in "
				       "brackets: [2001:db8::1])",
				       SHOW(authority));
	}
	if (read_host(host, t, e) < 0)
		return -1;
	return colon < 0 ? default_port(authority, t, e) : read_port(port, t, e);
}

/* 10.0.0.0/8 would be the path /8 of one address, 10.0.0.0/8:443 the path /8:443: nobody means
 * that. */
static bool is_range(struct str text, const struct target *t, struct str path)
{
	struct str before = str_head(text, text.n - path.n), port = str_skip(path, 1),
		   bits = str_split(&port, ':');
	uint64_t n;

	if (t->host_kind != TARGET_HOST_EXACT || t->host.kind == HOST_NAME || path.n == 0 ||
	    str_find(text, '/') != (ptrdiff_t)before.n)
		return false;
	if (t->host.kind == HOST_IPV4 ? str_find(before, ':') >= 0 : before.p[before.n - 1] != ']')
		return false; /* a port or a scheme says that it is a URL */
	return bits.n >= 1 && bits.n <= 3 && str_to_u64(bits, &n) == 0 && n <= 128;
}

int load_target(struct str text, struct target *ret, struct err *e)
{
	struct target t = {0};
	struct str rest = text, path;
	ptrdiff_t slash;

	if (check_chars(text, e) < 0 || cut_scheme(&rest, &t.scheme, e) < 0)
		return -1;
	slash = str_find(rest, '/');
	path = slash < 0 ? STR_NONE : str_skip(rest, (size_t)slash);
	if (read_authority(slash < 0 ? rest : str_head(rest, (size_t)slash), &t, e) < 0)
		return -1;
	if (path.n > 0 && t.scheme == SCHEME_TCP)
		return err_set(e, "tcp:// has no path (drop `%.*s`)", SHOW(path));
	if (is_range(text, &t, path))
		return err_set(e,
			       "`%.*s` reads as the path %.*s of one address (write `*` and put "
			       "ranges under `addresses:`, or https://%.*s for that path)",
			       SHOW(text), SHOW(path), SHOW(text));
	if (path.n > 0 && pattern_compile(path, &t.path, e) < 0)
		return err_wrap(e, "the path `%.*s`", SHOW(path));
	*ret = t;
	return 0;
}

/* Names below co.uk or github.io belong to everybody. The list is the one that libpsl was built
 * with; names that it does not know are no suffixes. */
static bool is_public_suffix(const struct host *h)
{
	const psl_ctx_t *list = psl_builtin();

	return list &&
	       psl_is_public_suffix2(list, h->text, PSL_TYPE_ANY | PSL_TYPE_NO_STAR_RULE) == 1;
}

const char *load_target_doubt(const struct target *t)
{
	if (t->host_kind == TARGET_HOST_ANY)
		return "`*` stands for every host there is";
	if (t->host_kind == TARGET_HOST_WILDCARD && str_find(host_str(&t->host), '.') < 0)
		return "this wildcard covers every name of a whole top-level domain";
	if (t->host_kind == TARGET_HOST_WILDCARD && is_public_suffix(&t->host))
		return "this wildcard covers names of everybody: what follows the *. is a public "
		       "suffix";
	if (t->path && str_eq(pattern_str(t->path), STR("/")))
		return "this covers the path / alone (leave the / out for every path)";
	if (t->path && str_ends(pattern_str(t->path), STR("/.*")))
		return "a path is no regular expression: /.* covers segments that begin with a dot "
		       "(write /** for any)";
	return NULL;
}

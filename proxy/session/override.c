/*
 * See override.h. Names compare as broadly as a server might read them: without case, and with any
 * mark for `-` (CGI makes them one).
 */
#include "proxy/session/override.h"

#include <string.h>

#include "logging/attrs.h"
#include "logging/limits.h"
#include "logging/percent.h"

enum what { NOTHING, METHOD, PATH, PREFIX, HOST, FORWARDED, DESTINATION };

/* "_method" is a key of the query alone, but as a field it does no harm here. */
static const struct {
	struct str name;
	enum what what;
} names[] = {
	{{"x-http-method-override", 22}, METHOD},
	{{"x-http-method", 13}, METHOD},
	{{"x-method-override", 17}, METHOD},
	{{"-method", 7}, METHOD},
	{{"x-original-url", 14}, PATH},
	{{"x-rewrite-url", 13}, PATH},
	{{"x-override-url", 14}, PATH},
	{{"x-original-uri", 14}, PATH},
	{{"x-http-destinationurl", 21}, PATH},
	{{"x-rewrite-uri", 13}, PATH},
	{{"x-original-path", 15}, PATH},
	{{"x-forwarded-uri", 15}, PATH},
	{{"x-forwarded-path", 16}, PATH},
	{{"script-name", 11}, PREFIX},
	{{"x-script-name", 13}, PREFIX},
	{{"x-forwarded-prefix", 18}, PREFIX},
	{{"x-original-method", 17}, METHOD},
	{{"x-forwarded-method", 18}, METHOD},
	{{"x-forwarded-host", 16}, HOST},
	{{"x-original-host", 15}, HOST},
	{{"x-host", 6}, HOST},
	{{"x-http-host-override", 20}, HOST},
	{{"x-host-override", 15}, HOST},
	{{"x-http-host", 11}, HOST},
	{{"x-real-host", 11}, HOST},
	{{"x-original-forwarded-host", 25}, HOST},
	{{"x-forwarded-server", 18}, HOST},
	{{"forwarded", 9}, FORWARDED},
	{{"destination", 11}, DESTINATION},
};

#define NAME_MAX_BYTES 25

struct check {
	/* borrowed */
	const struct policy *policy;
	const struct policy_request *q;
	const struct url *url;
	struct policy_decision *d;
	struct err *e;
	/* plain */
	unsigned asked;
	bool method, path; /* both together ask for a request that nobody was asked about */
};

static enum what what_is(struct str name)
{
	/* Most names are dismissed at their first byte. */
	char first = name.n < 6 || name.n > NAME_MAX_BYTES ? '\0' : str_name_fold(name.p[0]);

	if (first != 'x' && first != 'f' && first != 'd' && first != 's' && first != '-')
		return NOTHING;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		size_t k = 0;

		if (names[i].name.n != name.n)
			continue;
		while (k < name.n && str_name_fold(name.p[k]) == names[i].name.p[k])
			k++;
		if (k == name.n)
			return names[i].what;
	}
	return NOTHING;
}

static int refuse(struct check *c, enum reason why, const char *what, struct str value)
{
	*c->d = (struct policy_decision){.reason = why};
	return err_reason(c->e, why, "%s%s%.*s", what, value.n > 0 ? " " : "",
			  value.n > 200 ? 200 : (int)value.n, value.p ? value.p : "");
}

static int decide(struct check *c, const struct policy_request *as, const char *what,
		  struct str value)
{
	struct policy_decision d;

	if (++c->asked > LIMIT_OVERRIDES)
		return refuse(c, REASON_AMBIGUOUS_URL,
			      "too many fields ask for another request:", value);
	policy_decide(c->policy, as, &d);
	if (d.allow)
		return 0;
	(void)refuse(c, d.reason, what, value);
	c->d->rule = d.rule;
	return -1;
}

static bool is_word(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] != '-' && s.p[i] != '_' && str_name_fold(s.p[i]) == '-')
			return false;
	return true;
}

/* Frameworks put the method into upper case, some read a list: every element has to be admitted.
 * What is quoted, or more than a word, is nothing that a rule could have spoken of. */
static int check_method(struct check *c, struct str value)
{
	c->method = true;
	while (value.p) {
		struct str one = str_trim_ows(str_split(&value, ','));
		struct policy_request as = *c->q;
		char upper[LIMIT_METHOD_BYTES];

		if (one.n > sizeof(upper) || !is_word(one))
			return refuse(c, REASON_NO_RULE, "no rule allows the method", one);
		for (size_t i = 0; i < one.n; i++)
			upper[i] = one.p[i] >= 'a' && one.p[i] <= 'z' ? (char)(one.p[i] - 'a' + 'A')
								      : one.p[i];
		as.method = str_from(upper, one.n);
		if (decide(c, &as, "nothing admits the request as one of the method", one) < 0)
			return -1;
	}
	return 0;
}

static int check_path(struct check *c, struct str value)
{
	struct url u;
	int rc;

	c->path = true;
	if (!str_starts(value, STR("/")))
		return refuse(c, REASON_AMBIGUOUS_URL, "a field asks for another target:", value);
	rc = url_parse_origin_form(c->url->scheme, &c->url->host, c->url->port, value, &u, NULL);
	if (rc < 0) {
		refuse(c, REASON_AMBIGUOUS_URL, "a field asks for another target:", value);
	} else {
		struct policy_request as = *c->q;

		as.path = u.path;
		rc = decide(c, &as, "nothing admits the request as one for", value);
	}
	url_clear(&u);
	return rc;
}

/* The character of s at *at, an escape decoded; *at is put behind it. */
static char char_at(struct str s, size_t *at)
{
	int byte = percent_byte(s, *at);
	char c = byte < 0 ? s.p[*at] : (char)byte;

	*at += byte < 0 ? 1 : 3;
	return c;
}

/* How much of the path the prefix stands for at its beginning, however the two are escaped. 0: it
 * does not begin with that. */
static size_t prefix_size(struct str path, struct str prefix)
{
	size_t i = 0, k = 0;

	while (k < prefix.n)
		if (i == path.n || char_at(path, &i) != char_at(prefix, &k))
			return 0;
	return i;
}

static int check_rest(struct check *c, struct str rest, struct str prefix)
{
	c->path = true;
	if (rest.n > 0 && rest.p[0] != '/')
		return refuse(c, REASON_AMBIGUOUS_URL,
			      "a field cuts the path within a segment:", prefix);
	return check_path(c, rest.n > 0 ? rest : STR("/"));
}

/* Where an application is said to be mounted (gunicorn's SCRIPT_NAME and what others do in its
 * likeness): the server takes that off the path, and what is left is what is asked for. An older
 * gunicorn took it off with all before it, wherever it stood. */
static int check_prefix(struct check *c, struct str value)
{
	struct str path = c->url->path;
	const char *found;
	size_t size, end;

	while (value.n > 0 && value.p[value.n - 1] == '/')
		value.n--;
	if (value.n == 0)
		return 0;
	size = prefix_size(path, value);
	if (size > 0 && check_rest(c, str_skip(path, size), value) < 0)
		return -1;
	/* Also where the path begins with it in another spelling: that one knows none. */
	found = memmem(path.p, path.n, value.p, value.n);
	end = found ? (size_t)(found - path.p) + value.n : size;
	return end != size ? check_rest(c, str_skip(path, end), value) : 0;
}

/* RFC 4918 section 10.3: where COPY and MOVE put what they take, a URL or a path. */
static int check_destination(struct check *c, struct str value)
{
	struct policy_request as = *c->q;
	struct url u;
	int rc;

	if (str_starts(value, STR("/")))
		return check_path(c, value);
	if (str_find(value, '/') < 0 && !str_eq_nocase(c->q->method, STR("COPY")) &&
	    !str_eq_nocase(c->q->method, STR("MOVE")))
		return 0; /* no URL, and nothing that needs one */
	c->path = true;
	if (url_parse_absolute(value, &u, NULL) < 0) {
		url_clear(&u);
		return refuse(c, REASON_AMBIGUOUS_URL, "a field names another target:", value);
	}
	as = policy_request_for(&u, as.method);
	rc = decide(c, &as, "nothing admits the request as one that ends at", value);
	url_clear(&u);
	return rc;
}

/* The port says nothing about who is meant. */
static int check_host(struct check *c, struct str value)
{
	while (value.p) {
		struct str one = str_trim_ows(str_split(&value, ','));
		struct host host;
		uint16_t port;

		if (url_parse_host_field(one, c->url->port, &host, &port, NULL) < 0 ||
		    !host_eq(&host, &c->url->host))
			return refuse(c, REASON_NAME_MISMATCH,
				      "a field asks for another host:", one);
	}
	return 0;
}

/* RFC 7239 section 4: `for=...;host="name:port", ...`. */
static int check_forwarded(struct check *c, struct str value)
{
	while (value.p) {
		struct str element = str_split(&value, ',');

		while (element.p) {
			struct str pair = str_trim_ows(str_split(&element, ';'));
			struct str key = str_trim_ows(str_split(&pair, '='));

			if (!str_eq_nocase(key, STR("host")))
				continue;
			pair = str_trim_ows(pair);
			if (pair.n > 1 && pair.p[0] == '"' && pair.p[pair.n - 1] == '"')
				pair = str_head(str_skip(pair, 1), pair.n - 2);
			if (check_host(c, pair.p ? pair : STR("")) < 0)
				return -1;
		}
	}
	return 0;
}

static int check_one(struct check *c, enum what what, struct str value)
{
	switch (what) {
	case METHOD: return check_method(c, value.p ? value : STR(""));
	case PATH: return check_path(c, value);
	case PREFIX: return check_prefix(c, value.p ? value : STR(""));
	case HOST: return check_host(c, value.p ? value : STR(""));
	case FORWARDED: return check_forwarded(c, value);
	case DESTINATION: return check_destination(c, value.p ? value : STR(""));
	case NOTHING: return 0;
	}
	return 0;
}

/* Decoded into buf as far as it fits; a longer one is nothing that is looked for here. */
static struct str decoded(struct str s, char *buf, size_t size)
{
	return str_from(buf, percent_decode(s, buf, size));
}

/* As PHP reads it: without blanks in front, up to a NUL. (That it takes `.`, `[` and a blank for
 * `_` is what_is's business.) */
static struct str key_as_read(struct str key, char *buf, size_t size)
{
	ptrdiff_t nul;

	while (str_starts(key, STR("+")) || str_starts(key, STR("%20")))
		key = str_skip(key, key.p[0] == '+' ? 1 : 3);
	key = decoded(key, buf, size);
	nul = str_find(key, '\0');
	return nul < 0 ? key : str_head(key, (size_t)nul);
}

/* Method overrides are read from the query too; the other kinds are fields alone. */
static int check_query(struct check *c)
{
	struct str rest = c->url->query;

	if (!c->url->has_query)
		return 0;
	for (size_t at = 0; at < rest.n;) {
		char key_mem[NAME_MAX_BYTES + 1], value_mem[4 * LIMIT_METHOD_BYTES];
		struct str pair, key;
		size_t end = at;

		while (end < rest.n && rest.p[end] != '&' && rest.p[end] != ';')
			end++;
		pair = str_from(rest.p + at, end - at);
		at = end + 1;
		key = key_as_read(str_split(&pair, '='), key_mem, sizeof(key_mem));
		if (what_is(key) == METHOD &&
		    check_method(c, decoded(pair, value_mem, sizeof(value_mem))) < 0)
			return -1;
	}
	return 0;
}

int override_check(const struct policy *p, const struct request *r, const struct policy_request *q,
		   struct policy_decision *d, struct err *e)
{
	struct check c = {.policy = p, .q = q, .url = &r->url, .d = d, .e = e};

	for (size_t i = 0; i < r->fields.n; i++) {
		const struct field *f = &r->fields.v[i];

		if (check_one(&c, what_is(f->name), f->value) < 0)
			return -1;
	}
	if (check_query(&c) < 0)
		return -1;
	if (c.method && c.path)
		return refuse(&c, REASON_AMBIGUOUS_URL,
			      "fields ask for another method and another target at once", STR_NONE);
	return 0;
}

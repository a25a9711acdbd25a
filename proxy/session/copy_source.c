/*
 * See copy_source.h. Stores name a source by bucket and key, whatever the request's own form is, so
 * it is judged in that form: by path (s3.REGION/BUCKET/KEY) or by host (BUCKET.s3.REGION/KEY).
 * Which of the two a host speaks is told by the store's own label in its name; where there is none,
 * nobody can tell what would be read.
 */
#include "proxy/session/copy_source.h"

#include <string.h>

#include "logging/limits.h"
#include "logging/percent.h"

#define NAME_MAX_BYTES 32

enum form { FORM_NONE, FORM_BUCKET, FORM_URL, FORM_UNKNOWN };

static const struct {
	const char *name;
	enum form form;
} names[] = {
	{"x-amz-copy-source", FORM_BUCKET},    {"x-goog-copy-source", FORM_BUCKET},
	{"x-oss-copy-source", FORM_BUCKET},    {"x-cos-copy-source", FORM_BUCKET},
	{"x-obs-copy-source", FORM_BUCKET},    {"x-ms-copy-source", FORM_URL},
	{"x-amz-rename-source", FORM_UNKNOWN}, {"x-copy-from", FORM_UNKNOWN},
};

static const char *const store_labels[] = {"s3", "storage", "oss", "cos", "obs"};

struct check {
	/* borrowed */
	const struct policy *policy;
	const struct url *url;
	struct policy_decision *d;
	struct err *e;
};

static bool is_named(struct str name, const char *known)
{
	size_t i = 0;

	for (; i < name.n && known[i]; i++) {
		if (str_name_fold(name.p[i]) != known[i])
			return false;
	}
	return i == name.n && !known[i];
}

static enum form form_of(struct str name)
{
	if (name.n < 11)
		return FORM_NONE;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (is_named(name, names[i].name))
			return names[i].form;
	return FORM_NONE;
}

static int refuse(struct check *c, struct str value, const char *why)
{
	*c->d = (struct policy_decision){.reason = REASON_NO_RULE};
	return err_reason(c->e, REASON_NO_RULE, "the source of a copy %s: %.*s", why,
			  value.n > 200 ? 200 : (int)value.n, value.p ? value.p : "");
}

/* `s3`, and `s3-accelerate` and the like. */
static bool is_store(struct str label)
{
	for (size_t i = 0; i < ARRAY_LEN(store_labels); i++) {
		struct str known = str_from_c(store_labels[i]);

		if (str_starts(label, known) && (label.n == known.n || label.p[known.n] == '-'))
			return true;
	}
	return false;
}

/* The host from the store's label on; the last one counts, as a bucket may be called so. Empty:
 * there is none. */
static struct str store_of(const struct host *h)
{
	struct str rest = host_str(h), found = STR_NONE;

	while (h->kind == HOST_NAME && rest.p) {
		struct str here = rest, label = str_split(&rest, '.');

		if (is_store(label))
			found = here;
	}
	return found;
}

static int judge(struct check *c, enum scheme scheme, const struct host *host, uint16_t port,
		 struct str path, struct str value)
{
	struct policy_request as = {
		.scheme = scheme, .host = host, .port = port, .method = STR("GET"), .path = path};
	const char *mine = c->d->rule->credential;
	struct policy_decision d;

	policy_decide(c->policy, &as, &d);
	if (d.allow && d.rule->credential && strcmp(d.rule->credential, mine) == 0)
		return 0;
	return refuse(c, value, "is not one that may be read");
}

/* Bytes that a store reads as others: %2F is a slash to it, and a raw plus may be a blank. */
static bool is_plain(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] == '+' || (s.p[i] == '%' && i + 2 < s.n && s.p[i + 1] == '2' &&
				      (s.p[i + 2] | 0x20) == 'f'))
			return false;
	return true;
}

static int judge_target(struct check *c, const struct host *host, struct str target,
			struct str value)
{
	struct url u;
	int rc;

	if (url_parse_origin_form(c->url->scheme, host, c->url->port, target, &u, NULL) < 0)
		rc = refuse(c, value, "cannot be told");
	else
		rc = judge(c, u.scheme, host, u.port, u.path, value);
	url_clear(&u);
	return rc;
}

/* [/]BUCKET/KEY[?versionId=...] */
static int check_bucket(struct check *c, struct str value)
{
	struct str store = store_of(&c->url->host), rest = value, source, bucket;
	struct strbuf b;
	struct host host;
	uint16_t port;
	int rc;

	source = str_split(&rest, '?');
	if (source.n > 0 && source.p[0] == '/')
		source = str_skip(source, 1);
	rest = source;
	bucket = str_split(&rest, '/');
	if (store.n == 0 || bucket.n == 0 || rest.n == 0 || str_find(bucket, ':') >= 0 ||
	    str_find(bucket, '%') >= 0 || !is_plain(source))
		return refuse(c, value, "cannot be told");
	strbuf_init(&b, LIMIT_URL_BYTES);
	if (store.n == host_str(&c->url->host).n) {
		strbuf_addc(&b, '/');
		strbuf_add(&b, source);
		rc = judge_target(c, &c->url->host, strbuf_str(&b), value);
	} else {
		strbuf_add(&b, bucket);
		strbuf_addc(&b, '.');
		strbuf_add(&b, store);
		rc = url_parse_host_field(strbuf_str(&b), c->url->port, &host, &port, NULL);
		strbuf_reset(&b);
		strbuf_addc(&b, '/');
		strbuf_add(&b, rest);
		rc = rc < 0 ? refuse(c, value, "cannot be told")
			    : judge_target(c, &host, strbuf_str(&b), value);
	}
	strbuf_clear(&b);
	return rc;
}

static int check_url(struct check *c, struct str value)
{
	struct str rest = value;
	struct url u;
	int rc;

	if (!is_plain(str_split(&rest, '?')))
		return refuse(c, value, "cannot be told");
	if (url_parse_absolute(value, &u, NULL) < 0)
		rc = refuse(c, value, "cannot be told");
	else
		rc = judge(c, u.scheme, &u.host, u.port, u.path, value);
	url_clear(&u);
	return rc;
}

/* As far as it fits: a longer name is none of these. */
static struct str decoded(struct str s, char mem[NAME_MAX_BYTES])
{
	return str_from(mem, percent_decode(s, mem, NAME_MAX_BYTES));
}

/* Stores take fields out of the query as well, where that is signed: nobody needs it here. */
static int check_query(struct check *c)
{
	struct str rest = c->url->has_query ? c->url->query : STR_NONE;

	while (rest.p) {
		struct str pair = str_split(&rest, '&'), name = str_split(&pair, '=');
		char mem[NAME_MAX_BYTES];

		name = decoded(name, mem);
		if (form_of(name) != FORM_NONE)
			return refuse(c, name, "cannot be told");
	}
	return 0;
}

int copy_source_check(const struct policy *p, const struct request *r, struct policy_decision *d,
		      struct err *e)
{
	struct check c = {.policy = p, .url = &r->url, .d = d, .e = e};
	int rc = check_query(&c);

	for (size_t i = 0; i < r->fields.n && rc == 0; i++) {
		const struct field *f = &r->fields.v[i];

		switch (form_of(f->name)) {
		case FORM_NONE: break;
		case FORM_BUCKET: rc = check_bucket(&c, f->value); break;
		case FORM_URL: rc = check_url(&c, f->value); break;
		case FORM_UNKNOWN: rc = refuse(&c, f->value, "cannot be told"); break;
		}
	}
	return rc;
}

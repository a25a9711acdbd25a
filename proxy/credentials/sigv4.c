/*
 * See sigv4.h. Built from the canonical request's own structures, never from bytes that came in.
 * What is ambiguous to servers (a raw `+` in a query is a blank to them; pairs that are empty do
 * not count) is read as servers of the services read it: a wrong guess is a refusal there.
 */
#include "proxy/credentials/sigv4.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "logging/limits.h"
#include "logging/percent.h"

#define HASH_BYTES  32
#define STAMP_LEN   16 /* 20150830T123600Z */
#define DATE_LEN    8
#define ALGORITHM   "AWS4-HMAC-SHA256"
#define SCRATCH_MAX (8 * LIMIT_HEAD_BYTES + SIGV4_MAX_TEXT)
#define SIGNED_MAX  (LIMIT_HEAD_FIELDS + 8)

struct derived {
	unsigned char of[HASH_BYTES]; /* hash of the secret that it comes from */
	unsigned char key[HASH_BYTES];
	char date[DATE_LEN]; /* 0: empty */
	char region[LIMIT_SIGV4_SCOPE_WORD + 1];
	char service[LIMIT_SIGV4_SCOPE_WORD + 1];
};

struct pair {
	struct str name, value; /* encoded */
	size_t at, value_at;	/* in the scratch, while it may still move */
};

struct named {
	struct str name, value;
	size_t order;
};

struct sigv4 {
	/* owned */
	EVP_MD *sha256;
	EVP_MD_CTX *md;
	EVP_MAC *hmac;
	EVP_MAC_CTX *mac;
	struct secret *keys_mem; /* locked: struct derived[LIMIT_SIGV4_KEYS] */
	struct strbuf canonical; /* wiped */
	struct strbuf text;	 /* scratch, wiped */
	/* borrowed from keys_mem */
	struct derived *keys;
	/* plain */
	size_t next_key;
	struct pair pairs[LIMIT_SIGV4_QUERY_PAIRS];
	struct named named[SIGNED_MAX];
	size_t named_n;
};

static int out_of_memory(struct err *e)
{
	return err_reason(e, REASON_INTERNAL_ERROR, "signing: out of memory");
}

static void add_hex(struct strbuf *out, const unsigned char *p, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		strbuf_addc(out, digits[p[i] >> 4]);
		strbuf_addc(out, digits[p[i] & 15]);
	}
}

/* ---- birth and end ---- */

int sigv4_new(struct sigv4 **ret, struct err *e)
{
	struct sigv4 *s = calloc(1, sizeof(*s));
	char name[] = "SHA256";
	OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
			       OSSL_PARAM_construct_end()};

	if (!s)
		return out_of_memory(e);
	strbuf_init(&s->canonical, SCRATCH_MAX);
	strbuf_init(&s->text, SCRATCH_MAX);
	s->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	s->md = EVP_MD_CTX_new();
	s->hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	s->mac = s->hmac ? EVP_MAC_CTX_new(s->hmac) : NULL;
	s->keys_mem = secret_new(LIMIT_SIGV4_KEYS * sizeof(struct derived) + 64);
	if (!s->sha256 || !s->md || !s->mac || !s->keys_mem ||
	    EVP_MAC_CTX_set_params(s->mac, params) != 1) {
		sigv4_free(s);
		return out_of_memory(e);
	}
	/* Its room begins wherever the header ends; bytes alone are kept there. */
	s->keys = (struct derived *)(void *)secret_room(s->keys_mem);
	*ret = s;
	return 0;
}

void sigv4_free(struct sigv4 *s)
{
	if (!s)
		return;
	EVP_MD_CTX_free(s->md);
	EVP_MD_free(s->sha256);
	EVP_MAC_CTX_free(s->mac);
	EVP_MAC_free(s->hmac);
	secret_unref(s->keys_mem);
	strbuf_wipe(&s->canonical);
	strbuf_wipe(&s->text);
	free(s);
}

/* Empties one that is used again, and leaves nothing in it. */
static void wipe(struct strbuf *b)
{
	if (b->data)
		OPENSSL_cleanse(b->data, b->len);
	strbuf_reset(b);
}

/* ---- hashes ---- */

static int sha256(struct sigv4 *s, struct str in, unsigned char out[HASH_BYTES])
{
	return EVP_DigestInit_ex2(s->md, s->sha256, NULL) == 1 &&
			       EVP_DigestUpdate(s->md, in.p, in.n) == 1 &&
			       EVP_DigestFinal_ex(s->md, out, NULL) == 1
		       ? 0
		       : -1;
}

static int hmac(struct sigv4 *s, const unsigned char *key, size_t key_n, struct str in,
		unsigned char out[HASH_BYTES])
{
	size_t n = 0;

	return EVP_MAC_init(s->mac, key, key_n, NULL) == 1 &&
			       EVP_MAC_update(s->mac, (const unsigned char *)in.p, in.n) == 1 &&
			       EVP_MAC_final(s->mac, out, &n, HASH_BYTES) == 1
		       ? 0
		       : -1;
}

/* Between two requests OpenSSL's own memory holds no key of ours. */
static void forget_key(struct sigv4 *s)
{
	static const unsigned char zero[HASH_BYTES];

	(void)EVP_MAC_init(s->mac, zero, sizeof(zero), NULL);
}

/* ---- the canonical request ---- */

static bool is_unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

static void add_encoded(struct strbuf *out, unsigned char c)
{
	static const char digits[] = "0123456789ABCDEF";

	if (is_unreserved((char)c)) {
		strbuf_addc(out, (char)c);
		return;
	}
	strbuf_addc(out, '%');
	strbuf_addc(out, digits[c >> 4]);
	strbuf_addc(out, digits[c & 15]);
}

/* How many bytes at its beginning stay as they are. */
static size_t plain_run(struct str s)
{
	size_t n = 0;

	while (n < s.n && is_unreserved(s.p[n]))
		n++;
	return n;
}

/* The byte that s begins with, decoded; how long it is there. */
static size_t decode_one(struct str s, unsigned char *ret)
{
	int byte = percent_byte(s, 0);

	*ret = byte < 0 ? (unsigned char)s.p[0] : (unsigned char)byte;
	return byte < 0 ? 1 : 3;
}

bool sigv4_keeps_path(struct str service)
{
	return str_eq(service, STR("s3")) || str_eq(service, STR("s3express")) ||
	       str_eq(service, STR("s3-outposts")) || str_eq(service, STR("s3-object-lambda"));
}

/* S3: decoded once and encoded anew, every slash kept. */
static void add_kept_path(struct strbuf *out, struct str path)
{
	while (path.n > 0) {
		size_t n = plain_run(path);
		unsigned char c;

		strbuf_add(out, str_head(path, n));
		path = str_skip(path, n);
		if (path.n == 0)
			return;
		n = decode_one(path, &c);
		if (c == '/')
			strbuf_addc(out, '/');
		else
			add_encoded(out, c);
		path = str_skip(path, n);
	}
}

/* All others: as it is written, encoded once more, runs of slashes as one. There are no dot
 * segments in it (policy/url.h). */
static void add_path(struct strbuf *out, struct str path)
{
	for (size_t i = 0; i < path.n; i++) {
		if (path.p[i] != '/')
			add_encoded(out, (unsigned char)path.p[i]);
		else if (i == 0 || path.p[i - 1] != '/')
			strbuf_addc(out, '/');
	}
}

static void add_query_text(struct strbuf *out, struct str s)
{
	while (s.n > 0) {
		size_t n = plain_run(s);
		unsigned char c;

		strbuf_add(out, str_head(s, n));
		s = str_skip(s, n);
		if (s.n == 0)
			return;
		n = decode_one(s, &c);
		add_encoded(out, n == 1 && c == '+' ? ' ' : c);
		s = str_skip(s, n);
	}
}

static int by_pair(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	int r = str_cmp(x->name, y->name);

	return r ? r : str_cmp(x->value, y->value);
}

static int read_pairs(struct sigv4 *s, struct str query, size_t *ret_n, struct err *e)
{
	size_t n = 0;

	while (query.p) {
		struct str one = str_split(&query, '&');
		struct str value = one, name = str_split(&value, '=');
		struct pair *p = &s->pairs[n];

		if (one.n == 0)
			continue;
		if (n == LIMIT_SIGV4_QUERY_PAIRS)
			return err_reason(e, REASON_UNSIGNABLE,
					  "its query has more than %d parts, which are not signed",
					  LIMIT_SIGV4_QUERY_PAIRS);
		p->at = s->text.len;
		add_query_text(&s->text, name);
		p->name.n = s->text.len - p->at;
		p->value_at = s->text.len;
		add_query_text(&s->text, value);
		p->value.n = s->text.len - p->value_at;
		n++;
	}
	for (size_t i = 0; i < n; i++) {
		s->pairs[i].name.p = strbuf_cstr(&s->text) + s->pairs[i].at;
		s->pairs[i].value.p = strbuf_cstr(&s->text) + s->pairs[i].value_at;
	}
	*ret_n = n;
	return 0;
}

static int add_query(struct sigv4 *s, const struct url *u, struct err *e)
{
	size_t n = 0;

	if (!u->has_query || u->query.n == 0)
		return 0;
	strbuf_reset(&s->text);
	if (read_pairs(s, u->query, &n, e) < 0)
		return -1;
	if (s->text.overflowed)
		return out_of_memory(e);
	if (n > 1)
		qsort(s->pairs, n, sizeof(s->pairs[0]), by_pair);
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			strbuf_addc(&s->canonical, '&');
		strbuf_add(&s->canonical, s->pairs[i].name);
		strbuf_addc(&s->canonical, '=');
		strbuf_add(&s->canonical, s->pairs[i].value);
	}
	return 0;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static int cmp_nocase(struct str a, struct str b)
{
	size_t n = a.n < b.n ? a.n : b.n;

	for (size_t i = 0; i < n; i++) {
		int d = (unsigned char)lower(a.p[i]) - (unsigned char)lower(b.p[i]);

		if (d)
			return d;
	}
	return (a.n > b.n) - (a.n < b.n);
}

static int by_name(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int r = cmp_nocase(x->name, y->name);

	return r ? r : (x->order > y->order) - (x->order < y->order);
}

static int note(struct sigv4 *s, struct str name, struct str value)
{
	if (s->named_n == SIGNED_MAX)
		return -1;
	s->named[s->named_n] = (struct named){name, value, s->named_n};
	s->named_n++;
	return 0;
}

static bool is_signed(struct str name)
{
	return (name.n > 6 && str_eq_nocase(str_head(name, 6), STR("x-amz-"))) ||
	       str_eq_nocase(name, STR("content-type")) || str_eq_nocase(name, STR("content-md5"));
}

/* Blanks at the ends are no part of a value, and a run of them within counts as one. */
static void add_value(struct strbuf *out, struct str v)
{
	const char *run;

	v = str_trim_ows(v);
	while (v.n > 0 && (run = memmem(v.p, v.n, "  ", 2))) {
		strbuf_add(out, str_from(v.p, (size_t)(run - v.p) + 1));
		v = str_skip(v, (size_t)(run - v.p));
		while (v.n > 0 && v.p[0] == ' ')
			v = str_skip(v, 1);
	}
	strbuf_add(out, v);
}

static void add_lower(struct strbuf *out, struct str name)
{
	for (size_t i = 0; i < name.n; i++)
		strbuf_addc(out, lower(name.p[i]));
}

/* The names in order, each once, between semicolons. */
static void add_names(const struct sigv4 *s, struct strbuf *out)
{
	for (size_t i = 0; i < s->named_n; i++) {
		if (i > 0 && cmp_nocase(s->named[i].name, s->named[i - 1].name) == 0)
			continue;
		if (i > 0)
			strbuf_addc(out, ';');
		add_lower(out, s->named[i].name);
	}
}

static void add_fields(struct sigv4 *s)
{
	struct strbuf *out = &s->canonical;

	for (size_t i = 0; i < s->named_n; i++) {
		const struct named *f = &s->named[i];

		if (i > 0 && cmp_nocase(f->name, f[-1].name) == 0) {
			strbuf_addc(out, ',');
		} else {
			if (i > 0)
				strbuf_addc(out, '\n');
			add_lower(out, f->name);
			strbuf_addc(out, ':');
		}
		add_value(out, f->value);
	}
	strbuf_adds(out, "\n\n");
}

static int choose_fields(struct sigv4 *s, const struct sigv4_request *r, struct str host,
			 struct str stamp, struct err *e)
{
	int rc = 0;

	s->named_n = 0;
	for (size_t i = 0; i < r->fields->n; i++)
		if (r->every_field || is_signed(r->fields->v[i].name))
			rc |= note(s, r->fields->v[i].name, r->fields->v[i].value);
	rc |= note(s, STR("host"), host);
	rc |= note(s, STR("x-amz-date"), stamp);
	if (!r->no_payload_field)
		rc |= note(s, STR("x-amz-content-sha256"), r->payload);
	if (r->who.token.n > 0)
		rc |= note(s, STR("x-amz-security-token"), r->who.token);
	if (rc < 0)
		return err_reason(e, REASON_UNSIGNABLE, "it has too many fields to be signed");
	qsort(s->named, s->named_n, sizeof(s->named[0]), by_name);
	return 0;
}

/* More than the canonical request takes, and than what is added to the head. */
static size_t room_for(const struct sigv4 *s, const struct sigv4_request *r)
{
	size_t n = 1024 + 3 * (r->url->path.n + r->url->query.n);

	for (size_t i = 0; i < s->named_n; i++)
		n += 2 * s->named[i].name.n + s->named[i].value.n + 4;
	return n;
}

static int write_canonical(struct sigv4 *s, const struct sigv4_request *r, struct str stamp,
			   struct err *e)
{
	char host_mem[LIMIT_HOST_BYTES + 16];
	struct strbuf host;

	wipe(&s->canonical);
	wipe(&s->text);
	strbuf_init_fixed(&host, host_mem, sizeof(host_mem));
	url_add_authority(r->url, &host);
	if (choose_fields(s, r, strbuf_str(&host), stamp, e) < 0)
		return -1;
	/* At once: what grows leaves copies behind. */
	(void)strbuf_reserve(&s->canonical, room_for(s, r));
	strbuf_add(&s->canonical, r->method);
	strbuf_addc(&s->canonical, '\n');
	if (sigv4_keeps_path(r->service))
		add_kept_path(&s->canonical, r->url->path);
	else
		add_path(&s->canonical, r->url->path);
	strbuf_addc(&s->canonical, '\n');
	if (add_query(s, r->url, e) < 0)
		return -1;
	strbuf_addc(&s->canonical, '\n');
	add_fields(s);
	add_names(s, &s->canonical);
	strbuf_addc(&s->canonical, '\n');
	strbuf_add(&s->canonical, r->payload);
	return s->canonical.overflowed || host.overflowed ? out_of_memory(e) : 0;
}

struct str sigv4_last_canonical(const struct sigv4 *s)
{
	return strbuf_str(&s->canonical);
}

/* ---- keys ---- */

static bool is_key_of(const struct derived *d, const struct sigv4_request *r, const char *date,
		      const unsigned char of[HASH_BYTES])
{
	return memcmp(d->date, date, DATE_LEN) == 0 && CRYPTO_memcmp(d->of, of, HASH_BYTES) == 0 &&
	       str_eq(r->region, str_from_c(d->region)) &&
	       str_eq(r->service, str_from_c(d->service));
}

/* kSigning of the specification. */
static int derive(struct sigv4 *s, const struct sigv4_request *r, const char *date,
		  unsigned char out[HASH_BYTES])
{
	unsigned char secret[4 + SIGV4_KEY_MAX];
	int rc;

	if (r->who.key.n > SIGV4_KEY_MAX)
		return -1;
	memcpy(secret, "AWS4", 4);
	memcpy(secret + 4, r->who.key.p, r->who.key.n);
	rc = hmac(s, secret, 4 + r->who.key.n, str_from(date, DATE_LEN), out);
	OPENSSL_cleanse(secret, sizeof(secret));
	if (rc < 0 || hmac(s, out, HASH_BYTES, r->region, out) < 0 ||
	    hmac(s, out, HASH_BYTES, r->service, out) < 0 ||
	    hmac(s, out, HASH_BYTES, STR("aws4_request"), out) < 0)
		return -1;
	return 0;
}

/* A day's keys are worth nothing on the next one: the first signature of a day wipes the others. */
static void drop_other_days(struct sigv4 *s, const char *date)
{
	for (size_t i = 0; i < LIMIT_SIGV4_KEYS; i++)
		if (s->keys[i].date[0] && memcmp(s->keys[i].date, date, DATE_LEN) != 0)
			OPENSSL_cleanse(&s->keys[i], sizeof(s->keys[i]));
}

static const struct derived *find_key(struct sigv4 *s, const struct sigv4_request *r,
				      const char *date)
{
	unsigned char of[HASH_BYTES] = {0};
	struct derived *d;

	if (r->region.n > LIMIT_SIGV4_SCOPE_WORD || r->service.n > LIMIT_SIGV4_SCOPE_WORD ||
	    sha256(s, r->who.key, of) < 0)
		return NULL;
	for (size_t i = 0; i < LIMIT_SIGV4_KEYS; i++)
		if (is_key_of(&s->keys[i], r, date, of))
			return &s->keys[i];
	drop_other_days(s, date);
	d = &s->keys[s->next_key];
	s->next_key = (s->next_key + 1) % LIMIT_SIGV4_KEYS;
	OPENSSL_cleanse(d, sizeof(*d));
	if (derive(s, r, date, d->key) < 0) {
		OPENSSL_cleanse(d, sizeof(*d));
		return NULL;
	}
	memcpy(d->of, of, HASH_BYTES);
	memcpy(d->date, date, DATE_LEN);
	memcpy(d->region, r->region.p, r->region.n);
	memcpy(d->service, r->service.p, r->service.n);
	return d;
}

/* ---- the signature ---- */

static void add_scope(struct strbuf *out, const struct sigv4_request *r, const char *date)
{
	strbuf_add(out, str_from(date, DATE_LEN));
	strbuf_addc(out, '/');
	strbuf_add(out, r->region);
	strbuf_addc(out, '/');
	strbuf_add(out, r->service);
	strbuf_adds(out, "/aws4_request");
}

static int signature(struct sigv4 *s, const struct sigv4_request *r, struct str stamp,
		     unsigned char out[HASH_BYTES], struct err *e)
{
	const struct derived *key = find_key(s, r, stamp.p);
	unsigned char hash[HASH_BYTES] = {0};
	int rc = -1;

	wipe(&s->text);
	if (key && sha256(s, strbuf_str(&s->canonical), hash) == 0) {
		strbuf_adds(&s->text, ALGORITHM "\n");
		strbuf_add(&s->text, stamp);
		strbuf_addc(&s->text, '\n');
		add_scope(&s->text, r, stamp.p);
		strbuf_addc(&s->text, '\n');
		add_hex(&s->text, hash, sizeof(hash));
		if (!s->text.overflowed)
			rc = hmac(s, key->key, HASH_BYTES, strbuf_str(&s->text), out);
	}
	forget_key(s);
	return rc < 0 ? out_of_memory(e) : 0;
}

/* Of mem, from `at` on, as a field; mem may still move, so that only lengths are kept. */
struct piece {
	struct str name;
	size_t at, n;
};

static void add_piece(struct strbuf *mem, struct piece *p, struct str name, struct str value)
{
	*p = (struct piece){.name = name, .at = mem->len, .n = value.n};
	strbuf_add(mem, value);
}

static void write_authorization(const struct sigv4 *s, const struct sigv4_request *r,
				const char *date, const unsigned char sig[HASH_BYTES],
				struct strbuf *mem, struct piece *p)
{
	*p = (struct piece){.name = STR("Authorization"), .at = mem->len};
	strbuf_adds(mem, ALGORITHM " Credential=");
	strbuf_add(mem, r->who.id);
	strbuf_addc(mem, '/');
	add_scope(mem, r, date);
	strbuf_adds(mem, ", SignedHeaders=");
	add_names(s, mem);
	strbuf_adds(mem, ", Signature=");
	add_hex(mem, sig, HASH_BYTES);
	p->n = mem->len - p->at;
}

static int write_fields(const struct sigv4 *s, const struct sigv4_request *r, struct str stamp,
			const unsigned char sig[HASH_BYTES], struct strbuf *mem,
			struct fields *extra, struct err *e)
{
	struct piece p[4];
	size_t n = 0;

	(void)strbuf_reserve(mem, room_for(s, r));
	add_piece(mem, &p[n++], STR("X-Amz-Date"), stamp);
	if (!r->no_payload_field)
		add_piece(mem, &p[n++], STR("X-Amz-Content-Sha256"), r->payload);
	if (r->who.token.n > 0)
		add_piece(mem, &p[n++], STR("X-Amz-Security-Token"), r->who.token);
	write_authorization(s, r, stamp.p, sig, mem, &p[n++]);
	if (mem->overflowed)
		return out_of_memory(e);
	for (size_t i = 0; i < n; i++)
		if (fields_add(extra, p[i].name, str_from(mem->data + p[i].at, p[i].n)) < 0)
			return out_of_memory(e);
	return 0;
}

int sigv4_sign(struct sigv4 *s, const struct sigv4_request *r, struct strbuf *mem,
	       struct fields *extra, struct err *e)
{
	unsigned char sig[HASH_BYTES] = {0};
	char stamp[STAMP_LEN + 1];
	struct tm tm;
	int rc;

	if (!gmtime_r(&r->now, &tm) || tm.tm_year < 100 || tm.tm_year > 8000 ||
	    strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm) != STAMP_LEN)
		return err_reason(e, REASON_INTERNAL_ERROR, "signing: the clock is not set");
	rc = write_canonical(s, r, str_from(stamp, STAMP_LEN), e);
	if (rc == 0)
		rc = signature(s, r, str_from(stamp, STAMP_LEN), sig, e);
	if (rc == 0)
		rc = write_fields(s, r, str_from(stamp, STAMP_LEN), sig, mem, extra, e);
	if (!r->keep_canonical)
		wipe(&s->canonical); /* the session token is in it */
	wipe(&s->text);
	return rc;
}

/*
 * See swap.h. What stands around a placeholder goes out with it, so only what says nothing by
 * itself may: the word of a scheme, a key, one half of a Basic pair. A field that holds a
 * placeholder and something else beside it could carry another account's key past the strip.
 */
#include "proxy/credentials/swap.h"

#include <stdlib.h>

#include <openssl/evp.h>

#include "logging/percent.h"
#include "proxy/credentials/strip.h"
#include "proxy/credentials/swap_internal.h"

#define SPOTS_MAX  8   /* fields, and keys of the query: more is no client's habit */
#define DECODE_MAX 2   /* how often percent-encoding is undone in the search */
#define WORD_MAX   32  /* of a scheme or a parameter */
#define USER_MAX   128 /* of the other half of a pair */

void swap_init(struct swap *s)
{
	*s = (struct swap){0};
	strbuf_init(&s->keys, LIMIT_TARGET_BYTES);
}

void swap_clear(struct swap *s)
{
	fields_clear(&s->fields);
	strbuf_clear(&s->keys);
}

bool swap_is_any(const struct swap *s)
{
	return s->fields.n > 0 || s->keys.len > 0 || s->path;
}

/* ---- spellings ---- */

/* As it stands, and with its escapes undone. Memory that is out counts as a hit. */
static bool holds(const struct needles *n, struct str s, size_t *ret_which)
{
	char *mem = NULL;
	bool found;

	if (s.n < NEEDLE_LEAST)
		return false;
	found = needles_find(n, s, ret_which) >= 0;
	for (unsigned i = 0; !found && i < DECODE_MAX && str_find(s, '%') >= 0; i++) {
		if (!mem)
			mem = malloc(s.n);
		if (!mem) {
			*ret_which = 0;
			return true;
		}
		/* In place the second time: what is written is never ahead of what is read. */
		s.n = percent_decode(s, mem, s.n);
		s.p = mem;
		found = needles_find(n, s, ret_which) >= 0;
	}
	free(mem);
	return found;
}

bool swap_basic_pair(struct str value, char **ret_mem, struct str *ret)
{
	struct str b64 = str_trim_ows(str_skip(value, 6));
	size_t pad = 0;
	int n;

	/* A blank says RFC 9110; servers take a tab for one. */
	if (value.n < 6 || !str_eq_nocase(str_head(value, 5), STR("Basic")) ||
	    (value.p[5] != ' ' && value.p[5] != '\t') || b64.n == 0)
		return false;
	*ret_mem = calloc(1, b64.n + 8);
	if (!*ret_mem)
		return false;
	while (pad < 2 && pad < b64.n && b64.p[b64.n - 1 - pad] == '=')
		pad++;
	if (b64.n % 4 != 0) { /* without its padding */
		char *whole = calloc(1, b64.n + 4);
		size_t len = b64.n - pad;

		if (!whole || len % 4 == 1) {
			free(whole);
			free(*ret_mem);
			*ret_mem = NULL;
			return false;
		}
		memcpy(whole, b64.p, len);
		for (pad = 0; (len + pad) % 4 != 0; pad++)
			whole[len + pad] = '=';
		n = EVP_DecodeBlock((unsigned char *)*ret_mem, (const unsigned char *)whole,
				    (int)(len + pad));
		free(whole);
	} else {
		n = EVP_DecodeBlock((unsigned char *)*ret_mem, (const unsigned char *)b64.p,
				    (int)b64.n);
	}
	if (n < (int)pad) {
		free(*ret_mem);
		*ret_mem = NULL;
		return false;
	}
	*ret = str_from(*ret_mem, (size_t)n - pad);
	return true;
}

static bool value_holds(const struct needles *n, struct str value, size_t *ret_which)
{
	struct str pair;
	char *mem = NULL;
	bool found = holds(n, value, ret_which);

	if (!found && swap_basic_pair(value, &mem, &pair))
		found = holds(n, pair, ret_which);
	free(mem);
	return found;
}

/* ---- the search ---- */

static int misused(const struct placeholders *p, const char *where, size_t which, struct err *e)
{
	return err_reason(e, REASON_PLACEHOLDER_MISUSED,
			  "%s holds the placeholder of credential %s, which is not swapped there",
			  where, placeholders_name(p, which));
}

int swap_check_trailers(const struct placeholders *p, const struct fields *trailers, struct err *e)
{
	size_t which;

	for (size_t i = 0; trailers && i < trailers->n; i++)
		if (value_holds(placeholders_needles(p), trailers->v[i].value, &which) ||
		    holds(placeholders_needles(p), trailers->v[i].name, &which))
			return misused(p, "a field", which, e);
	return 0;
}

/* All but the path, which may be swapped where it is. */
static int check_rest(const struct placeholders *p, const struct request *r, struct err *e)
{
	const struct needles *n = placeholders_needles(p);
	size_t which;

	if (r->url.has_query && holds(n, r->url.query, &which))
		return misused(p, "the query", which, e);
	if (holds(n, r->method, &which))
		return misused(p, "the method", which, e);
	if (value_holds(n, r->proxy_authorization, &which))
		return misused(p, "Proxy-Authorization", which, e);
	return swap_check_trailers(p, &r->fields, e);
}

int swap_check_none(const struct placeholders *p, const struct request *r, struct err *e)
{
	const struct needles *n = placeholders_needles(p);
	size_t which;

	if (check_rest(p, r, e) < 0)
		return -1;
	if (holds(n, r->url.path, &which))
		return misused(p, "the path", which, e);
	/* The rest of it is the two above, whether they could be read or not. */
	if (r->form == TARGET_ORIGIN && r->url.path.n > 0)
		return 0;
	/* Userinfo, and what else made the target or Host unreadable. */
	if (holds(n, r->raw_target, &which) || holds(n, r->raw_host, &which))
		return misused(p, "the target", which, e);
	return 0;
}

/* ---- what stands around one ---- */

static bool is_word(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '-' || c == '_'))
			return false;
	}
	return s.n > 0 && s.n <= WORD_MAX;
}

/* `VALUE`, `SCHEME VALUE`, `SCHEME key=VALUE`, `key=VALUE`; the value in quotes or not. */
static bool is_plain_value(struct str v, struct str text)
{
	bool quoted = v.n > 0 && v.p[v.n - 1] == '"';
	struct str before;
	ptrdiff_t at;

	if (quoted)
		v.n--;
	if (!str_ends(v, text))
		return false;
	before = str_head(v, v.n - text.n);
	if (quoted != (before.n > 0 && before.p[before.n - 1] == '"'))
		return false;
	if (quoted)
		before.n--;
	if (before.n == 0)
		return true;
	if (before.p[before.n - 1] == '=') {
		struct str key = str_head(before, before.n - 1);

		at = str_find(key, ' ');
		before = at < 0 ? STR_NONE : str_head(before, (size_t)at + 1);
		if (!is_word(at < 0 ? key : str_skip(key, (size_t)at + 1)))
			return false;
		if (before.n == 0)
			return true;
	}
	return before.p[before.n - 1] == ' ' && is_word(str_trim_ows(before));
}

/* The other half is the client's, or what the configuration says. An account of another one could
 * stand there where the value is the user, so then only what git and its like put beside a token.
 */
bool swap_is_pair(const struct config_placeholder *how, struct str pair, struct str text,
		  bool *ret_user)
{
	struct str other;

	*ret_user = pair.n > text.n && str_starts(pair, text) && pair.p[text.n] == ':';
	if (*ret_user) {
		other = str_skip(pair, text.n + 1);
		if (how->user)
			return str_eq(other, str_from_c(how->user));
		return other.n == 0 || str_eq(other, STR("x-oauth-basic"));
	}
	if (!str_ends(pair, text) || pair.n == text.n || pair.p[pair.n - text.n - 1] != ':')
		return false;
	other = str_head(pair, pair.n - text.n - 1);
	if (how->user)
		return str_eq(other, str_from_c(how->user));
	for (size_t i = 0; i < other.n; i++)
		if ((unsigned char)other.p[i] < 0x20 || other.p[i] == 0x7f || other.p[i] == ':')
			return false;
	return other.n <= USER_MAX;
}

bool swap_is_cookie(const struct field *f)
{
	return str_eq_nocase(f->name, STR("Cookie"));
}

bool swap_is_cookie_pair(struct str pair, struct str text)
{
	struct str name = str_trim_ows(str_split(&pair, '='));

	return name.n > 0 && str_eq(str_trim_ows(pair), text);
}

static bool has_cookie(const struct needles *n, struct str value, struct str text)
{
	bool any = false;
	size_t which;

	while (value.p) {
		struct str pair = str_trim_ows(str_split(&value, ';'));

		if (swap_is_cookie_pair(pair, text)) {
			any = true;
			pair = str_head(pair, (size_t)str_find(pair, '='));
		}
		if (holds(n, pair, &which))
			return false;
	}
	return any;
}

/* May one stand in a field, or under a key of the query, of that name? */
static bool field_is_fit(const struct config_placeholder *how, struct field f)
{
	struct strip s = {.field = str_from_c(how->header), .identities = !how->header};
	struct fields one = {.v = &f, .n = 1};
	struct url none = {0};

	/* The origin picks one of the subprotocols, and the client is told which. */
	return !str_eq_nocase(f.name, STR("Sec-WebSocket-Protocol")) &&
	       strip_finds(&s, &one, &none);
}

static bool key_is_fit(const struct placeholders *p, const struct config_placeholder *how,
		       struct str key)
{
	size_t which;
	struct strip s = {.query = str_from_c(how->query), .identities = !how->query};
	struct url u = {.has_query = true, .query = key};
	struct fields none = {0};

	return key.n > 0 && strip_finds(&s, &none, &u) &&
	       !holds(placeholders_needles(p), key, &which);
}

/* Nothing that goes along with one may hold another. */
static bool field_is_spot(const struct placeholders *p, const struct config_placeholder *how,
			  struct str text, const struct field *f)
{
	const struct needles *n = placeholders_needles(p);
	size_t which, quote = str_ends(f->value, STR("\"")) ? 1 : 0;
	struct str pair;
	char *mem = NULL;
	bool user, fits = false;

	if (holds(n, f->name, &which))
		return false;
	if (str_eq_nocase(f->name, STR("Authorization")) && swap_basic_pair(f->value, &mem, &pair))
		fits = (how->places & PLACEHOLDER_IN_BASIC) &&
		       swap_is_pair(how, pair, text, &user) &&
		       !holds(n, user ? str_skip(pair, text.n) : str_head(pair, pair.n - text.n),
			      &which);
	free(mem);
	if (fits || !(how->places & PLACEHOLDER_IN_HEADER) || !field_is_fit(how, *f))
		return fits;
	if (swap_is_cookie(f))
		return has_cookie(n, f->value, text);
	return is_plain_value(f->value, text) &&
	       !holds(n, str_head(f->value, f->value.n - text.n - quote), &which);
}

/* ---- taking out ---- */

static int too_many(struct err *e)
{
	return err_reason(e, REASON_PLACEHOLDER_MISUSED,
			  "the placeholder stands in more than %d places", SPOTS_MAX);
}

static int take_fields(const struct placeholders *p, const struct config_placeholder *how,
		       struct str text, enum rule_client client, struct request *r,
		       struct swap *ret, struct err *e)
{
	size_t kept = 0, which;

	for (size_t i = 0; i < r->fields.n; i++) {
		struct field *f = &r->fields.v[i];

		if (!value_holds(placeholders_needles(p), f->value, &which) ||
		    !field_is_spot(p, how, text, f)) {
			r->fields.v[kept++] = *f;
			continue;
		}
		if (ret->fields.n == SPOTS_MAX)
			return too_many(e);
		if (fields_add(&ret->fields, f->name, f->value) < 0)
			return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
		ret->dropped |= client != RULE_CLIENT_PASS && swap_is_cookie(f) &&
				str_find(f->value, ';') >= 0;
	}
	r->fields.n = kept;
	return 0;
}

static bool decodes_to(struct str s, struct str text)
{
	char mem[3 * LIMIT_PLACEHOLDER_BYTES];

	return s.n <= sizeof(mem) &&
	       str_eq(str_from(mem, percent_decode(s, mem, sizeof(mem))), text);
}

/* Pairs end at `;` as well, as in strip.c: which of the two it was stays with the pair behind it.
 */
static int take_query(const struct placeholders *p, const struct config_placeholder *how,
		      struct str text, struct url *u, struct swap *ret, struct err *e)
{
	struct str q = u->query;
	size_t kept = 0, at = 0, spots = 0;
	char *to = u->mem + (q.p - u->mem);
	bool first = true;

	while (at <= q.n) {
		size_t end = at, key_n = 0;
		struct str pair, key;

		while (end < q.n && q.p[end] != '&' && q.p[end] != ';')
			end++;
		pair = str_from(q.p + at, end - at);
		while (key_n < pair.n && pair.p[key_n] != '=')
			key_n++;
		key = str_head(pair, key_n);
		if (decodes_to(str_skip(pair, key_n + 1), text) && key_is_fit(p, how, key)) {
			if (spots++ == SPOTS_MAX)
				return too_many(e);
			strbuf_add(&ret->keys, key);
			strbuf_addc(&ret->keys, '&');
		} else {
			char separator = at > 0 ? q.p[at - 1] : '&';

			if (!first)
				to[kept++] = separator;
			memmove(to + kept, pair.p, pair.n);
			kept += pair.n;
			first = false;
		}
		at = end + 1;
	}
	if (spots == 0)
		return 0;
	u->query.n = kept;
	u->has_query = !first;
	return ret->keys.overflowed ? err_reason(e, REASON_INTERNAL_ERROR, "out of memory") : 0;
}

/* How long the placeholder is at the beginning of s, a colon in it escaped or not; 0: it is not
 * there. */
static size_t spelt(struct str s, struct str text)
{
	size_t at = 0;

	for (size_t i = 0; i < text.n; i++) {
		if (at < s.n && s.p[at] == text.p[i])
			at++;
		else if (text.p[i] == ':' && str_starts(str_skip(s, at), STR("%3A")))
			at += 3;
		else
			return 0;
	}
	return at;
}

size_t swap_path(struct str path, struct str text, struct str value, struct strbuf *out)
{
	size_t n = 0;

	for (size_t at = 0; at < path.n;) {
		size_t len = spelt(str_skip(path, at), text);

		if (len == 0) {
			strbuf_addc(out, path.p[at++]);
			continue;
		}
		strbuf_add(out, value);
		at += len;
		n++;
	}
	return n;
}

static int take_path(const struct placeholders *p, const struct config_placeholder *how,
		     struct str text, const struct request *r, struct swap *ret, struct err *e)
{
	struct strbuf rest;
	size_t which;
	bool other;

	if (!holds(placeholders_needles(p), r->url.path, &which))
		return 0;
	strbuf_init(&rest, LIMIT_TARGET_BYTES);
	if (how->places & PLACEHOLDER_IN_PATH)
		ret->path = swap_path(r->url.path, text, STR("*"), &rest) > 0;
	other = rest.overflowed || holds(placeholders_needles(p), strbuf_str(&rest), &which);
	strbuf_clear(&rest);
	return ret->path && !other ? 0 : misused(p, "the path", which, e);
}

int swap_take(const struct placeholders *p, const struct config_credential *c, size_t own,
	      enum rule_client client, struct request *r, struct swap *ret, struct err *e)
{
	const struct config_placeholder *how = c->placeholder;
	struct str text = needles_text(placeholders_needles(p), own);

	if (take_fields(p, how, text, client, r, ret, e) < 0)
		return -1;
	if ((how->places & PLACEHOLDER_IN_QUERY) && r->url.has_query && r->url.query.n > 0 &&
	    take_query(p, how, text, &r->url, ret, e) < 0)
		return -1;
	if (take_path(p, how, text, r, ret, e) < 0 || check_rest(p, r, e) < 0)
		return -1;
	return 0;
}

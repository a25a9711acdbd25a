/*
 * The canonical message's memory: fields that grow up to their bound, and what methods promise. It
 * reads and writes no wire format. Both HTTP versions and everything above call it.
 */
#include "proxy/http/message.h"

#include <stdlib.h>

#include "logging/limits.h"

#define FIRST_CAP   16 /* most heads fit, so most messages allocate once */
#define SPARE_BYTES 2048
#define SPARES_MAX  48

/* As many as a busy worker has requests and answers on their way within one turn of its loop. */
static _Thread_local struct {
	char *v[SPARES_MAX]; /* SPARE_BYTES each */
	size_t n;
} spares;

static char *take_mem(size_t size, bool *ret_spare)
{
	*ret_spare = *ret_spare && size <= SPARE_BYTES && !HAS_ADDRESS_SANITIZER;
	if (!*ret_spare)
		return malloc(size);
	return spares.n > 0 ? spares.v[--spares.n] : malloc(SPARE_BYTES);
}

static void free_mem(char *mem, bool spare)
{
	if (spare && spares.n < SPARES_MAX)
		spares.v[spares.n++] = mem;
	else
		free(mem);
}

/* What stood behind them would not be emptied, here or by url_clear. */
_Static_assert(offsetof(struct request, url) + sizeof(struct url) == sizeof(struct request) &&
		       sizeof(struct url) - offsetof(struct url, host) - sizeof(struct host) <
			       _Alignof(struct url),
	       "the host stands last in a URL, which stands last in a request");

/* All but the bytes of a host's name, of which only the first `len` are ever looked at. */
void request_init(struct request *r)
{
	memset(r, 0, offsetof(struct request, url.host.text));
	r->url.host.text[0] = '\0';
}

void request_clear(struct request *r)
{
	if (!r)
		return;
	free_mem(r->mem, r->spare);
	free(r->joined);
	fields_clear(&r->fields);
	url_clear(&r->url);
	request_init(r);
}

void response_init(struct response *r)
{
	*r = (struct response){0};
}

void response_clear(struct response *r)
{
	if (!r)
		return;
	free_mem(r->mem, r->spare);
	fields_clear(&r->fields);
	response_init(r);
}

void message_free_spares(void)
{
	while (spares.n > 0)
		free(spares.v[--spares.n]);
}

char *message_new_mem(size_t bytes, struct fields *f, char **ret_bytes, bool *ret_spare)
{
	size_t cap = *ret_spare ? FIRST_CAP : 0;
	char *mem = take_mem(cap * sizeof(*f->v) + bytes, ret_spare);

	if (!mem) {
		*ret_spare = false;
		return NULL;
	}
	*f = (struct fields){.v = (struct field *)(void *)mem, .cap = cap, .lent = true};
	*ret_bytes = mem + cap * sizeof(*f->v);
	return mem;
}

int fields_grow(struct fields *f)
{
	size_t cap = f->cap ? 2 * f->cap : FIRST_CAP;
	struct field *v;

	if (f->n >= LIMIT_HEAD_FIELDS)
		return -1;
	if (cap > LIMIT_HEAD_FIELDS)
		cap = LIMIT_HEAD_FIELDS;
	v = realloc(f->lent ? NULL : f->v, cap * sizeof(*v));
	if (!v)
		return -1;
	if (f->lent)
		memcpy(v, f->v, f->n * sizeof(*v));
	f->v = v;
	f->cap = cap;
	f->lent = false;
	return 0;
}

const struct field *fields_get(const struct fields *f, struct str name)
{
	for (size_t i = 0; i < f->n; i++)
		if (str_eq_nocase(f->v[i].name, name))
			return &f->v[i];
	return NULL;
}

size_t fields_remove(struct fields *f, struct str name)
{
	size_t kept = 0, had = f->n;

	for (size_t i = 0; i < had; i++)
		if (!str_eq_nocase(f->v[i].name, name))
			f->v[kept++] = f->v[i];
	f->n = kept;
	return had - kept;
}

void fields_clear(struct fields *f)
{
	if (!f->lent)
		free(f->v);
	*f = (struct fields){0};
}

static bool is_one_of(struct str s, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(s, str_from_c(words[i])))
			return true;
	return false;
}

/* Methods are case-sensitive (RFC 9110 section 9.1): `get` is another method, of which nothing is
 * known. */
bool method_is_safe(struct str method)
{
	static const char *const safe[] = {"GET", "HEAD", "OPTIONS", "TRACE"};

	return is_one_of(method, safe, ARRAY_LEN(safe));
}

bool method_is_idempotent(struct str method)
{
	static const char *const idempotent[] = {"PUT", "DELETE"};

	return method_is_safe(method) || is_one_of(method, idempotent, ARRAY_LEN(idempotent));
}

/* GET, HEAD, DELETE and OPTIONS: content has no meaning that anybody agreed on (RFC 9110 sections
 * 9.3.1, 9.3.2, 9.3.5, 9.3.7). */
bool request_has_odd_body(const struct request *r)
{
	return (r->body == BODY_CHUNKED || (r->body == BODY_LENGTH && r->length > 0)) &&
	       (method_is_safe(r->method) || str_eq(r->method, STR("DELETE")));
}

bool request_is_git(const struct request *r)
{
	const struct field *agent = fields_get(&r->fields, STR("user-agent"));

	return agent && agent->value.n > 4 && str_eq(str_head(agent->value, 4), STR("git/"));
}

void request_add_target(const struct url *u, struct str extra, struct strbuf *out)
{
	url_add_target(u, out);
	if (extra.n == 0)
		return;
	if (!u->has_query)
		strbuf_addc(out, '?');
	else if (u->query.n > 0)
		strbuf_addc(out, '&');
	strbuf_add(out, extra);
}

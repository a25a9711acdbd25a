/*
 * Writes heads from canonical messages (RFC 9112 sections 3, 4 and 6): never from bytes that came
 * in. Nothing that could end a line early gets past here, wherever the field came from. Called by
 * the session for each request upstream and each response to an HTTP/1 client. A head is written in
 * one go: its bytes are copied and looked at in the same step, sixteen at a time.
 */
#include <string.h>

#include "logging/digits.h"
#include "proxy/http/field_kind.h"
#include "proxy/http/h1.h"
#include "proxy/http/h1_text.h"
#include "proxy/http/reply.h"

#define HEAD_BYTES 500 /* of most heads, so that the text does not grow by doubling */
#define OWN_BYTES  320 /* more than what is written here beside what the message brings */

/* A head that is being written, into memory that has room for all of it. */
struct head {
	char *p;     /* where it goes on */
	bytes16 odd; /* yes where a name or a value has a byte that must be looked at again */
};

/* Copies s and asks each of its bytes. */
static ATTR_INLINE void put_asked(struct head *h, struct str s, bytes16_question ask)
{
	bytes16 v;

	if (s.n >= 16) {
		for (size_t i = 0; i + 16 < s.n; i += 16) {
			v = bytes16_load(s.p + i);
			h->odd |= ask(v);
			memcpy(h->p + i, &v, 16);
		}
		v = bytes16_load(s.p + s.n - 16);
		h->odd |= ask(v);
		memcpy(h->p + s.n - 16, &v, 16);
	} else if (s.n >= 8) {
		v = bytes16_load_any(s.p, s.n);
		h->odd |= ask(v);
		memcpy(h->p, s.p, 8);
		memcpy(h->p + s.n - 8, s.p + s.n - 8, 8);
	} else if (s.n >= 4) {
		v = bytes16_load_any(s.p, s.n);
		h->odd |= ask(v);
		memcpy(h->p, s.p, 4);
		memcpy(h->p + s.n - 4, s.p + s.n - 4, 4);
	} else if (s.n > 0) {
		v = bytes16_load_any(s.p, s.n);
		h->odd |= ask(v);
		h->p[0] = s.p[0];
		h->p[s.n / 2] = s.p[s.n / 2];
		h->p[s.n - 1] = s.p[s.n - 1];
	}
	h->p += s.n;
}

static ATTR_INLINE bytes16 never(bytes16 v)
{
	return v & 0;
}

static void put(struct head *h, struct str s)
{
	put_asked(h, s, never);
}

static ATTR_INLINE void put_literal(struct head *h, struct str s)
{
	memcpy(h->p, s.p, s.n);
	h->p += s.n;
}

static void put_number(struct head *h, uint64_t n)
{
	h->p += digits_put(h->p, n);
}

static void put_length(struct head *h, uint64_t n)
{
	put_literal(h, STR("Content-Length: "));
	put_number(h, n);
	put_literal(h, STR("\r\n"));
}

static size_t size_of(const struct fields *f)
{
	size_t size = 0;

	for (size_t i = 0; i < f->n; i++)
		size += f->v[i].name.n + f->v[i].value.n + 4;
	return size;
}

/* -1 for a field that would stand beside the one we write ourselves: then whoever put it there has
 * a fault, and the message is not sent. The bytes of the fields are in h->odd. */
static int put_fields(struct head *h, const struct fields *f)
{
	for (size_t i = 0; i < f->n; i++) {
		const struct field *one = &f->v[i];

		if (one->name.n == 0 ||
		    (field_may_be_framing(one->name) && field_is_framing(field_kind(one->name))))
			return -1;
		put_asked(h, one->name, h1_stops_name);
		put_literal(h, STR(": "));
		put_asked(h, one->value, h1_stops_value);
		put_literal(h, STR("\r\n"));
	}
	return 0;
}

/* Where a byte was odd: may each field be written as a line? */
static bool are_fields(const struct fields *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (!h1_is_field(&f->v[i]))
			return false;
	return true;
}

/* Room for a head of at most `size` bytes in *out; in *spare where there is not so much, since it
 * may be fewer. NULL when memory is out. */
static char *begin(struct strbuf *out, struct strbuf *spare, size_t size)
{
	char *p;

	(void)strbuf_reserve(out, HEAD_BYTES);
	p = strbuf_room(out, size);
	if (!p)
		p = strbuf_reserve(out, size);
	strbuf_init(spare, size);
	return p ? p : strbuf_reserve(spare, size);
}

/* What was written up to `end`, into *out. */
static int finish(struct strbuf *out, struct strbuf *spare, const char *end)
{
	struct strbuf *b = spare->data ? spare : out;

	b->len = (size_t)(end - b->data);
	b->data[b->len] = '\0';
	if (spare->data) {
		strbuf_add(out, strbuf_str(spare));
		strbuf_wipe(spare);
	}
	return out->overflowed ? -1 : 0;
}

static void put_target(struct head *h, const struct url *u, struct str extra)
{
	put(h, u->path);
	if (u->has_query || extra.n > 0)
		*h->p++ = '?';
	if (u->has_query)
		put(h, u->query);
	if (u->query.n > 0 && u->has_query && extra.n > 0)
		*h->p++ = '&';
	put(h, extra);
}

static void put_authority(struct head *h, const struct url *u)
{
	if (u->host.kind == HOST_IPV6)
		*h->p++ = '[';
	put(h, host_str(&u->host));
	if (u->host.kind == HOST_IPV6)
		*h->p++ = ']';
	if (u->port != scheme_default_port(u->scheme)) {
		*h->p++ = ':';
		put_number(h, u->port);
	}
}

static void put_request_framing(struct head *h, const struct request *r)
{
	if (r->body == BODY_LENGTH)
		put_length(h, r->length);
	else if (r->body == BODY_CHUNKED)
		put_literal(h, STR("Transfer-Encoding: chunked\r\n"));
	if (r->websocket) {
		put_literal(h, STR("Connection: Upgrade\r\nUpgrade: websocket\r\n"));
		return;
	}
	/* RFC 9110 section 10.1.4: TE is for the next hop alone, so Connection names it. */
	if (r->te_trailers)
		put_literal(h, STR("TE: trailers\r\n"));
	if (request_has_odd_body(r))
		put(h, r->te_trailers ? STR("Connection: close, TE\r\n")
				      : STR("Connection: close\r\n"));
	else if (r->te_trailers)
		put_literal(h, STR("Connection: TE\r\n"));
	if (r->expect_continue)
		put_literal(h, STR("Expect: 100-continue\r\n"));
}

static int put_request(struct head *h, const struct request *r, const struct fields *extra,
		       struct str extra_query)
{
	put_asked(h, r->method, h1_stops_name);
	*h->p++ = ' ';
	put_target(h, &r->url, extra_query);
	put_literal(h, STR(" HTTP/1.1\r\nHost: "));
	put_authority(h, &r->url);
	put_literal(h, STR("\r\n"));
	if (put_fields(h, &r->fields) < 0)
		return -1;
	put_request_framing(h, r);
	if (extra && put_fields(h, extra) < 0)
		return -1;
	put_literal(h, STR("\r\n"));
	if (bytes16_bits(h->odd) && (!h1_all(r->method, H1_TOKEN) || !are_fields(&r->fields) ||
				     (extra && !are_fields(extra))))
		return -1;
	return 0;
}

int h1_write_request(const struct request *r, const struct fields *extra, struct str extra_query,
		     struct strbuf *out)
{
	struct head h = {0};
	struct strbuf spare;
	char *start;

	if (r->method.n == 0 || r->form == TARGET_AUTHORITY || r->url.path.n == 0 ||
	    (extra_query.n > 0 &&
	     (!h1_all(extra_query, H1_TARGET) || str_find(extra_query, '#') >= 0)))
		return -1;
	start = begin(out, &spare,
		      OWN_BYTES + r->method.n + r->url.path.n + r->url.query.n + extra_query.n +
			      r->url.host.len + size_of(&r->fields) + (extra ? size_of(extra) : 0));
	h.p = start;
	if (!start) {
		out->overflowed = true;
		return -1;
	}
	if (put_request(&h, r, extra, extra_query) < 0) {
		/* Nobody else knows how far it came, and `extra` may be in it. */
		explicit_bzero(start, (size_t)(h.p - start));
		strbuf_clear(&spare);
		return -1;
	}
	return finish(out, &spare, h.p);
}

/* Our own refusals name us in their phrase (reply.c), so nobody else's does. */
static bool names_us(struct str phrase)
{
	struct str us = STR("stile");

	for (size_t i = 0; i + us.n <= phrase.n; i++)
		if (str_eq_nocase(str_head(str_skip(phrase, i), us.n), us))
			return true;
	return false;
}

static struct str phrase_of(const struct response *r)
{
	struct str phrase = r->reason;

	if (phrase.n == 0 || !h1_all(phrase, H1_VALUE) || names_us(phrase))
		return str_from_c(reply_phrase(r->status));
	return phrase;
}

static void put_status_line(struct head *h, unsigned status, struct str phrase)
{
	put_literal(h, STR("HTTP/1.1 "));
	put_number(h, status);
	/* The space stands there even before an empty phrase (RFC 9112 section 4). */
	*h->p++ = ' ';
	put(h, phrase);
	put_literal(h, STR("\r\n"));
}

/* An interim response has neither framing nor a say about the connection, but for 101. */
static void put_interim(struct head *h, const struct response *r)
{
	if (r->status == 101 && r->upgrade.n > 0) {
		put_literal(h, STR("Connection: Upgrade\r\nUpgrade: "));
		put(h, r->upgrade);
		put_literal(h, STR("\r\n"));
	}
}

static void put_response_framing(struct head *h, const struct response *r, enum http_version v,
				 bool keep)
{
	switch (r->body) {
	case BODY_NONE:
		if (r->has_content_length && r->status != 204)
			put_length(h, r->content_length);
		break;
	case BODY_LENGTH: put_length(h, r->length); break;
	case BODY_CHUNKED:
		if (v == HTTP_10)
			keep = false;
		else
			put_literal(h, STR("Transfer-Encoding: chunked\r\n"));
		break;
	case BODY_CLOSE: keep = false; break;
	}
	if (!keep)
		put_literal(h, STR("Connection: close\r\n"));
}

int h1_write_response(const struct response *r, enum http_version v, bool keep, struct strbuf *out)
{
	struct str phrase = phrase_of(r);
	struct head h = {0};
	struct strbuf spare;

	if (r->status < 100 || r->status > 599 ||
	    (r->upgrade.n > 0 && !h1_all(r->upgrade, H1_VALUE)))
		return -1;
	h.p = begin(out, &spare, OWN_BYTES + phrase.n + r->upgrade.n + size_of(&r->fields));
	if (!h.p) {
		out->overflowed = true;
		return -1;
	}
	put_status_line(&h, r->status, phrase);
	if (put_fields(&h, &r->fields) < 0 || (bytes16_bits(h.odd) && !are_fields(&r->fields))) {
		strbuf_wipe(&spare);
		return -1;
	}
	if (r->status < 200)
		put_interim(&h, r);
	else
		put_response_framing(&h, r, v, keep);
	put_literal(&h, STR("\r\n"));
	return finish(out, &spare, h.p);
}

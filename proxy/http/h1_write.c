/*
 * Writes heads from canonical messages (RFC 9112 sections 3, 4 and 6): never from bytes that came
 * in. Nothing that could end a line early gets past here, wherever the field came from. Called by
 * the session for each request upstream and each response to an HTTP/1 client.
 */
#include "proxy/http/field_kind.h"
#include "proxy/http/h1.h"
#include "proxy/http/h1_text.h"
#include "proxy/http/reply.h"

#define HEAD_BYTES 500 /* of most heads, so that the text does not grow by doubling */

static void add_line(struct strbuf *out, struct str name, struct str value)
{
	strbuf_add(out, name);
	strbuf_add(out, STR(": "));
	strbuf_add(out, value);
	strbuf_add(out, STR("\r\n"));
}

static void add_length(struct strbuf *out, uint64_t n)
{
	strbuf_add(out, STR("Content-Length: "));
	strbuf_addu(out, n);
	strbuf_add(out, STR("\r\n"));
}

/* -1 for a field that would break the head, or that would stand beside the one we write ourselves:
 * then whoever put it there has a fault, and the message is not sent. */
static int add_fields(struct strbuf *out, const struct fields *f)
{
	for (size_t i = 0; i < f->n; i++) {
		if (!h1_is_field(&f->v[i]) || field_is_framing(field_kind(f->v[i].name)))
			return -1;
		add_line(out, f->v[i].name, f->v[i].value);
	}
	return 0;
}

static void add_request_framing(struct strbuf *out, const struct request *r)
{
	if (r->body == BODY_LENGTH)
		add_length(out, r->length);
	else if (r->body == BODY_CHUNKED)
		strbuf_add(out, STR("Transfer-Encoding: chunked\r\n"));
	if (r->websocket) {
		strbuf_add(out, STR("Connection: Upgrade\r\nUpgrade: websocket\r\n"));
		return;
	}
	/* RFC 9110 section 10.1.4: TE is for the next hop alone, so Connection names it. */
	if (r->te_trailers)
		strbuf_add(out, STR("TE: trailers\r\n"));
	if (request_has_odd_body(r))
		strbuf_add(out, r->te_trailers ? STR("Connection: close, TE\r\n")
					       : STR("Connection: close\r\n"));
	else if (r->te_trailers)
		strbuf_add(out, STR("Connection: TE\r\n"));
	if (r->expect_continue)
		strbuf_add(out, STR("Expect: 100-continue\r\n"));
}

int h1_write_request(const struct request *r, const struct fields *extra, struct str extra_query,
		     struct strbuf *out)
{
	if (r->method.n == 0 || !h1_all(r->method, H1_TOKEN) || r->form == TARGET_AUTHORITY ||
	    r->url.path.n == 0 || !h1_all(extra_query, H1_TARGET) ||
	    str_find(extra_query, '#') >= 0)
		return -1;
	(void)strbuf_reserve(out, HEAD_BYTES);
	strbuf_add(out, r->method);
	strbuf_addc(out, ' ');
	request_add_target(&r->url, extra_query, out);
	strbuf_add(out, STR(" HTTP/1.1\r\nHost: "));
	url_add_authority(&r->url, out);
	strbuf_add(out, STR("\r\n"));
	if (add_fields(out, &r->fields) < 0)
		return -1;
	add_request_framing(out, r);
	if (extra && add_fields(out, extra) < 0)
		return -1;
	strbuf_add(out, STR("\r\n"));
	return out->overflowed ? -1 : 0;
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

static void add_status_line(struct strbuf *out, const struct response *r)
{
	struct str phrase = r->reason;

	if (phrase.n == 0 || !h1_all(phrase, H1_VALUE) || names_us(phrase))
		phrase = str_from_c(reply_phrase(r->status));
	strbuf_add(out, STR("HTTP/1.1 "));
	strbuf_addu(out, r->status);
	/* The space stands there even before an empty phrase (RFC 9112 section 4). */
	strbuf_addc(out, ' ');
	strbuf_add(out, phrase);
	strbuf_add(out, STR("\r\n"));
}

/* An interim response has neither framing nor a say about the connection, but for 101. */
static void add_interim(struct strbuf *out, const struct response *r)
{
	if (r->status == 101 && r->upgrade.n > 0) {
		strbuf_add(out, STR("Connection: Upgrade\r\n"));
		add_line(out, STR("Upgrade"), r->upgrade);
	}
}

static void add_response_framing(struct strbuf *out, const struct response *r, enum http_version v,
				 bool keep)
{
	switch (r->body) {
	case BODY_NONE:
		if (r->has_content_length && r->status != 204)
			add_length(out, r->content_length);
		break;
	case BODY_LENGTH: add_length(out, r->length); break;
	case BODY_CHUNKED:
		if (v == HTTP_10)
			keep = false;
		else
			strbuf_add(out, STR("Transfer-Encoding: chunked\r\n"));
		break;
	case BODY_CLOSE: keep = false; break;
	}
	if (!keep)
		strbuf_add(out, STR("Connection: close\r\n"));
}

int h1_write_response(const struct response *r, enum http_version v, bool keep, struct strbuf *out)
{
	if (r->status < 100 || r->status > 599 || !h1_all(r->upgrade, H1_VALUE))
		return -1;
	(void)strbuf_reserve(out, HEAD_BYTES);
	add_status_line(out, r);
	if (add_fields(out, &r->fields) < 0)
		return -1;
	if (r->status < 200)
		add_interim(out, r);
	else
		add_response_framing(out, r, v, keep);
	strbuf_add(out, STR("\r\n"));
	return out->overflowed ? -1 : 0;
}

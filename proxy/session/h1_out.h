/*
 * What is on its way to an HTTP/1 peer: the head that waits, with the body's next piece in one
 * write. Shared by both sides of an exchange: client_h1.c and upstream_h1.c, each of which then
 * lets go of the head. What h2_out.h is for HTTP/2.
 */
#ifndef STILE_PROXY_SESSION_H1_OUT_H
#define STILE_PROXY_SESSION_H1_OUT_H

#include "logging/attrs.h"
#include "logging/limits.h"
#include "proxy/http/body.h"
#include "proxy/net/stream.h"

static ATTR_INLINE void h1_out(struct stream *s, const struct strbuf *head, struct str a,
			       struct str b, struct str c)
{
	struct iovec v[4];
	int n = stream_part(v, 0, strbuf_str(head));

	n = stream_part(v, n, a);
	n = stream_part(v, n, b);
	n = stream_part(v, n, c);
	if (n > 0)
		stream_writev(s, v, n);
}

/* data.n > 0: a chunk of none would be the last. */
static ATTR_INLINE void h1_out_body(struct stream *s, const struct strbuf *head, bool chunked,
				    struct str data)
{
	char size[BODY_CHUNK_HEAD_MAX];

	if (chunked)
		h1_out(s, head, str_from(size, body_chunk_head(data.n, size)), data, STR("\r\n"));
	else
		h1_out(s, head, data, STR_NONE, STR_NONE);
}

/* Of a chunked body. */
static inline void h1_out_end(struct stream *s, const struct strbuf *head,
			      const struct fields *trailers)
{
	struct strbuf end;

	strbuf_init(&end, LIMIT_TRAILER_BYTES * 2);
	body_chunk_end(trailers, &end);
	h1_out(s, head, strbuf_str(&end), STR_NONE, STR_NONE);
	strbuf_clear(&end);
}

#endif

/*
 * Content codings (RFC 9110 section 8.4): reads gzip, deflate and Brotli, several on top of each
 * other, as the bytes come, so that what a flush of the origin's makes whole comes out at once. A
 * step gives at most as many bytes as its caller has room for, however far a few bytes unfold.
 * Called by the session for answers that must be looked into.
 */
#ifndef STILE_PROXY_HTTP_CONTENT_CODING_H
#define STILE_PROXY_HTTP_CONTENT_CODING_H

#include "proxy/http/message.h"

struct content_decoder;

/* What the Content-Encoding fields say. 0: nothing but identity, *ret NULL; or a decoder for them.
 * -1: REASON_CONTENT_CODING, one is not known, there are too many, or the memory for such is used
 * up; REASON_INTERNAL_ERROR. */
int content_decoder_new(const struct fields *f, struct content_decoder **ret,
			struct err *e) ATTR_NODISCARD;
void content_decoder_free(struct content_decoder *d); /* NULL is accepted */
/* Takes all of `in`, which waits until content_decode has used it up: LIMIT_DECODE_IN at most since
 * it was last content_decoder_hungry. -1: more than that. */
int content_decoder_feed(struct content_decoder *d, struct str in, struct err *e) ATTR_NODISCARD;
/* Nothing that was fed waits: the next bytes are needed. */
bool content_decoder_hungry(const struct content_decoder *d);
/* At most max decoded bytes into *ret, valid until the next call; empty: more must be fed. -1:
 * REASON_CONTENT_CODING, that is not what it says it is. */
int content_decode(struct content_decoder *d, size_t max, struct str *ret,
		   struct err *e) ATTR_NODISCARD;
/* No more will be fed, and content_decode gives nothing. -1: REASON_CONTENT_CODING, it was cut. */
int content_decoder_end(const struct content_decoder *d, struct err *e) ATTR_NODISCARD;

/* Takes out of a head what is said of the coded content and does not hold for what is decoded: its
 * coding, its length, its digests; a strong ETag becomes a weak one (RFC 9110 section 8.8.3), in
 * `mem` of the caller's, which must stay. -1: a bound is passed. */
int content_forget_coding(struct response *r, struct strbuf *mem) ATTR_NODISCARD;
/* Of trailers, the digests. */
void content_forget_digests(struct fields *f);

#endif

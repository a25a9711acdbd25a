/*
 * Message bodies of HTTP/1: finds the data within the framing, strictly, without copying, and
 * writes chunks. Chunk extensions are dropped and bounded; trailers are read as fields.
 */
#ifndef STILE_PROXY_HTTP_BODY_H
#define STILE_PROXY_HTTP_BODY_H

#include "proxy/http/message.h"

struct body_reader {
	/* owned: trailers, once they came (fields point into it) */
	char *trailer_mem;
	struct fields trailers;
	/* plain */
	enum body_kind kind;
	uint64_t left; /* of the body or of the current chunk */
	unsigned state;
	uint64_t overhead; /* framing bytes so far beyond what the data justifies */
	uint64_t ext_bytes;
	uint64_t data_bytes;
	/* Blanks between a chunk's size and its CRLF are passed over. For answers, which many
	 * servers and balancers pad so; set behind body_reader_init. */
	bool padded_sizes;
	bool done;
};

void body_reader_init(struct body_reader *b, enum body_kind kind, uint64_t length);
void body_reader_clear(struct body_reader *b);

/* Reads on at the start of `in`. 0: *ret_consumed bytes were used, of which *ret_data (a slice of
 * in, perhaps empty) is data; call again until both are empty or b->done. Nothing consumed and not
 * done: more bytes are needed (a chunk line or trailer section is taken only whole: `in` must be
 * able to hold LIMIT_CHUNK_LINE_BYTES or LIMIT_TRAILER_BYTES). -1: the framing is broken (e: what;
 * reason as given to the caller by itself: REASON_MALFORMED_REQUEST for requests, the caller
 * changes it for responses). */
int body_read(struct body_reader *b, struct str in, size_t *ret_consumed, struct str *ret_data,
	      struct err *e) ATTR_NODISCARD;
/* The connection ended: 0 if the body ends here (BODY_CLOSE, or done), -1 if it was cut. */
int body_eof(struct body_reader *b, struct err *e) ATTR_NODISCARD;

#define BODY_CHUNK_HEAD_MAX 20
/* Writes "SIZE\r\n" for a chunk of n > 0 bytes; how many bytes. */
size_t body_chunk_head(uint64_t n, char out[BODY_CHUNK_HEAD_MAX]);
/* "0\r\n", the trailers (fields that must not be trailers are left out: RFC 9110 section 6.5.1),
 * "\r\n". */
void body_chunk_end(const struct fields *trailers, struct strbuf *out);

#endif

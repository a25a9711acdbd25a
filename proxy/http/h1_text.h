/*
 * What the readers and writers of HTTP/1 share, within this folder only: classes of bytes, field
 * lines, lists, and the facts of a field section that frame the message.
 */
#ifndef STILE_PROXY_HTTP_H1_TEXT_H
#define STILE_PROXY_HTTP_H1_TEXT_H

#include "proxy/http/field_kind.h"
#include "proxy/http/message.h"

/* Bits of h1_class. */
#define H1_TOKEN  1 /* tchar, RFC 9110 section 5.6.2 */
#define H1_VALUE  2 /* HTAB, SP, VCHAR, obs-text: section 5.5 */
#define H1_TARGET 4 /* visible ASCII, and 0x80 up: url.c escapes or refuses those */
extern const uint8_t h1_class[256];

/* How many bytes from the start of s are of that class. */
size_t h1_span(struct str s, unsigned class);
static inline bool h1_all(struct str s, unsigned class)
{
	return h1_span(s, class) == s.n;
}
/* A name and a value that may be written as a line. */
bool h1_is_field(const struct field *f);

/* Cuts the first line, with its CRLF, off *rest. 0, or -1 when there is none or it ends in a bare
 * LF. */
int h1_next_line(struct str *rest, struct str *ret, struct err *e);
/* Cuts the first field line off *rest. 1: it is in *ret; 0: it was the blank line at the end; -1:
 * malformed (RFC 9112 section 5, without any of the leave it gives). */
int h1_next_field(struct str *rest, struct field *ret, struct err *e);
/* Cuts the next element off a comma-separated list, OWS trimmed, empty ones skipped (RFC 9110
 * section 5.6.1.2). False at the end. */
bool h1_next_element(struct str *rest, struct str *ret);
/* Does one element of the list, up to a ';', equal word? Case does not matter. */
bool h1_list_has(struct str list, struct str word);

/* The parts of a request line, as far as they could be read. */
struct h1_request_line {
	struct str method, target, version;
	enum http_version http;
};
/* RFC 9112 section 3: `METHOD SP TARGET SP HTTP/1.x`, nothing more and no other white space. */
int h1_split_request_line(struct str line, struct h1_request_line *ret, struct err *e);
#define H1_RESPONSE_PREFIX STR("HTTP/1.")

/* What a field section says about its message and its hop. */
struct h1_facts {
	/* the first of each, with how many there were */
	struct str host, content_length, transfer_encoding, upgrade, accept, proxy_authorization;
	unsigned n_host, n_content_length, n_transfer_encoding, n_upgrade, n_proxy_authorization;
	/* plain */
	bool close; /* Connection: close */
	bool names_upgrade;
	bool h2c;
	bool te_trailers;
	bool expect_continue;
	bool expect_other;
};

/* Takes a field that means something to us into *f; Connection is not among them. Returns whether
 * it is to be forwarded. */
bool h1_note_field(enum field_kind k, struct str v, bool response, struct h1_facts *f);
/* -1 for a name that frames the message, or belongs to this hop, for a reader that makes `_` and
 * `-` one. */
int h1_check_lookalike(struct str name, struct err *e);
/* Reads the field section of a head, its blank line included: what is to be forwarded into *out,
 * the rest into *ret. */
int h1_read_fields(struct str section, bool response, struct fields *out, struct h1_facts *ret,
		   struct err *e);

struct h1_framing {
	bool chunked;
	bool has_length;
	uint64_t length;
};
/* RFC 9112 section 6.3, and no message that two readers could frame differently. */
int h1_read_framing(const struct h1_facts *f, enum http_version v, struct h1_framing *ret,
		    struct err *e);

#endif

/*
 * What the readers and writers of HTTP/1 share, within this folder only: classes of bytes, field
 * lines, lists, and the facts of a field section that frame the message.
 */
#ifndef STILE_PROXY_HTTP_H1_TEXT_H
#define STILE_PROXY_HTTP_H1_TEXT_H

#include "logging/bytes16.h"
#include "logging/limits.h"
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

/* Yes for what is no H1_VALUE, and for HTAB. */
static ATTR_INLINE bytes16 h1_stops_value(bytes16 v)
{
	return (bytes16)(v < 0x20) | (bytes16)(v == 0x7f);
}

/* Yes for what a name nearly never holds: all but letters, digits, `-` and `_`. */
static ATTR_INLINE bytes16 h1_stops_name(bytes16 v)
{
	return ~(bytes16_letter(v) | bytes16_range(v, '0', '9') | (bytes16)(v == '-') |
		 (bytes16)(v == '_'));
}

/* Where the first byte from i on is that is no H1_VALUE; n: nowhere. */
static inline size_t h1_value_end(const char *p, size_t i, size_t n)
{
	i = bytes16_find(p, i, n, h1_stops_value);
	while (i < n && p[i] == '\t')
		i = bytes16_find(p, i + 1, n, h1_stops_value);
	return i;
}

/* The same of H1_TARGET. */
size_t h1_target_end(const char *p, size_t i, size_t n);

/* A name and a value that may be written as a line. */
bool h1_is_field(const struct field *f);

/* Cuts the first line, with its CRLF, off *rest. 0, or -1 when there is none or it ends in a bare
 * LF. */
int h1_next_line(struct str *rest, struct str *ret, struct err *e);
/* Cuts the first field line off *rest. 1: it is in *ret; 0: it was the blank line at the end; -1:
 * malformed (RFC 9112 section 5, without any of the leave it gives). */
int h1_next_field(struct str *rest, struct field *ret, struct err *e);
/* The field line at `at` of a section as it nearly always is; `walk` is of the section and goes
 * from stop to stop (h1_stops_value). Returns where the next line begins; 0: it is another line, or
 * none, and what is right with it or wrong h1_next_field says. */
static ATTR_INLINE size_t h1_common_field(struct bytes16_walk *walk, size_t at, struct field *ret)
{
	const char *p = walk->p;
	size_t n = walk->n, colon = bytes16_find(p, at, n, h1_stops_name), start, end, cr;

	if (colon == at || colon - at > LIMIT_FIELD_NAME_BYTES || colon == n || p[colon] != ':')
		return 0;
	start = colon + 1;
	while (start < n && (p[start] == ' ' || p[start] == '\t'))
		start++;
	do
		cr = bytes16_next(walk, h1_stops_value);
	while (cr < n && p[cr] == '\t');
	if (n - cr < 2 || p[cr] != '\r' || p[cr + 1] != '\n')
		return 0;
	(void)bytes16_next(walk, h1_stops_value); /* the LF */
	end = cr;
	while (end > start && (p[end - 1] == ' ' || p[end - 1] == '\t'))
		end--;
	*ret = (struct field){{p + at, colon - at}, {p + start, end - start}};
	return cr + 2;
}

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
/* The same of the line at the start of `head` if it is as most: its length without the CRLF, which
 * is there; else 0. */
size_t h1_common_request_line(struct str head, struct h1_request_line *ret);
#define H1_RESPONSE_PREFIX STR("HTTP/1.")

/* What a field section says about its message and its hop. */
struct h1_facts {
	/* the first of each, with how many there were */
	struct str host, content_length, transfer_encoding, upgrade, accept, proxy_authorization;
	struct str keep_alive; /* the first */
	unsigned n_host, n_content_length, n_transfer_encoding, n_upgrade, n_proxy_authorization;
	/* plain */
	bool close; /* Connection: close */
	bool names_upgrade;
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

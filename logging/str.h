/*
 * A slice of bytes that somebody else owns: pointer and length, no terminator promised, NUL bytes
 * possible. Everything that came off the wire travels as one of these.
 */
#ifndef STILE_LOGGING_STR_H
#define STILE_LOGGING_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
	const char *p;
	size_t n;
};

/* A literal as a slice. */
#define STR(lit) ((struct str){(lit), sizeof(lit) - 1})
#define STR_NONE ((struct str){NULL, 0})
/* For printf: printf("%.*s", STR_FMT(s)); only for text that is known to be printable. */
#define STR_FMT(s) (int)(s).n, (s).p

/* What is done hundreds of times for each request stands here, so that it costs no call. */

static inline struct str str_from(const void *p, size_t n)
{
	return (struct str){(const char *)p, n};
}

/* NULL gives the empty slice. */
static inline struct str str_from_c(const char *c)
{
	return c ? (struct str){c, strlen(c)} : STR_NONE;
}

/* s without its first n bytes (n past the end gives the empty slice). */
static inline struct str str_skip(struct str s, size_t n)
{
	if (n > s.n)
		n = s.n;
	return n ? (struct str){s.p + n, s.n - n} : s;
}

/* The first n bytes of s. */
static inline struct str str_head(struct str s, size_t n)
{
	return (struct str){s.p, n < s.n ? n : s.n};
}

/* memcmp with a NULL pointer is undefined even for no bytes, and the empty slice has one. */
static inline bool str_eq(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* ASCII case only (RFC 9110 section 5.1: field names; section 2.5 of RFC 9112: schemes). */
bool str_same_nocase(const char *a, const char *b, size_t n); /* for str_eq_nocase alone */
static inline bool str_eq_nocase(struct str a, struct str b)
{
	return a.n == b.n && str_same_nocase(a.p, b.p, a.n);
}

/* A byte of a field's name as servers read it that hand fields on as variables: what is no letter
 * and no digit becomes `_` for CGI (RFC 3875 section 4.1.18, and beyond), so it is all one here, a
 * `-`. Letters are in lower case. */
static inline char str_name_fold(char c)
{
	if (c >= 'A' && c <= 'Z')
		return (char)(c - 'A' + 'a');
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '-';
}

static inline bool str_starts(struct str s, struct str prefix)
{
	return s.n >= prefix.n && str_eq(str_head(s, prefix.n), prefix);
}

static inline bool str_ends(struct str s, struct str suffix)
{
	return s.n >= suffix.n && str_eq(str_skip(s, s.n - suffix.n), suffix);
}

/* memcmp order, the shorter first. */
int str_cmp(struct str a, struct str b);

/* Position of the first `c` in s, or -1. */
ptrdiff_t str_find(struct str s, char c);
/* Without SP and HTAB at both ends (OWS, RFC 9110 section 5.6.3). */
struct str str_trim_ows(struct str s);
/* Cuts *rest at the first `sep`: returns what stands before it and leaves what stands behind it in
 * *rest; at the last piece *rest becomes STR_NONE (p == NULL). */
struct str str_split(struct str *rest, char sep);

/* 1*DIGIT, nothing else, no overflow (RFC 9110 section 8.6). 0, or -1 and *ret is untouched. */
int str_to_u64(struct str s, uint64_t *ret);

/* For tables whose seed is random. Not proof against one who can choose many keys: bound the table.
 */
uint64_t str_hash(uint64_t seed, struct str s);

/* A heap copy with a terminator; NULL when memory is out. The caller frees it. */
char *str_dup(struct str s);

#endif

/*
 * The inside of a redactor: redact.c makes it, redact_match.c compares, redact_stream.c runs it
 * over bytes. Nobody else includes it.
 */
#ifndef STILE_PROXY_CREDENTIALS_REDACT_INTERNAL_H
#define STILE_PROXY_CREDENTIALS_REDACT_INTERNAL_H

#include <stdint.h>

#include "proxy/credentials/redact.h"

/* Which bytes of a text stand for one of a needle, beside itself. */
enum redact_fold {
	REDACT_PLAIN,  /* none, or + for a blank */
	REDACT_BASE64, /* - for +, _ for / (RFC 4648 section 5) */
	REDACT_HEX,    /* A to F for a to f */
	REDACT_FOLDS
};

struct needle {
	const unsigned char *p; /* in the redactor's memory */
	size_t n;
	enum redact_fold fold;
	unsigned branches; /* that may be tried at one place of a text */
};

/* Values: the pair, the value, the password within; each in pieces of LIMIT_REDACT_PIECE; of each
 * piece the raw bytes, base64 at three alignments, and hexadecimal. */
#define REDACT_VALUES 3
#define REDACT_FORMS  5
#define REDACT_NEEDLES                                                                             \
	(REDACT_VALUES * REDACT_FORMS * (LIMIT_SECRET_BYTES / LIMIT_REDACT_PIECE + 2))

struct redactor {
	/* counted: the pages that this lies in */
	struct secret *pages;
	/* plain */
	struct needle *needles;
	size_t needles_n;
	unsigned char begins[256]; /* does a needle begin with this character? */
	unsigned char first[256];  /* may a match begin with this byte? */
	/* and with these two: a bit for each pair */
	uint64_t pairs[65536 / 64];
	/* Four bytes in a row of a needle's first REDACT_RUN: a bit for each hash of four. */
	uint64_t grams[65536 / 64];
};

/* So many raw characters hold four bytes at a place that is a multiple of four. */
#define REDACT_RUN 7

/* A line of base64 has so many characters, so that of what is looked up no more than one ends. */
#define REDACT_LINE 8
_Static_assert(REDACT_LINE >= REDACT_RUN, "two ends of lines are not looked up");

static inline unsigned redact_gram(uint32_t four)
{
	return four * 2654435761u >> 16;
}

/* What stands at p[at]. */
struct redact_found {
	size_t end;	/* of the longest match; 0: none */
	bool undecided; /* the bytes end before this is decided */
	size_t seen;	/* of the needle that is the furthest: so many characters, */
	bool half;	/* and at least half of one */
};

/* Where a match could begin, from `from` on; n: nowhere. */
size_t redact_candidate(const struct redactor *r, const unsigned char *p, size_t from, size_t n);
/* whole: nothing follows the n bytes. */
struct redact_found redact_at(const struct redactor *r, const unsigned char *p, size_t at, size_t n,
			      bool whole);
/* An escaped character at p: its length, with its bytes in out; 0: there is none; -1: there may be,
 * once more bytes come. */
int redact_read_escape(const unsigned char *p, size_t n, unsigned char out[4], unsigned *ret_n);
bool redact_folds_to(enum redact_fold f, unsigned char text, unsigned char needle);

#endif

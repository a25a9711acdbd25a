/*
 * The table of reasons, as functions: word, HTTP status and error type of RFC 9209. It decides
 * nothing. Whoever answers a client or writes a record calls it.
 */
#include "logging/reason.h"

struct reason_row {
	struct str word;
	int status;
	const char *proxy_error;
};

/* REASON_NONE answers like an internal error: a refusal that lost its reason must not look like
 * success. */
static const struct reason_row rows[REASON_COUNT] = {[REASON_NONE] = {{"none", 4},
								      500,
								      "proxy_internal_error"},
#define X(name, word, status, rfc9209)                                                             \
	[REASON_##name] = {{word, sizeof(word) - 1}, status, rfc9209},
						     REASON_TABLE(X)
#undef X
};

static const struct reason_row *row_of(enum reason r)
{
	unsigned at = (unsigned)r;

	return &rows[at < REASON_COUNT ? at : REASON_NONE];
}

const char *reason_word(enum reason r)
{
	return row_of(r)->word.p;
}

int reason_status(enum reason r)
{
	return row_of(r)->status;
}

const char *reason_proxy_error(enum reason r)
{
	return row_of(r)->proxy_error;
}

enum reason reason_from_word(struct str word)
{
	for (unsigned r = REASON_NONE + 1; r < REASON_COUNT; r++)
		if (str_eq(rows[r].word, word))
			return (enum reason)r;
	return REASON_NONE;
}

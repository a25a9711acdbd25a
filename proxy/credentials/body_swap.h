/*
 * The placeholders in a stream of the client's, as it goes by: one is swapped for the real value,
 * which is of the same length, all others are misuse. Any split of the stream gives the same bytes.
 */
#ifndef STILE_PROXY_CREDENTIALS_BODY_SWAP_H
#define STILE_PROXY_CREDENTIALS_BODY_SWAP_H

#include "logging/err.h"
#include "proxy/credentials/needles.h"
#include "proxy/credentials/store.h"

struct body_swap {
	/* counted */
	struct secret *value; /* NULL: nothing is swapped */
	/* borrowed */
	const struct needles *needles;
	const char *name; /* of the credential whose value it is */
	/* plain */
	size_t own;	/* its placeholder */
	uint64_t bound; /* so many bytes of the stream, from its start */
	uint64_t at;	/* of the first byte of `kept` */
	bool form;	/* the stream is a form: what stands in it is percent-encoded */
	size_t kept_n;
	char kept[LIMIT_PLACEHOLDER_BYTES]; /* may be the beginning of one */
};

typedef void body_swap_sink(void *arg, struct str data);

/* Looks for all and swaps none. */
void body_swap_init(struct body_swap *b, const struct needles *needles);
/* From here on `own` is swapped for value (taken over). */
void body_swap_give(struct body_swap *b, const char *name, size_t own, struct secret *value,
		    uint64_t bound);
void body_swap_clear(struct body_swap *b);
/* Gives on what may go. Where something is swapped, bytes that may be the beginning of a
 * placeholder wait for those behind them. -1: REASON_PLACEHOLDER_MISUSED, or
 * REASON_CREDENTIAL_UNAVAILABLE (the value cannot stand here); the last byte of what was found was
 * not given on, and nothing may follow. */
int body_swap_feed(struct body_swap *b, struct str data, body_swap_sink *sink, void *arg,
		   struct err *e) ATTR_NODISCARD;
/* The stream ends here: gives on what waits. */
void body_swap_end(struct body_swap *b, body_swap_sink *sink, void *arg);

#endif

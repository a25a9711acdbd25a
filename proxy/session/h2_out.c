/*
 * See h2_out.h.
 */
#include "proxy/session/h2_out.h"

#include <openssl/crypto.h>
#include <string.h>

#define GATHER 16384

/* One call of the kernel's. True: it ended for want of room, so there may be more. */
static bool fill(struct h2_conn *c, struct stream *s, bool *any)
{
	char gather[GATHER];
	size_t n = 0, used = 0;
	bool full = true;

	stream_cork(s);
	while (stream_room(s) > n) {
		struct str out = h2_conn_send(c);

		full = out.n > 0;
		if (!full)
			break;
		*any = true;
		if (out.n > sizeof(gather) - n) {
			stream_write(s, str_from(gather, n));
			n = 0;
		}
		if (out.n > sizeof(gather)) {
			stream_write(s, out);
			continue;
		}
		memcpy(gather + n, out.p, out.n);
		n += out.n;
		used = used > n ? used : n;
	}
	if (n > 0)
		stream_write(s, str_from(gather, n));
	stream_uncork(s);
	OPENSSL_cleanse(gather, used); /* heads with credentials go through */
	return full;
}

bool h2_out(struct h2_conn *c, struct stream *s)
{
	bool any = false;

	/* What the kernel took at once leaves nothing that could be drained, and told of. */
	while (fill(c, s, &any) && stream_room(s) > 0)
		;
	return any;
}

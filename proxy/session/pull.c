/*
 * See pull.h.
 */
#include "proxy/session/pull.h"

int pull_body(struct stream *s, struct body_reader *b, size_t *max,
	      void (*sink)(void *arg, struct str data), void *arg, struct err *e)
{
	while (!b->done && *max >= PULL_MIN_ROOM) {
		struct str in = str_head(stream_data(s), *max);
		struct str data = STR_NONE;
		size_t used = 0;

		if (body_read(b, in, &used, &data, e) < 0)
			return -1;
		if (used == 0 && !b->done)
			return 0;
		/* The slice dies with the consumption, so the sink comes first. */
		if (data.n > 0)
			sink(arg, data);
		stream_consume(s, used);
		*max -= used;
	}
	return 0;
}

/*
 * Undoing percent-encodings: for whoever looks for a name or a secret in a query. Every layer above
 * calls it.
 */
#include "logging/percent.h"

size_t percent_decode(struct str s, char *out, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < s.n && n < room; i++) {
		int byte = percent_byte(s, i);

		out[n++] = byte < 0 ? s.p[i] : (char)byte;
		if (byte >= 0)
			i += 2;
	}
	return n;
}

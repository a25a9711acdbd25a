/*
 * See token_field.h. Base64 is read strictly: one spelling for each value, so that nothing else on
 * the way may have read another token out of the same field.
 */
#include "proxy/session/token_field.h"

#include <string.h>

#include <openssl/crypto.h>

#include "logging/limits.h"

static int digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* RFC 4648 section 4, with its padding, and zero in the bits that carry nothing (section 3.5). */
static int decode(struct str in, char *out, size_t size, size_t *ret_n)
{
	size_t pad = 0, n = 0;
	unsigned bits = 0, held = 0;

	if (in.n == 0 || in.n % 4 != 0)
		return -1;
	while (pad < 2 && in.p[in.n - 1 - pad] == '=')
		pad++;
	for (size_t i = 0; i < in.n - pad; i++) {
		int d = digit(in.p[i]);

		if (d < 0)
			return -1;
		held = (held << 6 | (unsigned)d) & 0xfff;
		bits += 6;
		if (bits < 8)
			continue;
		bits -= 8;
		if (n >= size)
			return -1;
		out[n++] = (char)(held >> bits & 0xff);
	}
	if (bits != 2 * pad || (held & ((1U << bits) - 1)) != 0)
		return -1;
	*ret_n = n;
	return 0;
}

static int read_basic(struct str value, char *out, size_t size, size_t *ret_n)
{
	char pair[LIMIT_TOKEN_FIELD_BYTES];
	struct str token;
	ptrdiff_t colon;
	size_t n = 0;
	int rc = -1;

	if (decode(value, pair, sizeof(pair), &n) == 0) {
		colon = str_find(str_from(pair, n), ':');
		token = colon < 0 ? STR_NONE : str_skip(str_from(pair, n), (size_t)colon + 1);
		if (token.n > 0 && token.n <= size) {
			memcpy(out, token.p, token.n);
			*ret_n = token.n;
			rc = 0;
		}
	}
	OPENSSL_cleanse(pair, sizeof(pair));
	return rc;
}

int token_field_read(struct str value, char *out, size_t size, size_t *ret_n)
{
	struct str rest = value, scheme;

	if (value.n > LIMIT_TOKEN_FIELD_BYTES)
		return -1;
	scheme = str_split(&rest, ' ');
	while (rest.n > 0 && rest.p[0] == ' ')
		rest = str_skip(rest, 1);
	if (str_eq_nocase(scheme, STR("Basic")))
		return read_basic(rest, out, size, ret_n);
	if (!str_eq_nocase(scheme, STR("Bearer")) || rest.n == 0 || rest.n > size)
		return -1;
	memcpy(out, rest.p, rest.n);
	*ret_n = rest.n;
	return 0;
}

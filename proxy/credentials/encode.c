/*
 * See encode.h. The library's base64 wants one buffer in and one out; here both are appended to,
 * and no copy of a secret is made on the way.
 */
#include "proxy/credentials/encode.h"

#include <stdint.h>
#include <string.h>

void encode_base64(struct strbuf *out, struct str a, struct str b)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t n = a.n + b.n;

	for (size_t i = 0; i < n; i += 3) {
		uint32_t bits = 0;

		for (size_t j = i; j < i + 3; j++) {
			unsigned char c = 0;

			if (j < n)
				c = (unsigned char)(j < a.n ? a.p[j] : b.p[j - a.n]);
			bits = bits << 8 | c;
		}
		strbuf_addc(out, digits[bits >> 18 & 63]);
		strbuf_addc(out, digits[bits >> 12 & 63]);
		strbuf_addc(out, i + 1 < n ? digits[bits >> 6 & 63] : '=');
		strbuf_addc(out, i + 2 < n ? digits[bits & 63] : '=');
	}
}

static const char url_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void encode_base64url(struct strbuf *out, struct str s)
{
	for (size_t i = 0; i < s.n; i += 3) {
		uint32_t bits = 0;

		for (size_t j = i; j < i + 3; j++)
			bits = bits << 8 | (j < s.n ? (unsigned char)s.p[j] : 0);
		strbuf_addc(out, url_digits[bits >> 18 & 63]);
		strbuf_addc(out, url_digits[bits >> 12 & 63]);
		if (i + 1 < s.n)
			strbuf_addc(out, url_digits[bits >> 6 & 63]);
		if (i + 2 < s.n)
			strbuf_addc(out, url_digits[bits & 63]);
	}
}

int decode_base64url(struct str s, struct strbuf *out)
{
	uint32_t bits = 0;
	unsigned have = 0; /* bits of it that are no byte yet */

	if (s.n % 4 == 1)
		return -1;
	for (size_t i = 0; i < s.n; i++) {
		const char *d = s.p[i] ? strchr(url_digits, s.p[i]) : NULL;

		if (!d)
			return -1;
		bits = (bits << 6 | (uint32_t)(d - url_digits)) & 0xfff;
		have += 6;
		if (have >= 8) {
			have -= 8;
			strbuf_addc(out, (char)(bits >> have & 0xff));
		}
	}
	return (bits & ((1U << have) - 1)) == 0 ? 0 : -1;
}

void encode_percent(struct strbuf *out, struct str s)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			     (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';

		if (plain) {
			strbuf_addc(out, (char)c);
			continue;
		}
		strbuf_addc(out, '%');
		strbuf_addc(out, digits[c >> 4]);
		strbuf_addc(out, digits[c & 15]);
	}
}

void encode_form_pair(struct strbuf *out, const char *key, struct str value)
{
	if (out->len > 0)
		strbuf_addc(out, '&');
	strbuf_adds(out, key);
	strbuf_addc(out, '=');
	encode_percent(out, value);
}

/*
 * Queries without their secrets once more, as plainly as it was first written: word by word through
 * whole lists, byte by byte. What record_redact_query must give byte for byte.
 */
#ifndef STILE_TESTS_UNIT_LOGGING_REDACT_REFERENCE_H
#define STILE_TESTS_UNIT_LOGGING_REDACT_REFERENCE_H

#include <string.h>

#include "logging/record.h"

#define KEY_MAX	      256 /* a longer key is taken for a secret one unread */
#define DECODE_ROUNDS 4

#define W(lit)                                                                                     \
	{                                                                                          \
		lit, sizeof(lit) - 1                                                               \
	}

/* One of the key's words, or the key without its separators, equal to one of these. */
static const struct str secret_words[] = {
	W("accesskey"),	    W("apikey"),      W("assertion"), W("auth"),	 W("authenticator"),
	W("authorization"), W("bearer"),      W("code"),      W("cookie"),	 W("credential"),
	W("cred"),	    W("pat"),	      W("pin"),	      W("sas"),		 W("samlart"),
	W("ticket"),	    W("credentials"), W("creds"),     W("csrf"),	 W("hmac"),
	W("jwt"),	    W("key"),	      W("keys"),      W("mfa"),		 W("oauth"),
	W("otp"),	    W("pass"),	      W("passcode"),  W("passphrase"),	 W("passwd"),
	W("password"),	    W("passwords"),   W("pwd"),	      W("samlresponse"), W("secret"),
	W("secrets"),	    W("session"),     W("sessionid"), W("sessid"),	 W("sid"),
	W("sig"),	    W("signature"),   W("token"),     W("tokens"),	 W("totp"),
	W("xsrf"),
};

/* The key without its separators ends in one of these: securitytoken, awsaccesskey, phpsessid. */
static const struct str secret_ends[] = {
	W("appkey"),   W("accountkey"), W("licensekey"), W("accesskey"),   W("apikey"),
	W("authcode"), W("authkey"),	W("credential"), W("credentials"), W("passphrase"),
	W("passwd"),   W("password"),	W("privatekey"), W("secret"),	   W("secretkey"),
	W("sessid"),   W("sessionid"),	W("sessionkey"), W("signature"),   W("signingkey"),
	W("token"),
};

#undef W

/* Both want lower case and at least one letter. */
static bool is_secret_word(struct str s)
{
	for (size_t i = 0; i < ARRAY_LEN(secret_words); i++) {
		struct str word = secret_words[i];

		if (word.n == s.n && word.p[0] == s.p[0] && memcmp(word.p, s.p, s.n) == 0)
			return true;
	}
	return false;
}

static bool has_secret_end(struct str s)
{
	for (size_t i = 0; i < ARRAY_LEN(secret_ends); i++) {
		struct str end = secret_ends[i];

		if (s.n >= end.n && s.p[s.n - 1] == end.p[end.n - 1] &&
		    memcmp(s.p + s.n - end.n, end.p, end.n) == 0)
			return true;
	}
	return false;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Percent-decodes in place; a % without two digits stays. Returns the new length. */
static size_t decode(char *key, size_t n)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		if (key[i] == '%' && i + 2 < n && hex_digit(key[i + 1]) >= 0 &&
		    hex_digit(key[i + 2]) >= 0) {
			key[len++] = (char)(hex_digit(key[i + 1]) * 16 + hex_digit(key[i + 2]));
			i += 2;
		} else {
			key[len++] = key[i];
		}
	}
	return len;
}

static bool is_upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

/* Whether a word ends between key[i - 1] and key[i], both letters: userKey, APIKey. */
static bool is_camel_edge(struct str key, size_t i)
{
	if (is_lower(key.p[i - 1]) && is_upper(key.p[i]))
		return true;
	return is_upper(key.p[i - 1]) && is_upper(key.p[i]) && i + 1 < key.n &&
	       is_lower(key.p[i + 1]);
}

/* The next word at *at: a run of letters without a camel edge. Anything else separates. */
static struct str next_word(struct str key, size_t *at)
{
	size_t from, i = *at;

	while (i < key.n && !is_upper(key.p[i]) && !is_lower(key.p[i]))
		i++;
	from = i;
	while (i < key.n && (is_upper(key.p[i]) || is_lower(key.p[i])) &&
	       (i == from || !is_camel_edge(key, i)))
		i++;
	*at = i;
	return str_from(key.p + from, i - from);
}

/* Decodes until nothing changes, because some servers decode again what a gateway has decoded.
 * False when it takes more rounds than an honest client needs. */
static bool decode_fully(char *key, size_t *len)
{
	for (unsigned round = 0; round < DECODE_ROUNDS; round++) {
		size_t before = *len;

		if (!memchr(key, '%', before))
			return true;

		*len = decode(key, before);
		if (*len == before)
			return true;
	}
	return false;
}

static bool is_secret_key(struct str raw)
{
	char key[KEY_MAX], joined[KEY_MAX];
	size_t len = raw.n, joined_len = 0, at = 0;
	struct str word;

	if (raw.n == 0)
		return false;
	if (raw.n > KEY_MAX)
		return true;
	memcpy(key, raw.p, len);
	if (!decode_fully(key, &len))
		return true;
	while ((word = next_word(str_from(key, len), &at)).n) {
		char *lower = joined + joined_len;

		for (size_t i = 0; i < word.n; i++)
			lower[i] = (char)(word.p[i] | 0x20);
		if (is_secret_word(str_from(lower, word.n)))
			return true;
		joined_len += word.n;
	}
	word = str_from(joined, joined_len);
	if (word.n == 0)
		return false;
	return is_secret_word(word) || has_secret_end(word);
}

/* ---- URLs within a value ---- */

/* The character that s.p[i] stands for to whoever decodes often enough (%3F, %253f, ...), and the
 * bytes that spell it. */
static char decoded_at(struct str s, size_t i, size_t *ret_n)
{
	size_t at = i + 1;

	*ret_n = 1;
	if (s.p[i] != '%' || i + 2 >= s.n || hex_digit(s.p[i + 1]) < 0 || hex_digit(s.p[i + 2]) < 0)
		return s.p[i];
	while (at + 3 < s.n && s.p[at] == '2' && s.p[at + 1] == '5' &&
	       hex_digit(s.p[at + 2]) >= 0 && hex_digit(s.p[at + 3]) >= 0)
		at += 2;
	*ret_n = at + 2 - i;
	return (char)(hex_digit(s.p[at]) * 16 + hex_digit(s.p[at + 1]));
}

/* From `from` on, the first of `marks` in any spelling: where it stands, and what and how long it
 * is. Its end and '\0' if there is none. */
static size_t find_mark(struct str s, size_t from, const char *marks, char *ret_c, size_t *ret_n)
{
	while (from < s.n) {
		*ret_c = decoded_at(s, from, ret_n);
		if (*ret_c && strchr(marks, *ret_c))
			return from;
		from += *ret_n;
	}
	*ret_c = '\0';
	*ret_n = 0;
	return s.n;
}

/* Behind the `:` at `at` of a URL with a user in front of its host: past the slashes, and where the
 * user ends. False: there is none. */
static bool find_user(struct str s, size_t at, size_t *ret_from, size_t *ret_to)
{
	size_t n;
	char c;

	for (int slash = 0; slash < 2; slash++) {
		if (at >= s.n || decoded_at(s, at, &n) != '/')
			return false;
		at += n;
	}
	*ret_from = at;
	*ret_to = find_mark(s, at, "@/?#&", &c, &n);
	return c == '@';
}

/* Writes a value that may be or hold a URL. Says whether what was taken out reached its end. */
static bool put_value(struct str v, struct strbuf *out)
{
	size_t done = 0, at = 0, n, from, to;
	bool in_query = false;
	char c;

	for (;;) {
		at = find_mark(v, at, in_query ? "?#&;" : "?#:", &c, &n) + n;
		if (!c)
			break;
		if (c == ':') {
			if (!find_user(v, at, &from, &to))
				continue;
		} else {
			size_t key = at;

			in_query = true;
			at = find_mark(v, key, "=?#&;", &c, &n);
			if (c != '=' || !is_secret_key(str_head(str_skip(v, key), at - key)))
				continue;
			from = at + n;
			to = find_mark(v, from, "#&;", &c, &n);
		}
		strbuf_add(out, str_head(str_skip(v, done), from - done));
		strbuf_add(out, STR("[redacted]"));
		done = at = to;
		if (to == v.n)
			return true;
	}
	strbuf_add(out, str_skip(v, done));
	return false;
}

/* Writes one pair; says whether its value was taken out. An empty value is marked too: with a ';'
 * behind it, it need not be empty to the server. */
static bool put_pair(struct str pair, struct strbuf *out)
{
	ptrdiff_t eq = str_find(pair, '=');

	if (eq < 0 || !is_secret_key(str_head(pair, (size_t)eq)))
		return put_value(pair, out);
	if (!put_value(str_head(pair, (size_t)eq), out))
		strbuf_add(out, STR("=[redacted]"));
	return true;
}

static void redact_reference(struct str query, struct strbuf *out)
{
	bool was_secret = false;
	char sep = '\0';

	while ((query.n || sep) && !out->overflowed) {
		size_t n = 0;
		struct str pair;

		while (n < query.n && query.p[n] != '&' && query.p[n] != ';')
			n++;
		pair = str_head(query, n);
		/* To a server that splits at '&' only, a bare piece behind a ';' is still a part of
		 * the secret before it. */
		if (sep != ';' || !was_secret || str_find(pair, '=') >= 0) {
			if (sep)
				strbuf_addc(out, sep);
			was_secret = put_pair(pair, out);
		}
		sep = n < query.n ? query.p[n] : '\0';
		query = str_skip(query, n + 1);
	}
}

#endif

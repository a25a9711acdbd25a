/*
 * record_redact_query: a query with the values of secret-looking keys taken out, also of keys in a
 * URL that is itself a value, and what stands before the host of such a URL. It looks at keys only;
 * a secret in a path or in a value under a harmless key is not seen. It errs to the safe side:
 * `country_code` loses its value because `code` is a word of it.
 */
#include <string.h>

#include "logging/percent.h"
#include "logging/record.h"

#define KEY_MAX	      256 /* a longer key is taken for a secret one unread */
#define DECODE_ROUNDS 4

#define W(lit)                                                                                     \
	{                                                                                          \
		lit, sizeof(lit) - 1                                                               \
	}

struct words {
	const struct str *words;
	size_t n;
};

#define WORDS(list)                                                                                \
	{                                                                                          \
		list, ARRAY_LEN(list)                                                              \
	}

/* One of the key's words, or the key without its separators, equal to one of these: by their first
 * letter, the shortest first. */
static const struct str words_a[] = {W("auth"),	     W("apikey"),	 W("accesskey"),
				     W("assertion"), W("authenticator"), W("authorization")};
static const struct str words_b[] = {W("bearer")};
static const struct str words_c[] = {W("code"),	  W("cred"),	   W("csrf"),	    W("creds"),
				     W("cookie"), W("credential"), W("credentials")};
static const struct str words_h[] = {W("hmac")};
static const struct str words_j[] = {W("jwt")};
static const struct str words_k[] = {W("key"), W("keys")};
static const struct str words_m[] = {W("mfa")};
static const struct str words_o[] = {W("otp"), W("oauth")};
static const struct str words_p[] = {W("pat"),	    W("pin"),	    W("pwd"),
				     W("pass"),	    W("passwd"),    W("passcode"),
				     W("password"), W("passwords"), W("passphrase")};
static const struct str words_s[] = {W("sas"),	     W("sid"),	     W("sig"),	       W("secret"),
				     W("sessid"),    W("samlart"),   W("secrets"),     W("session"),
				     W("sessionid"), W("signature"), W("samlresponse")};
static const struct str words_t[] = {W("totp"), W("token"), W("ticket"), W("tokens")};
static const struct str words_x[] = {W("xsrf")};

static const struct words secret_words[26] = {
	['a' - 'a'] = WORDS(words_a), ['b' - 'a'] = WORDS(words_b), ['c' - 'a'] = WORDS(words_c),
	['h' - 'a'] = WORDS(words_h), ['j' - 'a'] = WORDS(words_j), ['k' - 'a'] = WORDS(words_k),
	['m' - 'a'] = WORDS(words_m), ['o' - 'a'] = WORDS(words_o), ['p' - 'a'] = WORDS(words_p),
	['s' - 'a'] = WORDS(words_s), ['t' - 'a'] = WORDS(words_t), ['x' - 'a'] = WORDS(words_x),
};

/* The key without its separators ends in one of these (securitytoken, awsaccesskey, phpsessid): by
 * their last letter. */
static const struct str ends_d[] = {W("passwd"), W("password"), W("sessid"), W("sessionid")};
static const struct str ends_e[] = {W("authcode"), W("passphrase"), W("signature")};
static const struct str ends_l[] = {W("credential")};
static const struct str ends_n[] = {W("token")};
static const struct str ends_s[] = {W("credentials")};
static const struct str ends_t[] = {W("secret")};
static const struct str ends_y[] = {W("accesskey"),  W("accountkey"), W("apikey"),
				    W("appkey"),     W("authkey"),    W("licensekey"),
				    W("privatekey"), W("secretkey"),  W("sessionkey"),
				    W("signingkey")};

static const struct words secret_ends[26] = {
	['d' - 'a'] = WORDS(ends_d), ['e' - 'a'] = WORDS(ends_e), ['l' - 'a'] = WORDS(ends_l),
	['n' - 'a'] = WORDS(ends_n), ['s' - 'a'] = WORDS(ends_s), ['t' - 'a'] = WORDS(ends_t),
	['y' - 'a'] = WORDS(ends_y),
};

#undef W
#undef WORDS

/* Both want lower case and at least one letter. */
static bool is_secret_word(struct str s)
{
	const struct words *list = &secret_words[s.p[0] - 'a'];

	for (size_t i = 0; i < list->n && list->words[i].n <= s.n; i++)
		if (list->words[i].n == s.n && memcmp(list->words[i].p, s.p, s.n) == 0)
			return true;
	return false;
}

static bool has_secret_end(struct str s)
{
	const struct words *list = &secret_ends[s.p[s.n - 1] - 'a'];

	for (size_t i = 0; i < list->n; i++)
		if (str_ends(s, list->words[i]))
			return true;
	return false;
}

/* Decodes until nothing changes, because some servers decode again what a gateway has decoded.
 * False when it takes more rounds than an honest client needs. */
static bool decode_fully(char *key, size_t *len)
{
	for (unsigned round = 0; round < DECODE_ROUNDS; round++) {
		size_t before = *len;

		if (!memchr(key, '%', before))
			return true;

		*len = percent_decode(str_from(key, before), key, before);
		if (*len == before)
			return true;
	}
	return false;
}

/* What each byte is, in a key and in a query. */
enum {
	QUESTION = 1 << 0,
	HASH = 1 << 1,
	AMPERSAND = 1 << 2,
	SEMICOLON = 1 << 3,
	COLON = 1 << 4,
	AT = 1 << 5,
	SLASH = 1 << 6,
	EQUALS = 1 << 7,
	MARKS = (1 << 8) - 1,
	PERCENT = 1 << 8,
	LOWER = 1 << 9,
	UPPER = 1 << 10,
};

static const unsigned short kinds[256] = {
	['?'] = QUESTION, ['#'] = HASH,	 ['&'] = AMPERSAND, [';'] = SEMICOLON, [':'] = COLON,
	['@'] = AT,	  ['/'] = SLASH, ['='] = EQUALS,    ['%'] = PERCENT,   ['a'] = LOWER,
	['b'] = LOWER,	  ['c'] = LOWER, ['d'] = LOWER,	    ['e'] = LOWER,     ['f'] = LOWER,
	['g'] = LOWER,	  ['h'] = LOWER, ['i'] = LOWER,	    ['j'] = LOWER,     ['k'] = LOWER,
	['l'] = LOWER,	  ['m'] = LOWER, ['n'] = LOWER,	    ['o'] = LOWER,     ['p'] = LOWER,
	['q'] = LOWER,	  ['r'] = LOWER, ['s'] = LOWER,	    ['t'] = LOWER,     ['u'] = LOWER,
	['v'] = LOWER,	  ['w'] = LOWER, ['x'] = LOWER,	    ['y'] = LOWER,     ['z'] = LOWER,
	['A'] = UPPER,	  ['B'] = UPPER, ['C'] = UPPER,	    ['D'] = UPPER,     ['E'] = UPPER,
	['F'] = UPPER,	  ['G'] = UPPER, ['H'] = UPPER,	    ['I'] = UPPER,     ['J'] = UPPER,
	['K'] = UPPER,	  ['L'] = UPPER, ['M'] = UPPER,	    ['N'] = UPPER,     ['O'] = UPPER,
	['P'] = UPPER,	  ['Q'] = UPPER, ['R'] = UPPER,	    ['S'] = UPPER,     ['T'] = UPPER,
	['U'] = UPPER,	  ['V'] = UPPER, ['W'] = UPPER,	    ['X'] = UPPER,     ['Y'] = UPPER,
	['Z'] = UPPER,
};

static ATTR_INLINE unsigned kind_of(char c)
{
	return kinds[(unsigned char)c];
}

/* Whether a word ends between key[i - 1] and key[i], an upper-case letter: userKey, APIKey. */
static bool is_camel_edge(struct str key, size_t i)
{
	return kind_of(key.p[i - 1]) == LOWER || (i + 1 < key.n && kind_of(key.p[i + 1]) == LOWER);
}

/* A word is a run of letters without a camel edge; anything else separates. */
static bool has_secret_word(struct str key)
{
	char joined[KEY_MAX]; /* its words in lower case */
	size_t len = 0, from = 0;

	for (size_t i = 0; i < key.n; i++) {
		unsigned kind = kind_of(key.p[i]);
		bool ends = kind == UPPER ? len > from && is_camel_edge(key, i) : kind != LOWER;

		if (ends && len > from && is_secret_word(str_from(joined + from, len - from)))
			return true;
		if (ends)
			from = len;
		if (kind & (LOWER | UPPER))
			joined[len++] = (char)(key.p[i] | 0x20);
	}
	if (len > from && is_secret_word(str_from(joined + from, len - from)))
		return true;
	return len > 0 && ((from > 0 && is_secret_word(str_from(joined, len))) ||
			   has_secret_end(str_from(joined, len)));
}

/* kinds_in: of all its bytes, and maybe others. */
static bool is_secret_key(struct str raw, unsigned kinds_in)
{
	char key[KEY_MAX];
	size_t len = raw.n;

	if (raw.n == 0)
		return false;
	if (raw.n > KEY_MAX)
		return true;
	if (!(kinds_in & PERCENT))
		return has_secret_word(raw);
	memcpy(key, raw.p, len);
	return !decode_fully(key, &len) || has_secret_word(str_from(key, len));
}

/* ---- URLs within a value ---- */

/* The character that s.p[i] stands for to whoever decodes often enough (%3F, %253f, ...), and the
 * bytes that spell it. */
static char decoded_at(struct str s, size_t i, size_t *ret_n)
{
	size_t at = i + 1;

	*ret_n = 1;
	if (s.p[i] != '%' || i + 2 >= s.n || hex_value(s.p[i + 1]) < 0 || hex_value(s.p[i + 2]) < 0)
		return s.p[i];
	while (at + 3 < s.n && s.p[at] == '2' && s.p[at + 1] == '5' &&
	       hex_value(s.p[at + 2]) >= 0 && hex_value(s.p[at + 3]) >= 0)
		at += 2;
	*ret_n = at + 2 - i;
	return (char)(hex_value(s.p[at]) * 16 + hex_value(s.p[at + 1]));
}

/* From `from` on, the first of `marks` in any spelling: where it stands, and what and how long it
 * is. Its end and '\0' if there is none. */
static size_t find_mark(struct str s, size_t from, unsigned marks, char *ret_c, size_t *ret_n)
{
	while (from < s.n) {
		if (!(kind_of(s.p[from]) & (marks | PERCENT))) {
			from++;
			continue;
		}
		*ret_c = decoded_at(s, from, ret_n);
		if (kind_of(*ret_c) & marks)
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
	*ret_to = find_mark(s, at, AT | SLASH | QUESTION | HASH | AMPERSAND, &c, &n);
	return c == '@';
}

#define IN_QUERY (QUESTION | HASH | AMPERSAND | SEMICOLON)
#define IN_VALUE (QUESTION | HASH | COLON | PERCENT) /* without one of them it holds no URL */

/* Writes a value that may be or hold a URL. Says whether what was taken out reached its end. */
static bool put_value(struct str v, struct strbuf *out)
{
	size_t done = 0, at = 0, n, from, to;
	bool in_query = false;
	char c;

	for (;;) {
		at = find_mark(v, at, in_query ? IN_QUERY : QUESTION | HASH | COLON, &c, &n) + n;
		if (!c)
			break;
		if (c == ':') {
			if (!find_user(v, at, &from, &to))
				continue;
		} else {
			size_t key = at;

			in_query = true;
			at = find_mark(v, key, EQUALS | IN_QUERY, &c, &n);
			if (c != '=' ||
			    !is_secret_key(str_head(str_skip(v, key), at - key), PERCENT))
				continue;
			from = at + n;
			to = find_mark(v, from, HASH | AMPERSAND | SEMICOLON, &c, &n);
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

/* ---- pairs ---- */

struct pair {
	size_t end;	/* where it ends in the query */
	size_t key_end; /* at its `=`; `end` if there is none */
	unsigned kinds; /* of its bytes */
};

static ATTR_INLINE struct pair pair_at(struct str query, size_t at)
{
	struct pair p = {.key_end = SIZE_MAX};

	for (; at < query.n; at++) {
		unsigned kind = kind_of(query.p[at]);

		if (kind & (AMPERSAND | SEMICOLON))
			break;
		if (kind & EQUALS && p.key_end == SIZE_MAX)
			p.key_end = at;
		p.kinds |= kind;
	}
	p.end = at;
	if (p.key_end == SIZE_MAX)
		p.key_end = at;
	return p;
}

/* What lies between two places of s. */
static struct str between(struct str s, size_t from, size_t to)
{
	return str_head(str_skip(s, from), to - from);
}

/* A pair of which the value goes. The key may be a URL up to a `=` of its own query, and may lose
 * all from there on. */
static void put_secret(struct str key, unsigned kinds_in, struct strbuf *out)
{
	if (!(kinds_in & IN_VALUE))
		strbuf_add(out, key);
	else if (put_value(key, out))
		return;
	strbuf_add(out, STR("=[redacted]"));
}

/* What has nothing to be taken out is copied in runs as long as may be. The value of a secret key
 * is marked even when it is empty: with a ';' behind it, it need not be empty to the server. */
void record_redact_query(struct str query, struct strbuf *out)
{
	size_t copied = 0, at = 0; /* up to where, and where the pair begins */
	bool was_secret = false;

	for (;;) {
		struct pair p = pair_at(query, at);

		/* To a server that splits at '&' only, a bare piece behind a ';' is still a part of
		 * the secret before it. */
		if (was_secret && !(p.kinds & EQUALS) && query.p[at - 1] == ';') {
			copied = p.end;
		} else if (p.kinds & EQUALS &&
			   is_secret_key(between(query, at, p.key_end), p.kinds)) {
			strbuf_add(out, between(query, copied, at));
			put_secret(between(query, at, p.key_end), p.kinds, out);
			copied = p.end;
			was_secret = true;
		} else if (p.kinds & IN_VALUE) {
			strbuf_add(out, between(query, copied, at));
			was_secret = put_value(between(query, at, p.end), out);
			copied = p.end;
		} else {
			was_secret = false;
		}
		if (p.end == query.n || out->overflowed)
			break;
		at = p.end + 1;
	}
	strbuf_add(out, str_skip(query, copied));
}

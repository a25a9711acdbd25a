/*
 * What a helper printed: token_parse, and the check that each value passes before it is handed out.
 * - A value that passes is not empty, not over the bound, and holds no control character.
 * - What does not begin like an object is the bare value: the text itself, less one newline,
 * without an end.
 * - Of an object it is the text of its `token`, and nothing else of it.
 * - A life is none, in the past, or within what a number of microseconds holds.
 * - A refusal says why, and no more of the text than a few bytes of it.
 * - The same text gives the same value.
 */
#include "logging/limits.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/token.h"
#include "tests/fuzz/fuzz.h"

static void check_value(struct str v)
{
	CHECK(v.n > 0 && v.n <= LIMIT_SECRET_BYTES);
	for (size_t i = 0; i < v.n; i++)
		CHECK((unsigned char)v.p[i] >= 0x20 && v.p[i] != 0x7f);
}

static bool is_object(struct str s)
{
	while (s.n > 0 && (*s.p == ' ' || *s.p == '\t' || *s.p == '\n' || *s.p == '\r'))
		s = str_skip(s, 1);
	return s.n > 0 && *s.p == '{';
}

static void check_bare(struct str text, struct str value, int64_t life_us)
{
	CHECK(value.n <= text.n && str_starts(text, value));
	text = str_skip(text, value.n);
	CHECK(text.n == 0 || str_eq(text, STR("\n")) || str_eq(text, STR("\r\n")));
	CHECK(life_us == 0);
}

/* Read once more by the library alone. */
static void check_member(struct str text, struct str value)
{
	json_t *o = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	const json_t *token = json_object_get(o, "token");

	CHECK(json_is_string(token));
	CHECK(str_eq(value, str_from(json_string_value(token), json_string_length(token))));
	json_decref(o);
}

/* No long piece of what was read may stand in an error: it may be the secret. */
static void check_refusal(struct str text, const struct err *e)
{
	CHECK(e->text[0]);
	for (size_t i = 0; i + 16 <= text.n; i++)
		CHECK(!memmem(e->text, strlen(e->text), text.p + i, 16));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct str text = str_from(data, n);
	struct secret *value = NULL, *again = NULL;
	int64_t life_us = 0, other_us = 0;
	struct err e = ERR_INIT;

	if (token_parse(text, &value, &life_us, &e) < 0) {
		if (n < 512)
			check_refusal(text, &e);
		return 0;
	}
	if (secret_check(value, &e) == 0)
		check_value(secret_value(value));
	CHECK(life_us < INT64_MAX / 2);
	if (is_object(text))
		check_member(text, secret_value(value));
	else
		check_bare(text, secret_value(value), life_us);
	CHECK(token_parse(text, &again, &other_us, &e) == 0);
	CHECK(str_eq(secret_value(value), secret_value(again)));
	secret_unref(value);
	secret_unref(again);
	return 0;
}

/*
 * What a token that came from elsewhere says of itself: decode_base64url, jwt_payload, jwt_life,
 * jwt_check_audience.
 * - What is encoded decodes to what it was.
 * - What decodes is encoded to the very same text: two texts never stand for one payload.
 * - A token whose payload can be read has three parts, the second of which decodes.
 * - A life is in the past, or after now and within what a number of microseconds holds.
 * - A token for an audience that is not among those that were asked for is refused.
 */
#include "logging/limits.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/jwt.h"
#include "tests/fuzz/fuzz.h"

#define AUDIENCES "[\"a\",\"b\"]"

static void check_round_trip(struct str s)
{
	struct strbuf text, back;

	strbuf_init(&text, 2 * s.n + 16);
	strbuf_init(&back, s.n + 16);
	encode_base64url(&text, s);
	CHECK(decode_base64url(strbuf_str(&text), &back) == 0);
	CHECK(str_eq(strbuf_str(&back), s));
	strbuf_clear(&text);
	strbuf_clear(&back);
}

static void check_decoding(struct str s)
{
	struct strbuf bytes, again;

	strbuf_init(&bytes, s.n + 16);
	strbuf_init(&again, 2 * s.n + 16);
	if (decode_base64url(s, &bytes) == 0) {
		encode_base64url(&again, strbuf_str(&bytes));
		CHECK(str_eq(strbuf_str(&again), s));
	}
	strbuf_clear(&bytes);
	strbuf_clear(&again);
}

static void check_audience(const json_t *payload)
{
	const json_t *aud = json_object_get(payload, "aud");
	struct err e = ERR_INIT;

	if (jwt_check_audience(payload, AUDIENCES, &e) < 0) {
		CHECK(e.text[0]);
		return;
	}
	if (json_is_array(aud))
		aud = json_array_get(aud, json_array_size(aud) - 1);
	CHECK(json_string_length(aud) == 1);
	CHECK(*json_string_value(aud) == 'a' || *json_string_value(aud) == 'b');
}

static void check_token(struct str s)
{
	struct err e = ERR_INIT;
	json_t *payload = jwt_payload(s, &e);
	int64_t life_us = 0;

	CHECK(payload || e.text[0]);
	if (!payload)
		return;
	CHECK(str_find(s, '.') >= 0);
	check_audience(payload);
	if (jwt_life(payload, &life_us, &e) == 0)
		CHECK(life_us != 0 && life_us < INT64_MAX / 2);
	json_decref(payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct str s = str_from(data, n);
	struct strbuf token;

	check_round_trip(s);
	check_decoding(s);
	check_token(s);
	/* The input as the payload of a token. */
	strbuf_init(&token, 2 * n + 16);
	strbuf_adds(&token, "e30.");
	encode_base64url(&token, s);
	strbuf_adds(&token, ".x");
	check_token(strbuf_str(&token));
	strbuf_clear(&token);
	return 0;
}

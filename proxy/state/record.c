/*
 * See record.h.
 */
#include "proxy/state/record.h"

#include <jansson.h>
#include <string.h>

#include "logging/json.h"
#include "logging/limits.h"

#define FORM 1 /* of the object; another one is not read */

bool state_is_name(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '.' || c == '_' || c == '-'))
			return false;
	}
	return s.n > 0 && s.n < STATE_NAME_MAX;
}

void state_digest_write(const unsigned char digest[STATE_DIGEST_BYTES],
			char out[STATE_DIGEST_HEX + 1])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < STATE_DIGEST_BYTES; i++) {
		out[2 * i] = digits[digest[i] >> 4];
		out[2 * i + 1] = digits[digest[i] & 15];
	}
	out[STATE_DIGEST_HEX] = '\0';
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int state_digest_read(struct str hex, unsigned char ret[STATE_DIGEST_BYTES])
{
	unsigned char d[STATE_DIGEST_BYTES];

	if (hex.n != STATE_DIGEST_HEX)
		return -1;
	for (size_t i = 0; i < STATE_DIGEST_BYTES; i++) {
		int high = nibble(hex.p[2 * i]), low = nibble(hex.p[2 * i + 1]);

		if (high < 0 || low < 0)
			return -1;
		d[i] = (unsigned char)(high << 4 | low);
	}
	memcpy(ret, d, sizeof(d));
	return 0;
}

int state_record_format(const struct state_record *r, struct strbuf *out)
{
	struct json j;

	json_init(&j, out);
	json_open(&j, '{');
	json_kv_u64(&j, "form", FORM);
	json_kv_str(&j, "name", str_from_c(r->name));
	json_kv_str(&j, "policy", str_from_c(r->policy));
	json_kv_str(&j, "listener", str_from_c(r->listener));
	json_kv_u64(&j, "created_us", (uint64_t)r->created_us);
	json_kv_u64(&j, "ends_us", (uint64_t)r->ends_us);
	if (r->revoked) {
		json_key(&j, "revoked");
		json_bool(&j, true);
	}
	json_close(&j, '}');
	return out->overflowed ? -1 : 0;
}

static int read_name(const json_t *j, const char *key, char ret[STATE_NAME_MAX], struct err *e)
{
	const json_t *v = json_object_get(j, key);
	struct str s = json_is_string(v) ? str_from(json_string_value(v), json_string_length(v))
					 : STR_NONE;

	if (!state_is_name(s))
		return err_set(e, "`%s` is no name", key);
	memcpy(ret, s.p, s.n);
	ret[s.n] = '\0';
	return 0;
}

static int read_time(const json_t *j, const char *key, int64_t *ret, struct err *e)
{
	const json_t *v = json_object_get(j, key);

	if (!json_is_integer(v) || json_integer_value(v) <= 0 ||
	    json_integer_value(v) > INT64_MAX / 4)
		return err_set(e, "`%s` is no time", key);
	*ret = (int64_t)json_integer_value(v);
	return 0;
}

static int read_object(const json_t *j, struct state_record *r, struct err *e)
{
	const json_t *revoked = json_object_get(j, "revoked");
	size_t known = revoked ? 7 : 6;

	if (!json_is_object(j) || json_integer_value(json_object_get(j, "form")) != FORM)
		return err_set(e, "it is of no form that is known here");
	if (json_object_size(j) != known || (revoked && !json_is_true(revoked)))
		return err_set(e, "it has other members than it should");
	r->revoked = revoked != NULL;
	if (read_name(j, "name", r->name, e) < 0 || read_name(j, "policy", r->policy, e) < 0 ||
	    read_name(j, "listener", r->listener, e) < 0 ||
	    read_time(j, "created_us", &r->created_us, e) < 0 ||
	    read_time(j, "ends_us", &r->ends_us, e) < 0)
		return -1;
	/* A life longer than any that is given out here. */
	if (r->ends_us <= r->created_us ||
	    r->ends_us - r->created_us > LIMIT_MS_SANDBOX_MOST * 1000LL)
		return err_set(e, "its life is none that a token has");
	return 0;
}

int state_record_parse(struct str text, struct state_record *ret, struct err *e)
{
	struct state_record r = {0};
	json_t *j;
	int rc;

	if (text.n > LIMIT_STATE_RECORD_BYTES)
		return err_set(e, "it is too long");
	j = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
	if (!j)
		return err_set(e, "it is no JSON");
	rc = read_object(j, &r, e);
	json_decref(j);
	if (rc < 0)
		return -1;
	memcpy(r.digest, ret->digest, sizeof(r.digest));
	*ret = r;
	return 0;
}

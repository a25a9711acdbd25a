/*
 * See token.h. jansson reads the JSON; times are read by the C library.
 */
#include "proxy/credentials/token.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/crypto.h>

#include "logging/limits.h"
#include "proxy/credentials/secret.h"

#define TIME_TEXT_MAX 64
/* The year 33658, or 2001 in milliseconds: taken for a time it would be a token without an end. */
#define FAR_S 1e12

static void free_wiped(void *p)
{
	if (p)
		OPENSSL_cleanse(p, malloc_usable_size(p));
	free(p);
}

static void wipe_json(void)
{
	json_set_alloc_funcs(malloc, free_wiped);
}

static int bad(struct err *e, const char *what)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "%s", what);
}

/* jansson's own bound on depth is in the thousands. Up to the first fault of a text, of which
 * jansson says that it is one, texts within it begin and end here as they do there. */
static bool is_deep(struct str text)
{
	size_t depth = 0;
	bool quoted = false;

	for (size_t i = 0; i < text.n; i++) {
		char c = text.p[i];

		if (quoted && c == '\\')
			i++;
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted && (c == '{' || c == '['))
			depth++;
		else if (!quoted && (c == '}' || c == ']') && depth > 0)
			depth--;
		if (depth > LIMIT_SOURCE_JSON_DEPTH)
			return true;
	}
	return false;
}

static void make_ready(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, wipe_json);
}

json_t *token_json_config(const char *text)
{
	make_ready();
	return text ? json_loads(text, 0, NULL) : NULL;
}

json_t *token_json(struct str text, struct err *e)
{
	json_error_t why;
	json_t *o;

	make_ready();
	if (is_deep(text)) {
		(void)bad(e, "its answer is nested too deeply");
		return NULL;
	}
	/* The text of the error may quote the input. */
	o = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &why);
	if (!json_is_object(o)) {
		json_decref(o);
		(void)bad(e, "its answer is not a JSON object");
		return NULL;
	}
	return o;
}

static int copy(struct str value, struct secret **ret, struct err *e)
{
	struct secret *s;

	if (value.n > LIMIT_SECRET_BYTES)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "it is larger than %d bytes",
				  LIMIT_SECRET_BYTES);
	s = secret_copy(value);
	if (!s)
		return bad(e, "out of memory");
	*ret = s;
	return 0;
}

int token_json_secret(const json_t *o, const char *key, struct secret **ret, struct err *e)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_string(v))
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "its answer has no text for `%s`", key);
	return copy(str_from(json_string_value(v), json_string_length(v)), ret, e);
}

/* RFC 3339 section 5.6. */
static int parse_time(const char *text, double *ret)
{
	struct tm tm = {0};
	const char *p = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	double scale = 1;
	int sign, h, m;

	if (!p)
		return -1;
	*ret = (double)timegm(&tm);
	for (p += *p == '.'; *p >= '0' && *p <= '9'; p++) {
		scale /= 10;
		*ret += (*p - '0') * scale;
	}
	if ((*p == 'Z' || *p == 'z') && !p[1])
		return 0;
	sign = *p == '+' ? 1 : *p == '-' ? -1 : 0;
	if (sign == 0 || strlen(p) != 6 || p[3] != ':')
		return -1;
	for (int i = 1; i < 6; i++)
		if (i != 3 && (p[i] < '0' || p[i] > '9'))
			return -1;
	h = (p[1] - '0') * 10 + p[2] - '0';
	m = (p[4] - '0') * 10 + p[5] - '0';
	*ret -= sign * (h * 3600.0 + m * 60.0);
	return 0;
}

int token_json_end(const json_t *o, const char *key, int64_t *ret_us, struct err *e)
{
	const json_t *v = json_object_get(o, key);
	struct timespec now;
	double at, left;

	*ret_us = 0;
	if (!v || json_is_null(v))
		return 0;
	if (json_is_number(v))
		at = json_number_value(v);
	else if (!json_is_string(v) || json_string_length(v) > TIME_TEXT_MAX ||
		 parse_time(json_string_value(v), &at) < 0)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "`%s` of its answer is no time (RFC 3339, or seconds since 1970)",
				  key);
	if (at >= FAR_S)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "`%s` of its answer is too far off (in milliseconds? write "
				  "seconds)",
				  key);
	clock_gettime(CLOCK_REALTIME, &now);
	left = at - ((double)now.tv_sec + (double)now.tv_nsec / 1e9);
	/* Beyond any life that is used, and far from what a number of microseconds holds. */
	if (left > 1e9)
		left = 1e9;
	*ret_us = left <= 0 ? -1 : (int64_t)(left * 1e6) + 1;
	return 0;
}

int token_json_life(const json_t *o, const char *key, int64_t *ret_us, struct err *e)
{
	const json_t *v = json_object_get(o, key);
	double s;

	*ret_us = 0;
	if (!v || json_is_null(v))
		return 0;
	if (json_is_number(v)) {
		s = json_number_value(v);
	} else {
		/* Some endpoints write it as a text. */
		uint64_t n;

		if (!json_is_string(v) ||
		    str_to_u64(str_from(json_string_value(v), json_string_length(v)), &n) < 0)
			return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
					  "`%s` of its answer is no number of seconds", key);
		s = (double)n;
	}
	if (s > 1e9)
		s = 1e9;
	*ret_us = s <= 0 ? -1 : (int64_t)(s * 1e6);
	return 0;
}

static int parse_json(struct str text, struct secret **ret, int64_t *ret_life_us, struct err *e)
{
	json_t *o = token_json(text, e);
	int rc = -1;

	if (o && token_json_end(o, "expires_at", ret_life_us, e) == 0)
		rc = token_json_secret(o, "token", ret, e);
	json_decref(o);
	return rc;
}

int token_parse(struct str text, struct secret **ret, int64_t *ret_life_us, struct err *e)
{
	size_t blank = 0;

	while (blank < text.n && strchr(" \t\r\n", text.p[blank]) && text.p[blank])
		blank++;
	if (blank < text.n && text.p[blank] == '{')
		return parse_json(text, ret, ret_life_us, e);
	/* As in a file: one newline is the printing's, not the secret's. */
	if (str_ends(text, STR("\r\n")))
		text.n -= 2;
	else if (str_ends(text, STR("\n")))
		text.n--;
	if (text.n == 0)
		return bad(e, "its helper printed nothing");
	*ret_life_us = 0;
	return copy(text, ret, e);
}

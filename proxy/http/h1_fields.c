/*
 * Reads the field section of a head: sorts what belongs to this hop from what is forwarded (RFC
 * 9110 section 7.6.1) and finds the framing (RFC 9112 section 6). Strict in both directions.
 * Called by h1_request.c and h1_response.c.
 */
#include "logging/limits.h"
#include "proxy/http/field_kind.h"
#include "proxy/http/h1_text.h"

/* The values of Connection, read when all fields are known: it may stand before those it names. */
struct hop {
	struct str value[LIMIT_HEAD_FIELDS];
	size_t n;
};

static void note_first(struct str value, struct str *first, unsigned *count)
{
	if ((*count)++ == 0)
		*first = value;
}

static void note_expect(struct str value, struct h1_facts *f)
{
	if (str_eq_nocase(value, STR("100-continue")))
		f->expect_continue = true;
	else
		f->expect_other = true;
}

bool h1_note_field(enum field_kind k, struct str v, bool response, struct h1_facts *f)
{
	switch (k) {
	case FIELD_HOST: note_first(v, &f->host, &f->n_host); return false;
	case FIELD_CONTENT_LENGTH:
		note_first(v, &f->content_length, &f->n_content_length);
		return false;
	case FIELD_TRANSFER_ENCODING:
		note_first(v, &f->transfer_encoding, &f->n_transfer_encoding);
		return false;
	case FIELD_CONNECTION:
	case FIELD_HTTP2_SETTINGS:
	case FIELD_HOP: return false;
	case FIELD_KEEP_ALIVE:
		if (!f->keep_alive.p)
			f->keep_alive = v;
		return false;
	case FIELD_TE:
		if (h1_list_has(v, STR("trailers")))
			f->te_trailers = true;
		return false;
	case FIELD_UPGRADE: note_first(v, &f->upgrade, &f->n_upgrade); return false;
	case FIELD_EXPECT: note_expect(v, f); return false;
	case FIELD_PROXY_AUTHORIZATION:
		note_first(v, &f->proxy_authorization, &f->n_proxy_authorization);
		return false;
	case FIELD_ALT_SVC: return !response;
	case FIELD_ACCEPT:
		if (!f->accept.p)
			f->accept = v;
		return true;
	case FIELD_TRAILER:
	case FIELD_CONTROL:
	case FIELD_PLAIN: return true;
	}
	return false;
}

/* One option of Connection. What frames, routes or authenticates a message cannot be made a matter
 * of one hop: to have it taken out on the way is an attack. Origins do name Transfer-Encoding,
 * which belongs to the hop anyway and is read whether named or not. */
static int apply_option(struct str option, bool response, struct fields *out, struct h1_facts *f,
			struct err *e)
{
	if (!h1_all(option, H1_TOKEN))
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "Connection holds something that is no token");
	if (str_eq_nocase(option, STR("close"))) {
		f->close = true;
		return 0;
	}
	if (str_eq_nocase(option, STR("upgrade"))) {
		f->names_upgrade = true;
		return 0;
	}
	switch (field_kind(option)) {
	case FIELD_TRANSFER_ENCODING:
		if (response)
			return 0;
		break;
	case FIELD_HOST:
	case FIELD_CONTENT_LENGTH:
	case FIELD_EXPECT:
	case FIELD_CONTROL: break;
	case FIELD_CONNECTION:
	case FIELD_TE:
	case FIELD_UPGRADE:
	case FIELD_HTTP2_SETTINGS:
	case FIELD_PROXY_AUTHORIZATION:
	case FIELD_HOP:
	case FIELD_KEEP_ALIVE: return 0; /* not in out */
	case FIELD_ALT_SVC:
	case FIELD_ACCEPT:
	case FIELD_TRAILER:
	case FIELD_PLAIN: fields_remove(out, option); return 0;
	}
	return err_reason(e, REASON_MALFORMED_REQUEST,
			  "Connection names %.*s, which is not a matter of one hop", (int)option.n,
			  option.p);
}

/* There cannot be more options than fields to name; the bound also keeps options times fields
 * cheap. */
static int apply_connection(const struct hop *hop, bool response, struct fields *out,
			    struct h1_facts *f, struct err *e)
{
	size_t options = 0;

	for (size_t i = 0; i < hop->n; i++) {
		struct str rest = hop->value[i], option;

		while (h1_next_element(&rest, &option)) {
			if (++options > LIMIT_HEAD_FIELDS)
				return err_reason(e, REASON_HEAD_TOO_LARGE,
						  "Connection has more than %d options",
						  LIMIT_HEAD_FIELDS);
			if (apply_option(option, response, out, f, e) < 0)
				return -1;
		}
	}
	return 0;
}

/* Yes for what str_name_fold makes a hyphen, but for the hyphen. */
static ATTR_INLINE bytes16 is_mark(bytes16 v)
{
	return ~(bytes16_letter(v) | bytes16_range(v, '0', '9') | (bytes16)(v == '-'));
}

/* `Content_Length` and `Content.Length` frame the message for a reader that makes every mark one,
 * and for nobody else. */
int h1_check_lookalike(struct str name, struct err *e)
{
	if (!bytes16_any(name.p, name.n, is_mark))
		return 0;
	switch (field_kind_folded(name)) {
	case FIELD_CONTENT_LENGTH:
	case FIELD_TRANSFER_ENCODING:
	case FIELD_HTTP2_SETTINGS:
	case FIELD_PROXY_AUTHORIZATION:
	case FIELD_HOP:
	case FIELD_KEEP_ALIVE:
		return err_reason(
			e, REASON_MALFORMED_REQUEST,
			"a field that differs from one of this hop by a mark for the hyphen");
	case FIELD_PLAIN:
	case FIELD_HOST:
	case FIELD_CONNECTION:
	case FIELD_TE:
	case FIELD_UPGRADE:
	case FIELD_EXPECT:
	case FIELD_ALT_SVC:
	case FIELD_ACCEPT:
	case FIELD_TRAILER:
	case FIELD_CONTROL: return 0;
	}
	return 0;
}

static int read_one(struct field one, bool response, struct hop *hop, struct fields *out,
		    struct h1_facts *ret, struct err *e)
{
	enum field_kind kind = field_kind(one.name);

	if (kind == FIELD_PLAIN && !response && h1_check_lookalike(one.name, e) < 0)
		return -1;
	if (kind == FIELD_CONNECTION)
		hop->value[hop->n++] = one.value;
	else if ((kind == FIELD_PLAIN || h1_note_field(kind, one.value, response, ret)) &&
		 fields_add(out, one.name, one.value) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	return 0;
}

int h1_read_fields(struct str section, bool response, struct fields *out, struct h1_facts *ret,
		   struct err *e)
{
	struct bytes16_walk walk = bytes16_walk(section.p, 0, section.n, h1_stops_value);
	struct hop hop;
	struct field one;
	size_t lines = 0, at = 0, next = 1;
	struct str rest;
	int rc = 0;

	hop.n = 0;
	for (;;) {
		if (section.n - at >= 2 && memcmp(section.p + at, "\r\n", 2) == 0) {
			at += 2;
			break;
		}
		/* From the first line on that is not as most, one is cut off after the other. */
		if (next > 0)
			next = h1_common_field(&walk, at, &one);
		if (next > 0) {
			at = next;
		} else {
			rest = str_skip(section, at);
			rc = h1_next_field(&rest, &one, e);
			at = section.n - rest.n;
			if (rc <= 0)
				break;
		}
		if (++lines > LIMIT_HEAD_FIELDS)
			return err_reason(e, REASON_HEAD_TOO_LARGE, "more than %d fields",
					  LIMIT_HEAD_FIELDS);
		if (read_one(one, response, &hop, out, ret, e) < 0)
			return -1;
	}
	if (rc < 0)
		return -1;
	if (at < section.n)
		return err_reason(e, REASON_MALFORMED_REQUEST, "bytes behind the head's end");
	return apply_connection(&hop, response, out, ret, e);
}

static int refuse(struct err *e, const char *what)
{
	return err_reason(e, REASON_MALFORMED_REQUEST, "%s", what);
}

static int read_transfer_encoding(const struct h1_facts *f, enum http_version v, struct err *e)
{
	if (f->n_transfer_encoding > 1)
		return refuse(e, "Transfer-Encoding stands there more than once");
	if (!str_eq_nocase(f->transfer_encoding, STR("chunked")))
		return refuse(e, "Transfer-Encoding is not exactly \"chunked\"");
	if (f->n_content_length > 0)
		return refuse(e, "Content-Length and Transfer-Encoding in one message");
	/* RFC 9112 section 6.1: the framing of such a message is faulty. */
	if (v != HTTP_11)
		return refuse(e, "Transfer-Encoding in an HTTP/1.0 message");
	return 0;
}

int h1_read_framing(const struct h1_facts *f, enum http_version v, struct h1_framing *ret,
		    struct err *e)
{
	uint64_t length;

	*ret = (struct h1_framing){0};
	if (f->n_transfer_encoding > 0) {
		if (read_transfer_encoding(f, v, e) < 0)
			return -1;
		ret->chunked = true;
		return 0;
	}
	if (f->n_content_length == 0)
		return 0;
	if (f->n_content_length > 1)
		return refuse(e, "Content-Length stands there more than once");
	/* Past 2^63 other readers see a negative number. */
	if (str_to_u64(f->content_length, &length) < 0 || length > INT64_MAX)
		return refuse(e, "Content-Length is not one decimal number below 2^63");
	ret->has_length = true;
	ret->length = length;
	return 0;
}

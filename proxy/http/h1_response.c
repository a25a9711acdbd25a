/*
 * Reads a response head into the canonical response (RFC 9112 sections 4 and 6.3), as strictly as a
 * request: what the origin and the client could read differently is not passed on. Called by the
 * session for each head that h1_scan_head found.
 */
#include <string.h>

#include "proxy/http/h1.h"
#include "proxy/http/h1_text.h"

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* `HTTP/1.x SP 3DIGIT [SP reason]`: the space before an empty reason is often left out, and nothing
 * hangs on it. */
static int read_status_line(struct str line, struct response *r, struct err *e)
{
	const char *p = line.p;

	if (str_starts(line, STR("HTTP/1.1 ")))
		r->version = HTTP_11;
	else if (str_starts(line, STR("HTTP/1.0 ")))
		r->version = HTTP_10;
	else
		return err_set(e, "the answer does not begin with HTTP/1.1 or HTTP/1.0");
	if (line.n < 12 || !is_digit(p[9]) || !is_digit(p[10]) || !is_digit(p[11]) ||
	    (line.n > 12 && p[12] != ' '))
		return err_set(e, "the status is not three digits");
	r->status = (unsigned)((p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0'));
	if (r->status < 100 || r->status > 599)
		return err_set(e, "the status %u is in no class (100 to 599)", r->status);
	r->reason = str_skip(line, 13);
	if (!h1_all(r->reason, H1_VALUE))
		return err_set(e, "a control byte in the reason phrase");
	return 0;
}

static void frame(const struct h1_framing *f, struct str method, struct response *r)
{
	bool interim = r->status < 200, head = str_eq(method, STR("HEAD"));

	/* Section 6.3 rules 1 and 2: these have no body, whatever they say. */
	if (interim || r->status == 204 || r->status == 304 || head) {
		r->body = BODY_NONE;
		/* RFC 9110 section 8.6: a length says something only in answer to HEAD and in a
		 * 304; elsewhere it must not be sent. */
		r->has_content_length = f->has_length && !interim && r->status != 204;
		r->content_length = r->has_content_length ? f->length : 0;
	} else if (f->chunked) {
		r->body = BODY_CHUNKED;
	} else if (f->has_length) {
		r->body = BODY_LENGTH;
		r->length = f->length;
		r->has_content_length = true;
		r->content_length = f->length;
	} else {
		r->body = BODY_CLOSE;
	}
}

/* `Keep-Alive: timeout=5, max=100` (RFC 2068 section 19.7.1.1, which nobody took over and all
 * servers speak). A number of more than six digits says nothing. */
static void read_idle(struct str list, struct response *r)
{
	struct str one;

	while (h1_next_element(&list, &one)) {
		struct str key = str_trim_ows(str_split(&one, '='));
		uint32_t n = 0;

		one = str_trim_ows(one);
		if (!str_eq_nocase(key, STR("timeout")) || one.n == 0 || one.n > 6)
			continue;
		for (size_t i = 0; i < one.n; i++) {
			if (one.p[i] < '0' || one.p[i] > '9')
				return;
			n = n * 10 + (uint32_t)(one.p[i] - '0');
		}
		r->idle_s = n;
		/* Less than a second: it may be over by now. */
		r->keep_alive &= n > 0;
		return;
	}
}

static int read_all(struct str rest, struct str method, struct response *r, struct err *e)
{
	struct h1_facts facts = {0};
	struct h1_framing framing;
	struct str line;

	if (h1_next_line(&rest, &line, e) < 0 || read_status_line(line, r, e) < 0 ||
	    h1_read_fields(rest, true, &r->fields, &facts, e) < 0 ||
	    h1_read_framing(&facts, r->version, &framing, e) < 0)
		return -1;
	frame(&framing, method, r);
	r->keep_alive = r->version == HTTP_11 && !facts.close && r->body != BODY_CLOSE;
	if (facts.keep_alive.p)
		read_idle(facts.keep_alive, r);
	if (facts.names_upgrade && facts.n_upgrade == 1)
		r->upgrade = facts.upgrade;
	return 0;
}

int h1_parse_response(struct str head, struct str method, struct response *ret, struct err *e)
{
	char *bytes;

	response_init(ret);
	ret->spare = true;
	ret->mem = message_new_mem(head.n, &ret->fields, &bytes, &ret->spare);
	if (!ret->mem)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	if (head.n > 0)
		memcpy(bytes, head.p, head.n);
	if (read_all(str_from(bytes, head.n), method, ret, e) == 0)
		return 0;
	if (e && e->reason != REASON_INTERNAL_ERROR)
		e->reason = REASON_UPSTREAM_MALFORMED;
	return -1;
}

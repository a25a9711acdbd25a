/*
 * Writes the proxy's own answers: what was refused and why, in words that a person or an agent can
 * act on, and nothing about what else would have been allowed. It keeps no state and no clock. The
 * session calls it for whatever it does not forward.
 */
#include "proxy/http/reply.h"

#include "logging/json.h"
#include "logging/limits.h"
#include "proxy/http/h1_text.h"

#define DETAIL_MAX 1024
#define ID_MAX	   64
/* Escaping makes a byte of the detail into at most six. */
#define BODY_MAX (6 * (DETAIL_MAX + ID_MAX) + 512)

const char *reply_phrase(unsigned status)
{
	static const struct {
		unsigned status;
		const char *phrase;
	} rows[] = {
		/* RFC 9110 section 15; 1xx and 4xx of RFCs 2518, 8297, 6585, 7725 */
		{100, "Continue"},
		{101, "Switching Protocols"},
		{102, "Processing"},
		{103, "Early Hints"},
		{200, "OK"},
		{201, "Created"},
		{202, "Accepted"},
		{203, "Non-Authoritative Information"},
		{204, "No Content"},
		{205, "Reset Content"},
		{206, "Partial Content"},
		{207, "Multi-Status"},
		{300, "Multiple Choices"},
		{301, "Moved Permanently"},
		{302, "Found"},
		{303, "See Other"},
		{304, "Not Modified"},
		{307, "Temporary Redirect"},
		{308, "Permanent Redirect"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{402, "Payment Required"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{406, "Not Acceptable"},
		{407, "Proxy Authentication Required"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{410, "Gone"},
		{411, "Length Required"},
		{412, "Precondition Failed"},
		{413, "Content Too Large"},
		{414, "URI Too Long"},
		{415, "Unsupported Media Type"},
		{416, "Range Not Satisfiable"},
		{417, "Expectation Failed"},
		{421, "Misdirected Request"},
		{422, "Unprocessable Content"},
		{425, "Too Early"},
		{426, "Upgrade Required"},
		{428, "Precondition Required"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{451, "Unavailable For Legal Reasons"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
		{502, "Bad Gateway"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{505, "HTTP Version Not Supported"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].status == status)
			return rows[i].phrase;
	return "";
}

/* ---- text or JSON ---- */

/* The weight of an element of Accept in thousandths (RFC 9110 section 12.4.2); one that cannot be
 * read weighs nothing. */
static unsigned weight(struct str params)
{
	struct str one;
	unsigned q = 0, unit = 1000;

	while (params.p) {
		one = str_trim_ows(str_split(&params, ';'));
		if (one.n < 3 || !str_eq_nocase(str_head(one, 2), STR("q=")))
			continue;
		for (size_t i = 2; i < one.n && i < 7; i++) {
			if (one.p[i] == '.' && i == 3)
				continue;
			if (one.p[i] < '0' || one.p[i] > '9')
				return 0;
			q += unit * (unsigned)(one.p[i] - '0');
			unit /= 10;
		}
		return q;
	}
	return 1000;
}

static unsigned max_of(unsigned a, unsigned b)
{
	return a > b ? a : b;
}

/* Text is for browsers and terminals that ask for it by name: a wildcard gets JSON, and so does a
 * client that would take either. */
static bool prefers_text(struct str accept)
{
	unsigned text = 0, json = 0;
	struct str one;

	while (h1_next_element(&accept, &one)) {
		struct str type = str_trim_ows(str_split(&one, ';'));
		unsigned q = weight(one);

		if (str_eq_nocase(type, STR("text/plain")) ||
		    str_eq_nocase(type, STR("text/html")) || str_eq_nocase(type, STR("text/*")))
			text = max_of(text, q);
		else if (str_eq_nocase(type, STR("application/json")) ||
			 str_eq_nocase(type, STR("application/*")) ||
			 str_eq_nocase(type, STR("*/*")))
			json = max_of(json, q);
	}
	return text > json;
}

struct str reply_accept(const struct request *q)
{
	return request_is_git(q) ? STR("text/plain") : q->accept;
}

/* ---- the body ---- */

/* Whose doing it was, for a client that looks at one word. */
static const char *error_word(unsigned status)
{
	switch (status) {
	case 403:
	case 405:
	case 407:
	case 421:
	case 429: return "denied";
	case 502:
	case 504: return "upstream";
	case 505: return "bad_request";
	default: return status < 500 ? "bad_request" : "unavailable";
	}
}

static void add_json(const struct reply *r, unsigned status, struct strbuf *out)
{
	struct json j;

	json_init(&j, out);
	json_open(&j, '{');
	json_kv_str(&j, "error", str_from_c(error_word(status)));
	json_kv_str(&j, "reason", str_from_c(reason_word(r->reason)));
	if (r->detail.n > 0) {
		json_key(&j, "detail");
		json_str_max(&j, r->detail, DETAIL_MAX);
	}
	if (r->id.n > 0) {
		json_key(&j, "id");
		json_str_max(&j, r->id, ID_MAX);
	}
	json_close(&j, '}');
	strbuf_addc(out, '\n');
}

static void add_text_line(struct strbuf *out, const char *label, struct str value, size_t max)
{
	if (value.n == 0)
		return;
	strbuf_adds(out, label);
	strbuf_add_printable(out, str_head(value, max));
	strbuf_add(out, value.n > max ? STR(" [cut]\n") : STR("\n"));
}

static void add_text(const struct reply *r, unsigned status, struct strbuf *out)
{
	bool ours = status < 500;

	strbuf_addf(out, "%u %s\n", status, reply_phrase(status));
	strbuf_adds(out, ours ? "stile refused this request.\n"
			      : "stile could not complete this request.\n");
	add_text_line(out, "detail: ", r->detail, DETAIL_MAX);
	add_text_line(out, "reason: ", str_from_c(reason_word(r->reason)), ID_MAX);
	add_text_line(out, "id: ", r->id, ID_MAX);
}

/* ---- the whole ---- */

/* What RFC 9110 wants beside some statuses: sections 15.5.6, 15.5.8, 10.2.3. */
static bool status_field(unsigned status, struct field *ret)
{
	switch (status) {
	case 405:
		/* What no rule can open is left out; what a rule opens is not told. */
		*ret = (struct field){STR("Allow"),
				      STR("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, CONNECT")};
		return true;
	case 407:
		*ret = (struct field){STR("Proxy-Authenticate"), STR("Basic realm=\"stile\"")};
		return true;
	case 429: *ret = (struct field){STR("Retry-After"), STR("1")}; return true;
	case 503: *ret = (struct field){STR("Retry-After"), STR("5")}; return true;
	default: return false;
	}
}

static unsigned status_of(const struct reply *r)
{
	unsigned status = r->status ? r->status : (unsigned)reason_status(r->reason);

	return status < 200 || status > 599 ? 500 : status;
}

/* True: as text. */
static bool add_body(const struct reply *r, struct strbuf *out)
{
	bool text = prefers_text(r->accept);

	if (text)
		add_text(r, status_of(r), out);
	else
		add_json(r, status_of(r), out);
	return text;
}

/* RFC 9209 section 2: our name, the type of the error, our own word for it. */
static void add_proxy_status(const struct reply *r, struct strbuf *out)
{
	strbuf_addf(out, "stile; error=%s; details=\"%s\"", reason_proxy_error(r->reason),
		    reason_word(r->reason));
}

void reply_write(const struct reply *r, struct strbuf *out)
{
	unsigned status = status_of(r);
	char mem[BODY_MAX];
	struct strbuf body;
	struct field more;
	bool text;

	strbuf_init_fixed(&body, mem, sizeof(mem));
	text = add_body(r, &body);
	strbuf_addf(out, "HTTP/1.1 %u %s by stile (%s)\r\n", status, reply_phrase(status),
		    reason_word(r->reason));
	strbuf_addf(out, "Content-Type: %s\r\nContent-Length: %zu\r\n",
		    text ? "text/plain; charset=utf-8" : "application/json", body.len);
	strbuf_adds(out, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
	strbuf_adds(out, "Proxy-Status: ");
	add_proxy_status(r, out);
	strbuf_adds(out, "\r\n");
	if (status_field(status, &more))
		strbuf_addf(out, "%.*s: %.*s\r\n", STR_FMT(more.name), STR_FMT(more.value));
	if (!r->keep)
		strbuf_adds(out, "Connection: close\r\n");
	strbuf_adds(out, "\r\n");
	if (!r->head)
		strbuf_add(out, strbuf_str(&body));
}

/* The code that a gRPC client would have made of the status, had it read one: it shows what it is
 * told in grpc-message instead. */
static const char *grpc_status(unsigned status)
{
	switch (status) {
	case 403:
	case 405:
	case 421: return "7"; /* PERMISSION_DENIED */
	case 401:
	case 407: return "16"; /* UNAUTHENTICATED */
	case 429: return "8";  /* RESOURCE_EXHAUSTED */
	case 502:
	case 503:
	case 504: return "14";			   /* UNAVAILABLE */
	default: return status < 500 ? "3" : "13"; /* INVALID_ARGUMENT, INTERNAL */
	}
}

/* As its Percent-Encoding wants: what is visible ASCII stays, but for the percent sign. */
static void add_grpc_text(struct strbuf *out, struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c >= 0x20 && c <= 0x7e && c != '%')
			strbuf_addc(out, (char)c);
		else
			strbuf_addf(out, "%%%02X", c);
	}
}

static int add_grpc(const struct reply *r, struct response *ret, struct strbuf *mem, size_t at)
{
	ret->status = 200;
	strbuf_addf(mem, "stile refused this call: %s", reason_word(r->reason));
	if (r->detail.n > 0) {
		strbuf_adds(mem, ": ");
		add_grpc_text(mem, str_head(r->detail, DETAIL_MAX));
	}
	if (r->id.n > 0) {
		strbuf_adds(mem, " (id ");
		add_grpc_text(mem, str_head(r->id, ID_MAX));
		strbuf_addc(mem, ')');
	}
	if (!(ret->mem = strbuf_take(mem)) ||
	    fields_add(&ret->fields, STR("content-type"), STR("application/grpc")) < 0 ||
	    fields_add(&ret->fields, STR("grpc-status"), str_from_c(grpc_status(status_of(r)))) <
		    0 ||
	    fields_add(&ret->fields, STR("grpc-message"), str_from_c(ret->mem + at)) < 0)
		return -1;
	return 0;
}

int reply_response(const struct reply *r, struct response *ret, struct strbuf *body)
{
	struct strbuf mem;
	struct field more;
	size_t at;
	bool text;

	response_init(ret);
	ret->version = HTTP_2;
	ret->status = status_of(r);
	strbuf_init(&mem, BODY_MAX);
	add_proxy_status(r, &mem);
	at = mem.len;
	if (r->grpc) {
		if (add_grpc(r, ret, &mem, at) < 0)
			goto fail;
	} else {
		text = add_body(r, body);
		ret->body = r->head ? BODY_NONE : BODY_LENGTH;
		ret->length = ret->content_length = body->len;
		ret->has_content_length = true;
		if (r->head)
			strbuf_reset(body);
		if (!(ret->mem = strbuf_take(&mem)) ||
		    fields_add(&ret->fields, STR("content-type"),
			       text ? STR("text/plain; charset=utf-8") : STR("application/json")) <
			    0 ||
		    fields_add(&ret->fields, STR("x-content-type-options"), STR("nosniff")) < 0)
			goto fail;
		if (status_field(ret->status, &more) &&
		    fields_add(&ret->fields, more.name, more.value) < 0)
			goto fail;
	}
	if (fields_add(&ret->fields, STR("cache-control"), STR("no-store")) == 0 &&
	    fields_add(&ret->fields, STR("proxy-status"), str_from(ret->mem, at)) == 0)
		return 0;
fail:
	strbuf_clear(&mem);
	response_clear(ret);
	return -1;
}

struct str reply_connect_ok(void)
{
	return STR("HTTP/1.1 200 Connection established\r\n\r\n");
}

struct str reply_continue(void)
{
	return STR("HTTP/1.1 100 Continue\r\n\r\n");
}

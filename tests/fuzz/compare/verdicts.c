/*
 * Prints what we make of each of many connections' bytes, as a proxy would in a tunnel to
 * http://example.com: one line of JSON a connection, with the requests that were read whole and how
 * it ended. compare.py runs it beside other parsers. Standard input: a length of four bytes (most
 * significant first) and the bytes, again and again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/json.h"
#include "logging/limits.h"
#include "proxy/http/body.h"
#include "proxy/http/h1.h"

#define INPUT_MAX (1u << 20)

static struct h1_context tunnel = {.in_tunnel = true, .scheme = SCHEME_HTTP, .port = 80};

enum ending { END_REFUSED = -1, END_MORE, END_WHOLE };

/* The body behind a head. *in is moved behind it. */
static enum ending read_body(const struct request *r, struct str *in, struct strbuf *ret,
			     struct err *e)
{
	struct body_reader b;
	enum ending end = END_MORE;
	size_t used = 1;

	body_reader_init(&b, r->body, r->length);
	while (!b.done && used > 0) {
		struct str data;

		if (body_read(&b, *in, &used, &data, e) < 0) {
			end = END_REFUSED;
			break;
		}
		strbuf_add(ret, data);
		*in = str_skip(*in, used);
	}
	if (b.done)
		end = END_WHOLE;
	body_reader_clear(&b);
	return end;
}

static void print_request(struct json *j, const struct request *r, const struct strbuf *body)
{
	json_open(j, '{');
	json_kv_str(j, "method", r->method);
	json_kv_str(j, "target", r->raw_target);
	json_kv_str(j, "body", strbuf_str(body));
	json_key(j, "fields");
	json_open(j, '[');
	for (size_t i = 0; i < r->fields.n; i++) {
		json_str(j, r->fields.v[i].name);
		json_str(j, r->fields.v[i].value);
	}
	json_close(j, ']');
	json_close(j, '}');
}

/* One request. Prints it if it is whole; *closed: nothing behind it is read. */
static enum ending one_request(struct str *in, struct json *j, bool *closed, struct err *e)
{
	struct h1_scan scan = {0};
	struct request r;
	struct strbuf body;
	size_t len = 0;
	int rc = h1_scan_head(&scan, *in, LIMIT_HEAD_BYTES, &len, e);
	enum ending end = rc < 0 ? END_REFUSED : rc == 0 ? END_MORE : END_WHOLE;

	if (end != END_WHOLE)
		return end;
	request_init(&r);
	strbuf_init(&body, INPUT_MAX);
	if (h1_parse_request(str_head(*in, len), &tunnel, &r, e) < 0) {
		end = END_REFUSED;
	} else {
		*in = str_skip(*in, len);
		end = read_body(&r, in, &body, e);
		if (end == END_WHOLE)
			print_request(j, &r, &body);
		*closed = !r.keep_alive;
	}
	request_clear(&r);
	strbuf_clear(&body);
	return end;
}

static void one_connection(struct str in)
{
	struct strbuf out;
	struct json j;
	struct err e = ERR_INIT;
	enum ending end = END_WHOLE;
	bool closed = false;

	strbuf_init(&out, 16 * INPUT_MAX);
	json_init(&j, &out);
	json_open(&j, '{');
	json_key(&j, "requests");
	json_open(&j, '[');
	while (end == END_WHOLE && in.n > 0 && !closed)
		end = one_request(&in, &j, &closed, &e);
	json_close(&j, ']');
	json_kv_str(&j, "end",
		    end == END_REFUSED ? STR("refused")
		    : end == END_MORE  ? STR("more")
		    : closed	       ? STR("closed")
				       : STR("whole"));
	json_kv_str(&j, "why", str_from_c(e.text));
	json_close(&j, '}');
	(void)puts(strbuf_cstr(&out));
	strbuf_clear(&out);
}

int main(void)
{
	unsigned char head[4];
	char *mem = malloc(INPUT_MAX);

	if (!mem || host_parse(STR("example.com"), &tunnel.host, NULL) < 0)
		return 1;
	while (fread(head, 1, sizeof(head), stdin) == sizeof(head)) {
		size_t n = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 |
			   head[3];

		if (n > INPUT_MAX || fread(mem, 1, n, stdin) != n)
			return 1;
		one_connection(str_from(mem, n));
	}
	free(mem);
	return 0;
}

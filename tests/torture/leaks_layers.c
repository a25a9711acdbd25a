/*
 * Scenarios of leaks.c for the layers that unit tests leave on the way of a failure: heads of HTTP,
 * the loop and what is on it, the sandboxes that are told apart, what `stile run` hides.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "policy/config.h"
#include "proxy/http/h1.h"
#include "proxy/http/h2.h"
#include "proxy/net/dial.h"
#include "proxy/net/resolve.h"
#include "proxy/sandbox/files.h"
#include "proxy/session/sandboxes.h"
#include "tests/torture/leaks.h"

/* ---- http ---- */

static int written(FILE *out, const struct request *q)
{
	struct strbuf head;
	struct h2_fields fields = {0};
	int rc;

	strbuf_init(&head, LIMIT_HEAD_BYTES);
	rc = h1_write_request(q, NULL, STR(""), &head);
	if (rc == 0)
		rc = h2_write_request(q, NULL, STR(""), &fields);
	if (rc == 0)
		fprintf(out, "%.*s|%zu\n", (int)head.len, strbuf_cstr(&head), fields.n);
	h2_fields_clear(&fields);
	strbuf_clear(&head);
	return rc;
}

int leaks_heads(FILE *out)
{
	static const char asked[] =
		"POST http://origin.test:8080/a%2Fb?x=1 HTTP/1.1\r\nHost: origin.test:8080\r\n"
		"Content-Length: 3\r\nAccept: a, b\r\nX-Long: 0123456789\r\n\r\n";
	static const char answered[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
				       "Transfer-Encoding: chunked\r\nTrailer: x\r\n\r\n";
	static const char *const pseudo[][2] = {{":method", "GET"},
						{":scheme", "https"},
						{":authority", "origin.test"},
						{":path", "/a/b?c=d"},
						{"accept", "*/*"}};
	struct h1_context ctx = {0}, in_tunnel = {.in_tunnel = true, .scheme = SCHEME_HTTPS};
	struct request q = {0};
	struct response r = {0};
	struct h2_head *head;
	struct err e = ERR_INIT;
	int rc = h1_parse_request(STR(asked), &ctx, &q, &e);

	if (rc == 0)
		rc = written(out, &q);
	request_clear(&q);
	if (rc == 0)
		rc = h1_parse_response(STR(answered), STR("GET"), &r, &e);
	response_clear(&r);
	if (rc < 0 || host_parse(STR("origin.test"), &in_tunnel.host, &e) < 0)
		return -1;
	in_tunnel.port = 443;
	head = calloc(1, sizeof(*head));
	if (!head)
		return -1;
	for (size_t i = 0; i < sizeof(pseudo) / sizeof(pseudo[0]); i++)
		h2_head_add(head, str_from_c(pseudo[i][0]), str_from_c(pseudo[i][1]));
	q = (struct request){0};
	rc = h2_read_request(head, &in_tunnel, &q, &e);
	h2_head_clear(head);
	free(head);
	if (rc == 0)
		rc = written(out, &q);
	request_clear(&q);
	return rc;
}

/* ---- net ---- */

static unsigned freed;

static void free_one(void *obj)
{
	freed++;
	free(obj);
}

/* What ends while memory is out is freed all the same. */
int leaks_graves(FILE *out)
{
	enum { OBJECTS = 100 };
	void *objects[OBJECTS];
	struct loop *l = NULL;
	struct err e = ERR_INIT;
	bool was;

	freed = 0;
	if (loop_new(&l, &e) < 0)
		return -1;
	was = leaks_pause();
	for (int i = 0; i < OBJECTS; i++)
		objects[i] = malloc(16);
	leaks_resume(was);
	for (int i = 0; i < OBJECTS; i++)
		loop_bury(l, objects[i], free_one);
	memset(objects, 0, sizeof(objects));
	loop_free(l);
	fprintf(out, "%u", freed);
	return 0;
}

struct dialled {
	struct loop *loop;
	enum reason reason;
};

static void on_done(void *arg, int fd, const struct ipaddr *addr, const struct err *e)
{
	struct dialled *d = arg;

	(void)addr;
	if (fd >= 0)
		close(fd);
	d->reason = e ? e->reason : REASON_NONE;
	loop_stop(d->loop);
}

/* To a port where nobody listens. */
int leaks_dial(FILE *out)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct ipaddr here[] = {{4, {127, 0, 0, 1}}, {4, {127, 0, 0, 1}}};
	socklen_t n = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = -1;
	struct dialled d = {0};
	struct dial *dial;
	struct err e = ERR_INIT;

	if (fd < 0 || bind(fd, (struct sockaddr *)&in, n) < 0 ||
	    getsockname(fd, (struct sockaddr *)&in, &n) < 0)
		abort();
	if (loop_new(&d.loop, &e) == 0 &&
	    dial_start(d.loop, here, 2, ntohs(in.sin_port), 300, on_done, &d, &dial, &e) == 0) {
		loop_run(d.loop);
		rc = d.reason == REASON_CONNECT_REFUSED ? 0 : -1;
	}
	loop_free(d.loop);
	close(fd);
	fprintf(out, "refused");
	return rc;
}

static void on_found(void *arg, const struct resolved *found, const struct err *e)
{
	(void)arg;
	(void)found;
	(void)e;
}

/* A name of its own, an address, and questions to a server that are taken back. */
int leaks_names(FILE *out)
{
	static const char text[] = "version: 1\nlisten: [{proxy: 127.0.0.1:0}]\n"
				   "upstream: {dns: [\"127.0.0.1:9\"], hosts: {origin.test: "
				   "127.0.0.1}}\npolicies: {default: {rules: [allow: a.test]}}\n";
	static const char *const names[] = {"origin.test", "127.0.0.2", "other.test", "third.test"};
	struct config *c = NULL;
	struct loop *l = NULL;
	struct resolver *r = NULL;
	struct resolve *q = NULL;
	struct resolved got;
	struct host host;
	struct err e = ERR_INIT;
	struct faults f;
	int rc;

	faults_init(&f, "x.yaml");
	rc = config_load_text("x.yaml", str_from_c(text), &c, &f);
	faults_clear(&f);

	if (rc == 0)
		rc = loop_new(&l, &e);
	if (rc == 0)
		rc = resolver_new(l, c, &r, &e);
	for (size_t i = 0; rc == 0 && i < 4; i++) {
		if (host_parse(str_from_c(names[i]), &host, &e) < 0) {
			rc = -1;
			break;
		}
		switch (resolve_start(r, &host, 1000, on_found, NULL, &got, &q, &e)) {
		case RESOLVE_DONE: fprintf(out, "%zu", got.n); break;
		case RESOLVE_PENDING:
			fprintf(out, "?");
			if (i == 2)
				resolve_cancel(q);
			break;
		case RESOLVE_FAILED: rc = -1; break;
		}
	}
	resolver_free(r);
	loop_free(l);
	config_unref(c);
	return rc;
}

/* ---- session ---- */

static void count(void *arg, const struct sandbox *s)
{
	(void)s;
	++*(unsigned *)arg;
}

int leaks_sandboxes(FILE *out)
{
	struct sandbox_options o = {.policy = "default", .listener = "a", .ttl_ms = 3600000};
	char token[SANDBOX_TOKEN_LEN + 1];
	struct sandboxes *all = NULL;
	struct sandbox *s = NULL;
	struct err e = ERR_INIT;
	unsigned n = 0;
	int rc = sandboxes_new(&all, &e);

	for (int i = 0; rc == 0 && i < 20; i++) {
		s = NULL;
		rc = sandboxes_add(all, &o, token, &s, &e);
		if (rc < 0)
			break;
		sandbox_unref(s);
		s = sandboxes_find(all, str_from_c(token));
		if (!s)
			rc = -1;
		sandbox_unref(s);
	}
	s = sandboxes_find(all, str_from_c(token));
	if (s) {
		struct sandbox *gone = NULL;

		if (sandboxes_revoke(all, str_from_c(sandbox_id(s)), &gone, &e) < 0)
			rc = -1;
		sandbox_unref(gone);
		sandbox_unref(s);
	}
	sandboxes_each(all, count, &n); /* none when memory is out */
	if (rc == 0 && n == 0)
		rc = -1;
	fprintf(out, "%u", n);
	sandboxes_free(all);
	return rc;
}

/* ---- sandbox ---- */

int leaks_plan(FILE *out)
{
	char secret[] = "/etc/passwd";
	struct config_credential cred = {.from = secret, .source = CREDENTIAL_FROM_FILE};
	struct config config = {.credentials = &cred, .credentials_n = 1};
	static const char *const hide[] = {"/usr/share"}, *const show[] = {"/usr/share/doc"};
	struct files_options o = {.config = &config,
				  .workspace = "/var/tmp",
				  .command = "/bin/true",
				  .hide = hide,
				  .show = show,
				  .hide_n = 1,
				  .show_n = 1};
	struct files_plan p;
	struct err e = ERR_INIT;
	int rc = files_plan_make(&o, &p, &e);

	if (rc == 0)
		fprintf(out, "%zu", p.n);
	files_plan_clear(&p);
	return rc;
}

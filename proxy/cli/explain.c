/*
 * `stile explain METHOD URL`: the decision that a request would meet, by the same code, without a
 * look-up and without a secret.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "logging/log.h"
#include "logging/record.h"
#include "proxy/cli/cli.h"

/* Something could not be printed for want of memory; then the answer is none. */
static bool cut_short;

static void done_with(struct strbuf *b)
{
	cut_short |= b->overflowed;
	strbuf_clear(b);
}

static void print_targets(const struct rule *r)
{
	for (size_t i = 0; i < r->targets_n; i++) {
		struct strbuf b;

		strbuf_init(&b, 65536);
		target_add(&r->targets[i], &b);
		(void)printf("%s%s", i ? ", " : "", strbuf_cstr(&b));
		done_with(&b);
	}
}

static void print_rule(const char *what, const struct rule *r)
{
	struct strbuf at;

	strbuf_init(&at, 4096);
	rule_add_at(r, &at);
	(void)printf("%-10s ", what);
	/* The file's name is the only part of a rule that nobody has looked at. */
	cli_put_printable(stdout, strbuf_str(&at));
	(void)printf(": ");
	if (r->name)
		(void)printf("%s: ", r->name);
	(void)printf("%s ", r->effect == RULE_ALLOW ? "allow" : "deny");
	print_targets(r);
	for (size_t i = 0; i < r->methods_n; i++)
		(void)printf("%s%s", i ? ", " : " methods ", r->methods[i]);
	(void)printf("\n");
	done_with(&at);
}

static void print_placeholder(const struct config_placeholder *p)
{
	static const char *const places[] = {"a header", "Basic",    "the query",
					     "the path", "the body", "WebSocket text"};
	bool any = false;

	(void)printf("in place of");
	if (p->env)
		(void)printf(" $%s%s", p->env, p->file ? " or" : "");
	if (p->file) {
		(void)printf(" what ");
		cli_put_printable(stdout, str_from_c(p->file));
		(void)printf(" holds");
	}
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (p->places & 1u << i) {
			(void)printf("%s%s", any ? ", " : " in ", places[i]);
			any = true;
		}
	(void)printf("\n");
}

static const char *aws_kind(const struct config_credential *k)
{
	const struct config_param *id = config_param(k, PARAM_ACCESS_KEY_ID);

	if (config_param(k, PARAM_ROLE_ARN) || config_param(k, PARAM_CONTAINER_URL))
		return "the endpoint";
	return !id || id->kind == PARAM_FILE ? "the file"
	       : id->kind == PARAM_ENV	     ? "the variable"
					     : "the access key";
}

/* What `from` of the credential names. */
static const char *kind_of_source(const struct config_credential *k)
{
	switch (k->source) {
	case CREDENTIAL_FROM_FILE: return "the file";
	case CREDENTIAL_FROM_ENV: return "the variable";
	case CREDENTIAL_FROM_EXEC: return "the program";
	case CREDENTIAL_FROM_JWT: return "the key";
	case CREDENTIAL_FROM_GCP: return config_param(k, PARAM_KEY) ? "the key" : "the endpoint";
	case CREDENTIAL_FROM_AWS: return aws_kind(k);
	case CREDENTIAL_FROM_KUBERNETES:
		return config_param(k, PARAM_API) ? "the endpoint" : "the file";
	case CREDENTIAL_FROM_OAUTH2:
	case CREDENTIAL_FROM_VAULT:
	case CREDENTIAL_FROM_GITHUB_APP: return "the endpoint";
	}
	return "the endpoint";
}

static void print_credential(const struct config *c, const char *name)
{
	const struct config_credential *k = config_credential(c, name);

	if (!k)
		return;
	(void)printf("%-10s %s, from %s ", "credential", name, kind_of_source(k));
	cli_put_printable(stdout, str_from_c(k->from));
	(void)printf(", ");
	switch (k->as) {
	case CREDENTIAL_AS_BEARER: (void)printf("as Authorization: Bearer\n"); break;
	case CREDENTIAL_AS_BASIC: (void)printf("as Authorization: Basic\n"); break;
	case CREDENTIAL_AS_HEADER: (void)printf("as the field %s\n", k->as_name); break;
	case CREDENTIAL_AS_QUERY: (void)printf("as the query key %s\n", k->as_name); break;
	case CREDENTIAL_AS_COOKIE: (void)printf("as the cookie %s\n", k->as_name); break;
	case CREDENTIAL_AS_PLACEHOLDER: print_placeholder(k->placeholder); break;
	case CREDENTIAL_AS_MTLS: (void)printf("as a client certificate in TLS\n"); break;
	case CREDENTIAL_AS_SIGV4:
		(void)printf("as an AWS signature (version 4) for %s in %s%s\n", k->service,
			     k->region, k->payload_unsigned ? ", without the body" : "");
		break;
	}
}

static void print_allowed(const struct config *c, const struct rule *r)
{
	print_rule("rule", r);
	if (r->credential)
		print_credential(c, r->credential);
	if (r->client == RULE_CLIENT_DENY)
		(void)printf("%-10s refused if the request brings one of its own\n", "credential");
	else if (r->client == RULE_CLIENT_STRIP && !r->credential)
		(void)printf("%-10s of the request's own is taken out\n", "credential");
	if (r->ranges_n > 0) {
		(void)printf("%-10s", "addresses");
		for (size_t i = 0; i < r->ranges_n; i++) {
			char text[IPADDR_TEXT_MAX];

			ipaddr_format(&r->ranges[i].base, text);
			(void)printf("%s %s/%u", i ? "," : "", text, r->ranges[i].bits);
		}
		(void)printf("\n");
	}
}

/* Which way it would go; an address of no_proxy is seen only when the name is looked up. */
static void print_way(const struct config *c, const struct host *h)
{
	const struct config_parent *p = config_parent_for(c, h);

	if (p)
		(void)printf("%-10s through %s, which is told the %s%s\n", "way", p->text,
			     config_sends_name(c, h) ? "name" : "address",
			     p->direct_ranges_n > 0 && !config_sends_name(c, h)
				     ? " (unless it is in a range of no_proxy)"
				     : "");
}

static int explain_connect(const struct config *c, const struct policy *p, const char *target)
{
	char at[HOST_PORT_ROOM];
	struct host host;
	uint16_t port;
	struct policy_connect m;
	struct err e = ERR_INIT;

	if (url_parse_authority(str_from_c(target), &host, &port, &e) < 0) {
		(void)printf("deny       %s: %s\n", reason_word(e.reason), e.text);
		return 1;
	}
	policy_decide_connect(p, &host, port, &m);
	config_check_connect(c, &host, &m, &e);
	if (!m.allow) {
		(void)printf("deny       %s%s%s\n", reason_word(m.reason), e.text[0] ? ": " : "",
			     e.text);
		if (m.deny)
			print_rule("rule", m.deny);
		return 1;
	}
	(void)printf("allow      CONNECT %s\n", host_port(&host, port, at));
	print_way(c, &host);
	if (m.inspect) {
		(void)printf("%-10s intercepted; each request inside is judged by its URL\n",
			     "tls");
		print_allowed(c, m.inspect);
	}
	if (m.passthrough) {
		if (host.kind == HOST_NAME)
			(void)printf("%-10s passed through; the SNI must be %s\n", "tls",
				     host.text);
		else
			(void)printf("%-10s refused: what is passed through is known by its SNI, "
				     "and no SNI is an address\n",
				     "tls");
		print_allowed(c, m.passthrough);
	}
	if (m.http)
		print_rule("http", m.http);
	if (m.tcp)
		print_rule("tcp", m.tcp);
	return 0;
}

/* For YAML, to which ON is a boolean. */
static bool is_plain_word(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] < 'A' || s.p[i] > 'Z')
			return false;
	return s.n >= 3 && !str_eq(s, STR("OFF")) && !str_eq(s, STR("YES"));
}

/* The narrowest rule that would admit it, as it is to be written. None for a path in which a
 * character would be a wildcard, or which must be escaped. */
static void print_would_do(const struct policy_request *q)
{
	struct strbuf b;

	if (memchr(q->path.p, '*', q->path.n) || memchr(q->path.p, '"', q->path.n) ||
	    memchr(q->path.p, '\\', q->path.n))
		return;
	strbuf_init(&b, 65536);
	strbuf_addf(&b, "%s://", scheme_word(q->scheme));
	strbuf_addf(&b, q->host->kind == HOST_IPV6 ? "[%s]" : "%s", q->host->text);
	if (q->port != scheme_default_port(q->scheme))
		strbuf_addf(&b, ":%u", q->port);
	strbuf_add(&b, q->path);
	(void)printf("%-10s - {allow: \"%s\"", "would do", strbuf_cstr(&b));
	if (q->scheme != SCHEME_WS && q->scheme != SCHEME_WSS)
		(void)printf(is_plain_word(q->method) ? ", methods: [%.*s]"
						      : ", methods: [\"%.*s\"]",
			     STR_FMT(q->method));
	(void)printf("}\n");
	done_with(&b);
}

static void explain_denied(const struct policy *p, const struct policy_request *q,
			   enum reason reason)
{
	struct policy_connect m;
	struct strbuf why;
	const struct rule *near;

	if (reason == REASON_METHOD_REFUSED) {
		(void)printf("%-10s this method is never let through, whatever a rule says\n",
			     "differs");
		return;
	}
	policy_decide_connect(p, q->host, q->port, &m);
	if (q->scheme == SCHEME_HTTPS && m.passthrough) {
		(void)printf("%-10s a CONNECT to it is passed through unread (tls: passthrough)\n",
			     "note");
		print_rule("by", m.passthrough);
	}
	strbuf_init(&why, 65536);
	near = policy_nearest(p, q, &why);
	if (near) {
		print_rule("nearest", near);
		(void)printf("%-10s %s\n", "differs", strbuf_cstr(&why));
	} else {
		(void)printf("%-10s no rule speaks of %s\n", "nearest", q->host->text);
	}
	done_with(&why);
	if (reason == REASON_NO_RULE && !m.passthrough)
		print_would_do(q);
}

static void print_url(const char *method, const struct url *u)
{
	struct strbuf b, safe;

	strbuf_init(&b, 65536);
	strbuf_init(&safe, 262144);
	strbuf_add(&b, str_from_c(scheme_word(u->scheme)));
	strbuf_adds(&b, "://");
	url_add_authority(u, &b);
	strbuf_add(&b, u->path);
	if (u->has_query) {
		strbuf_addc(&b, '?');
		record_redact_query(u->query, &b);
	}
	strbuf_add_printable(&safe, str_from_c(method));
	strbuf_addc(&safe, ' ');
	strbuf_add_printable(&safe, strbuf_str(&b));
	(void)printf("%-10s %s\n", "request", strbuf_cstr(&safe));
	done_with(&b);
	done_with(&safe);
}

static int explain_request(const struct config *c, const struct policy *p, const char *method,
			   const char *text)
{
	struct url u;
	struct err e = ERR_INIT;
	struct policy_request q = {.method = str_from_c(method)};
	struct policy_decision d;
	bool reached = true;
	int code = 1;

	if (!cli_is_method(method)) {
		(void)printf("deny       malformed_request: what stands for the method is none\n");
		return 1;
	}
	if (url_parse_asked(str_from_c(text), &u, &e) < 0) {
		(void)printf("deny       %s: %s\n", reason_word(e.reason), e.text);
		url_clear(&u);
		return 1;
	}
	q = policy_request_for(&u, q.method);
	policy_decide(p, &q, &d);
	if (d.allow)
		reached = config_check_known(c, d.rule, &u.host, &e) == 0;
	if (d.allow && reached)
		(void)printf("allow\n");
	else
		(void)printf("%-10s %s\n", "deny", reason_word(d.allow ? e.reason : d.reason));
	print_url(method, &u);
	if (!reached) {
		print_rule("rule", d.rule);
		(void)printf("%-10s %s\n", "differs", e.text);
	} else if (d.allow) {
		print_allowed(c, d.rule);
		print_way(c, &u.host);
		code = 0;
	} else if (d.rule) {
		print_rule("rule", d.rule);
		if (d.reason == REASON_METHOD_REFUSED)
			(void)printf("%-10s this method never goes with a credential: its answer "
				     "could hand it back\n",
				     "differs");
	} else {
		explain_denied(p, &q, d.reason);
	}
	url_clear(&u);
	return code;
}

static struct policy *pick_policy(const struct config *c, const char *name)
{
	struct policy *p = name			? config_policy(c, name)
			   : c->policies_n == 1 ? c->policies[0]
						: NULL;

	if (!p && !name)
		p = config_policy(c, "default");
	return p;
}

static int refuse_policy(const struct config *c, const char *name)
{
	struct strbuf names;
	int code;

	strbuf_init(&names, 65536);
	cli_add_policies(c, &names);
	if (name)
		code = cli_usage("explain", "--policy: there is no policy `%s` (there is: %s)",
				 name, strbuf_cstr(&names));
	else
		code = cli_usage("explain",
				 "there are several policies; name one with --policy (%s)",
				 strbuf_cstr(&names));
	strbuf_clear(&names);
	return code;
}

/* What could not be a request of anybody's: a slip of the hand. 0: it could. */
static int check_words(const char *method, const char *target)
{
	bool connect = strcmp(method, "CONNECT") == 0;

	if (!cli_is_method(method) && cli_is_method(target))
		return cli_usage("explain", "the METHOD comes first, then the URL");
	if (!connect && !strstr(target, "://"))
		return cli_usage("explain", "the URL has no scheme: write https:// in front of it");
	return 0;
}

int cmd_explain(int argc, char **argv)
{
	enum { OPT_POLICY = 256 };
	static const struct option longs[] = {{"policy", required_argument, NULL, OPT_POLICY}, {0}};
	const char *file = NULL, *name = NULL;
	struct config *c;
	struct policy *p;
	int opt, code;

	while ((opt = cli_getopt(argc, argv, "+:c:", longs, NULL)) != -1) {
		switch (opt) {
		case 'c': file = optarg; break;
		case OPT_POLICY: name = optarg; break;
		default: return cli_bad_flag("explain", opt, argv);
		}
	}
	if (argc - optind != 2)
		return cli_usage("explain", "a METHOD and a URL are needed, such as GET "
					    "https://docs.example.com/");
	code = check_words(argv[optind], argv[optind + 1]);
	if (code != 0)
		return code;
	c = cli_load_config(file);
	if (!c)
		return EXIT_USAGE;
	p = pick_policy(c, name);
	if (!p)
		code = refuse_policy(c, name);
	else if (strcmp(argv[optind], "CONNECT") == 0)
		code = explain_connect(c, p, argv[optind + 1]);
	else
		code = explain_request(c, p, argv[optind], argv[optind + 1]);
	config_unref(c);
	if (cut_short) {
		log_error("out of memory: what was printed is not whole");
		return 1;
	}
	return code;
}

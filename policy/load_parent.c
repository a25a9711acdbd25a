/*
 * Reads `upstream.proxy`: where the proxy is through which origins are reached, what it is told,
 * and what is dialled without it. Called by load_sections.c. No message repeats a URL that might
 * hold a password.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/load.h"

static int read_scheme(struct loader *l, const struct yaml_node *node, struct str *s,
		       struct config_parent *p)
{
	ptrdiff_t at = str_find(*s, ':');
	struct str word = at < 0 ? *s : str_head(*s, (size_t)at);

	if (at < 0 || !str_starts(str_skip(*s, (size_t)at), STR("://"))) {
		fault_add(l->f, node->line, node->col,
			  "the proxy needs a scheme (write http://HOST:PORT)");
		return -1;
	}
	p->tls = str_eq_nocase(word, STR("https"));
	if (!p->tls && !str_eq_nocase(word, STR("http"))) {
		fault_add(l->f, node->line, node->col,
			  "`%.*s` is no scheme of a proxy that stile speaks to (http, https)",
			  SHOW(word));
		return -1;
	}
	*s = str_skip(*s, (size_t)at + 3);
	return 0;
}

static void read_url(struct loader *l, const struct yaml_node *node, struct config_parent *p)
{
	struct err e = ERR_INIT;
	struct strbuf b;
	struct str s;

	if (load_text(l, node, "`proxy`", &s) < 0)
		return;
	/* A file with a password in it would be one more place where it lies, and the command of
	 * `stile run` can read this file. */
	if (str_find(s, '@') >= 0) {
		fault_add(
			l->f, node->line, node->col,
			"a user name or password in the proxy's URL (move USER:PASSWORD to a file "
			"or a variable, name that under `credentials:` with `as: basic`, and say "
			"`proxy: {url: ..., credential: NAME}`)");
		return;
	}
	if (read_scheme(l, node, &s, p) < 0)
		return;
	if (s.n > 0 && s.p[s.n - 1] == '/')
		s = str_head(s, s.n - 1);
	if (url_parse_authority(s, &p->host, &p->port, &e) < 0) {
		fault_add(l->f, node->line, node->col, "`%.*s` is not the HOST:PORT of a proxy: %s",
			  SHOW(s), e.text);
		return;
	}
	strbuf_init(&b, LIMIT_HOST_BYTES + 16);
	host_add_url(&p->host, &b);
	strbuf_addf(&b, ":%u", p->port);
	p->text = strbuf_take(&b);
	strbuf_clear(&b);
	if (!p->text)
		fault_add(l->f, 0, 0, "out of memory");
}

static void read_credential(struct loader *l, const struct yaml_node *node, struct config_parent *p)
{
	const struct config_credential *c = load_credential_name(l, node, &p->credential);

	if (c && c->as != CREDENTIAL_AS_BASIC && c->as != CREDENTIAL_AS_BEARER)
		fault_add(l->f, node->line, node->col,
			  "a proxy takes a credential `as: basic` or `as: bearer`, and `%s` goes "
			  "into a %s",
			  c->name,
			  c->as == CREDENTIAL_AS_HEADER	  ? "header"
			  : c->as == CREDENTIAL_AS_QUERY  ? "query"
			  : c->as == CREDENTIAL_AS_COOKIE ? "cookie"
			  : c->as == CREDENTIAL_AS_MTLS	  ? "TLS handshake"
			  : c->as == CREDENTIAL_AS_SIGV4  ? "signature"
							  : "placeholder's place");
	/* A connection to the proxy is none of one sandbox. */
	if (c && config_credential_is_per_sandbox(c))
		fault_add(l->f, node->line, node->col,
			  "a proxy takes one credential for all, and `%s` has %s in its claims",
			  c->name, CONFIG_SANDBOX);
}

static void read_send(struct loader *l, const struct yaml_node *node, struct config_parent *p)
{
	static const char *const words[] = {"address", "name"};
	size_t which = 0;

	if (load_word(l, node, "`send`", words, ARRAY_LEN(words), &which) < 0)
		return;
	p->by_name = which == 1;
	if (p->by_name)
		fault_warn(l->f, node->line, node->col,
			   "with `send: name` the proxy looks names up, and no address is checked");
}

static int refuse_direct(struct loader *l, const struct yaml_node *node, const char *what)
{
	fault_add(l->f, node->line, node->col, "`%.*s` in `no_proxy`: %s", SHOW(node->text), what);
	return -1;
}

static int read_name(struct loader *l, const struct yaml_node *node, struct str s,
		     struct config_direct *to)
{
	struct err e = ERR_INIT;

	if (str_eq(s, STR("*")))
		return refuse_direct(l, node,
				     "then nothing would go through it (leave `proxy` out)");
	if (s.p[0] == '.')
		return refuse_direct(l, node,
				     "it begins with a dot (write *.HOST for the names below it)");
	to->below = str_starts(s, STR("*."));
	if (to->below)
		s = str_skip(s, 2);
	if (host_parse(s, &to->host, &e) < 0)
		return refuse_direct(l, node, e.text);
	if (to->host.kind != HOST_NAME)
		return refuse_direct(l, node, "nothing is below an address (write a range)");
	return 0;
}

/* A range or an address, or a host. */
static void read_direct(struct loader *l, const struct yaml_node *node, struct config_parent *p)
{
	struct err e = ERR_INIT;
	struct ipaddr a;
	struct str s;

	if (load_text(l, node, "an entry of `no_proxy`", &s) < 0)
		return;
	if (str_find(s, '/') >= 0 || ipaddr_parse(s, &a) == 0) {
		if (iprange_parse(s, &p->direct_ranges[p->direct_ranges_n], &e) < 0)
			(void)refuse_direct(l, node, e.text);
		else
			p->direct_ranges_n++;
	} else if (read_name(l, node, s, &p->direct[p->direct_n]) == 0) {
		p->direct_n++;
	}
}

static void read_no_proxy(struct loader *l, const struct yaml_node *node, struct config_parent *p)
{
	if (!load_list(l, node, "`no_proxy`"))
		return;
	if (node->n > LIMIT_NO_PROXY_ENTRIES) {
		fault_add(l->f, node->line, node->col, "`no_proxy` has more than %d entries",
			  LIMIT_NO_PROXY_ENTRIES);
		return;
	}
	p->direct = load_array(l, node->n, sizeof(*p->direct));
	p->direct_ranges = load_array(l, node->n, sizeof(*p->direct_ranges));
	for (size_t i = 0; p->direct && p->direct_ranges && i < node->n; i++)
		read_direct(l, node->v[i], p);
}

void load_parent(struct loader *l, const struct yaml_node *node)
{
	struct config_parent *p = load_array(l, 1, sizeof(*p));
	struct section_values v;

	if (!p)
		return;
	l->c->parent = p;
	if (node->kind == YAML_SCALAR) {
		read_url(l, node, p);
		return;
	}
	if (load_section(l, node, "`proxy`", SECTION_PARENT, &v) < 0)
		return;
	if (section_value(&v, KEY_PARENT_URL))
		read_url(l, section_value(&v, KEY_PARENT_URL), p);
	else if (!v.has_unknown && !l->partial)
		fault_add(l->f, node->line, node->col,
			  "`proxy` needs its `url` (such as http://proxy.example.com:3128)");
	if (section_value(&v, KEY_PARENT_CREDENTIAL))
		read_credential(l, section_value(&v, KEY_PARENT_CREDENTIAL), p);
	if (section_value(&v, KEY_PARENT_SEND))
		read_send(l, section_value(&v, KEY_PARENT_SEND), p);
	if (section_value(&v, KEY_PARENT_NO_PROXY))
		read_no_proxy(l, section_value(&v, KEY_PARENT_NO_PROXY), p);
}

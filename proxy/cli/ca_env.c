/*
 * `stile ca env`: the variables that lead clients to the proxy and to what they must trust, for a
 * container's environment or a shell. It sets none.
 */
#include <stdio.h>
#include <string.h>

#include "policy/url.h"
#include "proxy/cli/ca.h"
#include "proxy/cli/cli.h"
#include "proxy/sandbox/client_env.h"

/* A value goes on a line of its own, into a shell's quotes and into Java's options. */
static bool is_plain(const char *value, const char *refused)
{
	for (const char *s = value; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f || strchr(refused, *s))
			return false;
	return true;
}

/* http://[user:password@]host:port, no path. */
static int read_proxy(const char *text, struct host *h, struct client_env *ret)
{
	struct str s = str_from_c(text);
	ptrdiff_t at;

	if (!str_starts(s, STR("http://")) || !is_plain(text, " \"'\\"))
		return -1;
	s = str_skip(s, sizeof("http://") - 1);
	at = str_find(s, '@');
	if (at >= 0)
		s = str_skip(s, (size_t)at + 1);
	if (s.n > 0 && s.p[s.n - 1] == '/')
		s = str_head(s, s.n - 1);
	if (url_parse_authority(s, h, &ret->proxy_port, NULL) != 0)
		return -1;
	ret->proxy_host = host_str(h);
	ret->proxy_url = text;
	return 0;
}

/* An address that stands for all of a machine's own is none to dial. */
static bool is_dialable(const struct config_listener *l)
{
	struct ipaddr every = {.family = l->addr.family};

	return l->kind == CONFIG_LISTEN_PROXY && !l->unix_path && l->port != 0 &&
	       !ipaddr_eq(&l->addr, &every);
}

/* The first listener that a client can be sent to. */
static int own_proxy(const struct config *c, struct strbuf *url)
{
	for (size_t i = 0; i < c->listeners_n; i++) {
		const struct config_listener *l = &c->listeners[i];
		struct host h;

		if (!is_dialable(l))
			continue;
		host_from_ipaddr(&l->addr, &h);
		strbuf_adds(url, "http://");
		host_add_url(&h, url);
		strbuf_addf(url, ":%u", l->port);
		return 0;
	}
	return -1;
}

static int print_export(void *arg, const char *name, const char *value)
{
	(void)arg;
	return printf("export %s='%s'\n", name, value) < 0 ? -1 : 0;
}

static int print_plain(void *arg, const char *name, const char *value)
{
	(void)arg;
	return printf("%s=%s\n", name, value) < 0 ? -1 : 0;
}

int ca_env(const struct config *c, const struct ca_flags *f)
{
	struct client_env env = {.dir = f->dir};
	char own[128];
	struct strbuf b;
	struct host host;

	strbuf_init_fixed(&b, own, sizeof(own));
	if (!is_plain(f->dir, "\"'\\"))
		return cli_usage("ca", "--dir: no quotes and no control characters");
	if (!f->proxy && own_proxy(c, &b) != 0)
		return cli_usage("ca", "no listener has an address that a client could dial: say "
				       "--proxy http://HOST:PORT");
	if (read_proxy(f->proxy ? f->proxy : own, &host, &env) != 0)
		return cli_usage("ca", "--proxy: say http://HOST:PORT");
	return client_env_each(&env, f->export ? print_export : print_plain, NULL) == 0 ? 0 : 1;
}

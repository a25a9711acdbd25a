/*
 * Reads the small parts of the file: `ca`, `upstream`, `log`, `user`. Called by load.c.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/load.h"

void load_ca(struct loader *l, const struct yaml_node *node)
{
	const struct yaml_node *dir;
	struct section_values v;
	struct str s;

	if (load_section(l, node, "`ca`", SECTION_CA, &v) < 0)
		return;
	dir = section_value(&v, KEY_CA_DIR);
	if (dir && load_text(l, dir, "`dir`", &s) == 0)
		l->c->ca_dir = load_path(l, dir, s);
}

/* ---- upstream ---- */

static void read_trust(struct loader *l, const struct yaml_node *node)
{
	static const char *const system = "system";

	if (!load_list(l, node, "`trust`"))
		return;
	l->c->trust = load_array(l, node->n, sizeof(*l->c->trust));
	l->c->trust_places = load_array(l, node->n, sizeof(*l->c->trust_places));
	for (size_t i = 0; l->c->trust && l->c->trust_places && i < node->n; i++) {
		struct str s;
		char *path;

		if (load_text(l, node->v[i], "an entry of `trust`", &s) < 0)
			continue;
		if (nearest_word(s, &system, 1) && !str_eq(s, STR("system"))) {
			fault_add(l->f, node->v[i]->line, node->v[i]->col,
				  "`%.*s`: did you mean `system`? (a file of that name: ./%.*s)",
				  SHOW(s), SHOW(s));
			continue;
		}
		path = str_eq(s, STR("system")) ? load_keep(l, s) : load_path(l, node->v[i], s);
		if (!path)
			continue;
		l->c->trust_places[l->c->trust_n] =
			(struct config_place){node->v[i]->line, node->v[i]->col};
		l->c->trust[l->c->trust_n++] = path;
	}
}

static void read_host_addr(struct loader *l, const struct yaml_node *node, struct config_host *to)
{
	struct str s;

	if (load_text(l, node, "an address of `hosts`", &s) < 0)
		return;
	if (ipaddr_parse(s, &to->addrs[to->addrs_n]) < 0)
		fault_add(l->f, node->line, node->col,
			  "`%.*s` is not an address (write 192.0.2.1 or \"2001:db8::1\")", SHOW(s));
	else
		to->addrs_n++;
}

static void read_host(struct loader *l, const struct yaml_node *key, const struct yaml_node *node)
{
	struct config_host *to = &l->c->hosts[l->c->hosts_n];
	const struct yaml_node *list = NULL;
	struct err e = ERR_INIT;

	if (host_parse(key->text, &to->name, &e) < 0 || to->name.kind != HOST_NAME) {
		fault_add(l->f, key->line, key->col, "`%.*s` in `hosts`: %s", SHOW(key->text),
			  e.text[0] ? e.text : "an address needs no entry (a name is expected)");
		return;
	}
	if (node->kind != YAML_SCALAR) {
		list = load_list(l, node, "an entry of `hosts`");
		if (!list)
			return;
	}
	if (list && list->n > LIMIT_DNS_ADDRESSES) {
		fault_add(l->f, node->line, node->col, "more than %d addresses for one name",
			  LIMIT_DNS_ADDRESSES);
		return;
	}
	to->addrs = load_array(l, list ? list->n : 1, sizeof(*to->addrs));
	if (!to->addrs)
		return;
	l->c->hosts_n++;
	if (!list)
		read_host_addr(l, node, to);
	for (size_t i = 0; list && i < list->n; i++)
		read_host_addr(l, list->v[i], to);
}

/* A key of `hosts` and the name that it stands for. */
struct named {
	/* borrowed */
	const struct host *name;
	const struct yaml_node *key;
};

static int by_name(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int order = strcmp(x->name->text, y->name->text);

	if (order == 0 && x->key->line != y->key->line)
		order = x->key->line < y->key->line ? -1 : 1;
	return order != 0 ? order : (x->key->col > y->key->col) - (x->key->col < y->key->col);
}

/* Keys that differ may be one name (`a.test`, `A.test.`): which of them held would be an accident.
 */
static void check_hosts(struct loader *l, struct named *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_name);
	for (size_t i = 1; i < n; i++)
		if (host_eq(v[i - 1].name, v[i].name))
			fault_add(l->f, v[i].key->line, v[i].key->col,
				  "`%.*s` in `hosts` is the name of line %u again (give one entry "
				  "all its addresses)",
				  SHOW(v[i].key->text), v[i - 1].key->line);
}

static void read_hosts(struct loader *l, const struct yaml_node *node)
{
	struct named *named;
	size_t n = 0;

	if (node->kind != YAML_MAP || node->n == 0) {
		if (!l->partial)
			fault_add(l->f, node->line, node->col,
				  "`hosts` must be a map of names and addresses (or remove the "
				  "key)");
		return;
	}
	l->c->hosts = load_array(l, node->n, sizeof(*l->c->hosts));
	named = load_array(l, node->n, sizeof(*named));
	for (size_t i = 0; l->c->hosts && named && i < node->n; i++) {
		size_t before = l->c->hosts_n;

		read_host(l, node->v[2 * i], node->v[2 * i + 1]);
		if (l->c->hosts_n > before)
			named[n++] = (struct named){&l->c->hosts[before].name, node->v[2 * i]};
	}
	if (l->c->hosts && n > 0) {
		check_hosts(l, named, n);
		qsort(l->c->hosts, n, sizeof(*l->c->hosts), config_cmp_hosts);
	}
	free(named);
}

/* ADDR, ADDR:PORT or [ADDR]:PORT. */
static bool is_dns_server(struct str s)
{
	struct str addr = s, port = STR_NONE;
	ptrdiff_t end = str_find(s, ']'), colon = str_find(s, ':');
	struct ipaddr a;
	uint64_t n;

	if (s.p[0] == '[') {
		if (end < 0)
			return false;
		addr = str_head(str_skip(s, 1), (size_t)end - 1);
		port = str_skip(s, (size_t)end + 1);
	} else if (colon >= 0 && str_find(str_skip(s, (size_t)colon + 1), ':') < 0) {
		addr = str_head(s, (size_t)colon);
		port = str_skip(s, (size_t)colon);
	}
	if (ipaddr_parse(addr, &a) < 0 || (s.p[0] == '[') > (a.family == 6))
		return false;
	return port.n == 0 || (port.p[0] == ':' && port.n <= 6 &&
			       str_to_u64(str_skip(port, 1), &n) == 0 && n > 0 && n < 65536);
}

static void read_dns(struct loader *l, const struct yaml_node *node)
{
	if (!load_list(l, node, "`dns`"))
		return;
	l->c->dns_servers = load_array(l, node->n, sizeof(*l->c->dns_servers));
	for (size_t i = 0; l->c->dns_servers && i < node->n; i++) {
		const struct yaml_node *item = node->v[i];
		struct str s;
		char *copy;

		if (load_text(l, item, "a server of `dns`", &s) < 0)
			continue;
		if (!is_dns_server(s)) {
			fault_add(
				l->f, item->line, item->col,
				"`%.*s` is not a DNS server (write 192.0.2.53 or 192.0.2.53:5353)",
				SHOW(s));
			continue;
		}
		copy = load_keep(l, s);
		if (copy)
			l->c->dns_servers[l->c->dns_servers_n++] = copy;
	}
}

void load_upstream(struct loader *l, const struct yaml_node *node)
{
	struct section_values v;

	if (load_section(l, node, "`upstream`", SECTION_UPSTREAM, &v) < 0)
		return;
	if (section_value(&v, KEY_UPSTREAM_TRUST))
		read_trust(l, section_value(&v, KEY_UPSTREAM_TRUST));
	if (section_value(&v, KEY_UPSTREAM_HOSTS))
		read_hosts(l, section_value(&v, KEY_UPSTREAM_HOSTS));
	if (section_value(&v, KEY_UPSTREAM_DNS))
		read_dns(l, section_value(&v, KEY_UPSTREAM_DNS));
	if (section_value(&v, KEY_UPSTREAM_PROXY))
		load_parent(l, section_value(&v, KEY_UPSTREAM_PROXY));
}

/* ---- log ---- */

static void read_to(struct loader *l, const struct yaml_node *node)
{
	static const char *const facilities[] = {"",	   "auth",   "authpriv", "daemon", "user",
						 "local0", "local1", "local2",	 "local3", "local4",
						 "local5", "local6", "local7"};
	struct str prefix = STR("syslog:"), s;

	if (load_text(l, node, "`to`", &s) < 0)
		return;
	if (str_eq(s, STR("stderr")) || str_eq(s, STR("syslog"))) {
		fault_add(l->f, node->line, node->col,
			  "`to: %.*s` (write stdout, a file or syslog:)", SHOW(s));
		return;
	}
	if (str_eq(s, STR("stdout"))) {
		l->c->log_to = load_keep(l, s);
		return;
	}
	if (!str_starts(s, prefix)) {
		l->c->log_to = load_path(l, node, s);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(facilities); i++)
		if (str_eq(str_skip(s, prefix.n), str_from_c(facilities[i]))) {
			l->c->log_to = load_keep(l, s);
			return;
		}
	fault_add(l->f, node->line, node->col,
		  "`%.*s`: unknown facility (auth, authpriv, daemon, user, local0 to local7)",
		  SHOW(s));
}

void load_log(struct loader *l, const struct yaml_node *node)
{
	static const char *const words[] = {"written", "synced", "none"};
	const struct yaml_node *to, *wait;
	struct section_values v;
	size_t which = 0;

	if (load_section(l, node, "`log`", SECTION_LOG, &v) < 0)
		return;
	to = section_value(&v, KEY_LOG_TO);
	wait = section_value(&v, KEY_LOG_WAIT);
	if (to)
		read_to(l, to);
	if (!wait || load_word(l, wait, "`wait`", words, ARRAY_LEN(words), &which) < 0)
		return;
	l->c->log_wait = (enum config_log_wait)which;
	if (l->c->log_wait == CONFIG_WAIT_NONE)
		fault_warn(l->f, wait->line, wait->col,
			   "with `wait: none` a request may leave before its record is written");
}

void load_user(struct loader *l, const struct yaml_node *node)
{
	struct str s;

	if (load_text(l, node, "`user`", &s) == 0 && load_name(l, node, "the user", s) == 0)
		l->c->user = load_keep(l, s);
}

void load_deny(struct loader *l, const struct yaml_node *node)
{
	static const char *const words[] = {"explain", "refuse"};
	size_t which = 0;

	if (node->kind != YAML_SCALAR)
		fault_add(l->f, node->line, node->col,
			  "`deny` here is explain or refuse (rules stand under `policies:`)");
	else if (load_word(l, node, "`deny`", words, ARRAY_LEN(words), &which) == 0)
		l->c->deny = which == 0 ? CONFIG_DENY_EXPLAIN : CONFIG_DENY_REFUSE;
}

void load_reload(struct loader *l, const struct yaml_node *node)
{
	static const char *const words[] = {"signal", "watch"};
	size_t which = 0;

	if (load_word(l, node, "`reload`", words, ARRAY_LEN(words), &which) == 0)
		l->c->reload = which == 0 ? CONFIG_RELOAD_SIGNAL : CONFIG_RELOAD_WATCH;
}

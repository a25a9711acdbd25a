/*
 * Reads `listen:`, `admin:` and `metrics:`. An address is spelt out: nothing is looked up and
 * nothing is opened here. Called by load.c, behind the policies.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "policy/load.h"

#define UNIX_PREFIX  STR("unix:")
#define MODE_DEFAULT 0660
#define MODE_DIGITS  4

static const struct {
	enum config_key key;
	enum config_listener_kind kind;
} kinds[] = {
	{KEY_LISTEN_PROXY, CONFIG_LISTEN_PROXY},
	{KEY_LISTEN_TRANSPARENT, CONFIG_LISTEN_TRANSPARENT},
	{KEY_LISTEN_DNS, CONFIG_LISTEN_DNS},
};

const char *config_kind_word(enum config_listener_kind kind)
{
	switch (kind) {
	case CONFIG_LISTEN_PROXY: return "proxy";
	case CONFIG_LISTEN_TRANSPARENT: return "transparent";
	case CONFIG_LISTEN_DNS: return "dns";
	}
	return "";
}

static void refuse_address(struct loader *l, const struct yaml_node *node, struct str s)
{
	fault_add(l->f, node->line, node->col,
		  "`%.*s` is not an address to listen on (write 127.0.0.1:3128, \"[::1]:3128\" or "
		  "unix:/path)",
		  SHOW(s));
}

static bool is_loopback(const struct ipaddr *a)
{
	static const struct ipaddr one = {6, {[15] = 1}};

	return a->family == 4 ? a->b[0] == 127 : ipaddr_eq(a, &one);
}

static int read_port(struct str s, uint16_t *ret)
{
	uint64_t n;

	if (s.n == 0 || s.n > 5 || str_to_u64(s, &n) < 0 || n > 65535)
		return -1;
	*ret = (uint16_t)n;
	return 0;
}

/* ADDR:PORT; `localhost` stands for 127.0.0.1, as it should and does not everywhere. */
static int read_tcp(struct loader *l, const struct yaml_node *node, struct str s,
		    struct config_listener *to)
{
	struct str host, port;
	size_t colon = s.n;
	bool bracketed;

	while (colon > 0 && s.p[colon - 1] != ':')
		colon--;
	if (colon == 0) {
		refuse_address(l, node, s);
		return -1;
	}
	host = str_head(s, colon - 1);
	port = str_skip(s, colon);
	bracketed = host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']';
	if (bracketed)
		host = str_head(str_skip(host, 1), host.n - 2);
	if (str_eq_nocase(host, STR("localhost")))
		host = STR("127.0.0.1");
	if (ipaddr_parse(host, &to->addr) < 0 || bracketed != (to->addr.family == 6) ||
	    read_port(port, &to->port) < 0) {
		refuse_address(l, node, s);
		return -1;
	}
	/* Who can reach another namespace is that namespace's business. */
	if (!is_loopback(&to->addr) && !to->netns)
		fault_warn(l->f, node->line, node->col,
			   "`%.*s` may be reachable from other machines", SHOW(s));
	return 0;
}

/* What stands behind `unix:`. NULL after a fault. */
static char *read_socket(struct loader *l, const struct yaml_node *node, struct str s)
{
	char *path = load_path(l, node, s);

	if (path && strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		fault_add(l->f, node->line, node->col, "the path of a socket has at most %zu bytes",
			  sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
	return path;
}

static int read_address(struct loader *l, const struct yaml_node *node, const char *what,
			struct config_listener *to)
{
	struct str s;

	if (load_plain(l, node, what, &s) < 0)
		return -1;
	if (!to->netns)
		to->at = (struct config_place){node->line, node->col};
	if (!str_starts(s, UNIX_PREFIX))
		return read_tcp(l, node, s, to);
	s = str_skip(s, UNIX_PREFIX.n);
	if (to->kind != CONFIG_LISTEN_PROXY || to->netns) {
		fault_add(l->f, node->line, node->col,
			  to->netns ? "a unix: socket is in no network namespace (write ADDR:PORT)"
				    : "only a `proxy` may be a unix: socket (write ADDR:PORT)");
		return -1;
	}
	if (s.n == 0) {
		refuse_address(l, node, node->text);
		return -1;
	}
	to->unix_path = read_socket(l, node, s);
	return to->unix_path ? 0 : -1;
}

/* ADDR:PORT, or {netns: FILE, address: ADDR:PORT}. */
static int read_place(struct loader *l, const struct yaml_node *node, const char *what,
		      struct config_listener *to)
{
	const struct yaml_node *netns, *address;
	struct section_values v;
	struct str s;

	if (node->kind != YAML_MAP)
		return read_address(l, node, what, to);
	if (load_section(l, node, what, SECTION_PLACE, &v) < 0)
		return -1;
	netns = section_value(&v, KEY_PLACE_NETNS);
	address = section_value(&v, KEY_PLACE_ADDRESS);
	if (!netns || !address) {
		if (!v.has_unknown)
			fault_add(l->f, node->line, node->col,
				  "%s needs `netns` and `address` (such as {netns: "
				  "/run/netns/agent1, address: 127.0.0.1:3128})",
				  what);
		return -1;
	}
	if (load_text(l, netns, "`netns`", &s) < 0)
		return -1;
	to->netns = load_path(l, netns, s);
	to->at = (struct config_place){netns->line, netns->col};
	return to->netns ? read_address(l, address, "`address`", to) : -1;
}

/* A socket in the file system alone: whoever may open it is asked for, and a sandbox with a network
 * cannot reach it. */
void load_admin(struct loader *l, const struct yaml_node *node)
{
	struct str s;

	if (load_text(l, node, "`admin`", &s) < 0)
		return;
	if (!str_starts(s, UNIX_PREFIX) || s.n == UNIX_PREFIX.n)
		fault_add(l->f, node->line, node->col,
			  "`admin` `%.*s` (write unix:/path, such as unix:/run/stile/admin.sock)",
			  SHOW(s));
	else
		l->c->admin_path = read_socket(l, node, str_skip(s, UNIX_PREFIX.n));
}

/* A number for everybody who can connect, so it says which address: a scraper is rarely of our
 * user. */
void load_metrics(struct loader *l, const struct yaml_node *node)
{
	struct config_listener *to = calloc(1, sizeof(*to));
	struct str s;

	if (!to)
		fault_add(l->f, node->line, node->col, "out of memory");
	else if (load_plain(l, node, "`metrics`", &s) < 0 || read_tcp(l, node, s, to) < 0)
		free(to);
	else {
		to->at = (struct config_place){node->line, node->col};
		l->c->metrics = to;
	}
}

/* Octal, as it is written everywhere: 660, 0660. */
static void read_mode(struct loader *l, const struct yaml_node *node, const struct yaml_node *key,
		      struct config_listener *to)
{
	unsigned mode = 0;
	struct str s;

	if (!to->unix_path) {
		fault_add(l->f, key->line, key->col, "`mode` is for unix: sockets (remove it)");
		return;
	}
	if (load_plain(l, node, "`mode`", &s) < 0)
		return;
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '7' || s.n > MODE_DIGITS) {
			mode = 01000;
			break;
		}
		mode = mode * 8 + (unsigned)(s.p[i] - '0');
	}
	if (mode > 0777) {
		fault_add(l->f, node->line, node->col, "`mode` `%.*s` (write 0600, 0660 or 0666)",
			  SHOW(s));
		return;
	}
	to->unix_mode = mode;
	if (mode & 02)
		fault_warn(l->f, node->line, node->col,
			   "every user of this machine may connect to a socket of mode %04o", mode);
}

/* ---- which policy ---- */

static bool has_policy(const struct loader *l, struct str name)
{
	return l->policies_node && l->policies_node->kind == YAML_MAP &&
	       yaml_get(l->policies_node, name.p);
}

static void read_policy(struct loader *l, const struct yaml_node *at, const struct yaml_node *node,
			struct config_listener *to)
{
	const struct yaml_node *all = l->policies_node;
	bool has_map = all && all->kind == YAML_MAP && all->n > 0;
	struct str s;

	if (to->tokens == CONFIG_TOKENS_REQUIRED) {
		if (node)
			fault_add(l->f, node->line, node->col,
				  "with `tokens: required` the token decides the policy (remove "
				  "`policy`, or write `tokens: optional`)");
		return;
	}
	if (!node) {
		if (has_map && all->n == 1)
			to->policy_name = load_keep(l, all->v[0]->text);
		else if (has_map && !l->partial)
			fault_add(l->f, at->line, at->col,
				  "a listener needs `policy`, since there are %zu policies",
				  all->n);
		return;
	}
	if (load_text(l, node, "`policy`", &s) < 0)
		return;
	to->policy_name = load_keep(l, s);
	if (has_policy(l, s) || l->partial)
		return;
	for (size_t i = 0; has_map && i < all->n; i++) {
		const char *name = all->v[2 * i]->text.p;

		if (nearest_word(s, &name, 1)) {
			fault_add(l->f, node->line, node->col,
				  "no policy is called `%.*s` (did you mean `%s`?)", SHOW(s), name);
			return;
		}
	}
	fault_add(l->f, node->line, node->col,
		  "no policy is called `%.*s` (add it under `policies:`)", SHOW(s));
}

/* ---- who is served ---- */

static void read_tokens(struct loader *l, const struct yaml_node *node, const struct yaml_node *key,
			struct config_listener *to)
{
	static const char *const words[] = {"optional", "required"};
	size_t which = 0;

	if (!node)
		return;
	if (to->kind != CONFIG_LISTEN_PROXY) {
		fault_add(l->f, key->line, key->col,
			  "`tokens` is for `proxy`: who knows of no proxy shows it no token (give "
			  "each sandbox listeners of its own)");
		return;
	}
	/* What cannot be read must not end up as a listener that serves everybody. */
	to->tokens = CONFIG_TOKENS_REQUIRED;
	if (load_word(l, node, "`tokens`", words, ARRAY_LEN(words), &which) < 0)
		return;
	if (which == 0)
		to->tokens = CONFIG_TOKENS_OPTIONAL;
	/* With `state` another stile may make them. */
	if (!l->c->admin_path && !l->c->state && !l->partial)
		fault_warn(l->f, node->line, node->col,
			   "no token can be made without `admin` (add `admin: "
			   "unix:/run/stile/admin.sock`)");
}

/* ---- the whole ---- */

static void read_name(struct loader *l, const struct yaml_node *node, struct config_listener *to)
{
	char name[32];
	struct str s;

	if (!node) {
		snprintf(name, sizeof(name), "%s-%zu", config_kind_word(to->kind),
			 l->c->listeners_n);
		to->name = load_keep(l, str_from_c(name));
	} else if (load_text(l, node, "`name`", &s) == 0 &&
		   load_name(l, node, "the listener", s) == 0) {
		to->name = load_keep(l, s);
	}
}

static bool same_place(const struct config_listener *a, const struct config_listener *b)
{
	if (a->unix_path || b->unix_path)
		return a->unix_path && b->unix_path && strcmp(a->unix_path, b->unix_path) == 0;
	if (!a->netns != !b->netns || (a->netns && strcmp(a->netns, b->netns) != 0))
		return false;
	return a->port != 0 && a->port == b->port && ipaddr_eq(&a->addr, &b->addr);
}

static void check_others(struct loader *l, const struct yaml_node *node,
			 const struct config_listener *to)
{
	for (const struct config_listener *o = l->c->listeners; o < to; o++) {
		if (same_place(o, to))
			fault_add(l->f, node->line, node->col,
				  "an earlier listener has the same address");
		if (o->name && to->name && strcmp(o->name, to->name) == 0)
			fault_add(l->f, node->line, node->col,
				  "an earlier listener has the name `%s`", to->name);
	}
}

/* What is spoken there, and where that is. True: it is said, and can be read. */
static bool read_kind(struct loader *l, const struct yaml_node *node,
		      const struct section_values *v, struct config_listener *to)
{
	const struct yaml_node *key = NULL, *place = NULL;
	char what[32];

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		const struct yaml_node *value = section_value(v, kinds[i].key);

		if (value && place) {
			fault_add(l->f, section_key(v, kinds[i].key)->line,
				  section_key(v, kinds[i].key)->col,
				  "a listener is one of `proxy`, `transparent` and `dns` (write "
				  "another one for the other)");
			return false;
		}
		if (!value)
			continue;
		place = value;
		key = section_key(v, kinds[i].key);
		to->kind = kinds[i].kind;
	}
	if (!place) {
		if (!v->has_unknown && !l->partial)
			fault_add(l->f, node->line, node->col,
				  "a listener needs `proxy` (an address, such as 127.0.0.1:3128) "
				  "or `transparent` or `dns`");
		return false;
	}
	snprintf(what, sizeof(what), "`%.*s`", SHOW(key->text));
	return read_place(l, place, what, to) == 0;
}

static void read_listener(struct loader *l, const struct yaml_node *node)
{
	struct config_listener *to = &l->c->listeners[l->c->listeners_n];
	const struct yaml_node *mode, *tokens;
	struct section_values v;
	bool placed;

	if (load_section(l, node, "a listener", SECTION_LISTEN, &v) < 0)
		return;
	to->unix_mode = MODE_DEFAULT;
	mode = section_value(&v, KEY_LISTEN_MODE);
	tokens = section_value(&v, KEY_LISTEN_TOKENS);
	placed = read_kind(l, node, &v, to);
	if (mode && placed)
		read_mode(l, mode, section_key(&v, KEY_LISTEN_MODE), to);
	read_name(l, section_value(&v, KEY_LISTEN_NAME), to);
	read_tokens(l, tokens, section_key(&v, KEY_LISTEN_TOKENS), to);
	read_policy(l, node, section_value(&v, KEY_LISTEN_POLICY), to);
	if (placed)
		check_others(l, node, to);
	if (to->unix_path && l->c->admin_path && strcmp(to->unix_path, l->c->admin_path) == 0)
		fault_add(l->f, node->line, node->col, "`admin` has the same path");
	if (placed && l->c->metrics && same_place(l->c->metrics, to))
		fault_add(l->f, node->line, node->col, "`metrics` has the same address");
	l->c->listeners_n++;
}

/* Whoever is led to a transparent listener dials an address that a DNS of its policy made up, or
 * one that a rule spells out: then a redirection is meant. */
static void doubt_names(struct loader *l, const struct yaml_node *node)
{
	for (size_t i = 0; i < l->c->listeners_n; i++) {
		const struct config_listener *t = &l->c->listeners[i];
		bool has = t->kind != CONFIG_LISTEN_TRANSPARENT || !t->policy_name;

		for (size_t k = 0; k < l->c->listeners_n && !has; k++) {
			const struct config_listener *o = &l->c->listeners[k];

			has = o->kind == CONFIG_LISTEN_DNS && o->policy_name &&
			      strcmp(o->policy_name, t->policy_name) == 0;
		}
		if (!has)
			fault_warn(l->f, node->v[i]->line, node->v[i]->col,
				   "no `dns` listener has the policy `%s`: only addresses that a "
				   "rule spells out can be reached here",
				   t->policy_name);
	}
}

void load_listen(struct loader *l, const struct yaml_node *node)
{
	if (!load_items(l, node, "`listen`", "proxy: 127.0.0.1:3128"))
		return;
	if (node->n > LIMIT_LISTENERS) {
		fault_add(l->f, node->line, node->col, "more than %d listeners (the limit)",
			  LIMIT_LISTENERS);
		return;
	}
	l->c->listeners = load_array(l, node->n, sizeof(*l->c->listeners));
	for (size_t i = 0; l->c->listeners && i < node->n; i++)
		read_listener(l, node->v[i]);
	/* Of what has faults nobody knows what it is to be. */
	if (l->c->listeners && l->f->errors == 0 && l->c->listeners_n == node->n)
		doubt_names(l, node);
}

/*
 * Reads `state`: where the tokens of sandboxes are kept that several stiles share, and what is
 * shown to it. Called by load.c. No message repeats a URL that might hold a password.
 */
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "policy/load.h"

#define REDIS_PORT  6379
#define REDIS_DBS   65536
#define UNIX_PREFIX STR("unix:")
#define PATH_ROOM   sizeof(((struct sockaddr_un *)0)->sun_path)

static int refuse(struct loader *l, const struct yaml_node *node)
{
	fault_add(l->f, node->line, node->col,
		  "`state` is redis://HOST:PORT, rediss://HOST:PORT (TLS) or unix:/PATH, and a "
		  "database as /N behind a port");
	return -1;
}

/* "/3" behind the authority; taken off. */
static int read_db(struct str *s, unsigned *ret)
{
	ptrdiff_t slash = str_find(*s, '/');
	struct str digits;
	uint64_t n = 0;

	if (slash < 0)
		return 0;
	digits = str_skip(*s, (size_t)slash + 1);
	*s = str_head(*s, (size_t)slash);
	if (digits.n > 0 && (str_to_u64(digits, &n) < 0 || n >= REDIS_DBS))
		return -1;
	*ret = (unsigned)n;
	return 0;
}

/* HOST:PORT, or HOST alone. */
static int read_authority(struct str s, struct config_state *to)
{
	struct str tail = s;
	ptrdiff_t bracket = str_find(s, ']');
	char with_port[LIMIT_HOST_BYTES + 16];

	if (bracket >= 0)
		tail = str_skip(s, (size_t)bracket + 1);
	if (str_find(tail, ':') >= 0)
		return url_parse_authority(s, &to->host, &to->port, NULL);
	if (s.n == 0 || s.n > LIMIT_HOST_BYTES)
		return -1;
	(void)snprintf(with_port, sizeof(with_port), "%.*s:%d", STR_FMT(s), REDIS_PORT);
	return url_parse_authority(str_from_c(with_port), &to->host, &to->port, NULL);
}

static void read_tcp(struct loader *l, const struct yaml_node *node, struct str s,
		     struct config_state *to)
{
	struct strbuf b;

	if (read_db(&s, &to->db) < 0 || read_authority(s, to) < 0) {
		(void)refuse(l, node);
		return;
	}
	if (!to->tls && to->credential && to->host.kind == HOST_NAME)
		fault_warn(
			l->f, node->line, node->col,
			"the password of `state` goes over the network in clear (write rediss://)");
	strbuf_init(&b, LIMIT_HOST_BYTES + 64);
	strbuf_adds(&b, to->tls ? "rediss://" : "redis://");
	host_add_url(&to->host, &b);
	strbuf_addf(&b, ":%u", to->port);
	if (to->db)
		strbuf_addf(&b, "/%u", to->db);
	to->text = strbuf_take(&b);
	strbuf_clear(&b);
	if (!to->text)
		fault_add(l->f, 0, 0, "out of memory");
}

static void read_unix(struct loader *l, const struct yaml_node *node, struct str path,
		      struct config_state *to)
{
	char text[PATH_ROOM + sizeof("unix:")];

	to->unix_path = load_path(l, node, path);
	if (!to->unix_path)
		return;
	if (strlen(to->unix_path) >= PATH_ROOM) {
		fault_add(l->f, node->line, node->col, "the path of `state` is too long");
		return;
	}
	(void)snprintf(text, sizeof(text), "unix:%s", to->unix_path);
	to->text = load_keep(l, str_from_c(text));
}

static void read_url(struct loader *l, const struct yaml_node *node, struct config_state *to)
{
	struct str s;

	if (load_text(l, node, "`state`", &s) < 0)
		return;
	if (str_starts(s, UNIX_PREFIX)) {
		if (s.n == UNIX_PREFIX.n)
			(void)refuse(l, node);
		else
			read_unix(l, node, str_skip(s, UNIX_PREFIX.n), to);
		return;
	}
	/* A file with a password in it would be one more place where it lies. */
	if (str_find(s, '@') >= 0) {
		fault_add(l->f, node->line, node->col,
			  "a user name or password in the URL of `state` (move it to a file or a "
			  "variable, name that under `credentials:` with `as: bearer`, or `as: "
			  "{basic: USER}`, and say `state: {url: ..., credential: NAME}`)");
		return;
	}
	to->tls = str_starts(s, STR("rediss://"));
	if (to->tls)
		read_tcp(l, node, str_skip(s, sizeof("rediss://") - 1), to);
	else if (str_starts(s, STR("redis://")))
		read_tcp(l, node, str_skip(s, sizeof("redis://") - 1), to);
	else
		(void)refuse(l, node);
}

static void read_credential(struct loader *l, const struct yaml_node *node, struct config_state *to)
{
	const struct config_credential *c = load_credential_name(l, node, &to->credential);

	if (c && c->as != CREDENTIAL_AS_BASIC && c->as != CREDENTIAL_AS_BEARER)
		fault_add(l->f, node->line, node->col,
			  "`state` takes a credential `as: bearer` (a password) or `as: basic` (a "
			  "user and a password)");
	if (c && config_credential_is_per_sandbox(c))
		fault_add(l->f, node->line, node->col,
			  "`state` takes one credential for all, and `%s` has %s in its claims",
			  c->name, CONFIG_SANDBOX);
}

void load_state(struct loader *l, const struct yaml_node *node)
{
	struct config_state *to = load_array(l, 1, sizeof(*to));
	const struct yaml_node *url = node;
	struct section_values v = {0};
	struct str s;

	if (!to)
		return;
	l->c->state = to;
	to->grace_ms = LIMIT_MS_STATE_GRACE;
	if (node->kind != YAML_SCALAR) {
		if (load_section(l, node, "`state`", SECTION_STATE, &v) < 0)
			return;
		url = section_value(&v, KEY_STATE_URL);
		if (!url && !v.has_unknown && !l->partial)
			fault_add(l->f, node->line, node->col,
				  "`state` needs its `url` (such as "
				  "rediss://state.example.com:6379)");
		if (section_value(&v, KEY_STATE_CREDENTIAL))
			read_credential(l, section_value(&v, KEY_STATE_CREDENTIAL), to);
		if (section_value(&v, KEY_STATE_GRACE))
			(void)load_time(l, section_value(&v, KEY_STATE_GRACE), "`grace`", 1000,
					3600000, &to->grace_ms);
		if (section_value(&v, KEY_STATE_PREFIX) &&
		    load_text(l, section_value(&v, KEY_STATE_PREFIX), "`prefix`", &s) == 0 &&
		    load_name(l, section_value(&v, KEY_STATE_PREFIX), "the prefix", s) == 0)
			to->prefix = load_keep(l, s);
	}
	if (url)
		read_url(l, url, to);
	if (!to->prefix)
		to->prefix = load_keep(l, STR("stile"));
}

/*
 * The configuration as an object: references, freeing, finding by name. load.c makes it.
 */
#include "policy/config.h"

#include "logging/attrs.h"
#include "logging/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_texts(char **v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(v[i]);
	free(v);
}

static void free_listeners(struct config *c)
{
	for (size_t i = 0; i < c->listeners_n; i++) {
		free(c->listeners[i].name);
		free(c->listeners[i].unix_path);
		free(c->listeners[i].netns);
		free(c->listeners[i].policy_name);
	}
	free(c->listeners);
}

static void free_placeholder(struct config_placeholder *p)
{
	if (!p)
		return;
	free(p->env);
	free(p->file);
	free(p->prefix);
	free(p->header);
	free(p->query);
	free(p->user);
	free(p);
}

static void free_credentials(struct config *c)
{
	for (size_t i = 0; i < c->credentials_n; i++) {
		free(c->credentials[i].name);
		free(c->credentials[i].from);
		free(c->credentials[i].as_name);
		free(c->credentials[i].key_file);
		for (size_t n = 0; n < c->credentials[i].args_n; n++)
			free(c->credentials[i].args[n]);
		free(c->credentials[i].args);
		for (size_t n = 0; n < c->credentials[i].params_n; n++)
			free(c->credentials[i].params[n].text);
		free(c->credentials[i].params);
		free(c->credentials[i].ranges);
		free(c->credentials[i].username);
		free_placeholder(c->credentials[i].placeholder);
		free(c->credentials[i].service);
		free(c->credentials[i].region);
	}
	free(c->credentials);
}

static void free_tests(struct config *c)
{
	for (size_t i = 0; i < c->tests_n; i++) {
		free(c->tests[i].policy);
		free(c->tests[i].method);
		free(c->tests[i].url);
	}
	free(c->tests);
}

static void free_parent(struct config_parent *p)
{
	if (!p)
		return;
	free(p->text);
	free(p->credential);
	free(p->direct);
	free(p->direct_ranges);
	free(p);
}

static void free_state(struct config_state *s)
{
	if (!s)
		return;
	free(s->text);
	free(s->unix_path);
	free(s->prefix);
	free(s->credential);
	free(s);
}

static void config_free(struct config *c)
{
	free_parent(c->parent);
	free_state(c->state);
	free_listeners(c);
	free_credentials(c);
	free_tests(c);
	free_texts(c->trust, c->trust_n);
	free(c->trust_places);
	free_texts(c->dns_servers, c->dns_servers_n);
	for (size_t i = 0; i < c->hosts_n; i++)
		free(c->hosts[i].addrs);
	free(c->hosts);
	for (size_t i = 0; i < c->policies_n; i++)
		policy_unref(c->policies[i]);
	free(c->policies);
	free(c->file);
	free(c->text);
	free(c->ca_dir);
	free(c->log_to);
	free(c->user);
	free(c->admin_path);
	free(c->metrics);
	free(c);
}

struct config *config_ref(struct config *c)
{
	__atomic_add_fetch(&c->refs, 1, __ATOMIC_RELAXED);
	return c;
}

void config_unref(struct config *c)
{
	if (c && __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) == 0)
		config_free(c);
}

static int policy_by_name(const void *key, const void *item)
{
	struct policy *const *p = item;

	return strcmp(key, policy_name(*p));
}

struct policy *config_policy(const struct config *c, const char *name)
{
	struct policy **p = NULL;

	if (name && c->policies_n > 0)
		p = bsearch(name, c->policies, c->policies_n, sizeof(*c->policies), policy_by_name);
	return p ? *p : NULL;
}

static int credential_by_name(const void *key, const void *item)
{
	const struct config_credential *c = item;

	return strcmp(key, c->name);
}

const struct config_param *config_param(const struct config_credential *c,
					enum config_param_key key)
{
	for (size_t i = 0; i < c->params_n; i++)
		if (c->params[i].key == key)
			return &c->params[i];
	return NULL;
}

const char *config_param_text(const struct config_credential *c, enum config_param_key key)
{
	const struct config_param *p = config_param(c, key);

	return p ? p->text : NULL;
}

const char *config_credential_file(const struct config_credential *c, size_t n)
{
	const char *first = c->source == CREDENTIAL_FROM_FILE ? c->from : NULL;

	if (first && n-- == 0)
		return first;
	if (c->key_file && n-- == 0)
		return c->key_file;
	for (size_t i = 0; i < c->params_n; i++)
		if (c->params[i].kind == PARAM_FILE && n-- == 0)
			return c->params[i].text;
	return NULL;
}

static bool is_of_ca(const char *dir, bool (*is_same)(const void *arg, const char *path),
		     const void *arg)
{
	static const char *const names[] = {"ca.key", "ca.pem"};
	char file[LIMIT_KEEPER_PATH]; /* no longer one can be opened; no memory to run out of */

	for (size_t i = 0; dir && i < ARRAY_LEN(names); i++)
		if (snprintf(file, sizeof(file), "%s/%s", dir, names[i]) < (int)sizeof(file) &&
		    is_same(arg, file))
			return true;
	return false;
}

const char *config_spoilt_by_log(const struct config *c,
				 bool (*is_same)(const void *arg, const char *path),
				 const void *arg)
{
	const char *path;

	if (c->file && is_same(arg, c->file))
		return "this configuration";
	if (is_of_ca(c->ca_dir, is_same, arg))
		return "a file of the CA";
	for (size_t i = 0; i < c->trust_n; i++)
		if (is_same(arg, c->trust[i]))
			return "a file of `trust`";
	for (size_t i = 0; i < c->credentials_n; i++) {
		const struct config_placeholder *p = c->credentials[i].placeholder;

		if (p && p->file && is_same(arg, p->file))
			return "the file of a placeholder";
		for (size_t n = 0; (path = config_credential_file(&c->credentials[i], n)); n++)
			if (is_same(arg, path))
				return "the file of a credential";
	}
	return NULL;
}

bool config_credential_is_per_sandbox(const struct config_credential *c)
{
	const char *claims = config_param_text(c, PARAM_CLAIMS);

	return claims && strstr(claims, CONFIG_SANDBOX);
}

const struct config_credential *config_credential(const struct config *c, const char *name)
{
	if (!name || c->credentials_n == 0)
		return NULL;
	return bsearch(name, c->credentials, c->credentials_n, sizeof(*c->credentials),
		       credential_by_name);
}

static bool is_direct(const struct config_direct *d, const struct host *h)
{
	size_t n = d->host.len;

	if (!d->below)
		return host_eq(&d->host, h);
	return h->kind == HOST_NAME && h->len > n + 1 && h->text[h->len - n - 1] == '.' &&
	       memcmp(h->text + h->len - n, d->host.text, n) == 0;
}

const struct config_parent *config_parent_for(const struct config *c, const struct host *h)
{
	const struct config_parent *p = c->parent;

	for (size_t i = 0; p && i < p->direct_n; i++)
		if (is_direct(&p->direct[i], h))
			return NULL;
	return p && h->kind != HOST_NAME && config_parent_spares(p, &h->addr) ? NULL : p;
}

bool config_parent_spares(const struct config_parent *p, const struct ipaddr *a)
{
	for (size_t i = 0; i < p->direct_ranges_n; i++)
		if (iprange_has(&p->direct_ranges[i], a))
			return true;
	return false;
}

int config_cmp_hosts(const void *a, const void *b)
{
	return strcmp(((const struct config_host *)a)->name.text,
		      ((const struct config_host *)b)->name.text);
}

static int host_to_entry(const void *key, const void *entry)
{
	return strcmp(((const struct host *)key)->text,
		      ((const struct config_host *)entry)->name.text);
}

static const struct config_host *fixed_host(const struct config *c, const struct host *h)
{
	if (h->kind != HOST_NAME || c->hosts_n == 0)
		return NULL;
	return bsearch(h, c->hosts, c->hosts_n, sizeof(*c->hosts), host_to_entry);
}

bool config_sends_name(const struct config *c, const struct host *h)
{
	const struct config_parent *p = config_parent_for(c, h);

	/* A name of `upstream.hosts` has the addresses that the admin gave it. */
	return p && p->by_name && h->kind == HOST_NAME && !fixed_host(c, h);
}

int config_check_known(const struct config *c, const struct rule *r, const struct host *h,
		       struct err *e)
{
	/* RFC 6761 section 6.3: names below localhost are these, whoever is asked. */
	static const struct ipaddr loopbacks[] = {{6, {[15] = 1}}, {4, {127, 0, 0, 1}}};
	const struct config_host *fixed = fixed_host(c, h);
	const struct ipaddr *addrs = NULL;
	size_t n = 0;
	struct err first = ERR_INIT;

	if (config_sends_name(c, h))
		return 0;
	if (h->kind != HOST_NAME) {
		addrs = &h->addr;
		n = 1;
	} else if (fixed) {
		addrs = fixed->addrs;
		n = fixed->addrs_n;
	} else if (str_eq(host_str(h), STR("localhost")) ||
		   str_ends(host_str(h), STR(".localhost"))) {
		addrs = loopbacks;
		n = ARRAY_LEN(loopbacks);
	}
	for (size_t i = 0; i < n; i++) {
		struct err why = ERR_INIT;

		if (policy_check_addr(r, &addrs[i], NULL, 0, &why) == 0)
			return 0;
		if (i == 0)
			first = why;
	}
	return n == 0 ? 0 : err_reason(e, first.reason, "%s", first.text);
}

void config_check_connect(const struct config *c, const struct host *h, struct policy_connect *m,
			  struct err *e)
{
	const struct rule **each[] = {&m->inspect, &m->passthrough, &m->http, &m->tcp};
	bool any = false;

	for (size_t i = 0; i < ARRAY_LEN(each); i++) {
		if (*each[i] && config_check_known(c, *each[i], h, e) < 0)
			*each[i] = NULL;
		any = any || *each[i];
	}
	if (m->allow && !any) {
		m->allow = false;
		m->reason = REASON_ADDRESS_DENIED;
	}
}

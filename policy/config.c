/*
 * The configuration as an object: references, freeing, finding by name. load.c makes it.
 */
#include "policy/config.h"

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
		free(c->listeners[i].policy_name);
	}
	free(c->listeners);
}

static void free_credentials(struct config *c)
{
	for (size_t i = 0; i < c->credentials_n; i++) {
		free(c->credentials[i].name);
		free(c->credentials[i].from);
		free(c->credentials[i].as_name);
		free(c->credentials[i].username);
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

static void config_free(struct config *c)
{
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

const struct config_credential *config_credential(const struct config *c, const char *name)
{
	if (!name || c->credentials_n == 0)
		return NULL;
	return bsearch(name, c->credentials, c->credentials_n, sizeof(*c->credentials),
		       credential_by_name);
}

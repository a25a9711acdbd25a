/*
 * Builds the environment of the command. It starts from nothing, so that a secret in a variable
 * that nobody thought of stays outside. It changes no environment of this process. Called by run.c.
 */
#include "proxy/sandbox/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/strbuf.h"
#include "proxy/sandbox/client_env.h"

#define VARIABLE_MAX 131072 /* MAX_ARG_STRLEN: the kernel takes no longer one */

/* Who and where one is, and how to show things. None is known to carry a secret or a way out. */
static const char *const passed[] = {
	"PATH", "HOME",	    "USER", "LOGNAME", "SHELL",	 "TERM",   "COLORTERM", "NO_COLOR",
	"LANG", "LANGUAGE", "TZ",   "TMPDIR",  "EDITOR", "VISUAL", "PAGER",	"CI",
};

static const char *value_in(char *const *list, const char *name)
{
	size_t n = strlen(name);

	for (char *const *p = list; *p; p++) {
		if (strncmp(*p, name, n) == 0 && (*p)[n] == '=')
			return *p + n + 1;
	}
	return NULL;
}

static bool is_source(const struct config *c, const char *name)
{
	for (size_t i = 0; c && i < c->credentials_n; i++) {
		const struct config_credential *k = &c->credentials[i];

		if (k->source == CREDENTIAL_FROM_ENV && strcmp(k->from, name) == 0)
			return true;
		for (size_t n = 0; n < k->params_n; n++)
			if (k->params[n].kind == PARAM_ENV && strcmp(k->params[n].text, name) == 0)
				return true;
	}
	return false;
}

static int append(struct env *v, char *entry)
{
	if (!entry)
		return -1;
	if (v->n + 1 >= v->cap) {
		size_t cap = v->cap ? 2 * v->cap : 64;
		char **grown = realloc(v->v, cap * sizeof(*grown));

		if (!grown) {
			free(entry);
			return -1;
		}
		v->v = grown;
		v->cap = cap;
	}
	v->v[v->n++] = entry;
	v->v[v->n] = NULL;
	return 0;
}

/* A later one of the same name replaces the earlier. */
static int put(struct env *v, const char *name, const char *value)
{
	struct strbuf b;
	char *entry;

	strbuf_init(&b, VARIABLE_MAX);
	strbuf_adds(&b, name);
	strbuf_addc(&b, '=');
	strbuf_adds(&b, value);
	entry = strbuf_take(&b);
	strbuf_clear(&b);
	for (size_t i = 0; entry && i < v->n; i++) {
		if (strncmp(v->v[i], entry, strlen(name) + 1) == 0) {
			free(v->v[i]);
			v->v[i] = entry;
			return 0;
		}
	}
	return append(v, entry);
}

/* What a tmpfs in the sandbox hides is no place for temporary files. */
static bool is_hidden_dir(const char *name, const char *value)
{
	return strcmp(name, "TMPDIR") == 0 &&
	       (strncmp(value, "/run/", 5) == 0 || strncmp(value, "/var/run/", 9) == 0);
}

static int put_passed(const struct env_options *o, struct env *v)
{
	for (size_t i = 0; i < ARRAY_LEN(passed); i++) {
		const char *value = value_in(o->outer, passed[i]);

		if (!value || is_source(o->config, passed[i]) || is_hidden_dir(passed[i], value))
			continue;
		if (put(v, passed[i], value) != 0)
			return -1;
	}
	for (char *const *p = o->outer; *p; p++) {
		char name[64];
		size_t n = strcspn(*p, "=");

		if (strncmp(*p, "LC_", 3) != 0 || n >= sizeof(name) || (*p)[n] != '=')
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)n, *p);
		if (!is_source(o->config, name) && put(v, name, *p + n + 1) != 0)
			return -1;
	}
	return put(v, "PWD", o->workspace);
}

static int put_client(void *arg, const char *name, const char *value)
{
	return put(arg, name, value);
}

static int put_network(const struct env_options *o, struct env *v)
{
	char url[64];
	struct client_env c = {
		.dir = SANDBOX_DIR,
		.proxy_url = url,
		.proxy_host = STR("127.0.0.1"),
		.proxy_port = o->proxy_port,
	};

	snprintf(url, sizeof(url), "http://127.0.0.1:%u", o->proxy_port);
	if (client_env_each(&c, put_client, v) != 0)
		return -1;
	/* The CA lies there under its hash as well (files.c). */
	return put(v, "SSL_CERT_DIR", SANDBOX_DIR);
}

static int put_wanted(const struct env_options *o, struct env *v)
{
	for (size_t i = 0; i < o->wanted_n; i++) {
		const char *want = o->wanted[i];
		struct str name = str_head(str_from_c(want), strcspn(want, "="));
		char *copy = str_dup(name);
		const char *value;
		int rc = 0;

		if (!copy)
			return -1;
		/* A name alone passes the variable on, if there is one. */
		value = want[name.n] == '=' ? want + name.n + 1 : value_in(o->outer, copy);
		if (value)
			rc = put(v, copy, value);
		free(copy);
		if (rc != 0)
			return -1;
	}
	return 0;
}

/* Credentials of the sandbox's own making: what it may show to anybody. */
static int put_placeholders(const struct env_options *o, struct env *v, struct err *e)
{
	for (size_t i = 0; o->placeholders && i < o->config->credentials_n; i++) {
		const struct config_credential *c = &o->config->credentials[i];
		size_t which;
		struct str text;

		if (!c->placeholder || !c->placeholder->env ||
		    !placeholders_find(o->placeholders, STR_NONE, c->name, &which))
			continue;
		if (v->v && value_in(v->v, c->placeholder->env))
			return err_set(e,
				       "the placeholder of %s cannot stand in %s, which the "
				       "sandbox itself needs (name another in \"env:\")",
				       c->name, c->placeholder->env);
		/* It is a string of its own in there (placeholder.c). */
		text = needles_text(placeholders_needles(o->placeholders), which);
		if (put(v, c->placeholder->env, text.p) != 0)
			return err_set(e, "no room for the sandbox's environment");
	}
	return 0;
}

static bool is_placeholder(const struct config *c, const char *name)
{
	for (size_t i = 0; c && i < c->credentials_n; i++) {
		const struct config_placeholder *p = c->credentials[i].placeholder;

		if (p && p->env && strcmp(p->env, name) == 0)
			return true;
	}
	return false;
}

static bool is_name(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

		if (!letter && !(i > 0 && c >= '0' && c <= '9'))
			return false;
	}
	return s.n > 0;
}

int env_check(const char *const *wanted, size_t wanted_n, const struct config *config,
	      struct err *e)
{
	for (size_t i = 0; i < wanted_n; i++) {
		struct str name = str_head(str_from_c(wanted[i]), strcspn(wanted[i], "="));
		char *copy;
		bool source, placeholder;

		if (!is_name(name))
			return err_set(e, "--env: \"%.*s\" is no name of a variable",
				       STR_FMT(name));
		copy = str_dup(name);
		if (!copy)
			return err_set(e, "out of memory");
		placeholder = is_placeholder(config, copy);
		source = is_source(config, copy);
		free(copy);
		if (placeholder)
			return err_set(e,
				       "--env %.*s: a placeholder stands in this variable, so it "
				       "cannot be another thing",
				       STR_FMT(name));
		if (source)
			return err_set(e,
				       "--env %.*s: a credential is read from this variable, so it "
				       "cannot be given to the sandbox (name another in \"from:\")",
				       STR_FMT(name));
	}
	return 0;
}

int env_build(const struct env_options *o, struct env *ret, struct err *e)
{
	*ret = (struct env){0};
	if (put_passed(o, ret) != 0 || put_network(o, ret) != 0 || put_wanted(o, ret) != 0)
		return err_set(e, "no room for the sandbox's environment");
	return put_placeholders(o, ret, e);
}

void env_clear(struct env *v)
{
	for (size_t i = 0; i < v->n; i++)
		free(v->v[i]);
	free(v->v);
	*v = (struct env){0};
}

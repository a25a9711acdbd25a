/*
 * A secret in an environment variable of stile itself. It is taken out once, at the very start:
 * a variable would show in /proc/PID/environ and go to every child. Called by the commands before
 * they start threads.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"

struct captured {
	/* owned */
	char *name;
	struct secret *value; /* NULL: memory was out */
	struct captured *next;
};

/* For the life of the process: a reload builds a new store, but the environment is empty by then.
 */
static struct captured *captured;
static pthread_mutex_t captured_lock = PTHREAD_MUTEX_INITIALIZER;

static struct captured *find(const char *name)
{
	for (struct captured *c = captured; c; c = c->next) {
		if (strcmp(c->name, name) == 0)
			return c;
	}
	return NULL;
}

/* The value in an entry "NAME=value" of the environment, or NULL. */
static char *entry_value(char *entry, const char *name)
{
	size_t n = strlen(name);

	return strncmp(entry, name, n) == 0 && entry[n] == '=' ? entry + n + 1 : NULL;
}

/* Every place where the value stands, also a second entry of the same name. */
static void wipe(const char *name)
{
	char **to = environ;

	for (char **from = environ; *from; from++) {
		char *v = entry_value(*from, name);

		if (v)
			OPENSSL_cleanse(v, strlen(v));
		else
			*to++ = *from;
	}
	*to = NULL;
}

static int take(const char *name, struct err *e)
{
	char *value = getenv(name);
	struct captured *c;

	if (!value)
		return 0;
	c = calloc(1, sizeof(*c));
	if (c)
		c->name = strdup(name);
	if (c && c->name)
		c->value = secret_copy(str_from_c(value));
	if (!c || !c->value) {
		free(c ? c->name : NULL);
		free(c);
		return err_set(e, "out of memory");
	}
	c->next = captured;
	captured = c;
	wipe(name);
	return 0;
}

/* Each variable that c names. */
static int for_each_name(const struct config *c, int (*fn)(const char *name, struct err *e),
			 struct err *e)
{
	int rc = 0;

	for (size_t i = 0; i < c->credentials_n && rc == 0; i++) {
		const struct config_credential *cred = &c->credentials[i];

		if (cred->source == CREDENTIAL_FROM_ENV)
			rc = fn(cred->from, e);
		for (size_t n = 0; n < cred->params_n && rc == 0; n++)
			if (cred->params[n].kind == PARAM_ENV)
				rc = fn(cred->params[n].text, e);
	}
	return rc;
}

static int take_once(const char *name, struct err *e)
{
	return find(name) ? 0 : take(name, e);
}

int credential_env_capture(const struct config *c, struct err *e)
{
	int rc;

	pthread_mutex_lock(&captured_lock);
	rc = for_each_name(c, take_once, e);
	pthread_mutex_unlock(&captured_lock);
	return rc;
}

static int forget(const char *name, struct err *e)
{
	(void)e;
	wipe(name);
	return 0;
}

void credential_env_forget(const struct config *c)
{
	(void)for_each_name(c, forget, NULL);
}

static bool is_kept(const char *entry)
{
	static const char *const kept[] = {
		"NOTIFY_SOCKET=", "LANG=",	   "LC_",	    "TZ=",
		"PATH=",	  "HOME=",	   "TMPDIR=",	    "ASAN_OPTIONS=",
		"LSAN_OPTIONS=",  "TSAN_OPTIONS=", "UBSAN_OPTIONS="};

	for (size_t i = 0; i < ARRAY_LEN(kept); i++)
		if (strncmp(entry, kept[i], strlen(kept[i])) == 0)
			return true;
	return false;
}

void credential_env_reduce(void)
{
	char **to = environ;

	for (char **from = environ; *from; from++) {
		if (is_kept(*from))
			*to++ = *from;
		else
			OPENSSL_cleanse(*from, strlen(*from));
	}
	*to = NULL;
}

int source_env_read_lines(const char *name, struct secret **ret, struct err *e)
{
	struct captured *c;

	pthread_mutex_lock(&captured_lock);
	c = find(name);
	pthread_mutex_unlock(&captured_lock);
	if (!c)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "its variable was not in the environment when stile started");
	*ret = secret_ref(c->value);
	return 0;
}

int source_env_read(const char *name, struct secret **ret, struct err *e)
{
	struct secret *s = NULL;

	if (source_env_read_lines(name, &s, e) < 0)
		return -1;
	if (secret_check(s, e) < 0) {
		secret_unref(s);
		return -1;
	}
	*ret = s;
	return 0;
}

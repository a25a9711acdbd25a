/*
 * The table of sources that take time; see source.h.
 */
#include "proxy/credentials/source.h"

#include <stdlib.h>

#include "logging/log.h"

struct source {
	const struct source_ops *ops;
	void *self; /* owned */
};

const struct source_ops *source_ops_of(const struct config_credential *c)
{
	switch (c->source) {
	case CREDENTIAL_FROM_FILE:
	case CREDENTIAL_FROM_ENV:
	case CREDENTIAL_FROM_JWT: return NULL;
	case CREDENTIAL_FROM_EXEC: return &source_exec_ops;
	case CREDENTIAL_FROM_OAUTH2: return &source_oauth2_ops;
	case CREDENTIAL_FROM_VAULT: return &source_vault_ops;
	case CREDENTIAL_FROM_GITHUB_APP: return &source_github_app_ops;
	case CREDENTIAL_FROM_GCP: return &source_gcp_ops;
	case CREDENTIAL_FROM_KUBERNETES:
		return config_param(c, PARAM_API) ? &source_kubernetes_ops : NULL;
	case CREDENTIAL_FROM_AWS: return &source_aws_ops;
	}
	return NULL;
}

/* Once for each definition. What a kubelet writes is as it makes it. */
static void say_modes(const struct config_credential *c)
{
	for (size_t i = 0; i < c->params_n; i++) {
		const struct config_param *p = &c->params[i];
		struct stat st;

		if (p->kind == PARAM_FILE && p->key != PARAM_TOKEN && p->key != PARAM_VAULT_JWT &&
		    stat(p->text, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_IROTH))
			log_warn("credential %s: %s can be read by every user (chmod o-r)", c->name,
				 p->text);
	}
}

int source_open(const struct source_setting *setting, struct source **ret, struct err *e)
{
	struct source *s = calloc(1, sizeof(*s));

	if (!s)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
	s->ops = source_ops_of(setting->c);
	if (s->ops->open(setting, &s->self, e) < 0) {
		free(s);
		return -1;
	}
	say_modes(setting->c);
	*ret = s;
	return 0;
}

int source_ask(struct source *s, struct err *e)
{
	return s->ops->ask(s->self, e);
}

bool source_farewell(struct source *s, void (*done)(void *arg), void *arg)
{
	return s && s->ops->farewell && s->ops->farewell(s->self, done, arg);
}

void source_close(struct source *s)
{
	if (!s)
		return;
	s->ops->close(s->self);
	free(s);
}

int source_param_secret(const struct config_credential *c, enum config_param_key key,
			const char *word, struct secret **ret, struct err *e)
{
	const struct config_param *p = config_param(c, key);
	struct source_mark mark;
	int rc;

	if (!p)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "it has no `%s`", word);
	rc = p->kind == PARAM_FILE ? source_file_read(p->text, &mark, ret, e)
				   : source_env_read(p->text, ret, e);
	return rc < 0 ? err_wrap(e, "`%s`", word) : 0;
}

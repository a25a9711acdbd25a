/*
 * An installation token of a GitHub App: a JWT of the app, signed with its key, is exchanged for a
 * token of one installation, which may be found first by who owns it. What is asked for is as
 * narrow as the admin says, and what comes is compared with that: a wider token is not used.
 */
#include <stdlib.h>
#include <string.h>

#include "logging/json.h"
#include "logging/limits.h"
#include "proxy/credentials/endpoint.h"
#include "proxy/credentials/jwt.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"
#include "proxy/credentials/token.h"

#define API	      "https://api.github.com"
#define JWT_BACK_SECS 60  /* GitHub's own advice against clocks that differ */
#define JWT_LIFE_SECS 300 /* of the 600 that GitHub takes */
#define ID_MAX	      24

enum step { STEP_FIND, STEP_FIND_USER, STEP_TOKEN };

struct github_app {
	struct source_setting s;
	/* owned, while a question is asked */
	struct fetch *fetch;
	/* plain */
	enum step step;
	char installation[ID_MAX];
};

static int failed(struct err *e, const char *what)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "%s", what);
}

/* ---- who asks ---- */

static int sign_app(const struct github_app *g, struct secret **ret, struct err *e)
{
	const char *id = config_param_text(g->s.c, PARAM_CLIENT_ID);
	struct secret *pem = NULL;
	struct jwt_key *key = NULL;
	struct source_mark mark;
	struct strbuf claims;
	struct json j;
	int rc;

	if (!id)
		id = config_param_text(g->s.c, PARAM_APP_ID);
	if (source_file_read_lines(config_param_text(g->s.c, PARAM_KEY), &mark, &pem, e) < 0)
		return err_wrap(e, "`key`");
	rc = jwt_key_new(secret_value(pem), "RS256", &key, e);
	secret_unref(pem);
	if (rc < 0)
		return -1;
	strbuf_init(&claims, LIMIT_CLAIMS_BYTES);
	json_init(&j, &claims);
	json_open(&j, '{');
	json_kv_str(&j, "iss", str_from_c(id));
	json_kv_u64(&j, "iat", (uint64_t)(jwt_now() - JWT_BACK_SECS));
	json_kv_u64(&j, "exp", (uint64_t)(jwt_now() + JWT_LIFE_SECS));
	json_close(&j, '}');
	rc = claims.overflowed ? failed(e, "out of memory")
			       : jwt_sign(key, NULL, strbuf_str(&claims), ret, e);
	strbuf_clear(&claims);
	jwt_key_unref(key);
	return rc;
}

/* ---- what is asked for ---- */

/* `repository: OWNER/NAME` stands for a token of NAME alone. */
static const char *name_of_repository(const struct github_app *g)
{
	const char *repository = config_param_text(g->s.c, PARAM_REPOSITORY);

	return repository ? strchr(repository, '/') + 1 : NULL;
}

/* A JSON array, or nothing where all of the installation's are meant. */
static void add_repositories(const struct github_app *g, struct strbuf *out)
{
	const char *list = config_param_text(g->s.c, PARAM_REPOSITORIES);
	const char *name = name_of_repository(g);

	if (list)
		strbuf_adds(out, list);
	else if (name)
		strbuf_addf(out, "[\"%s\"]", name);
}

static void add_body(const struct github_app *g, struct strbuf *out)
{
	const char *permissions = config_param_text(g->s.c, PARAM_PERMISSIONS);
	struct strbuf list;

	strbuf_init(&list, LIMIT_CLAIMS_BYTES);
	add_repositories(g, &list);
	strbuf_addc(out, '{');
	if (list.len > 0)
		strbuf_addf(out, "\"repositories\":%s", strbuf_cstr(&list));
	if (permissions)
		strbuf_addf(out, "%s\"permissions\":%s", list.len > 0 ? "," : "", permissions);
	strbuf_addc(out, '}');
	out->overflowed |= list.overflowed;
	strbuf_clear(&list);
}

static void add_path(const struct github_app *g, struct strbuf *out)
{
	const char *owner = config_param_text(g->s.c, PARAM_OWNER);

	if (g->step == STEP_TOKEN)
		strbuf_addf(out, "/app/installations/%s/access_tokens", g->installation);
	else if (owner)
		strbuf_addf(out, "/%s/%s/installation", g->step == STEP_FIND ? "orgs" : "users",
			    owner);
	else
		strbuf_addf(out, "/repos/%s/installation",
			    config_param_text(g->s.c, PARAM_REPOSITORY));
}

/* How large an answer may be: it describes each repository that was asked for. */
static size_t most_of(const struct github_app *g)
{
	json_t *list;
	struct strbuf text;
	size_t n;

	strbuf_init(&text, LIMIT_CLAIMS_BYTES);
	add_repositories(g, &text);
	list = token_json_config(strbuf_cstr(&text));
	n = json_array_size(list);
	json_decref(list);
	strbuf_clear(&text);
	return LIMIT_SOURCE_BYTES + n * LIMIT_GITHUB_REPOSITORY_BYTES;
}

static void on_answer(void *arg, const struct fetch_answer *a, const struct err *why);

static int ask_step(struct github_app *g, struct err *e)
{
	const char *api = config_param_text(g->s.c, PARAM_API);
	struct secret *jwt = NULL;
	struct strbuf path, body;
	struct endpoint_question q = {
		.s = &g->s,
		.base = api ? api : API,
		.accept = STR("application/vnd.github+json"),
		.more = {STR("X-GitHub-Api-Version"), STR("2022-11-28")},
		.post = g->step == STEP_TOKEN,
		.most = most_of(g),
	};
	int rc;

	if (sign_app(g, &jwt, e) < 0)
		return -1;
	strbuf_init(&path, LIMIT_URL_BYTES);
	strbuf_init(&body, 3 * LIMIT_CLAIMS_BYTES);
	add_path(g, &path);
	if (q.post)
		add_body(g, &body);
	q.bearer = secret_value(jwt);
	q.path = strbuf_str(&path);
	q.body = strbuf_str(&body);
	rc = path.overflowed || body.overflowed ? failed(e, "out of memory")
						: endpoint_ask(&q, on_answer, g, &g->fetch, e);
	strbuf_clear(&path);
	strbuf_clear(&body);
	secret_unref(jwt);
	return rc;
}

/* ---- the installation ---- */

/* Whose it is is compared too: what was asked for by name must be what came. */
static int read_installation(struct github_app *g, const struct fetch_answer *a, struct err *e)
{
	const char *owner = config_param_text(g->s.c, PARAM_OWNER), *login;
	const char *repository = config_param_text(g->s.c, PARAM_REPOSITORY);
	struct str want = owner ? str_from_c(owner)
				: str_head(str_from_c(repository), strcspn(repository, "/"));
	json_t *o = token_json(a->body, e);
	json_int_t id = json_integer_value(json_object_get(o, "id"));
	struct strbuf text;
	int rc = -1;

	login = json_string_value(json_object_get(json_object_get(o, "account"), "login"));
	if (o && id <= 0)
		(void)failed(e, "its answer has no number for `id`");
	else if (o && (!login || !str_eq_nocase(str_from_c(login), want)))
		(void)failed(e, "its answer is about the installation of another account");
	else if (o)
		rc = 0;
	json_decref(o);
	if (rc < 0)
		return -1;
	strbuf_init_fixed(&text, g->installation, sizeof(g->installation));
	strbuf_addu(&text, (unsigned long long)id);
	return 0;
}

/* ---- the token ---- */

static int level_of(const json_t *v)
{
	static const char *const levels[] = {"read", "write", "admin"};

	for (size_t i = 0; json_is_string(v) && i < ARRAY_LEN(levels); i++)
		if (strcmp(json_string_value(v), levels[i]) == 0)
			return (int)i + 1;
	return 0;
}

/* Reading metadata comes with every token. */
static bool is_permitted(const json_t *asked, const char *name, const json_t *level)
{
	int got = level_of(level), want = level_of(json_object_get(asked, name));

	if (strcmp(name, "metadata") == 0 && want == 0)
		want = 1;
	return got > 0 && got <= want;
}

static int check_permissions(const struct github_app *g, json_t *o, struct err *e)
{
	const char *text = config_param_text(g->s.c, PARAM_PERMISSIONS), *name;
	json_t *asked = token_json_config(text);
	json_t *got = json_object_get(o, "permissions"), *level;
	bool within = !text || (asked && json_is_object(got));

	if (text && within) {
		json_object_foreach(got, name, level) within &= is_permitted(asked, name, level);
	}
	json_decref(asked);
	return within ? 0 : failed(e, "its token may do more than was asked for");
}

static bool is_asked(const json_t *asked, const json_t *repository)
{
	const json_t *name = json_object_get(repository, "name");
	json_t *v;
	size_t i;

	json_array_foreach(asked, i, v)
	{
		if (json_is_string(name) && str_eq_nocase(str_from_c(json_string_value(v)),
							  str_from_c(json_string_value(name))))
			return true;
	}
	return false;
}

static int check_repositories(const struct github_app *g, json_t *o, struct err *e)
{
	const char *selection = json_string_value(json_object_get(o, "repository_selection"));
	json_t *got = json_object_get(o, "repositories"), *asked, *v;
	struct strbuf text;
	bool within;
	size_t i;

	strbuf_init(&text, LIMIT_CLAIMS_BYTES);
	add_repositories(g, &text);
	asked = token_json_config(strbuf_cstr(&text));
	within = text.len == 0 ? !text.overflowed
			       : asked && json_array_size(got) > 0 && selection &&
					 strcmp(selection, "selected") == 0;
	if (text.len > 0 && within) {
		json_array_foreach(got, i, v) within &= is_asked(asked, v);
	}
	json_decref(asked);
	strbuf_clear(&text);
	return within ? 0 : failed(e, "its token is for more repositories than were asked for");
}

static int read_token(const struct github_app *g, const struct fetch_answer *a, struct secret **ret,
		      int64_t *ret_life_us, struct err *e)
{
	json_t *o = token_json(a->body, e);
	int rc = -1;

	if (o && check_permissions(g, o, e) == 0 && check_repositories(g, o, e) == 0 &&
	    token_json_end(o, "expires_at", ret_life_us, e) == 0)
		rc = token_json_secret(o, "token", ret, e);
	json_decref(o);
	return rc;
}

/* ---- the source ---- */

static int refused(const struct fetch_answer *a, struct err *e)
{
	static const struct endpoint_hint hints[] = {
		{401, "the key is not the app's, or a clock is wrong"},
		{403, "the app may not, or the installation is suspended"},
		{404, "there is no such installation of the app"},
		{422, "the installation has not all that was asked for"},
		{0, NULL},
	};

	return endpoint_refused(a, hints, e);
}

/* 1: another question has been asked. */
static int go_on(struct github_app *g, const struct fetch_answer *a, struct secret **ret,
		 int64_t *ret_life_us, struct err *e)
{
	if (g->step == STEP_TOKEN)
		return a->status == 201 ? read_token(g, a, ret, ret_life_us, e) : refused(a, e);
	if (a->status == 404 && g->step == STEP_FIND && config_param(g->s.c, PARAM_OWNER)) {
		/* Not an organization: a user may be meant. */
		g->step = STEP_FIND_USER;
	} else if (a->status != 200) {
		return refused(a, e);
	} else {
		if (read_installation(g, a, e) < 0)
			return -1;
		g->step = STEP_TOKEN;
	}
	return ask_step(g, e) < 0 ? -1 : 1;
}

static void on_answer(void *arg, const struct fetch_answer *a, const struct err *why)
{
	struct github_app *g = arg;
	struct secret *value = NULL;
	struct err e = ERR_INIT;
	int64_t life_us = 0;
	int rc = -1;

	g->fetch = NULL;
	if (!a)
		e = *why;
	else
		rc = go_on(g, a, &value, &life_us, &e);
	if (rc <= 0)
		g->s.on_result(g->s.arg, rc == 0 ? value : NULL, life_us, &e);
}

static int github_app_ask(void *self, struct err *e)
{
	struct github_app *g = self;
	const char *id = config_param_text(g->s.c, PARAM_INSTALLATION_ID);
	struct strbuf text;

	g->step = id ? STEP_TOKEN : STEP_FIND;
	if (id) {
		strbuf_init_fixed(&text, g->installation, sizeof(g->installation));
		strbuf_adds(&text, id);
		if (text.overflowed)
			return failed(e, "`installation_id` is too long");
	}
	return ask_step(g, e);
}

static void github_app_close(void *self)
{
	struct github_app *g = self;

	fetch_cancel(g->fetch);
	free(g);
}

static int github_app_open(const struct source_setting *s, void **ret, struct err *e)
{
	struct github_app *g = calloc(1, sizeof(*g));

	if (!g)
		return failed(e, "out of memory");
	g->s = *s;
	*ret = g;
	return 0;
}

const struct source_ops source_github_app_ops = {github_app_open, github_app_ask, github_app_close,
						 NULL};

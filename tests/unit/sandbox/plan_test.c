/*
 * What is planned to be hidden: files, links to files, folders of secrets, and what must stay
 * because the command needs it. Over real folders; nothing is mounted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proxy/sandbox/files.h"

static char top[] = "/tmp/stile-plan-XXXXXX";

static char *at(const char *name)
{
	static char buf[8][256];
	static unsigned next;
	char *out = buf[next++ % 8];

	snprintf(out, sizeof(buf[0]), "%s/%s", top, name);
	return out;
}

static void make_file(const char *name)
{
	int fd = open(at(name), O_WRONLY | O_CREAT, 0600);

	assert_true(fd >= 0);
	close(fd);
}

static int how(const struct files_plan *p, const char *name)
{
	for (size_t i = 0; i < p->n; i++) {
		if (strcmp(p->v[i].path, at(name)) == 0)
			return (int)p->v[i].how;
	}
	return -1;
}

static void plan(struct files_plan *p, char *secret, const char *config_file)
{
	static struct config_credential cred;
	static struct config config;
	struct files_options o = {
		.config = &config,
		.config_file = config_file,
		.workspace = at("work"),
	};
	struct err e = ERR_INIT;

	cred = (struct config_credential){.from = secret, .source = CREDENTIAL_FROM_FILE};
	config = (struct config){.credentials = &cred, .credentials_n = 1};
	if (files_plan_make(&o, p, &e) != 0)
		fail_msg("%s", e.text);
	assert_string_equal(p->workspace, at("work"));
}

static void test_file_in_workspace(void **state)
{
	struct files_plan p;

	(void)state;
	make_file("work/tok");
	plan(&p, at("work/tok"), NULL);
	assert_int_equal(how(&p, "work/tok"), FILES_HIDE);
	/* The workspace itself stays, even if nothing else is in it, and stays in its place. */
	assert_int_equal(how(&p, "work"), FILES_PIN);
	files_plan_clear(&p);
	unlink(at("work/tok"));
}

static void test_folder_of_secrets(void **state)
{
	struct files_plan p;

	(void)state;
	make_file("secrets/tok");
	make_file("secrets/stile.yaml");
	make_file("secrets/.hidden");
	plan(&p, at("secrets/tok"), at("secrets/stile.yaml"));
	assert_int_equal(how(&p, "secrets"), FILES_HIDE);
	assert_int_equal(how(&p, "secrets/stile.yaml"), FILES_FREEZE);
	files_plan_clear(&p);
	/* Something else in it may be needed: then the file alone. */
	make_file("secrets/tool");
	plan(&p, at("secrets/tok"), NULL);
	assert_int_equal(how(&p, "secrets"), FILES_PIN);
	assert_int_equal(how(&p, "secrets/tok"), FILES_HIDE);
	files_plan_clear(&p);
	unlink(at("secrets/tool"));
	unlink(at("secrets/stile.yaml"));
	unlink(at("secrets/.hidden"));
	unlink(at("secrets/tok"));
}

/* What a source is told of as a file is a secret as well. */
static void test_file_of_a_source(void **state)
{
	struct config_param params[] = {{.text = at("work/id"), .kind = PARAM_TEXT},
					{.text = at("work/tok"), .kind = PARAM_FILE}};
	struct config_credential cred = {.params = params,
					 .params_n = ARRAY_LEN(params),
					 .source = CREDENTIAL_FROM_OAUTH2};
	struct config config = {.credentials = &cred, .credentials_n = 1};
	struct files_options o = {.config = &config, .workspace = at("work")};
	struct files_plan p;
	struct err e = ERR_INIT;

	(void)state;
	make_file("work/tok");
	make_file("work/id");
	if (files_plan_make(&o, &p, &e) != 0)
		fail_msg("%s", e.text);
	assert_int_equal(how(&p, "work/tok"), FILES_HIDE);
	assert_int_equal(how(&p, "work/id"), -1);
	files_plan_clear(&p);
	unlink(at("work/tok"));
	unlink(at("work/id"));
}

static void test_link(void **state)
{
	struct files_plan p;

	(void)state;
	mkdir(at("secrets/..data"), 0700);
	make_file("secrets/..data/tok");
	assert_int_equal(symlink("..data/tok", at("secrets/tok")), 0);
	plan(&p, at("secrets/tok"), NULL);
	assert_int_equal(how(&p, "secrets/..data/tok"), FILES_HIDE);
	assert_int_equal(how(&p, "secrets"), FILES_HIDE);
	files_plan_clear(&p);
	unlink(at("secrets/tok"));
	unlink(at("secrets/..data/tok"));
	rmdir(at("secrets/..data"));
}

static void test_home_stays(void **state)
{
	struct files_plan p;

	(void)state;
	make_file("secrets/tok");
	setenv("HOME", at("secrets"), 1);
	plan(&p, at("secrets/tok"), NULL);
	assert_int_equal(how(&p, "secrets"), FILES_PIN);
	assert_int_equal(how(&p, "secrets/tok"), FILES_HIDE);
	files_plan_clear(&p);
	unlink(at("secrets/tok"));
	setenv("HOME", "/nonexistent", 1);
}

/* A folder is pinned before those within it; one whose own folder cannot be written stays where it
 * is. */
static void test_folders_on_the_way(void **state)
{
	struct files_plan p;
	size_t outer = 0, inner = 0;

	(void)state;
	mkdir(at("work/deep"), 0700);
	make_file("work/deep/tok");
	plan(&p, at("work/deep/tok"), NULL);
	for (size_t i = 0; i < p.n; i++) {
		if (strcmp(p.v[i].path, at("work")) == 0)
			outer = i;
		if (strcmp(p.v[i].path, at("work/deep")) == 0)
			inner = i;
		assert_string_not_equal(p.v[i].path, "/");
	}
	/* The deep one is hidden, having nothing but the secret in it. */
	assert_int_equal(how(&p, "work/deep"), FILES_HIDE);
	assert_int_equal(how(&p, "work"), FILES_PIN);
	assert_true(outer != inner);
	files_plan_clear(&p);
	make_file("work/deep/tool");
	plan(&p, at("work/deep/tok"), NULL);
	assert_int_equal(how(&p, "work/deep"), FILES_PIN);
	for (size_t i = 0; i < p.n; i++) {
		if (strcmp(p.v[i].path, at("work")) == 0)
			outer = i;
		if (strcmp(p.v[i].path, at("work/deep")) == 0)
			inner = i;
	}
	assert_true(outer < inner);
	files_plan_clear(&p);
	unlink(at("work/deep/tool"));
	unlink(at("work/deep/tok"));
	rmdir(at("work/deep"));
}

/* Whoever could ask there could make tokens of its own, and a listener has another policy. */
static void test_own_sockets(void **state)
{
	struct config_listener l[] = {{.addr = {.family = 4}},
				      {.unix_path = at("work/proxy.sock")}};
	struct config config = {.admin_path = at("work/admin.sock"),
				.listeners = l,
				.listeners_n = 2};
	struct files_options o = {.config = &config, .workspace = at("work")};
	struct files_plan p;

	(void)state;
	make_file("work/admin.sock");
	make_file("work/proxy.sock");
	assert_int_equal(files_plan_make(&o, &p, NULL), 0);
	assert_int_equal(how(&p, "work/admin.sock"), FILES_HIDE);
	assert_int_equal(how(&p, "work/proxy.sock"), FILES_HIDE);
	files_plan_clear(&p);
	unlink(at("work/admin.sock"));
	unlink(at("work/proxy.sock"));
}

static void test_what_is_not_there(void **state)
{
	struct files_options o = {.workspace = at("nowhere")};
	struct files_plan p;
	struct err e = ERR_INIT;

	(void)state;
	plan(&p, at("nowhere/tok"), at("nowhere/stile.yaml"));
	assert_int_equal(how(&p, "nowhere/tok"), -1);
	files_plan_clear(&p);
	assert_int_equal(files_plan_make(&o, &p, &e), -1);
	assert_non_null(strstr(e.text, "workspace"));
	files_plan_clear(&p);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file_in_workspace), cmocka_unit_test(test_folder_of_secrets),
		cmocka_unit_test(test_file_of_a_source),  cmocka_unit_test(test_link),
		cmocka_unit_test(test_home_stays),	  cmocka_unit_test(test_folders_on_the_way),
		cmocka_unit_test(test_own_sockets),	  cmocka_unit_test(test_what_is_not_there),
	};
	int rc;

	setenv("HOME", "/nonexistent", 1);
	unsetenv("SSH_AUTH_SOCK");
	if (!mkdtemp(top) || mkdir(at("work"), 0700) != 0 || mkdir(at("secrets"), 0700) != 0)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(at("work"));
	rmdir(at("secrets"));
	rmdir(top);
	return rc;
}

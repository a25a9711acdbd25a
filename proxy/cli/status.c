/*
 * `stile status` and `stile credentials`: how a running stile is, asked on its admin socket.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "proxy/cli/admin_client.h"
#include "proxy/cli/cli.h"

struct flags {
	struct admin_flags admin;
	bool json;
};

enum { FLAG_SOCKET = 256, FLAG_JSON };

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "-";
}

static long long number_of(const json_t *o, const char *key)
{
	return (long long)json_integer_value(json_object_get(o, key));
}

static int read_flags(const char *cmd, int argc, char **argv, struct flags *f)
{
	static const struct option longs[] = {
		{"socket", required_argument, NULL, FLAG_SOCKET},
		{"json", no_argument, NULL, FLAG_JSON},
		{0},
	};
	int opt;

	while ((opt = cli_getopt(argc, argv, "+:c:", longs, NULL)) != -1) {
		switch (opt) {
		case 'c': f->admin.config = optarg; break;
		case FLAG_SOCKET: f->admin.socket = optarg; break;
		case FLAG_JSON: f->json = true; break;
		default: return cli_bad_flag(cmd, opt, argv);
		}
	}
	return optind < argc ? cli_usage(cmd, "what is `%s`?", argv[optind]) : 0;
}

static void put_line(const char *label, const char *value)
{
	(void)printf("%-12s ", label);
	admin_print_cell(value, 0);
	(void)printf("\n");
}

static void print_status(const json_t *a)
{
	const json_t *log = json_object_get(a, "log"), *one;
	size_t i;

	(void)printf("%-12s %s\n", "state",
		     json_is_true(json_object_get(a, "healthy")) ? "healthy" : "NOT HEALTHY");
	put_line("version", text_of(a, "version"));
	(void)printf("%-12s ", "up");
	admin_print_span(a, "up_s", 0);
	(void)printf("\n%-12s %lld connections, %lld requests, %lld sandboxes\n", "open",
		     number_of(a, "connections"), number_of(a, "requests"),
		     number_of(a, "sandboxes"));
	(void)printf("%-12s ", "log");
	admin_print_cell(text_of(log, "to"), 0);
	(void)printf("(%s)\n", json_is_true(json_object_get(log, "available"))
				       ? "available"
				       : "cannot be written");
	one = json_object_get(a, "state");
	if (one) {
		(void)printf("%-12s ", "shared");
		admin_print_cell(text_of(one, "at"), 0);
		(void)printf("(%s)\n", json_is_true(json_object_get(one, "available")) ? "available"
				       : json_is_true(json_object_get(one, "tokens_served"))
					       ? "out of reach: tokens hold for a while"
					       : "out of reach: no token is served");
	}
	json_array_foreach(json_object_get(a, "listeners"), i, one)
	{
		(void)printf("%-12s ", i == 0 ? "listeners" : "");
		admin_print_cell(text_of(one, "name"), 12);
		admin_print_cell(text_of(one, "kind"), 0);
		admin_print_cell(text_of(one, "at"), 0);
		(void)printf("policy ");
		admin_print_cell(text_of(one, "policy"), 0);
		(void)printf("tokens %s\n", text_of(one, "tokens"));
	}
	json_array_foreach(json_object_get(a, "policies"), i, one)
	{
		(void)printf("%-12s ", i == 0 ? "policies" : "");
		admin_print_cell(text_of(one, "name"), 12);
		(void)printf("version %s, %lld rule%s\n", text_of(one, "version"),
			     number_of(one, "rules"), number_of(one, "rules") == 1 ? "" : "s");
	}
	json_array_foreach(json_object_get(a, "credentials_unavailable"), i, one)
	{
		put_line(i == 0 ? "unavailable" : "", json_string_value(one));
	}
}

int cmd_status(int argc, char **argv)
{
	struct flags f = {0};
	json_t *answer = NULL;
	int code = read_flags("status", argc, argv, &f);

	if (code == 0)
		code = admin_ask(&f.admin, json_pack("{s:s}", "do", "status"), &answer);
	if (code != 0)
		return code;
	if (f.json)
		code = admin_print_json(answer);
	else
		print_status(answer);
	if (code == 0 && !json_is_true(json_object_get(answer, "healthy")))
		code = 1;
	json_decref(answer);
	return code;
}

static void print_credentials(const json_t *list)
{
	const json_t *c;
	size_t i;

	(void)printf("%-24s %-8s %-8s %-12s %-6s %-6s %-8s %-8s %-6s %s\n", "NAME", "SOURCE", "AS",
		     "STATE", "AGE", "ENDS", "RENEWED", "USES", "USED", "ERROR");
	json_array_foreach(list, i, c)
	{
		admin_print_cell(text_of(c, "name"), 24);
		admin_print_cell(text_of(c, "source"), 8);
		admin_print_cell(text_of(c, "as"), 8);
		admin_print_cell(text_of(c, "state"), 12);
		admin_print_span(c, "age_s", 6);
		admin_print_span(c, "ends_in_s", 6);
		admin_print_span(c, "renewed_in_s", 8);
		(void)printf("%-8lld ", number_of(c, "uses"));
		admin_print_span(c, "used_ago_s", 6);
		admin_print_cell(text_of(c, "error"), 0);
		(void)printf("\n");
	}
}

int cmd_credentials(int argc, char **argv)
{
	struct flags f = {0};
	json_t *answer = NULL;
	int code = read_flags("credentials", argc, argv, &f);

	if (code == 0)
		code = admin_ask(&f.admin, json_pack("{s:s}", "do", "credentials"), &answer);
	if (code != 0)
		return code;
	if (f.json)
		code = admin_print_json(answer);
	else
		print_credentials(json_object_get(answer, "credentials"));
	json_decref(answer);
	return code;
}

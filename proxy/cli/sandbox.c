/*
 * `stile sandbox new|list|revoke`: tokens by which a running stile tells sandboxes apart, asked for
 * on its admin socket.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>

#include "policy/url.h"
#include "proxy/cli/admin_client.h"
#include "proxy/cli/cli.h"

struct flags {
	struct admin_flags admin;
	const char *policy, *ttl, *name, *listener, *proxy;
	bool json;
};

enum { FLAG_SOCKET = 256, FLAG_POLICY, FLAG_TTL, FLAG_NAME, FLAG_LISTENER, FLAG_PROXY, FLAG_JSON };

/* 90s, 30m, 1h, 7d, 1500ms. */
static int read_ttl(const char *text, json_int_t *ret_ms)
{
	static const struct {
		const char *unit;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
	size_t digits = strspn(text, "0123456789");
	uint64_t n;

	if (digits == 0 || digits > 9 || str_to_u64(str_from(text, digits), &n) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (strcmp(text + digits, units[i].unit) == 0) {
			n *= units[i].ms;
			*ret_ms = (json_int_t)n;
			return 0;
		}
	return -1;
}

/* http://HOST:PORT, nothing else. */
static int read_proxy(const char *text, struct str *ret_place)
{
	struct str s = str_from_c(text);
	struct host h;
	uint16_t port;

	if (!str_starts(s, STR("http://")))
		return -1;
	s = str_skip(s, sizeof("http://") - 1);
	if (s.n > 0 && s.p[s.n - 1] == '/')
		s = str_head(s, s.n - 1);
	*ret_place = s;
	return url_parse_authority(s, &h, &port, NULL);
}

/* Where the listener can be dialled from this machine; empty: it cannot. */
static void own_place(const char *at, struct strbuf *out)
{
	struct str s = str_from_c(at);

	if (str_starts(s, STR("unix:")))
		return;
	if (str_starts(s, STR("0.0.0.0:"))) {
		strbuf_adds(out, "127.0.0.1:");
		s = str_skip(s, sizeof("0.0.0.0:") - 1);
	} else if (str_starts(s, STR("[::]:"))) {
		strbuf_adds(out, "[::1]:");
		s = str_skip(s, sizeof("[::]:") - 1);
	}
	strbuf_add(out, s);
}

/* The user is a word for people: it is the token that counts. */
static int print_url(const struct flags *f, json_t *answer)
{
	const char *token = json_string_value(json_object_get(answer, "token"));
	const char *at = json_string_value(json_object_get(answer, "at"));
	struct strbuf place, url;
	struct str given;
	int code = 0;

	strbuf_init(&place, 1024);
	strbuf_init(&url, 2048);
	if (f->proxy && read_proxy(f->proxy, &given) == 0)
		strbuf_add(&place, given);
	else
		own_place(at ? at : "", &place);
	strbuf_addf(&url, "http://sandbox:%s@%s", token ? token : "", strbuf_cstr(&place));
	if (f->json && place.len > 0)
		(void)json_object_set_new(answer, "url", json_string(strbuf_cstr(&url)));
	if (f->json)
		code = admin_print_json(answer);
	else if (place.len > 0)
		code = printf("%s\n", strbuf_cstr(&url)) < 0 ? 1 : 0;
	else /* a Unix socket has no URL */
		code = printf("%s\n", token ? token : "") < 0 ? 1 : 0;
	strbuf_clear(&place);
	strbuf_wipe(&url);
	return code;
}

static int cmd_new(const struct flags *f)
{
	json_int_t ms = 0;
	json_t *q, *answer = NULL;
	struct str place;
	int code;

	if (!f->policy)
		return cli_usage("sandbox", "new: which policy? (--policy NAME)");
	if (f->ttl && read_ttl(f->ttl, &ms) < 0)
		return cli_usage("sandbox", "--ttl: a time with a unit, such as 1h");
	if (f->proxy && read_proxy(f->proxy, &place) < 0)
		return cli_usage("sandbox", "--proxy: say http://HOST:PORT");
	q = json_pack("{s:s, s:s, s:s*, s:s*}", "do", "sandbox.new", "policy", f->policy, "name",
		      f->name, "listener", f->listener);
	if (q && f->ttl)
		(void)json_object_set_new(q, "ttl_ms", json_integer(ms));
	code = admin_ask(&f->admin, q, &answer);
	if (code == 0)
		code = print_url(f, answer);
	json_decref(answer);
	return code;
}

static int cmd_list(const struct flags *f)
{
	static const struct {
		const char *key, *title;
		int width;
	} columns[] = {{"name", "NAME", 24},	   {"id", "ID", 16},
		       {"policy", "POLICY", 16},   {"listener", "LISTENER", 12},
		       {"created", "CREATED", 20}, {"ends", "ENDS", 20},
		       {"seen", "LAST SEEN", 20}};
	json_t *answer = NULL;
	const json_t *s;
	size_t i;
	int code = admin_ask(&f->admin, json_pack("{s:s}", "do", "sandbox.list"), &answer);

	if (code != 0)
		return code;
	if (f->json) {
		code = admin_print_json(answer);
		json_decref(answer);
		return code;
	}
	for (size_t k = 0; k < ARRAY_LEN(columns); k++)
		admin_print_cell(columns[k].title, columns[k].width);
	(void)printf("OPEN\n");
	json_array_foreach(json_object_get(answer, "sandboxes"), i, s)
	{
		for (size_t k = 0; k < ARRAY_LEN(columns); k++)
			admin_print_cell(json_string_value(json_object_get(s, columns[k].key)),
					 columns[k].width);
		(void)printf("%lld\n",
			     (long long)json_integer_value(json_object_get(s, "connections")));
	}
	json_decref(answer);
	return 0;
}

static int cmd_revoke(const struct flags *f, const char *which)
{
	json_t *answer = NULL;
	int code = admin_ask(&f->admin,
			     json_pack("{s:s, s:s}", "do", "sandbox.revoke", "sandbox", which),
			     &answer);

	if (code == 0 && f->json)
		code = admin_print_json(answer);
	json_decref(answer);
	return code;
}

static int read_flags(int argc, char **argv, struct flags *f)
{
	static const struct option longs[] = {
		{"socket", required_argument, NULL, FLAG_SOCKET},
		{"policy", required_argument, NULL, FLAG_POLICY},
		{"ttl", required_argument, NULL, FLAG_TTL},
		{"name", required_argument, NULL, FLAG_NAME},
		{"listener", required_argument, NULL, FLAG_LISTENER},
		{"proxy", required_argument, NULL, FLAG_PROXY},
		{"json", no_argument, NULL, FLAG_JSON},
		{0},
	};
	int opt;

	while ((opt = cli_getopt(argc, argv, ":c:", longs, NULL)) != -1) {
		switch (opt) {
		case 'c': f->admin.config = optarg; break;
		case FLAG_SOCKET: f->admin.socket = optarg; break;
		case FLAG_POLICY: f->policy = optarg; break;
		case FLAG_TTL: f->ttl = optarg; break;
		case FLAG_NAME: f->name = optarg; break;
		case FLAG_LISTENER: f->listener = optarg; break;
		case FLAG_PROXY: f->proxy = optarg; break;
		case FLAG_JSON: f->json = true; break;
		default: return cli_bad_flag("sandbox", opt, argv);
		}
	}
	return 0;
}

/* Flags of `new` alone. */
static int check_flags(const struct flags *f, const char *verb)
{
	if (strcmp(verb, "new") != 0 && (f->policy || f->ttl || f->name || f->listener || f->proxy))
		return cli_usage("sandbox",
				 "%s takes none of --policy, --ttl, --name, --listener, --proxy",
				 verb);
	return 0;
}

int cmd_sandbox(int argc, char **argv)
{
	static const char *const verbs[] = {"new", "list", "revoke", NULL};
	struct flags f = {0};
	const char *verb, *near;
	int code = read_flags(argc, argv, &f);
	int left = argc - optind - 1; /* behind the verb */

	if (code != 0)
		return code;
	if (left < 0)
		return cli_usage("sandbox", "what is to be done? (new, list or revoke)");
	verb = argv[optind];
	if (check_flags(&f, verb) != 0)
		return EXIT_USAGE;
	if (strcmp(verb, "revoke") == 0)
		return left == 1 ? cmd_revoke(&f, argv[optind + 1])
				 : cli_usage("sandbox", "revoke: which one? (a name or an id)");
	if (left > 0)
		return cli_usage("sandbox", "what is `%s`?", argv[optind + 1]);
	if (strcmp(verb, "new") == 0)
		return cmd_new(&f);
	if (strcmp(verb, "list") == 0)
		return cmd_list(&f);
	near = cli_nearest(verb, verbs);
	if (near)
		return cli_usage("sandbox", "no such thing: `%s` (did you mean %s?)", verb, near);
	return cli_usage("sandbox", "no such thing: `%s` (new, list or revoke)", verb);
}

/*
 * `stile doctor`: run where the clients run, inside a sandbox or a container. It makes each client
 * that is installed ask for a URL that is allowed and for one that is not, and says of each whether
 * the first was answered by the origin and the second refused by stile, and what to do if not.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proxy/cli/cli.h"
#include "policy/url.h"
#include "proxy/cli/doctor.h"
#include "proxy/net/name_map.h"
#include "proxy/prover/prover.h"

#define OUTPUT_MAX	262144 /* of one client */
#define ASK_MS		60000  /* more than the clients' own 50 s, and than a compiler needs */
#define BUILD_MS	300000 /* a cold cache: Go compiles its library first */
#define VERSION_MS	20000
#define DENIED_URL	"https://doctor.invalid/" /* RFC 6761 section 6.4: nobody has it */
#define PATH_BYTES	4096
#define ARGS_MAX	24
#define TOOLS_MAX	32
#define VERSION_MAX	24
#define ESCAPE_WAYS_MAX 40

struct doctor {
	/* borrowed from argv or the caller */
	const char *allowed, *denied;
	const char *only[TOOLS_MAX];
	/* plain */
	size_t only_n;
	char dir[PATH_BYTES];
};

/* ---- asking ---- */

/* Is the address of the allowed URL's host one that stile's stub DNS makes up? */
static bool has_stub(const struct doctor *d)
{
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	struct addrinfo *list = NULL;
	struct ipaddr a = {.family = 4};
	struct url url;
	bool found = false;

	if (url_parse_absolute(str_from_c(d->allowed), &url, NULL) == 0 &&
	    url.host.kind == HOST_NAME && getaddrinfo(url.host.text, NULL, &hints, &list) == 0) {
		memcpy(a.b, &((struct sockaddr_in *)(void *)list->ai_addr)->sin_addr, 4);
		found = name_map_is_made_up(&a);
		freeaddrinfo(list);
	}
	url_clear(&url);
	return found;
}

/* {url}, {dir} and {file} filled in. NULL when memory is out; to be freed. */
static char *fill_in(const struct doctor *d, const struct doctor_tool *t, const char *word,
		     const char *url)
{
	struct strbuf b;
	char *text;

	strbuf_init(&b, 65536);
	while (*word) {
		size_t n = strcspn(word, "{");

		strbuf_add(&b, str_from(word, n));
		word += n;
		if (strncmp(word, "{url}", 5) == 0) {
			strbuf_adds(&b, url);
			word += 5;
		} else if (strncmp(word, "{dir}", 5) == 0) {
			strbuf_adds(&b, d->dir);
			word += 5;
		} else if (strncmp(word, "{file}", 6) == 0) {
			strbuf_addf(&b, "%s/%s", d->dir, t->file);
			word += 6;
		} else if (*word) {
			strbuf_addc(&b, *word++);
		}
	}
	text = strbuf_take(&b);
	strbuf_clear(&b);
	return text;
}

struct words {
	char *v[ARGS_MAX + 1];
};

static void words_clear(struct words *w)
{
	for (char **p = w->v; *p; p++)
		free(*p);
}

static int words_make(const struct doctor *d, const struct doctor_tool *t, const char *const *from,
		      const char *url, struct words *ret)
{
	*ret = (struct words){0};
	for (size_t i = 0; from && from[i] && i < ARGS_MAX; i++) {
		ret->v[i] = fill_in(d, t, from[i], url);
		if (!ret->v[i])
			return -1;
	}
	return 0;
}

static int run(const struct doctor *d, const struct doctor_tool *t, const char *const *what,
	       const char *url, unsigned timeout_ms, struct strbuf *out, struct doctor_run *ret,
	       struct err *e)
{
	struct words argv, env = {0};
	int r = -1;

	/* So that a word may be looked for at the beginning of a line. */
	strbuf_addc(out, '\n');
	if (words_make(d, t, what, url, &argv) < 0 || words_make(d, t, t->env, url, &env) < 0)
		err_set(e, "out of memory");
	else
		r = doctor_run((const char *const *)argv.v, (const char *const *)env.v, d->dir,
			       timeout_ms, out, ret, e);
	words_clear(&argv);
	words_clear(&env);
	return r;
}

static int ask(const struct doctor *d, const struct doctor_tool *t, const char *url,
	       struct strbuf *out, enum doctor_verdict *ret, struct err *e)
{
	struct doctor_run how;

	if (run(d, t, t->ask, url, ASK_MS, out, &how, e) < 0)
		return -1;
	doctor_blank_out(out, url);
	*ret = doctor_judge(t, out, &how);
	return 0;
}

/* ---- one client ---- */

/* The first word that begins with a digit, perhaps behind a "v" or "go" or a quote. False: it is
 * not installed. */
static bool find_version(const struct doctor *d, const struct doctor_tool *t, char *ret)
{
	struct err e = ERR_INIT;
	struct doctor_run run;
	struct strbuf out, safe;
	const char *at;
	size_t n;

	strbuf_init(&out, OUTPUT_MAX);
	strbuf_init_fixed(&safe, ret, VERSION_MAX);
	if (doctor_run(t->version, NULL, d->dir, VERSION_MS, &out, &run, &e) < 0 ||
	    run.status != 0) {
		strbuf_clear(&out);
		return false;
	}
	at = strbuf_cstr(&out);
	/* "Picked up JAVA_TOOL_OPTIONS: ..." comes first, and has an address in it. */
	if (strncmp(at, "Picked up ", 10) == 0)
		at += strcspn(at, "\n");
	at += strcspn(at, "0123456789");
	n = strspn(at, "0123456789.");
	strbuf_add_printable(&safe, str_from(at, n < VERSION_MAX - 1 ? n : VERSION_MAX - 1));
	if (n == 0)
		strbuf_adds(&safe, "?");
	strbuf_clear(&out);
	return true;
}

static int write_file(const struct doctor *d, const struct doctor_tool *t, struct err *e)
{
	char path[PATH_BYTES + 64];
	struct strbuf b;
	size_t n = t->text ? strlen(t->text) : 0;
	int fd;

	if (!t->file)
		return 0;
	strbuf_init_fixed(&b, path, sizeof(path));
	strbuf_addf(&b, "%s/%s", d->dir, t->file);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || write(fd, t->text, n) != (ssize_t)n) {
		err_sys(e, errno, "%s", path);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	close(fd);
	return 0;
}

/* 1: there is something to run; 0: it could not be built, which out says. */
static int build(const struct doctor *d, const struct doctor_tool *t, struct strbuf *out,
		 struct err *e)
{
	struct doctor_run how = {0};

	if (write_file(d, t, e) < 0 ||
	    (t->build && run(d, t, t->build, "", BUILD_MS, out, &how, e) < 0))
		return -1;
	return how.status == 0 && !how.timed_out;
}

/* 1: as it should be; 0: not; -1: could not be tried. */
static int examine(const struct doctor *d, const struct doctor_tool *t, const char *version,
		   struct err *e)
{
	struct strbuf a, b, advice;
	enum doctor_verdict allowed = DOCTOR_OTHER, denied = DOCTOR_OTHER;
	bool well;
	int r = -1, built;

	strbuf_init(&a, OUTPUT_MAX);
	strbuf_init(&b, OUTPUT_MAX);
	strbuf_init(&advice, 4096);
	built = build(d, t, &a, e);
	if (built < 0 || (built > 0 && (ask(d, t, d->allowed, &a, &allowed, e) < 0 ||
					ask(d, t, d->denied, &b, &denied, e) < 0)))
		goto out;
	/* Names come from stile's stub DNS: one that is not there was refused by it. */
	if (allowed == DOCTOR_ANSWERED && denied == DOCTOR_NO_WAY && has_stub(d))
		denied = DOCTOR_REFUSED;
	well = allowed == DOCTOR_ANSWERED && denied == DOCTOR_REFUSED;
	if (!well)
		doctor_advise(t, allowed, denied, &a, &advice);
	(void)printf("%-16s %-12s %-9s ", t->name, version, doctor_word(allowed, DOCTOR_ANSWERED));
	if (well)
		(void)printf("ok\n");
	else
		(void)printf("%-9s %s\n", doctor_word(denied, DOCTOR_REFUSED),
			     strbuf_cstr(&advice));
	if (allowed != DOCTOR_ANSWERED)
		doctor_print_said(allowed, "allowed", &a);
	if (denied != DOCTOR_REFUSED && built > 0)
		doctor_print_said(denied, "denied", &b);
	(void)fflush(stdout);
	r = well;
out:
	strbuf_clear(&a);
	strbuf_clear(&b);
	strbuf_clear(&advice);
	return r;
}

/* ---- all of them ---- */

static bool is_wanted(const struct doctor *d, const char *name)
{
	for (size_t i = 0; i < d->only_n; i++)
		if (strcmp(d->only[i], name) == 0)
			return true;
	return d->only_n == 0;
}

static int examine_all(const struct doctor *d, struct err *e)
{
	size_t found = 0, well = 0;

	(void)printf("%-16s %-12s %-9s %-9s %s\n", "client", "version", "allowed", "denied",
		     "what to do");
	for (const struct doctor_tool *t = doctor_tools; t->name; t++) {
		char version[VERSION_MAX];
		int r;

		if (!is_wanted(d, t->name))
			continue;
		if (!find_version(d, t, version)) {
			(void)printf("%-16s not installed\n", t->name);
			continue;
		}
		found++;
		r = examine(d, t, version, e);
		if (r < 0)
			return -1;
		well += (size_t)r;
	}
	(void)printf("%zu of %zu as it should be\n", well, found);
	return found > 0 && well == found ? 0 : 1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)st;
	(void)kind;
	(void)where;
	(void)remove(path);
	return 0;
}

static int in_a_folder(struct doctor *d)
{
	const char *tmp = getenv("TMPDIR");
	struct err e = ERR_INIT;
	struct strbuf b;
	int r;

	strbuf_init_fixed(&b, d->dir, sizeof(d->dir));
	strbuf_addf(&b, "%s/stile-doctor-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
	if (b.overflowed || !mkdtemp(d->dir)) {
		(void)err_sys(&e, errno, "%s", d->dir);
		return cli_fail(&e);
	}
	r = examine_all(d, &e);
	(void)nftw(d->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	return r < 0 ? cli_fail(&e) : r;
}

static int add_only(struct doctor *d, const char *name)
{
	const char *known[TOOLS_MAX];
	const char *near;
	size_t n = 0;

	for (const struct doctor_tool *t = doctor_tools; t->name; t++) {
		if (strcmp(t->name, name) == 0 && d->only_n < TOOLS_MAX) {
			d->only[d->only_n++] = name;
			return 0;
		}
		known[n++] = t->name;
	}
	known[n] = NULL;
	near = cli_nearest(name, known);
	(void)cli_usage("doctor", "--client: %s is none that it knows%s%s%s", name,
			near ? " (did you mean `" : "", near ? near : "", near ? "`?)" : "");
	return -1;
}

/* The first URL that the configuration allows, when none was said. */
static int find_allowed(struct doctor *d, const char *file, struct strbuf *url)
{
	struct config *c;
	struct policy *p;
	int r = 0;

	if (d->allowed)
		return 0;
	if (!cli_find_config(file))
		return cli_usage("doctor", "there is no configuration here to find an allowed URL "
					   "in: say --allowed URL");
	c = cli_load_config(file);
	if (!c)
		return EXIT_USAGE;
	p = c->policies_n == 1 ? c->policies[0] : config_policy(c, "default");
	if (p && doctor_find_url(p, url) == 0)
		d->allowed = strbuf_cstr(url);
	else
		r = cli_usage("doctor",
			      "the policy allows no https URL without a wildcard in its host "
			      "to GET: say --allowed URL");
	config_unref(c);
	return r;
}

static bool is_url(const char *text)
{
	struct url u;
	bool r = url_parse_absolute(str_from_c(text), &u, NULL) == 0;

	url_clear(&u);
	return r;
}

/* `--escape` and its flags. */
struct escape {
	struct prover_options o;
	const char *but[ESCAPE_WAYS_MAX + 1], *only[ESCAPE_WAYS_MAX + 1]; /* end with NULL */
	bool wanted;
};

static int add_reach(struct escape *x, const char *text)
{
	struct err e = ERR_INIT;

	if (prover_add_reach(&x->o, text, &e) == 0)
		return 0;
	(void)cli_usage("doctor", "--reach %s", e.text);
	return -1;
}

static int add_way(const char **ways, const char *flag, const char *name)
{
	size_t n = 0;

	while (ways[n])
		n++;
	if (!prover_knows(name) || n == ESCAPE_WAYS_MAX) {
		(void)cli_usage("doctor", "--%s: no way is called `%s`", flag, name);
		return -1;
	}
	ways[n] = name;
	return 0;
}

int cmd_doctor(int argc, char **argv)
{
	enum {
		OPT_ALLOWED = 256,
		OPT_DENIED,
		OPT_CLIENT,
		OPT_ESCAPE,
		OPT_REACH,
		OPT_RESOLVE,
		OPT_BUT,
		OPT_WAY,
		OPT_WORKSPACE,
		OPT_JSON
	};
	static const struct option longs[] = {
		{"allowed", required_argument, NULL, OPT_ALLOWED},
		{"denied", required_argument, NULL, OPT_DENIED},
		{"client", required_argument, NULL, OPT_CLIENT},
		{"escape", no_argument, NULL, OPT_ESCAPE},
		{"reach", required_argument, NULL, OPT_REACH},
		{"resolve", required_argument, NULL, OPT_RESOLVE},
		{"but", required_argument, NULL, OPT_BUT},
		{"way", required_argument, NULL, OPT_WAY},
		{"workspace", required_argument, NULL, OPT_WORKSPACE},
		{"json", no_argument, NULL, OPT_JSON},
		{0},
	};
	struct doctor d = {.denied = DENIED_URL};
	struct escape x = {.o = {.resolve = "example.com", .but = x.but, .only = x.only}};
	const char *file = NULL;
	struct strbuf url;
	/* One of each kind that was given. */
	const char *of_escape = NULL, *of_clients = NULL;
	int opt, at = 0, r;

	while ((opt = cli_getopt(argc, argv, "+:c:", longs, &at)) != -1) {
		if (opt == OPT_ALLOWED || opt == OPT_DENIED || opt == OPT_CLIENT)
			of_clients = longs[at].name;
		else if (opt > OPT_ESCAPE)
			of_escape = longs[at].name;
		switch (opt) {
		case 'c': file = optarg; break;
		case OPT_ALLOWED: d.allowed = optarg; break;
		case OPT_DENIED: d.denied = optarg; break;
		case OPT_CLIENT:
			if (add_only(&d, optarg) < 0)
				return EXIT_USAGE;
			break;
		case OPT_ESCAPE: x.wanted = true; break;
		case OPT_RESOLVE: x.o.resolve = optarg; break;
		case OPT_WORKSPACE: x.o.workspace = optarg; break;
		case OPT_JSON: x.o.json = true; break;
		case OPT_REACH:
			if (add_reach(&x, optarg) < 0)
				return EXIT_USAGE;
			break;
		case OPT_BUT:
		case OPT_WAY:
			if (add_way(opt == OPT_BUT ? x.but : x.only, opt == OPT_BUT ? "but" : "way",
				    optarg) < 0)
				return EXIT_USAGE;
			break;
		default: return cli_bad_flag("doctor", opt, argv);
		}
	}
	if (optind < argc)
		return cli_usage("doctor", "what is `%s`?", argv[optind]);
	if (!x.wanted && of_escape)
		return cli_usage("doctor", "--%s goes with --escape", of_escape);
	if (x.wanted && of_clients)
		return cli_usage("doctor", "--escape asks no client: leave --%s out", of_clients);
	if (x.wanted)
		return prover_run(&x.o, stdout);
	strbuf_init(&url, PATH_BYTES);
	r = find_allowed(&d, file, &url);
	if (r == 0 && (!is_url(d.allowed) || !is_url(d.denied)))
		r = cli_usage("doctor", "--allowed and --denied take whole URLs");
	if (r == 0) {
		(void)printf("allowed: %s\ndenied:  %s\n", d.allowed, d.denied);
		r = in_a_folder(&d);
	}
	strbuf_clear(&url);
	return r;
}

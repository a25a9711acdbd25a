/*
 * See admin_client.h.
 */
#include "proxy/cli/admin_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "logging/limits.h"
#include "proxy/cli/cli.h"

/* Warnings about the policy are `check`'s to say. NULL: said on stderr. */
static char *find_socket(const struct admin_flags *f)
{
	const char *file = cli_find_config(f->config);
	struct faults faults;
	char *path = NULL;

	if (f->socket)
		return strdup(f->socket);
	if (!file) {
		(void)fputs("stile: no configuration that names the admin socket (say -c FILE or "
			    "--socket PATH)\n",
			    stderr);
		return NULL;
	}
	faults_init(&faults, file);
	if (config_find_admin(file, &path, &faults) < 0) {
		if (path)
			(void)fprintf(
				stderr,
				"stile: %s is broken (`stile check` says where); asked is the "
				"socket that it names\n",
				file);
		else
			cli_print_faults(&faults);
	} else if (!path) {
		(void)fprintf(stderr,
			      "stile: %s: no admin socket (add `admin: "
			      "unix:/run/stile/admin.sock`)\n",
			      file);
	}
	faults_clear(&faults);
	return path;
}

static int dial(const char *path, struct err *e)
{
	struct timeval most = {.tv_sec = LIMIT_MS_ADMIN_CLIENT / 1000};
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	size_t n = strlen(path);
	int fd;

	if (n == 0 || n >= sizeof(sa.sun_path))
		return err_set(e, "%s: no path of a socket", path);
	memcpy(sa.sun_path, path, n + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, errno, "%s", path);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
	if (connect(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0) {
		err_sys(e, errno, "%s (does `stile serve` run, and as whom?)", path);
		close(fd);
		return -1;
	}
	return fd;
}

static int send_all(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t done = send(fd, p, n, MSG_NOSIGNAL);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return -1;
		p += done;
		n -= (size_t)done;
	}
	return 0;
}

static int read_all(int fd, struct strbuf *in, struct err *e)
{
	for (;;) {
		char *room = strbuf_reserve(in, 4096);
		ssize_t n = room ? recv(fd, room, 4096, 0) : -1;

		if (n < 0 && errno == EINTR)
			continue;
		if (!room)
			return err_set(e, "the answer is too long");
		if (n < 0)
			return err_sys(e, errno, "no answer");
		if (n == 0)
			return 0;
		in->len += (size_t)n;
		in->data[in->len] = '\0';
	}
}

static int exchange(int fd, const json_t *q, json_t **ret, struct err *e)
{
	char *text = json_dumps(q, JSON_COMPACT);
	const char *why;
	struct strbuf in;
	int rc = -1;

	strbuf_init(&in, LIMIT_ADMIN_ANSWER_BYTES + 4096);
	if (!text || send_all(fd, text, strlen(text)) < 0 || send_all(fd, "\n", 1) < 0) {
		err_sys(e, errno, "the request was not taken");
		goto out;
	}
	if (read_all(fd, &in, e) < 0)
		goto out;
	*ret = json_loadb(strbuf_cstr(&in), in.len, 0, NULL);
	if (json_is_true(json_object_get(*ret, "ok"))) {
		rc = 0;
		goto out;
	}
	why = json_string_value(json_object_get(*ret, "error"));
	err_set(e, "%s", why ? why : "there was no answer (may this user ask?)");
	json_decref(*ret);
	*ret = NULL;
out:
	strbuf_wipe(&in);
	free(text);
	return rc;
}

int admin_ask(const struct admin_flags *f, json_t *q, json_t **ret)
{
	char *path = find_socket(f);
	struct err e = ERR_INIT;
	int fd, code = 0;

	if (!path) {
		json_decref(q);
		return EXIT_USAGE;
	}
	fd = q ? dial(path, &e) : err_set(&e, "out of memory");
	if (fd < 0 || exchange(fd, q, ret, &e) < 0)
		code = cli_fail(&e);
	if (fd >= 0)
		close(fd);
	json_decref(q);
	free(path);
	return code;
}

int admin_print_json(const json_t *answer)
{
	return json_dumpf(answer, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF ? 0 : 1;
}

void admin_print_cell(const char *s, int width)
{
	struct strbuf safe;

	strbuf_init(&safe, 4096);
	strbuf_add_printable(&safe, str_from_c(s && *s ? s : "-"));
	(void)printf("%-*s ", width, strbuf_cstr(&safe));
	strbuf_clear(&safe);
}

void admin_print_span(const json_t *o, const char *key, int width)
{
	static const struct {
		long long s;
		char unit;
	} units[] = {{172800, 'd'}, {7200, 'h'}, {120, 'm'}, {0, 's'}};
	static const long long sizes[] = {86400, 3600, 60, 1};
	const json_t *v = json_object_get(o, key);
	long long s = json_integer_value(v);
	char text[32];

	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (s >= units[i].s) {
			(void)snprintf(text, sizeof(text), "%lld%c", s / sizes[i], units[i].unit);
			break;
		}
	admin_print_cell(v ? text : NULL, width);
}

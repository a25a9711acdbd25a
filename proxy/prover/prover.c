/*
 * Runs each way in a child with a time limit and prints the table.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/wait.h>

#include <jansson.h>

#include "logging/limits.h"
#include "logging/strbuf.h"
#include "proxy/prover/way.h"

static const struct way *const groups[] = {ways_network, ways_sockets, ways_processes, ways_kernel,
					   ways_files};

static const char *const words[] = {[WAY_NONE] = "not there",
				    [WAY_SHUT] = "shut",
				    [WAY_UNSURE] = "unsure",
				    [WAY_OPEN] = "OPEN"};

static void in_child(const struct way *w, const struct prover_options *o, int fd)
{
	struct finding f = {0};

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	w->try(o, &f);
	_exit(write(fd, &f, sizeof(f)) == (ssize_t)sizeof(f) ? 0 : 1);
}

/* The whole of f, or less than that when the child ended or the time is over. */
static size_t read_finding(int fd, struct finding *f)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ssize_t n;

	if (poll(&p, 1, LIMIT_MS_PROVER_WAY) <= 0)
		return 0;
	n = read(fd, f, sizeof(*f));
	return n > 0 ? (size_t)n : 0;
}

static void try_one(const struct way *w, const struct prover_options *o, struct finding *f)
{
	int fds[2], status = 0;
	pid_t pid;

	*f = (struct finding){0};
	if (pipe(fds) != 0) {
		finding_set(f, WAY_UNSURE, "no pipe: %s", strerror(errno));
		return;
	}
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		in_child(w, o, fds[1]);
	}
	close(fds[1]);
	if (pid < 0) {
		finding_set(f, WAY_UNSURE, "no process: %s", strerror(errno));
	} else {
		bool whole = read_finding(fds[0], f) == sizeof(*f);

		(void)kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		if (!whole)
			*f = (struct finding){0};
		if (!whole && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
			finding_set(f, WAY_SHUT, "a filter killed the attempt");
		else if (!whole && WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
			finding_set(f, WAY_UNSURE, "the attempt ended by signal %d",
				    WTERMSIG(status));
		else if (!whole)
			finding_set(f, WAY_UNSURE, "no end within %d s",
				    LIMIT_MS_PROVER_WAY / 1000);
	}
	close(fds[0]);
}

static bool is_among(const char *const *names, const char *name)
{
	for (; names && *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

static void print_text(const struct way *w, const struct finding *f, bool excepted, FILE *out)
{
	struct strbuf safe;

	strbuf_init(&safe, 4 * sizeof(f->text));
	strbuf_add_printable(&safe, str_from(f->text, strnlen(f->text, sizeof(f->text))));
	(void)fprintf(out, "%-11s %-48s %-9s %s%s\n", w->name, w->what, words[f->state],
		      strbuf_cstr(&safe), excepted ? " (excepted)" : "");
	(void)fflush(out);
	strbuf_clear(&safe);
}

static void print_json(const struct way *w, const struct finding *f, bool excepted, FILE *out)
{
	static const char *const states[] = {[WAY_NONE] = "none",
					     [WAY_SHUT] = "shut",
					     [WAY_UNSURE] = "unsure",
					     [WAY_OPEN] = "open"};
	struct strbuf safe;
	json_t *j;

	strbuf_init(&safe, 4 * sizeof(f->text));
	strbuf_add_printable(&safe, str_from(f->text, strnlen(f->text, sizeof(f->text))));
	j = json_pack("{s:s,s:s,s:s,s:s,s:b}", "way", w->name, "what", w->what, "state",
		      states[f->state], "detail", strbuf_cstr(&safe), "excepted", (int)excepted);
	if (!j || json_dumpf(j, out, JSON_COMPACT | JSON_PRESERVE_ORDER) != 0)
		(void)fputs("{}", out);
	(void)fputc('\n', out);
	json_decref(j);
	strbuf_clear(&safe);
}

bool prover_knows(const char *way)
{
	for (size_t g = 0; g < ARRAY_LEN(groups); g++)
		for (const struct way *w = groups[g]; w->name; w++)
			if (strcmp(w->name, way) == 0)
				return true;
	return false;
}

int prover_run(const struct prover_options *o, FILE *out)
{
	size_t tried = 0, open = 0, unsure = 0;

	(void)signal(SIGPIPE, SIG_IGN);
	for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
		for (const struct way *w = groups[g]; w->name; w++) {
			bool excepted = is_among(o->but, w->name);
			struct finding f;

			if (o->only && *o->only && !is_among(o->only, w->name))
				continue;
			(void)fflush(out);
			try_one(w, o, &f);
			tried++;
			open += f.state == WAY_OPEN && !excepted;
			unsure += f.state == WAY_UNSURE && !excepted;
			(o->json ? print_json : print_text)(w, &f, excepted, out);
		}
	}
	if (!o->json)
		(void)fprintf(out, "%zu ways tried: %zu open, %zu unsure\n", tried, open, unsure);
	return open + unsure > 0 ? 1 : 0;
}

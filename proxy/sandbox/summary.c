/*
 * Counts the refusals of one run in its log, so that the user is told that something was refused
 * and where it is written. It only looks for two members as the writer spells them: inside a JSON
 * string the quotes would be escaped, so no request can forge them.
 */
#include "proxy/sandbox/summary.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "logging/opener.h"

void log_mark_set(struct log_mark *m, const char *log_to)
{
	struct stat st;

	*m = (struct log_mark){0};
	if (strcmp(log_to, "stdout") == 0 || strncmp(log_to, "syslog:", 7) == 0)
		return;
	m->path = log_to;
	if (stat(log_to, &st) == 0 && S_ISREG(st.st_mode))
		m->at = st.st_size;
}

uint64_t log_mark_refused(const struct log_mark *m, const char *sandbox)
{
	char id[128], *line = NULL;
	size_t cap = 0;
	uint64_t n = 0;
	struct stat st;
	FILE *f;
	int fd;

	if (!m->path || stat(m->path, &st) != 0 || !S_ISREG(st.st_mode))
		return 0;
	fd = opener_open(m->path, O_RDONLY | O_CLOEXEC);
	f = fd < 0 ? NULL : fdopen(fd, "r");
	if (!f) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	snprintf(id, sizeof(id), "\"sandbox\":\"%s\"", sandbox);
	/* A file that was rotated away is read from its new start. */
	if (fseeko(f, m->at <= st.st_size ? m->at : 0, SEEK_SET) == 0) {
		while (getline(&line, &cap, f) > 0) {
			if (strstr(line, "\"decision\":\"deny\"") && strstr(line, id))
				n++;
		}
	}
	free(line);
	fclose(f);
	return n;
}

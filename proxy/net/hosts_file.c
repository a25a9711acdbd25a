/*
 * Keeps the text of the hosts file and searches it line by line: it is short nearly everywhere, and
 * dns_cache and a question to DNS cost more. Lines that it cannot read are passed over, as every
 * other reader of the file does. Used by resolve.c alone.
 */
#include "proxy/net/hosts_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "logging/log.h"
#include "logging/opener.h"

#define LOOK_US	  5000000
#define BYTES_MAX 8388608 /* blocklists of a megabyte are in use */

struct hosts_file {
	/* owned */
	char *text;
	/* borrowed */
	const char *path;
	/* plain */
	size_t n;
	bool looked;
	int64_t looked_us;
	struct stat as_of; /* when text was read */
};

int hosts_file_new(const char *path, struct hosts_file **ret, struct err *e)
{
	struct hosts_file *h = calloc(1, sizeof(*h));

	if (!h)
		return err_set(e, "out of memory");
	h->path = path;
	*ret = h;
	return 0;
}

void hosts_file_free(struct hosts_file *h)
{
	if (!h)
		return;
	free(h->text);
	free(h);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* All of fd, the bound at most. NULL: memory or an error. */
static char *read_all(int fd, size_t size, size_t *ret_n)
{
	char *text = malloc(size + 1);
	size_t n = 0;

	while (text && n < size) {
		ssize_t got = read(fd, text + n, size - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			free(text);
			return NULL;
		}
		if (got == 0)
			break;
		n += (size_t)got;
	}
	*ret_n = n;
	return text;
}

static bool read_file(struct hosts_file *h)
{
	/* O_NONBLOCK: should a pipe stand there, the worker must not wait for its other end. */
	int fd = opener_open(h->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	bool is_new = false;
	char *text;
	size_t n;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		goto out;
	if (st.st_size > BYTES_MAX)
		log_warn("%s: only the first %d bytes are read", h->path, BYTES_MAX);
	text = read_all(fd, st.st_size > BYTES_MAX ? BYTES_MAX : (size_t)st.st_size, &n);
	if (!text)
		goto out;
	free(h->text);
	h->text = text;
	h->n = n;
	h->as_of = st;
	is_new = true;
out:
	close(fd);
	return is_new;
}

bool hosts_file_look(struct hosts_file *h, int64_t now_us)
{
	struct stat st;
	bool had = h->text != NULL;

	if (h->looked && now_us - h->looked_us < LOOK_US)
		return false;
	h->looked = true;
	h->looked_us = now_us;
	if (stat(h->path, &st) < 0) {
		if (errno != ENOENT)
			return false; /* what was read stays */
		free(h->text);
		h->text = NULL;
		h->n = 0;
		return had;
	}
	return (!had || !is_same(&st, &h->as_of)) && read_file(h);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static struct str next_word(struct str *line)
{
	size_t from = 0, to;

	while (from < line->n && is_blank(line->p[from]))
		from++;
	for (to = from; to < line->n && !is_blank(line->p[to]);)
		to++;
	struct str word = str_from(line->p + from, to - from);
	*line = str_skip(*line, to);
	return word;
}

/* Does the line name it? Then its address is in *ret. */
static bool line_has(struct str line, struct str name, struct ipaddr *ret)
{
	ptrdiff_t hash = str_find(line, '#');
	struct str addr, word;

	if (hash >= 0)
		line = str_head(line, (size_t)hash);
	addr = next_word(&line);
	for (word = next_word(&line); word.n > 0; word = next_word(&line)) {
		if (word.p[word.n - 1] == '.')
			word.n--;
		if (str_eq_nocase(word, name))
			return ipaddr_parse(addr, ret) == 0;
	}
	return false;
}

size_t hosts_file_find(const struct hosts_file *h, struct str name, struct ipaddr *ret, size_t max)
{
	struct str rest = str_from(h->text, h->n);
	size_t n = 0;

	while (rest.p && n < max)
		if (line_has(str_split(&rest, '\n'), name, &ret[n]))
			n++;
	return n;
}

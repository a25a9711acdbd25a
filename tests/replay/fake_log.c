/*
 * The writer's thread without a thread: takes the chunks that the real port.c hands over and
 * "writes" them, holds them, or fails. What is written can be read back line by line. The
 * operator's log ends here too: its debug lines say which moves between states there were.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "logging/queue.h"
#include "tests/replay/fake.h"

struct fake_log fake_log;
bool fake_log_is_lent;
struct fake_moves fake_moves;

static struct log_writer writer;
static size_t cap;

struct log_writer *fake_log_begin(void)
{
	fake_log = (struct fake_log){0};
	cap = 0;
	memset(&writer, 0, sizeof(writer));
	pthread_mutex_init(&writer.lock, NULL);
	pthread_cond_init(&writer.wake, NULL);
	writer.available = true;
	writer.wait = LOG_WAIT_WRITTEN;
	return &writer;
}

static void tell_all(void)
{
	for (struct log_port *p = writer.ports; p; p = p->next)
		port_signal(p);
}

void fake_log_set(enum fake_log_mode mode)
{
	fake_log.mode = mode;
	fake_log.troubled = fake_log.troubled || mode != LOG_WRITES;
	writer.available = mode != LOG_FAILS;
	tell_all();
}

void fake_log_full(bool full)
{
	fake_log.troubled = true;
	if (full)
		writer.queued += LIMIT_LOG_QUEUE_BYTES;
	else
		writer.queued -= LIMIT_LOG_QUEUE_BYTES;
	tell_all();
}

bool fake_log_took_all(void)
{
	return !fake_log.troubled && writer.untaken == 0;
}

/* ---- lines ---- */

void fake_line_value(const struct fake_line *l, const char *key, char *ret, size_t size)
{
	char want[64];
	const char *at;
	size_t n;

	ret[0] = '\0';
	snprintf(want, sizeof(want), "\"%s\":", key);
	at = strstr(l->text, want);
	if (!at)
		return;
	at += strlen(want);
	n = *at == '"' ? strcspn(at + 1, "\"") : strcspn(at, ",}");
	snprintf(ret, size, "%.*s", (int)n, *at == '"' ? at + 1 : at);
}

static void add_line(struct str text)
{
	struct fake_line *l;
	char path[LIMIT_RECORD_VALUE + 64];

	if (fake_log.n == cap) {
		struct fake_line *grown;

		cap = cap ? cap * 2 : 64;
		grown = fake_calloc(cap * sizeof(*grown));
		if (fake_log.n > 0)
			memcpy(grown, fake_log.lines, fake_log.n * sizeof(*grown));
		fake_free(fake_log.lines);
		fake_log.lines = grown;
	}
	l = &fake_log.lines[fake_log.n++];
	*l = (struct fake_line){.text = fake_calloc(text.n + 1)};
	memcpy(l->text, text.p, text.n);
	fake_line_value(l, "event", l->event, sizeof(l->event));
	fake_line_value(l, "id", l->id, sizeof(l->id));
	fake_line_value(l, "path", path, sizeof(path));
	l->path = fake_calloc(strlen(path) + 1);
	memcpy(l->path, path, strlen(path));
	l->written = true;
	if (!strstr(l->event, ".deny") && !strstr(l->event, ".start"))
		return;
	fake_log.streams += strstr(l->text, "\"http\":\"2\"") ? 1 : 0;
	/* Also a connection that is at fault has a record, for which no request stands. */
	fake_line_value(l, "method", path, sizeof(path));
	fake_log.requests += path[0] ? 1 : 0;
}

static void write_chunk(struct chunk *c)
{
	struct str rest = strbuf_str(&c->text);

	while (rest.n > 0) {
		struct str line = str_split(&rest, '\n');

		if (line.n > 0)
			add_line(line);
	}
}

/* A chunk at a time: that is what a full disk takes back. */
static bool write_waiting(const struct log_port *self)
{
	bool any = false;

	while (fake_log.mode == LOG_WRITES && writer.waiting.head) {
		struct chunk *c;

		if (fake_log.fail_at > 0 && fake_log.n + 1 >= (size_t)fake_log.fail_at) {
			fake_log.fail_at = 0;
			fake_log_set(LOG_FAILS);
			return true;
		}
		c = chunk_list_pop(&writer.waiting);
		write_chunk(c);
		writer.queued -= c->text.len;
		c->port->written = c->last_ticket;
		if (c->port != self)
			port_signal(c->port);
		port_return_chunk(c);
		any = true;
	}
	return any;
}

bool fake_log_write(void)
{
	return write_waiting(NULL);
}

bool writer_lend(struct log_writer *w)
{
	return fake_log_is_lent && fake_log.mode == LOG_WRITES && fake_log.fail_at == 0 &&
	       w->waiting.head == w->waiting.tail;
}

bool writer_write_lent(struct log_writer *w, const struct log_port *p)
{
	(void)write_waiting(p);
	return !w->waiting.head;
}

static bool has_end(const struct fake_line *start)
{
	for (const struct fake_line *l = start + 1; l < fake_log.lines + fake_log.n; l++)
		if (strcmp(l->id, start->id) == 0 && strstr(l->event, ".end"))
			return true;
	return false;
}

size_t fake_log_open_starts(struct str path)
{
	size_t n = 0;

	for (size_t i = 0; i < fake_log.n; i++) {
		const struct fake_line *l = &fake_log.lines[i];

		if (strstr(l->event, ".start") &&
		    (path.n == 0 || str_eq(path, str_from_c(l->path)) ||
		     strcmp(l->event, "tunnel.start") == 0) &&
		    !has_end(l))
			n++;
	}
	return n;
}

void fake_log_balance(void)
{
	for (size_t i = 0; i < fake_log.n; i++) {
		const struct fake_line *l = &fake_log.lines[i];
		unsigned starts = 0, ends = 0, denies = 0;

		for (size_t k = 0; k < fake_log.n; k++) {
			const struct fake_line *o = &fake_log.lines[k];

			if (strcmp(o->id, l->id) != 0)
				continue;
			starts += strstr(o->event, ".start") ? 1 : 0;
			ends += strstr(o->event, ".end") ? 1 : 0;
			denies += strstr(o->event, ".deny") ? 1 : 0;
		}
		if (starts != ends || starts + denies != 1)
			fake_fault("%s has %u starts, %u ends, %u denials: %s", l->id, starts, ends,
				   denies, l->text);
	}
}

void fake_log_end(void)
{
	for (size_t i = 0; i < fake_log.n; i++) {
		fake_free(fake_log.lines[i].text);
		fake_free(fake_log.lines[i].path);
	}
	fake_free(fake_log.lines);
	fake_log.lines = NULL;
	fake_log.n = 0;
	if (writer.waiting.head)
		fake_fault("lines of the log were never written");
	pthread_mutex_destroy(&writer.lock);
	pthread_cond_destroy(&writer.wake);
}

/* ---- the operator's log ---- */

static void note_move(const char *text)
{
	const char *colon = strstr(text, ": ");
	char name[48];

	if (!colon || !strstr(colon, " -> "))
		return;
	snprintf(name, sizeof(name), "%.*s %s", (int)strcspn(text, " "), text, colon + 2);
	for (size_t i = 0; i < fake_moves.n; i++)
		if (strcmp(fake_moves.names[i], name) == 0) {
			fake_moves.counts[i]++;
			return;
		}
	if (fake_moves.n == ARRAY_LEN(fake_moves.names))
		return;
	memcpy(fake_moves.names[fake_moves.n], name, sizeof(name));
	fake_moves.counts[fake_moves.n++] = 1;
}

int log_level_now = LOG_LEVEL_DEBUG; /* each move is noted */

#define SAY(prefix)                                                                                \
	char text[1024];                                                                           \
	va_list ap;                                                                                \
                                                                                                   \
	va_start(ap, fmt);                                                                         \
	vsnprintf(text, sizeof(text), fmt, ap);                                                    \
	va_end(ap);                                                                                \
	if (fake_moves.trace)                                                                      \
	fprintf(stderr, "    " prefix "%s\n", text)

void log_error(const char *fmt, ...)
{
	SAY("error: ");
	if (strstr(text, "no way from"))
		fprintf(stderr, "%s\n", text); /* abort follows */
}

void log_warn(const char *fmt, ...)
{
	SAY("warning: ");
}

void log_info(const char *fmt, ...)
{
	SAY("");
}

void log_debug_line(const char *fmt, ...)
{
	SAY("");
	note_move(text);
}

void log_set_level(enum log_level level)
{
	(void)level;
}

enum log_level log_get_level(void)
{
	return (enum log_level)log_level_now;
}

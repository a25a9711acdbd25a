/*
 * The list of what is wrong with a file: bounded, sorted by place when it is printed, without
 * doubles. Text that came from the file is made safe for a terminal here, once, so that no caller
 * has to think of it.
 */
#include "policy/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"

#define TEXT_BYTES 600

void faults_init(struct faults *f, const char *file)
{
	*f = (struct faults){.file = str_dup(str_from_c(file))};
}

void faults_clear(struct faults *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->v[i].text);
	free(f->v);
	free(f->file);
	*f = (struct faults){0};
}

/* An alias shows one mistake in many places: it is one fault all the same. */
static bool is_known(const struct faults *f, uint32_t line, uint32_t col, const char *text)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->v[i].line == line && f->v[i].col == col && strcmp(f->v[i].text, text) == 0)
			return true;
	return false;
}

/* The place of the last warning, for an error that finds the list full; f->n if there is none. */
static size_t last_warning(const struct faults *f)
{
	for (size_t i = f->n; i > 0; i--)
		if (f->v[i - 1].warning)
			return i - 1;
	return f->n;
}

static struct fault *room(struct faults *f, bool warning)
{
	size_t at;

	if (f->n < LIMIT_YAML_FAULTS) {
		if (f->n == f->cap) {
			size_t cap = f->cap ? f->cap * 2 : 8;
			struct fault *v = realloc(f->v, cap * sizeof(*v));

			if (!v)
				return NULL;
			f->v = v;
			f->cap = cap;
		}
		return &f->v[f->n++];
	}
	at = warning ? f->n : last_warning(f);
	if (at == f->n)
		return NULL;
	free(f->v[at].text);
	f->dropped++;
	memmove(&f->v[at], &f->v[at + 1], (f->n - at - 1) * sizeof(*f->v));
	return &f->v[f->n - 1];
}

static bool is_full(const struct faults *f, bool warning)
{
	return f->n == LIMIT_YAML_FAULTS && (warning || f->errors >= LIMIT_YAML_FAULTS);
}

static void add(struct faults *f, uint32_t line, uint32_t col, bool warning, const char *fmt,
		va_list ap)
{
	char raw[TEXT_BYTES];
	struct strbuf safe;
	struct fault *to;
	char *text;

	/* Counting costs nothing, so a file of a million faults does not either. */
	if (is_full(f, warning)) {
		*(warning ? &f->warnings : &f->errors) += 1;
		f->dropped++;
		return;
	}
	vsnprintf(raw, sizeof(raw), fmt, ap);
	strbuf_init(&safe, (size_t)4 * TEXT_BYTES);
	strbuf_add_printable(&safe, str_from_c(raw));
	if (is_known(f, line, col, strbuf_cstr(&safe))) {
		strbuf_clear(&safe);
		return;
	}
	*(warning ? &f->warnings : &f->errors) += 1;
	text = strbuf_take(&safe);
	to = text ? room(f, warning) : NULL;
	if (!to) {
		free(text);
		f->no_memory = true;
		return;
	}
	*to = (struct fault){.line = line, .col = col, .warning = warning, .text = text};
}

void fault_add(struct faults *f, uint32_t line, uint32_t col, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(f, line, col, false, fmt, ap);
	va_end(ap);
}

void fault_warn(struct faults *f, uint32_t line, uint32_t col, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(f, line, col, true, fmt, ap);
	va_end(ap);
}

/* By place; at one place errors first, then by text, so that the order never depends on chance. */
static int by_place(const void *a, const void *b)
{
	const struct fault *x = a, *y = b;

	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	if (x->col != y->col)
		return x->col < y->col ? -1 : 1;
	if (x->warning != y->warning)
		return x->warning ? 1 : -1;
	return strcmp(x->text, y->text);
}

void faults_print(struct faults *f, struct strbuf *out)
{
	struct str file = str_from_c(f->file);

	if (f->n > 0)
		qsort(f->v, f->n, sizeof(*f->v), by_place);
	for (size_t i = 0; i < f->n; i++) {
		const struct fault *x = &f->v[i];

		strbuf_add_printable(out, file);
		if (x->line > 0)
			strbuf_addf(out, "%s%u:%u", file.n > 0 ? ":" : "", x->line, x->col);
		if (file.n > 0 || x->line > 0)
			strbuf_adds(out, ": ");
		if (x->warning)
			strbuf_adds(out, "warning: ");
		strbuf_adds(out, x->text);
		strbuf_addc(out, '\n');
	}
	if (f->no_memory) {
		strbuf_add_printable(out, file);
		strbuf_addf(out, "%sout of memory\n", file.n > 0 ? ": " : "");
	}
	if (f->dropped > 0) {
		strbuf_add_printable(out, file);
		strbuf_addf(out, "%sand %zu more\n", file.n > 0 ? ": " : "", f->dropped);
	}
}

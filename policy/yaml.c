/*
 * Reads a YAML text: hands it to libyaml, libyaml's events to yaml_build.c, and says what stopped
 * the reading (yaml_syntax.c words it). Where a person began a value with a character that YAML
 * gives a meaning to, that is one fault, and the text is read once more behind it.
 */
#include "policy/yaml_internal.h"

#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "policy/yaml_build.h"
#include "policy/yaml_bytes.h"

#define PATCHES_MAX    32 /* characters replaced so that reading can go on */
#define UNTHREADED_MAX ((size_t)16 * LIMIT_YAML_SCALAR) /* bytes read without an event */

/* libyaml asks for more bytes. The room that it needs grows with what it has read without handing
 * out an event, so that is bounded, and with it the memory for a value without end. */
static int on_read(void *data, unsigned char *to, size_t size, size_t *ret_n)
{
	struct yaml_input *in = data;
	size_t left = in->text.n - in->at;
	size_t n = size < left ? size : left;

	in->since_event += n;
	if (in->since_event > UNTHREADED_MAX) {
		in->too_long = true;
		return 0;
	}
	if (n > 0)
		memcpy(to, in->text.p + in->at, n);
	in->at += n;
	*ret_n = n;
	return 1;
}

static void begin_input(yaml_parser_t *p, struct yaml_input *in)
{
	in->at = in->since_event = 0;
	in->too_long = false;
	yaml_parser_set_encoding(p, YAML_UTF8_ENCODING);
	yaml_parser_set_input(p, on_read, in);
}

/* ---- counting ---- */

/* A guess from above: what parts values from each other stands there for every second one. */
static bool may_be_too_many(struct str text)
{
	size_t parts = 0;

	for (size_t i = 0; i < text.n; i++) {
		char c = text.p[i];

		parts += c == '\n' || c == ',' || c == ':' || c == '-' || c == '?' || c == '[' ||
			 c == '{';
	}
	return 2 * parts + 3 > LIMIT_YAML_NODES;
}

/* Adds what the event is to the values and the depth. */
static void count_event(const yaml_event_t *e, size_t *values, size_t *depth)
{
	switch (e->type) {
	case YAML_SEQUENCE_START_EVENT:
	case YAML_MAPPING_START_EVENT:
		++*depth;
		++*values;
		break;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT: --*depth; break;
	case YAML_SCALAR_EVENT:
	case YAML_ALIAS_EVENT: ++*values; break;
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
	case YAML_STREAM_END_EVENT:
	case YAML_DOCUMENT_START_EVENT:
	case YAML_DOCUMENT_END_EVENT: break;
	}
}

/* Only counts, so that a text of too many values is refused before a tree is made of it: true, and
 * a fault. What else ends a text, a depth without bound too, the builder comes to and words. */
static bool has_too_many(struct yaml_input *in, struct faults *f)
{
	size_t values = 0, depth = 0;
	bool done = false;
	yaml_parser_t p;

	if (!yaml_parser_initialize(&p))
		return false;
	begin_input(&p, in);
	while (!done && depth <= LIMIT_YAML_DEPTH && values <= LIMIT_YAML_NODES) {
		yaml_event_t e;

		if (!yaml_parser_parse(&p, &e))
			break;
		in->since_event = 0;
		count_event(&e, &values, &depth);
		done = e.type == YAML_DOCUMENT_END_EVENT || e.type == YAML_STREAM_END_EVENT;
		if (values > LIMIT_YAML_NODES)
			yaml_builder_too_many(f, &e.start_mark);
		yaml_event_delete(&e);
	}
	yaml_parser_delete(&p);
	return values > LIMIT_YAML_NODES;
}

/* ---- reading ---- */

/* One try at the whole text. 0, or -1 when libyaml gave up: the parser then says why. */
static int read_events(struct yaml_builder *b, yaml_parser_t *p, struct yaml_input *in)
{
	bool more = true, done = false;

	while (more && !done) {
		yaml_event_t e;

		if (!yaml_parser_parse(p, &e)) {
			yaml_builder_stop(b);
			return -1;
		}
		in->since_event = 0;
		more = yaml_builder_event(b, &e);
		done = e.type == YAML_STREAM_END_EVENT;
		yaml_event_delete(&e);
	}
	if (!more)
		yaml_builder_stop(b);
	return 0;
}

/* Reads in->text once. NULL without memory. *ret_again: the place of a character that may be
 * replaced so that another try gets further. */
static struct yaml_doc *read_once(struct yaml_input *in, struct faults *f,
				  struct yaml_patch *ret_again, bool *ret_is_again)
{
	struct yaml_builder *b = yaml_builder_new(f);
	struct yaml_doc *d = NULL;
	yaml_parser_t p;

	*ret_is_again = false;
	if (!b)
		return NULL;
	if (!yaml_parser_initialize(&p)) {
		fault_add(f, 0, 0, "out of memory");
		goto out;
	}
	begin_input(&p, in);
	if (read_events(b, &p, in) < 0) {
		*ret_is_again = yaml_syntax_patch(&p, in, ret_again);
		if (!*ret_is_again)
			yaml_syntax_fault(&p, in, f);
	}
	yaml_parser_delete(&p);
	d = yaml_builder_take(b);
out:
	yaml_builder_free(b);
	return d;
}

/* Takes back the faults of a try that is made again. */
static void forget(struct faults *f, const struct faults *mark)
{
	while (f->n > mark->n)
		free(f->v[--f->n].text);
	f->errors = mark->errors;
	f->warnings = mark->warnings;
	f->dropped = mark->dropped;
}

/* Replaces the character in a copy; false when there is no memory for one. */
static bool patch(struct yaml_input *in, const struct yaml_patch *at)
{
	if (!in->copy) {
		in->copy = malloc(in->text.n);
		if (!in->copy)
			return false;
		memcpy(in->copy, in->text.p, in->text.n);
		in->text.p = in->copy;
	}
	in->copy[(size_t)(in->text.p - in->copy) + at->offset] = 'x';
	return true;
}

struct yaml_doc *yaml_parse(struct str text, struct faults *f)
{
	struct yaml_patch patches[PATCHES_MAX];
	struct yaml_input in = {.text = text};
	struct yaml_doc *d = NULL;
	size_t n = 0;
	bool again;

	if (yaml_bytes_check(text, f, &in.copy) < 0)
		return NULL;
	if (in.copy)
		in.text.p = in.copy;
	if (str_starts(in.text, STR("\xef\xbb\xbf")))
		in.text = str_skip(in.text, 3);
	again = !may_be_too_many(in.text) || !has_too_many(&in, f);
	while (again) {
		struct faults mark = *f;

		yaml_doc_free(d);
		in.patches_left = PATCHES_MAX - n;
		d = read_once(&in, f, &patches[n < PATCHES_MAX ? n : 0], &again);
		if (!again)
			break;
		forget(f, &mark);
		if (!patch(&in, &patches[n++])) {
			fault_add(f, 0, 0, "out of memory");
			break;
		}
	}
	for (size_t i = 0; i < n; i++)
		fault_add(f, patches[i].line, patches[i].col, "quote a value that begins with `%c`",
			  patches[i].c);
	free(in.copy);
	return d;
}

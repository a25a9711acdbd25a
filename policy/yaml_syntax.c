/*
 * Says in words for the writer of a configuration file what libyaml says in words for the writer of
 * a YAML reader, at the place where the mistake is. Called by yaml.c when libyaml has given up.
 */
#include "policy/yaml_internal.h"

#include <string.h>

#include "logging/limits.h"

/* The byte at a mark (which counts lines and characters), or text.n when it is past the end. */
static size_t offset_of(struct str text, const yaml_mark_t *m)
{
	size_t at = 0, line = 0, col = 0;

	for (; at < text.n && line < m->line; at++)
		if (text.p[at] == '\n' ||
		    (text.p[at] == '\r' && (at + 1 == text.n || text.p[at + 1] != '\n')))
			line++;
	while (at < text.n && col < m->column) {
		at++;
		while (at < text.n && ((unsigned char)text.p[at] & 0xc0) == 0x80)
			at++;
		col++;
	}
	return at;
}

static bool says(const char *text, const char *part)
{
	return text && strstr(text, part);
}

/* Where the mistake is: for what was opened and never ended, where it was opened. */
static const yaml_mark_t *place_of(const yaml_parser_t *p)
{
	bool at_context =
		says(p->problem, "unexpected end of stream") || says(p->problem, "',' or") ||
		says(p->problem, "find expected ':'") || says(p->context, "scanning an alias") ||
		says(p->context, "scanning an anchor") || says(p->context, "scanning a tag");

	return at_context ? &p->context_mark : &p->problem_mark;
}

bool yaml_syntax_patch(const yaml_parser_t *p, const struct yaml_input *in, struct yaml_patch *ret)
{
	const yaml_mark_t *m = place_of(p);
	size_t at;

	if (in->patches_left == 0 || (p->error != YAML_SCANNER_ERROR))
		return false;
	if (!says(p->context, "an alias") && !says(p->context, "an anchor") &&
	    !says(p->problem, "cannot start any token"))
		return false;
	at = offset_of(in->text, m);
	if (at == in->text.n || !strchr("*&@`%", in->text.p[at]) || in->text.p[at] == '\0')
		return false;
	*ret = (struct yaml_patch){at, (uint32_t)m->line + 1, (uint32_t)m->column + 1,
				   in->text.p[at]};
	return true;
}

static const struct {
	const char *problem, *text;
} words[] = {
	{"tab character", "a tab (indent with spaces)"},
	{"unexpected end of stream", "a quote that is never closed"},
	{"find expected ':'", "a key without a `:`, or without the blank behind it (`key: value`)"},
	{"expected ',' or ']'", "a `[` that is not closed (a `,` or `]` is missing)"},
	{"expected ',' or '}'", "a `{` that is not closed (a `,` or `}` is missing)"},
	{"mapping values are not allowed",
	 "a `:` that cannot stand here (check the indentation, or quote the value)"},
	{"did not find expected key",
	 "YAML expects a key here (check the indentation and the quotes)"},
	{"expected '-' indicator", "YAML expects a `-` here (check the indentation)"},
	{"expected node content", "a value is missing here, or one that must be quoted"},
	{"unknown escape character", "an escape that YAML does not know (use single quotes)"},
	{"expected <document start>", "a second document (a file holds one)"},
	{"incompatible YAML document", "a YAML version that is not read (remove the %YAML line)"},
	{"nesting", "nested too deeply"},
};

static const char *words_for(const yaml_parser_t *p, const struct yaml_input *in)
{
	size_t at = offset_of(in->text, &p->problem_mark);

	if (says(p->problem, "cannot start any token") && at < in->text.n && in->text.p[at] == '\t')
		return words[0].text;
	if (says(p->problem, "expected node content") && at == in->text.n)
		return "the file ends within a `[` or `{` that is not closed";
	if (says(p->context, "scanning a tag"))
		return "a tag (tags are not read: quote a value that begins with !)";
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (says(p->problem, words[i].problem))
			return words[i].text;
	return NULL;
}

void yaml_syntax_fault(const yaml_parser_t *p, const struct yaml_input *in, struct faults *f)
{
	const yaml_mark_t *m = place_of(p);
	const char *text;

	if (in->too_long) {
		fault_add(f, (uint32_t)p->mark.line + 1, (uint32_t)p->mark.column + 1,
			  "a value or comment far longer than %d bytes (the limit)",
			  LIMIT_YAML_SCALAR);
		return;
	}
	if (p->error == YAML_MEMORY_ERROR) {
		fault_add(f, 0, 0, "out of memory");
		return;
	}
	text = words_for(p, in);
	fault_add(f, (uint32_t)m->line + 1, (uint32_t)m->column + 1,
		  "%s%s; the file was read up to here", text ? "" : "YAML: ",
		  text	       ? text
		  : p->problem ? p->problem
			       : "not readable");
}

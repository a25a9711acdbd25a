/*
 * Reads single values of the tree: texts, words, lists, maps, names, paths. What is the same for
 * every key is said here once, above all that a value which YAML 1.1 takes for a boolean or a
 * number is none of ours. Called by the other load*.c files.
 */
#include "policy/load.h"

#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 64
#define PATH_MAX_BYTES 4095

char *load_keep(struct loader *l, struct str s)
{
	char *copy = str_dup(s);

	if (!copy)
		fault_add(l->f, 0, 0, "out of memory");
	return copy;
}

void *load_array(struct loader *l, size_t n, size_t size)
{
	void *v = calloc(n, size);

	if (!v)
		fault_add(l->f, 0, 0, "out of memory");
	return v;
}

/* ---- what YAML 1.1 makes of a plain scalar ---- */

static bool is_bool(struct str s)
{
	static const char *const words[] = {"yes", "no", "on", "off", "true", "false", "y", "n"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (str_eq_nocase(s, str_from_c(words[i])))
			return true;
	return false;
}

static bool all_of(struct str s, const char *set)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] == '\0' || !strchr(set, s.p[i]))
			return false;
	return s.n > 0;
}

/* 190:20:30, a number of base 60. */
static bool is_sexagesimal(struct str s)
{
	struct str rest = s, part = str_split(&rest, ':');

	if (!rest.p || !all_of(part, "0123456789_"))
		return false;
	while (rest.p) {
		part = str_split(&rest, ':');
		if (part.n == 0 || part.n > 2 || !all_of(part, "0123456789") ||
		    (part.n == 2 && part.p[0] > '5'))
			return false;
	}
	return true;
}

static bool is_number(struct str s)
{
	size_t dots = 0, i = 0;

	if (s.n > 0 && (s.p[0] == '+' || s.p[0] == '-'))
		s = str_skip(s, 1);
	if (str_eq_nocase(s, STR(".inf")) || str_eq_nocase(s, STR(".nan")))
		return true;
	if (str_starts(s, STR("0x")))
		return all_of(str_skip(s, 2), "0123456789abcdefABCDEF_");
	if (str_starts(s, STR("0b")) || str_starts(s, STR("0o")))
		return all_of(str_skip(s, 2), "01234567_");
	if (is_sexagesimal(s))
		return true;
	if (s.n == 0 || !strchr("0123456789.", s.p[0]) || str_eq(s, STR(".")))
		return false;
	while (i < s.n && s.p[i] != '\0' && strchr("0123456789_.", s.p[i]))
		dots += s.p[i++] == '.';
	if (dots > 1)
		return false;
	if (i < s.n && (s.p[i] == 'e' || s.p[i] == 'E')) {
		i++;
		if (i < s.n && (s.p[i] == '+' || s.p[i] == '-'))
			i++;
		return all_of(str_skip(s, i), "0123456789");
	}
	return i == s.n;
}

/* ---- texts ---- */

static const char *kind_word(const struct yaml_node *node)
{
	return node->kind == YAML_SEQ ? "a list" : "a map";
}

int load_plain(struct loader *l, const struct yaml_node *node, const char *what, struct str *ret)
{
	if (node->kind == YAML_SEQ || node->kind == YAML_MAP) {
		fault_add(l->f, node->line, node->col, "%s must be a single value, not %s", what,
			  kind_word(node));
		return -1;
	}
	if (node->kind == YAML_NULL || node->text.n == 0) {
		if (!l->partial)
			fault_add(l->f, node->line, node->col, "%s has no value%s", what,
				  node->text.n > 0 ? " (null stands for none)" : "");
		return -1;
	}
	*ret = node->text;
	return 0;
}

int load_text(struct loader *l, const struct yaml_node *node, const char *what, struct str *ret)
{
	struct str s;

	if (load_plain(l, node, what, &s) < 0)
		return -1;
	if (!node->quoted && (is_bool(s) || is_number(s))) {
		fault_add(l->f, node->line, node->col,
			  "%s must be a text, and `%.*s` is a %s to YAML (quote it: \"%.*s\")",
			  what, SHOW(s), is_bool(s) ? "boolean" : "number", SHOW(s));
		return -1;
	}
	*ret = s;
	return 0;
}

int load_word(struct loader *l, const struct yaml_node *node, const char *what,
	      const char *const *words, size_t n, size_t *ret)
{
	char known[128];
	struct strbuf list;
	const char *near;
	struct str s;

	if (load_plain(l, node, what, &s) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (str_eq(s, str_from_c(words[i]))) {
			*ret = i;
			return 0;
		}
	near = nearest_word(s, words, n);
	if (near) {
		fault_add(l->f, node->line, node->col, "%s: unknown `%.*s` (did you mean `%s`?)",
			  what, SHOW(s), near);
		return -1;
	}
	strbuf_init_fixed(&list, known, sizeof(known));
	for (size_t i = 0; i < n; i++)
		strbuf_addf(&list, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", words[i]);
	fault_add(l->f, node->line, node->col, "%s: unknown `%.*s` (write %s)", what, SHOW(s),
		  strbuf_cstr(&list));
	return -1;
}

/* ---- lists and maps ---- */

const struct yaml_node *load_list(struct loader *l, const struct yaml_node *node, const char *what)
{
	if (node->kind == YAML_SEQ && node->n > 0)
		return node;
	if (node->kind == YAML_SEQ || node->kind == YAML_NULL) {
		if (!l->partial)
			fault_add(l->f, node->line, node->col,
				  "%s is an empty list (list something or remove the key)", what);
	} else if (node->kind == YAML_SCALAR) {
		fault_add(l->f, node->line, node->col, "%s must be a list (write [%.*s])", what,
			  SHOW(node->text));
	} else {
		fault_add(l->f, node->line, node->col,
			  "%s must be a list, not a map (put `- ` before each item)", what);
	}
	return NULL;
}

const struct yaml_node *load_items(struct loader *l, const struct yaml_node *node, const char *what,
				   const char *item)
{
	if (node->kind != YAML_SCALAR)
		return load_list(l, node, what);
	fault_add(l->f, node->line, node->col, "%s must be a list (write `- %s` below it)", what,
		  item);
	return NULL;
}

/* What is most likely meant where there is no map. Never what stands there: it may be a secret. */
static const char *example_of(enum section section)
{
	switch ((int)section) {
	case SECTION_CA: return "write {dir: DIR}";
	case SECTION_LOG: return "write {to: FILE}";
	case SECTION_FROM: return "write {file: PATH}";
	case SECTION_CREDENTIAL: return "write {from: {file: PATH}, as: bearer}";
	case SECTION_LISTEN: return "write `- proxy: 127.0.0.1:3128`";
	case SECTION_POLICY: return "write `rules:` in it";
	default: return "`key: value`";
	}
}

int load_section(struct loader *l, const struct yaml_node *node, const char *what,
		 enum section section, struct section_values *ret)
{
	if (node->kind == YAML_MAP) {
		section_read(node, section, ret, l->f);
		return 0;
	}
	if (node->kind == YAML_NULL && l->partial)
		return -1;
	fault_add(l->f, node->line, node->col, "%s must be a map (%s), not %s", what,
		  example_of(section),
		  node->kind == YAML_NULL  ? "empty"
		  : node->kind == YAML_SEQ ? "a list"
					   : "a single value");
	return -1;
}

/* ---- names and paths ---- */

int load_name(struct loader *l, const struct yaml_node *node, const char *what, struct str s)
{
	/* A file in the sandbox may be named so. */
	if (str_eq(s, STR(".")) || str_eq(s, STR(".."))) {
		fault_add(l->f, node->line, node->col, "%s `%.*s`: that is the name of a folder",
			  what, SHOW(s));
		return -1;
	}
	if (s.n <= NAME_MAX_BYTES &&
	    all_of(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		      "0123456789._-"))
		return 0;
	fault_add(l->f, node->line, node->col,
		  "%s `%.*s`: a name has letters, digits, `.`, `_` and `-`, at most %d of them",
		  what, SHOW(s), NAME_MAX_BYTES);
	return -1;
}

char *load_path(struct loader *l, const struct yaml_node *node, struct str s)
{
	struct str dir = s.p[0] == '/' ? STR("") : l->dir;
	char *path;

	if (s.p[0] == '~') {
		fault_add(l->f, node->line, node->col,
			  "`%.*s`: ~ is not expanded (write the whole path)", SHOW(s));
		return NULL;
	}
	if (memchr(s.p, '\0', s.n) || dir.n + s.n > PATH_MAX_BYTES) {
		fault_add(l->f, node->line, node->col, "`%.*s` is not a path", SHOW(s));
		return NULL;
	}
	path = load_array(l, dir.n + s.n + 1, 1);
	if (!path)
		return NULL;
	if (dir.n > 0)
		memcpy(path, dir.p, dir.n);
	memcpy(path + dir.n, s.p, s.n);
	return path;
}

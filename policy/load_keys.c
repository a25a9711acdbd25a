/*
 * The table of keys and what is made of it: sorting a map by key, the list for the documentation,
 * and the known word that is nearest to a misspelt one. Called by the load*.c files.
 */
#include "policy/load_keys.h"

#include <string.h>

#include "policy/config.h"

#define WORD_MAX 32 /* no known word is longer; a longer one is near to none */

static const struct {
	enum section section;
	struct str name;
} keys[] = {
#define X(section, id, key) {SECTION_##section, {key, sizeof(key) - 1}},
	CONFIG_KEYS(X)
#undef X
};

static const char *const names[] = {
#define X(section, id, key) key,
	CONFIG_KEYS(X)
#undef X
};

static const char *const dotted[] = {
#define X(section, id, key) SECTION_PREFIX_##section key,
	CONFIG_KEYS(X)
#undef X
		NULL,
};

const char *const *config_keys(void)
{
	return dotted;
}

const char *config_key_word(enum config_key k)
{
	return names[k];
}

/* ---- edit distance ---- */

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static size_t least(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b. */
static size_t distance(struct str a, struct str b)
{
	size_t d[WORD_MAX + 1][WORD_MAX + 1];

	for (size_t i = 0; i <= a.n; i++)
		d[i][0] = i;
	for (size_t j = 0; j <= b.n; j++)
		d[0][j] = j;
	for (size_t i = 1; i <= a.n; i++)
		for (size_t j = 1; j <= b.n; j++) {
			char x = lower(a.p[i - 1]), y = lower(b.p[j - 1]);

			d[i][j] =
				least(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (x != y));
			if (i > 1 && j > 1 && x == lower(b.p[j - 2]) && y == lower(a.p[i - 2]))
				d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1, SIZE_MAX);
		}
	return d[a.n][b.n];
}

static size_t same_start(struct str a, struct str b)
{
	size_t n = 0;

	while (n < a.n && n < b.n && lower(a.p[n]) == lower(b.p[n]))
		n++;
	return n;
}

/* A third of the word may be wrong; of a short one, one character. And policy is near to policies:
 * the same word, with another end. */
static bool is_near(struct str a, struct str b, size_t d)
{
	size_t longer = a.n > b.n ? a.n : b.n;

	return d < b.n && (d <= (longer < 6 ? 1 : longer / 3) || (d <= 3 && same_start(a, b) >= 5));
}

const char *nearest_word(struct str s, const char *const *words, size_t n)
{
	const char *best = NULL;
	size_t best_distance = SIZE_MAX, best_start = 0;

	if (s.n == 0 || s.n > WORD_MAX)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		struct str w = str_from_c(words[i]);
		size_t d, start = same_start(s, w);

		if (w.n > WORD_MAX)
			continue;
		d = distance(s, w);
		if (is_near(s, w, d) &&
		    (d < best_distance || (d == best_distance && start > best_start))) {
			best = words[i];
			best_distance = d;
			best_start = start;
		}
	}
	return best;
}

/* ---- sections ---- */

static void section_range(enum section section, size_t *ret_first, size_t *ret_n)
{
	size_t i = 0, first;

	while (keys[i].section != section)
		i++;
	first = i;
	while (i < KEY_COUNT && keys[i].section == section)
		i++;
	*ret_first = first;
	*ret_n = i - first;
}

static void refuse_key(const struct yaml_node *key, size_t first, size_t n, struct faults *f)
{
	const char *near = nearest_word(key->text, &names[first], n);
	int len = (int)(key->text.n > 64 ? 64 : key->text.n);
	char known[256];
	struct strbuf list;

	if (near) {
		fault_add(f, key->line, key->col, "unknown key `%.*s` (did you mean `%s`?)", len,
			  key->text.p, near);
		return;
	}
	strbuf_init_fixed(&list, known, sizeof(known));
	for (size_t i = 0; i < n; i++)
		strbuf_addf(&list, "%s%s", i ? ", " : "", names[first + i]);
	fault_add(f, key->line, key->col, "unknown key `%.*s` (known here: %s)", len, key->text.p,
		  strbuf_cstr(&list));
}

void section_read(const struct yaml_node *map, enum section section, struct section_values *ret,
		  struct faults *f)
{
	size_t first, n, k;

	section_range(section, &first, &n);
	*ret = (struct section_values){.first = (enum config_key)first};
	for (size_t i = 0; i < map->n; i++) {
		const struct yaml_node *key = map->v[2 * i];

		for (k = 0; k < n; k++)
			if (str_eq(keys[first + k].name, key->text))
				break;
		if (k == n) {
			refuse_key(key, first, n, f);
			ret->has_unknown = true;
			continue;
		}
		ret->key[k] = key;
		ret->value[k] = map->v[2 * i + 1];
	}
}

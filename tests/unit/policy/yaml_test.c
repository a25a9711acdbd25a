/*
 * YAML as a tree: values and their places, the faults of the bytes, of the syntax and of what is
 * valid YAML and not wanted here, and that no file takes long or much memory to refuse.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "logging/limits.h"
#include "tests/unit/policy/faults_check.h"

static struct yaml_doc *parse(struct str text, struct faults *f)
{
	faults_init(f, "f.yaml");
	return yaml_parse(text, f);
}

static void check_rows(const struct fault_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct faults f;
		struct yaml_doc *d = parse(str_from_c(rows[i].text), &f);

		check_faults(&f, rows[i].text, rows[i].want);
		yaml_doc_free(d);
		faults_clear(&f);
	}
}

static void test_tree(void **state)
{
	static const char text[] = "\xef\xbb\xbfversion: 1\r\n"
				   "\r\n"
				   "list: [a, 'b c', \"yes\", ~, null, '']\r\n"
				   "\"m\": {x: {y: z}}\r\n"
				   "\xc3\xa9t\xc3\xa9: {k: v}\r\n"
				   "ref: &r [1, 2]\r\n"
				   "again: *r\r\n"
				   "none:\r\n"
				   "block: |\r\n  no\r\n";
	const struct yaml_node *root, *n;
	struct faults f;
	struct yaml_doc *d = parse(STR(text), &f);

	(void)state;
	assert_int_equal(f.n, 0);
	assert_true(yaml_complete(d));
	root = yaml_root(d);
	assert_int_equal(root->kind, YAML_MAP);
	assert_int_equal(root->n, 8);
	assert_int_equal(root->line, 1);
	assert_int_equal(root->col, 1);
	n = yaml_get(root, "list");
	assert_int_equal(n->n, 6);
	assert_int_equal(n->line, 3);
	assert_int_equal(n->col, 7);
	assert_true(str_eq(n->v[1]->text, STR("b c")));
	assert_true(n->v[1]->quoted);
	assert_false(n->v[0]->quoted);
	assert_int_equal(n->v[2]->kind, YAML_SCALAR);
	assert_int_equal(n->v[3]->kind, YAML_NULL);
	assert_int_equal(n->v[4]->kind, YAML_NULL);
	assert_int_equal(n->v[5]->kind, YAML_SCALAR);
	n = yaml_get(yaml_get(yaml_get(root, "m"), "x"), "y");
	assert_true(str_eq(n->text, STR("z")));
	/* columns are characters, not bytes */
	n = yaml_get(yaml_get(root, "\xc3\xa9t\xc3\xa9"), "k");
	assert_int_equal(n->line, 5);
	assert_int_equal(n->col, 10);
	n = yaml_get(root, "again");
	assert_int_equal(n->kind, YAML_SEQ);
	assert_int_equal(n->n, 2);
	assert_int_equal(n->line, 7);
	assert_int_equal(yaml_get(root, "none")->kind, YAML_NULL);
	n = yaml_get(root, "block");
	assert_true(n->quoted);
	assert_true(str_eq(n->text, STR("no\n")));
	assert_null(yaml_get(root, "nothing"));
	assert_null(yaml_get(yaml_get(root, "list"), "a"));
	assert_null(yaml_get(NULL, "a"));
	yaml_doc_free(d);
	faults_clear(&f);
	yaml_doc_free(NULL);
}

static void test_nothing(void **state)
{
	static const char *const rows[] = {"", "# only this\n", "\n\n", "---\n", "\xef\xbb\xbf"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct faults f;
		struct yaml_doc *d = parse(str_from_c(rows[i]), &f);

		assert_non_null(d);
		assert_int_equal(f.n, 0);
		assert_true(!yaml_root(d) || yaml_root(d)->kind == YAML_NULL);
		yaml_doc_free(d);
		faults_clear(&f);
	}
}

static void test_faults(void **state)
{
	static const struct fault_row rows[] = {
		/* keys */
		{"a: 1\nb: 2\na: 3\n", {"3:1: duplicate key `a` (it already stands in line 1)"}},
		{"a: 1\n\"a\": 2\n", {"2:1: duplicate key `a`"}},
		{"x: {k: 1, 'k': 2}\n", {"1:11: duplicate key `k`"}},
		{"a: {<<: {b: 1}}\n", {"1:5: a merge key << (merges are not read"}},
		{"? [a]\n: b\n", {"1:3: a key must be a word, not a list or a map"}},
		{"? {a: b}\n: b\n", {"1:3: a key must be a word"}},
		{"?\n: b\n", {"1:2: an empty key"}},
		/* anchors */
		{"a: *x\n", {"1:4: no anchor &x stands before this (quote a value"}},
		{"a: &a [*a]\n", {"1:8: the alias *a stands within its own anchor"}},
		{"a: *.x.test\nb: [\"q\", *]\n",
		 {"1:4: quote a value that begins with `*`",
		  "2:10: quote a value that begins with `*`"}},
		{"a: &.x\n", {"1:4: quote a value that begins with `&`"}},
		{"a: @x\nb: `y`\nc: %z\n",
		 {"1:4: quote a value that begins with `@`",
		  "2:4: quote a value that begins with ```", "3:4: quote a value"}},
		/* tags, documents, directives */
		{"a: !!str yes\n", {"1:4: a tag, !!str (tags are not read"}},
		{"a: !mine [b]\n", {"1:4: a tag, !mine"}},
		{"a: !!map {b: c}\n", {"1:4: a tag, !!map"}},
		{"a: !<x\n", {"1:4: a tag (tags are not read: quote a value that begins with !)"}},
		{"a: 1\n---\nb: 2\n", {"2:1: a second document (a file holds one"}},
		{"a: 1\n...\n---\n", {"3:1: a second document"}},
		{"a: 1\n...\nb: 2\n", {"3:1: a second document"}},
		{"%TAG ! tag:x,1:\n---\na: 1\n", {"1:1: a YAML directive"}},
		{"%YAML 3.0\n---\na: 1\n", {"1:1: a YAML version that is not read"}},
		/* syntax */
		{"a:\n\tb: 1\n", {"2:1: a tab (indent with spaces); the file was read up to here"}},
		{"\ta: 1\n", {"1:1: a tab (indent with spaces)"}},
		{"a:\n  - x\n\t- y\n", {"3:1: a tab (indent with spaces)"}},
		{"a: \"x\nb: c\n", {"1:4: a quote that is never closed"}},
		{"a: 'x\n", {"1:4: a quote that is never closed"}},
		{"a: [x\nb: c\n", {"1:4: a `[` that is not closed"}},
		{"a: {x: y\n", {"1:4: a `{` that is not closed"}},
		{"a: b: c\n", {"1:5: a `:` that cannot stand here"}},
		{"a: b\n  c: d\n", {"2:4: a `:` that cannot stand here"}},
		{"a: \"x\" y\n", {"1:8: YAML expects a key here"}},
		{"- a\nb: c\n", {"2:1: YAML expects a `-` here"}},
		{"a: }\n", {"1:4: a value is missing here, or one that must be quoted"}},
		{"p: [::1]:3128\n", {"1:5: a value is missing here"}},
		{"a: \"\\q\"\n", {"1:5: an escape that YAML does not know"}},
		{"a: b\nc:[d]\ne: f\n",
		 {"2:1: a key without a `:`, or without the blank behind it"}},
		{"a: |x\n", {"1:5: YAML: did not find expected comment or line break"}},
		/* bytes */
		{"a: \xff\nb: ok\nc: caf\xe9\n",
		 {"1:4: byte 0xff is not UTF-8 (save the file as UTF-8)",
		  "3:7: byte 0xe9 is not UTF-8"}},
		{"a: \xc0\xaf\n", {"1:4: byte 0xc0 is not UTF-8"}},
		{"a: \xed\xa0\x80\n", {"1:4: byte 0xed is not UTF-8"}},
		{"a: \xf4\x90\x80\x80\n", {"1:4: byte 0xf4 is not UTF-8"}},
		{"a: \xe2\x82", {"1:4: byte 0xe2 is not UTF-8"}},
		{"a: x\x1b[2J\n", {"1:5: a control character, U+001B (remove it)"}},
		{"a: x\x7f\n", {"1:5: a control character, U+007F"}},
		{"a: \xc2\x9bx\n", {"1:4: a control character, U+009B"}},
		{"a: x\xe2\x80\xa8y\n", {"1:5: an invisible line break, U+2028"}},
		{"a: x\xc2\x85y\n", {"1:5: an invisible line break, U+0085"}},
		{"a: x\xe2\x80\xaey\n", {"1:5: an invisible character that reorders"}},
		{"a: x\xef\xbb\xbf\n", {"1:5: a byte order mark inside the file, U+FEFF"}},
		{"a: \xef\xbf\xbf\n", {"1:4: a code point that is not a character, U+FFFF"}},
		{"\xff\xfe"
		 "a",
		 {"1:1: the file is UTF-16 or binary"}},
		{"\xfe\xff"
		 "a",
		 {"1:1: the file is UTF-16 or binary"}},
		/* several at once, sorted */
		{"z: 1\nz: 2\n<<: {a: 1}\nb: !!int 3\nc: *d\n\xe9: 1\n\"z\": [\n",
		 {"2:1: duplicate key `z`", "3:1: a merge key", "4:4: a tag, !!int",
		  "5:4: no anchor &d", "6:1: byte 0xe9", "7:1: duplicate key `z`",
		  "8:1: the file ends within a `[` or `{`"}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

static void test_utf16(void **state)
{
	static const struct str rows[] = {{"a\0:\0 \0b\0", 8},
					  {"\0a\0:\0 \0b", 8},
					  {"\0\0\0a", 4},
					  {"\xff\xfe\0\0", 4}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct faults f;

		assert_null(parse(rows[i], &f));
		assert_int_equal(f.errors, 1);
		assert_string_equal(f.v[0].text, "the file is UTF-16 or binary (save it as UTF-8)");
		faults_clear(&f);
	}
}

/* A NUL further in is a control character like any other. */
static void test_nul(void **state)
{
	struct faults f;
	struct yaml_doc *d = parse(STR("ab: c\0d\n"), &f);

	(void)state;
	assert_int_equal(f.errors, 1);
	assert_string_equal(f.v[0].text, "a control character, U+0000 (remove it)");
	assert_int_equal(f.v[0].col, 6);
	yaml_doc_free(d);
	faults_clear(&f);
}

/* What stops the reading leaves what was read before, and says that the rest is missing. */
static void test_partial(void **state)
{
	struct faults f;
	struct yaml_doc *d = parse(STR("a: {b: c, d: [e, f\ng: h\n"), &f);
	const struct yaml_node *n;

	(void)state;
	assert_int_equal(f.errors, 1);
	assert_false(yaml_complete(d));
	n = yaml_get(yaml_get(yaml_root(d), "a"), "b");
	assert_non_null(n);
	assert_true(str_eq(n->text, STR("c")));
	yaml_doc_free(d);
	faults_clear(&f);
}

/* ---- bounds ---- */

static double cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* `head`, then `piece` so often that the text has some n bytes. */
static void check_bound(const char *name, const char *head, const char *piece, size_t n,
			const char *want)
{
	size_t head_n = strlen(head), piece_n = strlen(piece), at = head_n;
	char *text = malloc(n + piece_n + head_n);
	double start;
	struct yaml_doc *d;
	struct faults f;

	assert_non_null(text);
	memcpy(text, head, head_n);
	for (; at < n; at += piece_n)
		memcpy(text + at, piece, piece_n);
	start = cpu_ms();
	d = parse(str_from(text, at), &f);
	print_message("%s: %zu bytes, %.1f ms\n", name, at, cpu_ms() - start);
	assert_true(f.errors > 0);
	if (!strstr(f.v[f.n - 1].text, want))
		fail_msg("%s: wanted %s, got %s", name, want, f.v[f.n - 1].text);
	assert_false(yaml_complete(d));
	yaml_doc_free(d);
	faults_clear(&f);
	free(text);
}

static void test_bounds(void **state)
{
	(void)state;
	check_bound("brackets", "", "[", 20000, "nested more than 32 levels deep (the limit)");
	check_bound("braces", "a: ", "{", 1 << 20, "nested more than 32 levels");
	check_bound("dashes", "", "- ", 1 << 20, "nested more than 32 levels");
	check_bound("question marks", "", "? ", 1 << 20, "nested more than 32 levels");
	check_bound("a long word", "a: ", "x", 20 << 20, "far longer than 65536 bytes (the limit)");
	check_bound("a long quote", "a: '", "x", 20 << 20, "far longer than 65536 bytes");
	check_bound("a longish word", "a: ", "x", 70000,
		    "a value longer than 65536 bytes (the limit)");
	check_bound("a block", "a: |\n", " x\n", 20 << 20, "far longer than 65536 bytes");
	check_bound("a comment", "#", "x", 20 << 20, "far longer than 65536 bytes");
	check_bound("blank lines", "", "\n", 20 << 20, "far longer than 65536 bytes");
	check_bound("too large", "a: ", "x", LIMIT_CONFIG_BYTES + 1,
		    "larger than 32 MiB (the limit)");
	check_bound("anchors", "", "- &a x\n", 7 * 1100, "more than 1024 anchors");
	check_bound("a long anchor", "a: &", "x", 400, "a name of more than 256 bytes");
	check_bound("directives", "", "%TAG !a! x\n", 1 << 20, "a YAML directive");
	check_bound("values", "a: [", "x,", 9 << 20, "more than 2000000 values in the file");
	check_bound("values on lines", "a:\n", " - x\n", 14 << 20, "more than 2000000 values");
	check_bound("pairs", "a: [", "x: y,", 9 << 20, "more than 2000000 values");
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 8
#else
#define SLOWER 1
#endif

/* Too many values cost neither much time nor much memory before they are refused. In a child, whose
 * peak of memory is its own. */
static void check_cost(const char *head, const char *piece, size_t n)
{
	size_t head_n = strlen(head), piece_n = strlen(piece), at = head_n;
	char *text = malloc(n + piece_n + head_n);
	struct rusage child;
	int status;
	pid_t pid;
	double ms;

	assert_non_null(text);
	memcpy(text, head, head_n);
	for (; at < n; at += piece_n)
		memcpy(text + at, piece, piece_n);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct faults f;
		struct yaml_doc *d = parse(str_from(text, at), &f);

		_exit(!d && f.errors == 1 && strstr(f.v[0].text, "2000000 values") ? 0 : 1);
	}
	assert_int_equal(wait4(pid, &status, 0, &child), pid);
	assert_int_equal(status, 0);
	ms = (double)(child.ru_utime.tv_sec + child.ru_stime.tv_sec) * 1e3 +
	     (double)(child.ru_utime.tv_usec + child.ru_stime.tv_usec) / 1e3;
	print_message("%zu MiB of %s: %.0f ms, peak %ld MiB\n", n >> 20, piece, ms,
		      child.ru_maxrss >> 10);
	assert_true(ms < 1000 * SLOWER);
	assert_true(child.ru_maxrss < 64L * SLOWER << 10);
	free(text);
}

static void test_too_many_values_cost_little(void **state)
{
	(void)state;
	check_cost("a: [", "x,", 9 << 20);
	check_cost("a: [", "x,", 31 << 20);
	check_cost("", "- - x\n", 20 << 20);
	check_cost("", "- {a: b}\n", 20 << 20);
}

static void test_alias_bomb(void **state)
{
	char text[4096] = "rules:\n  a: &a [x,x,x,x,x,x,x,x,x]\n";
	double start;
	struct yaml_doc *d;
	struct faults f;

	(void)state;
	for (char c = 'b'; c < 'k'; c++) {
		size_t n = strlen(text);
		int o = c - 1;

		snprintf(text + n, sizeof(text) - n,
			 "  %c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, o, o, o, o, o,
			 o, o, o, o);
	}
	start = cpu_ms();
	d = parse(str_from_c(text), &f);
	print_message("alias bomb: %zu bytes, %.1f ms\n", strlen(text), cpu_ms() - start);
	assert_int_equal(f.errors, 1);
	assert_string_equal(f.v[0].text, "aliases stand for more than 100000 values (the limit)");
	assert_int_equal(f.v[0].line, 7);
	yaml_doc_free(d);
	faults_clear(&f);
}

/* A long map finds its doubles too, and in time. */
static void test_many_keys(void **state)
{
	struct strbuf b;
	struct yaml_doc *d;
	struct faults f;
	double start;

	(void)state;
	strbuf_init(&b, 8 << 20);
	for (int i = 0; i < 200000; i++)
		strbuf_addf(&b, "key%d: x\n", i);
	strbuf_adds(&b, "key77: y\n");
	start = cpu_ms();
	d = parse(strbuf_str(&b), &f);
	print_message("200000 keys: %.1f ms\n", cpu_ms() - start);
	assert_int_equal(f.errors, 1);
	assert_string_equal(f.v[0].text, "duplicate key `key77` (it already stands in line 78)");
	assert_int_equal(f.v[0].line, 200001);
	assert_int_equal(yaml_root(d)->n, 200000);
	yaml_doc_free(d);
	faults_clear(&f);
	strbuf_clear(&b);
}

/* ---- the list of faults ---- */

static void test_fault_list(void **state)
{
	struct strbuf out;
	struct faults f;

	(void)state;
	faults_init(&f, "f.yaml");
	fault_add(&f, 3, 2, "third %s", "\x1b[2J");
	fault_warn(&f, 1, 9, "first");
	fault_add(&f, 0, 0, "whole");
	fault_add(&f, 3, 2, "third %s", "\x1b[2J");
	fault_add(&f, 3, 1, "second");
	assert_int_equal(f.errors, 3);
	assert_int_equal(f.warnings, 1);
	strbuf_init(&out, 1000);
	faults_print(&f, &out);
	assert_string_equal(strbuf_cstr(&out), "f.yaml: whole\n"
					       "f.yaml:1:9: warning: first\n"
					       "f.yaml:3:1: second\n"
					       "f.yaml:3:2: third \\x1b[2J\n");
	strbuf_clear(&out);
	faults_clear(&f);
}

/* Beyond the bound faults are counted, and an error is worth more than a warning. */
static void test_fault_bound(void **state)
{
	struct strbuf out;
	struct faults f;

	(void)state;
	faults_init(&f, NULL);
	for (unsigned i = 1; i <= 2 * LIMIT_YAML_FAULTS; i++)
		fault_warn(&f, i, 1, "w%u", i);
	assert_int_equal(f.n, LIMIT_YAML_FAULTS);
	fault_add(&f, 1000, 1, "error");
	assert_int_equal(f.n, LIMIT_YAML_FAULTS);
	assert_int_equal(f.errors, 1);
	assert_int_equal(f.warnings, 2 * LIMIT_YAML_FAULTS);
	assert_int_equal(f.dropped, LIMIT_YAML_FAULTS + 1);
	strbuf_init(&out, 100000);
	faults_print(&f, &out);
	assert_non_null(strstr(strbuf_cstr(&out), "\n1000:1: error\n"));
	assert_non_null(strstr(strbuf_cstr(&out), "and 101 more\n"));
	strbuf_clear(&out);
	faults_clear(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_utf16),
		cmocka_unit_test(test_nul),
		cmocka_unit_test(test_partial),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_too_many_values_cost_little),
		cmocka_unit_test(test_alias_bomb),
		cmocka_unit_test(test_many_keys),
		cmocka_unit_test(test_fault_list),
		cmocka_unit_test(test_fault_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

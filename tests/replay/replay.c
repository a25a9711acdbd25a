/*
 * Runs scenarios: replay [-v] [-n NAME] [-m] [-t] FILE...
 *   -v  trace the steps and the moves between states
 *   -n  only those whose name has NAME in it
 *   -m  print the moves that were seen
 *   -t  torture: each scenario once for every allocation, which then fails; once alone, once with
 *       all that follow
 * Exit 1 if something was not as it must be.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/replay/fake.h"
#include "tests/replay/scenario.h"

static char where[300]; /* for the last words */

void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

static void last_words(void)
{
	if (write(2, where, strlen(where)) < 0)
		return;
}

static void on_abort(int signal_number)
{
	last_words();
	signal(signal_number, SIG_DFL);
	raise(signal_number);
}

/* Faults of a scenario, one for each allocation that failed in a new way. There are no more starts
 * and denials than in the run before, in which none failed: a request that is refused for want of
 * memory is so once. (Where the log took nothing of that run, it may take one here.)
 */
static unsigned torture(const struct scenario *s, unsigned long *runs)
{
	size_t requests = fake_log.requests > 0 ? fake_log.requests : 1;
	unsigned bad = 0;

	for (int mode = 0; mode < 2; mode++) {
		bool more = true;

		for (long n = 1; more && bad < 3; n++) {
			char more_text[300];
			const char *text;

			fake_memory.fail_at = n;
			fake_memory.fail_on = mode == 1;
			snprintf(where, sizeof(where), "while %s:%u: %.100s, allocation %ld%s\n",
				 s->file, s->line, s->name, n, mode ? " and all behind it" : "");
			text = scenario_run(s, true, false);
			if (!text && fake_log.requests > requests) {
				snprintf(more_text, sizeof(more_text),
					 "%s:%u: %.100s: more starts and denials than requests",
					 s->file, s->line, s->name);
				text = more_text;
			}
			more = fake_memory.count >= n;
			++*runs;
			if (text) {
				printf("FAILED %s\n  allocation %ld%s\n", text, n,
				       mode ? " and all behind it" : "");
				bad++;
			}
		}
	}
	fake_memory.fail_at = 0;
	return bad;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void print_moves(void)
{
	char names[ARRAY_LEN(fake_moves.names)][48];

	memcpy(names, fake_moves.names, sizeof(names));
	qsort(names, fake_moves.n, sizeof(names[0]), by_name);
	for (size_t i = 0; i < fake_moves.n; i++)
		printf("  %s\n", names[i]);
	printf("%zu kinds of moves\n", fake_moves.n);
}

int main(int argc, char **argv)
{
	bool trace = false, moves = false, tortures = false;
	const char *name = "";
	struct scenarios all = {0};
	unsigned run = 0, bad = 0;
	unsigned long runs = 0;
	int opt;

	while ((opt = getopt(argc, argv, "vmtn:")) != -1) {
		trace = trace || opt == 'v';
		moves = moves || opt == 'm';
		tortures = tortures || opt == 't';
		if (opt == 'n')
			name = optarg;
		if (opt == '?')
			return 2;
	}
	signal(SIGABRT, on_abort);
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(last_words);
	for (int i = optind; i < argc; i++)
		scenarios_read(argv[i], &all);
	for (size_t i = 0; i < all.n; i++) {
		const char *text;

		if (!strstr(all.v[i].name, name))
			continue;
		run++;
		snprintf(where, sizeof(where), "while %s:%u: %.100s\n", all.v[i].file,
			 all.v[i].line, all.v[i].name);
		/* Once as if the log's thread wrote all records, once as if it slept. */
		text = scenario_run(&all.v[i], false, trace);
		fake_log_is_lent = !text;
		if (!text)
			text = scenario_run(&all.v[i], false, trace);
		fake_log_is_lent = false;
		if (text) {
			printf("FAILED %s: %s\n", all.v[i].name, text);
			bad++;
		} else if (tortures) {
			bad += torture(&all.v[i], &runs);
		}
	}
	if (moves)
		print_moves();
	printf("%u scenarios", run);
	if (tortures)
		printf(", %lu runs with memory failing", runs);
	printf(", %u failed\n", bad);
	scenarios_free(&all);
	return bad || run == 0;
}

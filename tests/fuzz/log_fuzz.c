/*
 * The log reader, `stile log`: the input is a log file, but for its first byte, which chooses
 * flags.
 * - It ends with 0 or 1 (a line is not a record), whatever the file holds.
 * - For people, no line it prints has a control character or another hazard for a terminal, and
 *   there are at most as many lines as in the file.
 * - With --json each line printed is one of the file, and a hazard in it is escaped.
 */
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proxy/cli/cli.h"
#include "tests/fuzz/fuzz.h"

#define OUT_MAX (1 << 20)

/* The rest of the command line is not linked here, and no usage is wrong. */
int cli_usage(const char *cmd, const char *fmt, ...)
{
	(void)cmd;
	(void)fmt;
	CHECK(!"wrong usage");
	return EXIT_USAGE;
}

int cli_fail(const struct err *e)
{
	(void)e;
	return 1;
}

int cli_getopt(int argc, char **argv, const char *shorts, const struct option *longs, int *ret_at)
{
	return getopt_long(argc, argv, shorts, longs, ret_at);
}

int cli_bad_flag(const char *cmd, int opt, char **argv)
{
	(void)opt;
	(void)argv;
	return cli_usage(cmd, "-");
}

static int in_fd, out_fd;
static char in_path[64];

static void open_files(void)
{
	static bool is_open;

	if (is_open)
		return;
	is_open = true;
	in_fd = memfd_create("log", MFD_CLOEXEC);
	out_fd = memfd_create("out", MFD_CLOEXEC);
	(void)snprintf(in_path, sizeof(in_path), "/proc/self/fd/%d", in_fd);
	CHECK(in_fd >= 0 && out_fd >= 0 && dup2(out_fd, 1) == 1);
	/* What it says of broken lines would bury what libFuzzer says. */
	CHECK(setvbuf(stdout, NULL, _IOFBF, 1 << 16) == 0);
}

static struct str run(struct str log, unsigned flags, char *out, int *ret)
{
	char *argv[8] = {(char[]){"log"}};
	int argc = 1;
	ssize_t n;
	int saved = dup(2), null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (flags & 1)
		argv[argc++] = (char[]){"--json"};
	if (flags & 2)
		argv[argc++] = (char[]){"--decision=deny"};
	if (flags & 4)
		argv[argc++] = (char[]){"--since=2024"};
	if (flags & 8)
		argv[argc++] = (char[]){"--event=request.start"};
	argv[argc++] = in_path;
	CHECK(ftruncate(in_fd, 0) == 0 && ftruncate(out_fd, 0) == 0);
	CHECK(pwrite(in_fd, log.p, log.n, 0) == (ssize_t)log.n);
	CHECK(lseek(out_fd, 0, SEEK_SET) == 0 && null >= 0 && dup2(null, 2) == 2);
	optind = 0;
	*ret = cmd_log(argc, argv);
	CHECK(fflush(stdout) == 0);
	CHECK(dup2(saved, 2) == 2);
	(void)close(saved);
	(void)close(null);
	n = pread(out_fd, out, OUT_MAX, 0);
	CHECK(n >= 0);
	return str_from(out, (size_t)n);
}

static size_t count(struct str s, char c)
{
	size_t n = 0;

	for (size_t i = 0; i < s.n; i++)
		n += s.p[i] == c;
	return n;
}

/* A line of --json is one of the log, but for what a terminal would obey. */
static void check_json_line(struct str log, struct str line)
{
	bool found = false, hazard = false;

	while (log.p) {
		struct str l = str_split(&log, '\n');

		found |= str_eq(l, line);
		hazard |= utf8_clean(l) != l.n;
	}
	CHECK(utf8_clean(line) == line.n);
	CHECK(found || hazard);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char out[OUT_MAX];
	struct str log = str_from(data, size), printed;
	unsigned flags = fuzz_u8(&log);
	int rc;

	if (size > 65536)
		return 0;
	open_files();
	printed = run(log, flags, out, &rc);
	CHECK(rc == 0 || rc == 1);
	CHECK(printed.n == 0 || printed.p[printed.n - 1] == '\n');
	CHECK(count(printed, '\n') <= count(log, '\n') + 1);
	while (printed.n > 0) {
		struct str line = str_split(&printed, '\n');

		if (flags & 1)
			check_json_line(log, line);
		else
			CHECK(utf8_clean(line) == line.n);
	}
	return 0;
}

/*
 * What became of one client's question, out of what it printed: the origin answered, stile refused,
 * or the client did not get that far; and what to do about it. Every client has its own words.
 */
#include <stdio.h>
#include <string.h>

#include "proxy/cli/doctor.h"

#define SAID_LINES 3	/* of those that show why, where that is known */
#define SAID_BYTES 2000 /* of the end, where it is not */

/* The last line is git's, which shows its user the text of an answer. */
static const char *const by_stile[] = {"proxy-status: stile", "by stile", "remote: stile ", NULL};
static const char *const by_status[] = {" 403", "(403", "/403", "E403", NULL};
static const char *const no_trust[] = {"certificate", "x509",	   "PKIX", "UnknownIssuer",
				       "CERT_",	      "SSL_ERROR", NULL};
static const char *const no_way[] = {"not resolve",
				     "unable to resolve",
				     "ENOTFOUND",
				     "EAI_AGAIN",
				     "no such host",
				     "UnknownHost",
				     "Name or service",
				     "UnresolvedAddress",
				     "name resolution",
				     "Could not connect",
				     "Failed to connect",
				     "unreachable",
				     "ENETUNREACH",
				     "refused",
				     "dns error",
				     "ConnectException",
				     NULL};

static bool has(const struct strbuf *b, const char *what)
{
	return b->len > 0 && strcasestr(b->data, what) != NULL;
}

static bool has_any(const struct strbuf *b, const char *const *words)
{
	for (; *words; words++)
		if (has(b, *words))
			return true;
	return false;
}

void doctor_blank_out(struct strbuf *b, const char *url)
{
	size_t n = strlen(url);

	for (char *at = b->len ? b->data : NULL; at && n > 0 && (at = strstr(at, url)); at += n)
		memset(at, '_', n);
}

enum doctor_verdict doctor_judge(const struct doctor_tool *t, const struct strbuf *out,
				 const struct doctor_run *run)
{
	if (has_any(out, by_stile))
		return DOCTOR_REFUSED;
	if (has_any(out, t->answered))
		return DOCTOR_ANSWERED;
	/* Some show no more than the status. */
	if (has_any(out, by_status))
		return DOCTOR_REFUSED;
	if (has_any(out, no_trust))
		return DOCTOR_UNTRUSTED;
	if (has_any(out, no_way))
		return DOCTOR_NO_WAY;
	return run->timed_out ? DOCTOR_TIMEOUT : DOCTOR_OTHER;
}

const char *doctor_word(enum doctor_verdict v, enum doctor_verdict wanted)
{
	static const char *const words[] = {
		[DOCTOR_ANSWERED] = "answered",	  [DOCTOR_REFUSED] = "refused",
		[DOCTOR_UNTRUSTED] = "untrusted", [DOCTOR_NO_WAY] = "no way",
		[DOCTOR_TIMEOUT] = "timeout",	  [DOCTOR_OTHER] = "failed",
	};

	return v == wanted ? "ok" : words[v];
}

/* The reason that stile gave, if the client shows it. REASON_NONE: it does not. */
static enum reason reason_in(const struct strbuf *out)
{
	static const char *const before[] = {"details=\"", "by stile (", "remote: reason: "};
	const char *at;

	for (size_t i = 0; i < ARRAY_LEN(before); i++) {
		at = out->len > 0 ? strstr(out->data, before[i]) : NULL;
		if (!at)
			continue;
		at += strlen(before[i]);
		return reason_from_word(
			str_from(at, strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_")));
	}
	return REASON_NONE;
}

static void advise_refused(const struct strbuf *said, struct strbuf *b)
{
	enum reason why = reason_in(said);

	if (why == REASON_NONE)
		strbuf_adds(b, "stile refused it, or could not reach it: see the log, or say "
			       "--allowed");
	else
		strbuf_addf(b, "stile says %s: see the log, or name another URL with --allowed",
			    reason_word(why));
}

void doctor_advise(const struct doctor_tool *t, enum doctor_verdict allowed,
		   enum doctor_verdict denied, const struct strbuf *said, struct strbuf *b)
{
	enum doctor_verdict v = allowed != DOCTOR_ANSWERED ? allowed : denied;

	switch (v) {
	case DOCTOR_REFUSED:
		if (allowed == DOCTOR_REFUSED)
			advise_refused(said, b);
		return;
	case DOCTOR_ANSWERED: strbuf_adds(b, "IT GOT OUT: that URL is not denied"); return;
	case DOCTOR_UNTRUSTED: strbuf_addf(b, "trust the CA: %s", t->trust_how); return;
	case DOCTOR_NO_WAY: strbuf_addf(b, "use the proxy: %s", t->proxy_how); return;
	case DOCTOR_TIMEOUT: strbuf_adds(b, "no answer in time: see the log"); return;
	case DOCTOR_OTHER: strbuf_adds(b, "see what it says below"); return;
	}
}

/* ---- what it said ---- */

static bool line_has_any(struct str line, const char *const *words)
{
	struct strbuf b;
	bool r;

	strbuf_init(&b, line.n + 1);
	strbuf_add(&b, line);
	(void)strbuf_cstr(&b);
	r = has_any(&b, words);
	strbuf_clear(&b);
	return r;
}

/* What the verdict was taken from; NULL: nothing in particular. */
static const char *const *marks_of(enum doctor_verdict v, const struct strbuf *out)
{
	switch (v) {
	case DOCTOR_REFUSED: return has_any(out, by_stile) ? by_stile : by_status;
	case DOCTOR_UNTRUSTED: return no_trust;
	case DOCTOR_NO_WAY: return no_way;
	case DOCTOR_ANSWERED:
	case DOCTOR_TIMEOUT:
	case DOCTOR_OTHER: return NULL;
	}
	return NULL;
}

static void print_line(struct str line)
{
	struct strbuf safe;

	while (line.n > 0 && line.p[line.n - 1] == '\r')
		line = str_head(line, line.n - 1);
	if (line.n == 0)
		return;
	strbuf_init(&safe, 16384);
	strbuf_add_printable(&safe, line);
	(void)printf("    | %s\n", strbuf_cstr(&safe));
	strbuf_clear(&safe);
}

void doctor_print_said(enum doctor_verdict v, const char *what, const struct strbuf *out)
{
	const char *const *marks = marks_of(v, out);
	struct str s = strbuf_str(out), line;
	size_t left = SAID_LINES;

	if (!marks && s.n > SAID_BYTES)
		s = str_skip(s, s.n - SAID_BYTES);
	(void)printf("    asked for the %s URL, it says:\n", what);
	while (s.p && s.n > 0 && left > 0) {
		line = str_split(&s, '\n');
		if (marks && !line_has_any(line, marks))
			continue;
		print_line(line);
		left -= marks != NULL;
	}
}

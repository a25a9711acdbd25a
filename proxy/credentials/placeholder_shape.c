/*
 * What a placeholder looks like. Tools look at their key before they use it: its prefix, its
 * length, its letters. Nothing that is random in the real value gets into it: the prefix is one of
 * a list of public ones (or the configuration's word), and of the rest it has the alphabet of each
 * part, not the kind of each character.
 */
#include "proxy/credentials/placeholder.h"

#include <sys/random.h>

#define RANDOM_LEAST 20 /* characters */
#define BITS_LEAST   80
#define LENGTH	     40 /* when nothing is known */

/* By which vendors mark the kind of a key; what stands behind is the key. The longer of two that
 * begin alike comes first. */
static const char *const prefixes[] = {
	"github_pat_",	 "ghp_",      "gho_",	    "ghu_",	    "ghs_",	   "ghr_",
	"glpat-",	 "gldt-",     "glrt-",	    "glptt-",	    "glcbt-",	   "sk-ant-api03-",
	"sk-ant-oat01-", "sk-ant-",   "sk-proj-",   "sk-svcacct-",  "sk-admin-",   "sk-or-v1-",
	"sk_live_",	 "sk_test_",  "rk_live_",   "rk_test_",	    "sk-",	   "whsec_",
	"xoxb-",	 "xoxp-",     "xoxa-2-",    "xoxe.xoxp-1-", "xoxs-",	   "xapp-1-",
	"npm_",		 "pypi-",     "hf_",	    "gsk_",	    "pplx-",	   "xai-",
	"r8_",		 "AKIA",      "ASIA",	    "AIza",	    "ya29.",	   "SG.",
	"dop_v1_",	 "doo_v1_",   "dor_v1_",    "shpat_",	    "shpss_",	   "lin_api_",
	"figd_",	 "ntn_",      "dckr_pat_",  "tskey-api-",   "tskey-auth-", "hvs.",
	"hvb.",		 "rubygems_", "crates_io_", "PMAK-",	    "NRAK-",	   "glsa_",
	"eyJ",
};

/* The alphabet of a part. */
struct letters {
	char v[70];
	size_t n;
};

static void add_range(struct letters *l, char first, char last)
{
	for (char c = first; c <= last; c++)
		l->v[l->n++] = c;
}

static bool is_hex(struct str s, char a)
{
	for (size_t i = 0; i < s.n; i++)
		if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= a && s.p[i] <= a + 5)))
			return false;
	return s.n > 0;
}

static bool has(struct str s, char first, char last)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] >= first && s.p[i] <= last)
			return true;
	return false;
}

static struct letters letters_of(struct str part)
{
	struct letters l = {.n = 0};
	bool digits = has(part, '0', '9');
	bool hex = digits && is_hex(part, 'a'), upper_hex = digits && is_hex(part, 'A');

	if (digits)
		add_range(&l, '0', '9');
	if (has(part, 'a', 'z'))
		add_range(&l, 'a', hex ? 'f' : 'z');
	if (has(part, 'A', 'Z'))
		add_range(&l, 'A', upper_hex ? 'F' : 'Z');
	if (l.n == 0) {
		add_range(&l, '0', '9');
		add_range(&l, 'a', 'z');
		add_range(&l, 'A', 'Z');
	}
	/* In a place that takes one of them for the end of a word, a placeholder should be cut as
	 * the real one would be: so they stand there as often as chance has it. */
	if (has(part, '-', '-'))
		l.v[l.n++] = '-';
	if (has(part, '_', '_'))
		l.v[l.n++] = '_';
	return l;
}

static int pick(const struct letters *l, char *ret, struct err *e)
{
	unsigned char c;

	do {
		if (getrandom(&c, 1, 0) != 1)
			return err_set(e, "no random numbers");
	} while (c >= 256 / l->n * l->n);
	*ret = l->v[c % l->n];
	return 0;
}

/* Of one character of so many, rounded down. */
static unsigned bits_of(size_t n)
{
	unsigned bits = 0;

	while (n >>= 1)
		bits++;
	return bits;
}

static int add_random(struct strbuf *out, struct str part, size_t n, unsigned *bits, struct err *e)
{
	struct letters l = letters_of(part);
	char c = '\0';

	for (size_t i = 0; i < n; i++) {
		if (pick(&l, &c, e) < 0)
			return -1;
		strbuf_addc(out, c);
		*bits += bits_of(l.n);
	}
	return 0;
}

static bool is_uuid(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if ((s.p[i] == '-') != (i == 8 || i == 13 || i == 18 || i == 23))
			return false;
	return s.n == 36;
}

static struct str prefix_of(const struct config_placeholder *how, struct str value)
{
	if (how->prefix)
		return str_from_c(how->prefix);
	for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
		if (str_starts(value, str_from_c(prefixes[i])))
			return str_from_c(prefixes[i]);
	return STR_NONE;
}

/* Part by part: what separates them stays where it is. */
static int add_parts(struct strbuf *out, struct str rest, bool dashes, unsigned *bits,
		     struct err *e)
{
	size_t at = 0;

	while (at < rest.n && out->len < LIMIT_PLACEHOLDER_BYTES) {
		size_t end = at, n;

		while (end < rest.n && rest.p[end] != '.' && rest.p[end] != ':' &&
		       !(dashes && rest.p[end] == '-'))
			end++;
		n = end - at;
		if (n > LIMIT_PLACEHOLDER_BYTES - out->len)
			n = LIMIT_PLACEHOLDER_BYTES - out->len;
		if (add_random(out, str_from(rest.p + at, end - at), n, bits, e) < 0)
			return -1;
		if (end < rest.n && out->len < LIMIT_PLACEHOLDER_BYTES)
			strbuf_addc(out, rest.p[end]);
		at = end + 1;
	}
	return 0;
}

int placeholder_shape(const struct config_placeholder *how, struct str value, struct strbuf *out,
		      struct err *e)
{
	struct str prefix = prefix_of(how, value);
	struct str rest = str_starts(value, prefix) ? str_skip(value, prefix.n) : value;
	bool dashes =
		str_starts(prefix, STR("xox")) || str_starts(prefix, STR("xapp-")) || is_uuid(rest);
	size_t length = how->length ? (size_t)how->length : LENGTH;
	unsigned bits = 0;

	if (value.n == 0)
		rest = STR_NONE;
	strbuf_add(out, prefix);
	if (rest.n > 0 && (!how->length || how->length == value.n)) {
		if (add_parts(out, rest, dashes, &bits, e) < 0)
			return -1;
	} else if (add_random(out, rest, length - prefix.n, &bits, e) < 0) {
		return -1;
	}
	/* A short value needs a longer one in its place: nothing else may be taken for it. */
	while (!out->overflowed && out->len < LIMIT_PLACEHOLDER_BYTES &&
	       (bits < BITS_LEAST || out->len < prefix.n + RANDOM_LEAST))
		if (add_random(out, rest, 1, &bits, e) < 0)
			return -1;
	if (out->overflowed || bits < BITS_LEAST)
		return err_set(e, "no placeholder can be made");
	return 0;
}

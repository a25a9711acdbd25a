/*
 * What a compiled pattern is made of, and how text is folded and decoded: for pattern.c (compiles),
 * path_decode.c and path_forms.c (compares) alone.
 */
#ifndef STILE_POLICY_PATTERN_PARTS_H
#define STILE_POLICY_PATTERN_PARTS_H

#include "policy/pattern.h"

/* Bytes that stand for what no decoded byte must be mistaken for. Decoded control characters become
 * OTHER_CONTROL on both sides, so these five are free. */
#define WILD	      '\x01' /* a `*` of the pattern, not a decoded %2A */
#define OTHER_CONTROL '\x02'
#define KEPT_SLASH    '\x03' /* a decoded %2F that is still one character of its segment */
#define LIKE_SLASH    '\x04' /* a character that some readers take for a slash */
#define WITHIN_SLASH  '\x05' /* of one that some take for several, as a/c: fewer do so */

struct segment {
	struct str text; /* borrowed from the list's text; broad: a blank for a plus */
	struct str stem; /* broad: text without the ending of a page or of a repository; empty if it
			    has none, or nothing else but wildcards */
	uint32_t hash;	 /* segment_hash of text */
	uint32_t stem_hash; /* and of stem */
	uint32_t tail_n;    /* of a glob: what stands behind its last wildcard */
	bool any;	    /* `**` */
	bool glob;	    /* holds a wildcard */
	bool git;	    /* broad: with the ending of a repository */
	bool index;	    /* broad: the page of its folder */
	bool file;	    /* broad: the last, and what stands behind it is for it to read */
};

struct segment_list {
	char *text;	   /* owned */
	struct segment *v; /* owned */
	size_t n;
};

struct pattern {
	/* owned */
	struct segment_list narrow; /* the canonical pattern; its text is what pattern_str gives */
	struct segment_list split;  /* broad: decoded, lower case, %2F as a slash */
	struct segment_list
		kept; /* broad: the same with %2F in its segment; empty if there is none */
	/* plain */
	size_t text_n;
};

/* No seed: a pattern's is kept with it. Who finds paths whose segments collide pays for it in steps
 * (path_forms.c). */
uint32_t segment_hash(struct str s);

/* Does s match the segment's text, a glob? Backtracks to the last wildcard only, which is enough:
 * it can always take what an earlier one would have. Not broad: a wildcard never ends within a %XX.
 * Adds to *steps what it took. */
bool segment_glob(const struct segment *seg, struct str s, bool broad, size_t *steps);

/* Without blanks, and dots if asked, at its end; without parameters. */
struct str segment_trim(struct str s, bool dots);
struct str segment_cut_params(struct str s);

/* What else than a slash ends a segment. Which servers hold with either is another one each time.
 */
enum path_cut { CUT_ENCODED = 1, CUT_BACKSLASH = 2, CUTS_ALL = 3 };

static inline bool path_is_separator(char c, unsigned cuts)
{
	return c == '/' || (c == KEPT_SLASH && cuts & CUT_ENCODED) ||
	       (c == '\\' && cuts & CUT_BACKSLASH);
}

static inline void path_replace(char *p, size_t n, char from, char to)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] == from)
			p[i] = to;
}

bool path_has_escape(const char *p, size_t n);
/* Lower case, and no byte that has a meaning of its own here. */
void path_fold(char *to, struct str from);
/* Decodes the escapes of p[0..*n) once, in place, lower-casing what comes out and
 * folding it to ASCII. False: a byte that
 * begins UTF-8 of a needless length, which a careless reader takes for a dot or a slash. */
bool path_decode_once(char *p, size_t *n);
bool path_is_escape(const char *p, size_t left);

#endif

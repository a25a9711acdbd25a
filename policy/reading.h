/*
 * Readings of a decoded path that some servers have, beyond what single characters may be taken for
 * (lookalike.h): a host in front of it, a session within it, letters that are one to a server which
 * folds case and accents, the names of pages. Called by pattern.c, for denies alone.
 */
#ifndef STILE_POLICY_READING_H
#define STILE_POLICY_READING_H

#include "logging/attrs.h"
#include "logging/str.h"

/* `//host/path`: URL parsers that a server hands it to take the first segment for an authority
 * (RFC 3986 section 4.2, and the URL standard of browsers, for which more slashes than two are
 * two). True: *ret is what they leave, within path or "/". `separators` is a text of what else than
 * '/' is one in front, and `ends` of what else ends the authority: behind a '?' or '#' there is no
 * path. */
bool reading_behind_authority(struct str path, const char *separators, const char *ends,
			      struct str *ret);

/* ASP.NET reads `/(S(x))/a` and `/(A(x)F(y))/a`, which carry a session for who has no cookies, as
 * `/a`. Writes the path without them to `to`, which has room for it, and returns its length: path.n
 * when it holds none. */
size_t reading_without_sessions(struct str path, char *to);

/* Without the parameters of each segment: what stands from a ';' to the next '/' itself, whatever
 * is decoded to one. So read servers of Java, which cut them off first. As
 * reading_without_sessions. */
size_t reading_without_params(struct str path, char *to);

/* Case and compatibility folded (NFKD), accents dropped; ASCII is left as it is but for its case. A
 * byte that is no UTF-8 is a letter of Latin-1 or, for `drop`, nothing, as decoders have it that
 * ignore errors. *ret_broken: there was one. 0 and memory of the caller's, or -1: no memory. */
int reading_fold(struct str s, bool drop, char **ret, size_t *ret_n,
		 bool *ret_broken) ATTR_NODISCARD;
/* Is there anything that it could change, but for case? */
bool reading_needs_fold(struct str s);

/* The segment without an ending that says in which format a thing is wanted (`list.json`), or that
 * a server adds to what is asked for (`page.html`). `.git` is dropped wherever it stands, the
 * others at the end of a path. The same when there is none. */
struct str reading_without_format(struct str segment, bool last);
/* `a.php`, `*.key`, `.env`: a file, and what follows behind a slash is then for it to read. */
bool reading_is_file(struct str segment);
/* `index.html`, `Default.aspx` and the like: what is served for a folder. */
bool reading_is_index(struct str segment);

#endif

/*
 * Path patterns of rules: `*` is any run of characters within one segment, the empty run included
 * (an escape such as %2F is one character of its segment); `**` is any number of whole segments,
 * none included; the rest is itself, case-sensitive. The pattern is brought into the canonical form
 * of url.h when it is compiled. So a `**` at the end of /a also covers /a itself, /a/ and /a/b/c,
 * not /ab; a `*` as last segment covers /a/, /a/b and /a/@scope%2Fname, not /a and not /a/b/c; the
 * pattern "/" covers / alone. There is no way to write a literal `*`.
 * One match is linear in path x pattern at worst, without recursion on the input; of many patterns
 * most cost one look-up (path_forms.c), and all of them together have a bound (LIMIT_PATH_STEPS).
 */
#ifndef STILE_POLICY_PATTERN_H
#define STILE_POLICY_PATTERN_H

#include "logging/err.h"
#include "logging/str.h"

struct pattern; /* immutable once compiled */

/* `text` starts with '/'. 0, or -1: dot segments, broken escapes, a `**` that is not a whole
 * segment, a query or fragment. */
int pattern_compile(struct str text, struct pattern **ret, struct err *e) ATTR_NODISCARD;
void pattern_free(struct pattern *p); /* NULL is accepted */
/* The pattern in its canonical spelling; lives as long as the pattern. */
struct str pattern_str(const struct pattern *p);

/* Allow: the one canonical path. */
bool pattern_match(const struct pattern *p, struct str path);
/* Deny: every form that an upstream might take the path for: as it is; percent-decoded (once and
 * repeatedly, until nothing changes or a bound is met: then it matches); slashes collapsed;
 * `;params` cut from each segment, also before what is encoded in them is a slash; backslashes,
 * encoded slashes and what looks like one as slashes or not, each kind by itself; dot segments
 * resolved; trailing slash and trailing dots or blanks dropped; case, accents and compatibility
 * folded on both sides; a plus as a blank; a host in front of the path, a session of ASP.NET within
 * it, `a../` as `a/../`; the format in which a thing is wanted (`.json`), a page or a repository
 * without its ending unless a wildcard is all that is in front of it, a folder's page as the
 * folder; and these together. */
bool pattern_match_broad(const struct pattern *p, struct str path);

/* The same for many rules and one path, which is read once. `path` is borrowed and must live as
 * long as the forms. NULL when memory is out, which pattern_match_forms takes for a match. What is
 * beyond LIMIT_PATH_STEPS, with LIMIT_PATH_STEPS_PER_RULE for each pattern that was asked about,
 * matches for a deny (_forms) and does not for an allow (_path, as pattern_match). */
struct pattern_forms;
struct pattern_forms *pattern_forms_new(struct str path);
void pattern_forms_free(struct pattern_forms *f); /* NULL is accepted */
bool pattern_match_forms(const struct pattern *p, struct pattern_forms *f);
bool pattern_match_path(const struct pattern *p, struct pattern_forms *f);
/* How many texts and places have been compared so far; for tests. */
size_t pattern_forms_steps(const struct pattern_forms *f);

/* Could pattern p match a path that q matches too? For `check`: a conservative yes is allowed. */
bool pattern_covers(const struct pattern *p, const struct pattern *q);

#endif

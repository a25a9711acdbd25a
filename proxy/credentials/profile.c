/*
 * See profile.h. Comments (`#`, `;` at a line's beginning) and blank lines are skipped, as are keys
 * that say nothing here; what is no line of such a file is an error, and so is a key that stands
 * twice in the profile: the tools do not agree on which one counts.
 */
#include "proxy/credentials/profile.h"

static struct str trim(struct str s)
{
	s = str_trim_ows(s);
	if (s.n > 0 && s.p[s.n - 1] == '\r')
		s.n--;
	return str_trim_ows(s);
}

static int bad(struct err *e, size_t line, const char *what)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "line %zu of its file %s", line, what);
}

static int take(struct sigv4_parts *p, struct str key, struct str value, size_t line, struct err *e)
{
	struct str *to = str_eq_nocase(key, STR("aws_access_key_id"))	    ? &p->id
			 : str_eq_nocase(key, STR("aws_secret_access_key")) ? &p->key
			 : str_eq_nocase(key, STR("aws_session_token"))	    ? &p->token
									    : NULL;

	if (!to)
		return 0;
	if (to->p)
		return bad(e, line, "says again what an earlier one said");
	*to = value;
	return 0;
}

int profile_read(struct str text, struct str profile, struct sigv4_parts *ret, struct err *e)
{
	struct sigv4_parts p = {STR_NONE, STR_NONE, STR_NONE};
	bool inside = false, found = false;
	size_t line = 0;

	while (text.p) {
		struct str raw = str_split(&text, '\n'), s = trim(raw), value;

		line++;
		if (s.n == 0 || s.p[0] == '#' || s.p[0] == ';')
			continue;
		if (s.p[0] == '[') {
			if (s.p[s.n - 1] != ']')
				return bad(e, line, "has no `]`");
			inside = str_eq(trim(str_from(s.p + 1, s.n - 2)), profile);
			if (inside && found)
				return bad(e, line, "begins the profile again");
			found |= inside;
			continue;
		}
		/* A nested map of the tools: `s3 =`, and lines that are set in. */
		if (raw.p[0] == ' ' || raw.p[0] == '\t')
			continue;
		if (str_find(s, '=') < 0)
			return bad(e, line, "is no `key = value`");
		value = s;
		s = str_split(&value, '=');
		if (inside && take(&p, trim(s), trim(value), line, e) < 0)
			return -1;
	}
	if (!found)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its file has no such profile");
	if (p.id.n == 0 || p.key.n == 0)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "its profile lacks aws_access_key_id or aws_secret_access_key");
	*ret = p;
	return 0;
}

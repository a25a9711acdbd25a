/*
 * Takes the client's own identity out of a request that is to carry ours: a host serves many
 * accounts, and a key that the client brings could send the data to another one. It looks at names
 * alone and reads them as broadly as a server might; it adds nothing.
 */
#include "proxy/credentials/strip.h"

#include <string.h>

#include "logging/percent.h"

#define NAME_MAX_BYTES 256 /* a longer query key is no name that a server knows */

/* A field is an identity when the last word of its name (all but letters and digits separate) is
 * one of these, or ends like one of SUFFIX_MIN letters: X-TrackerToken, X-ClientSecret. Shorter
 * ones end words that say something else (monkey). */
#define SUFFIX_MIN 5
static const char *const last_words[] = {
	"accesskey",	 "accesstoken",	   "apikey",	   "apitoken", "assertion",
	"auth",		 "authkey",	   "authtoken",	   "authuser", "bearer",
	"authorization", "cert",	   "clientcert",   "cookie",   "cookie2",
	"cookies",	 "credential",	   "credentials",  "jwt",      "key",
	"passwd",	 "password",	   "principal",	   "secret",   "secretkey",
	"session",	 "sessionid",	   "sessiontoken", "token",    "xapikey",
	"xauthtoken",	 "username",	   "userid",	   "login",    "sudo",
	"pwd",		 "passcode",	   "otp",	   "saml",     "oidc",
	"passphrase",	 "appkey",	   "pass",	   "pat",      "sid",
	"ticket",

	"wsse",		 "authentication",
};

/* ... or when the whole name is one of these. */
static const char *const whole_names[] = {
	"client-cert-chain",
	"dpop",
	"impersonate-group",
	"impersonate-uid",
	"impersonate-user",
	"on-behalf-of",
	"remote-email",
	"remote-groups",
	"remote-user",
	"signature",
	"signature-input",
	"ssl-client-s-dn",
	"x-act-as",
	"x-amzn-oidc-data",
	"x-amzn-oidc-identity",
	"x-auth-email",
	"x-auth-user",
	"x-authenticated-user",
	"x-authenticated-userid",
	"x-forwarded-email",
	"x-forwarded-groups",
	"x-forwarded-preferred-username",
	"x-forwarded-user",
	"x-goog-authenticated-user-email",
	"x-goog-authenticated-user-id",
	"x-honeycomb-team",
	"x-impersonate",
	"x-impersonate-user",
	"x-jfrog-art-api",
	"x-ms-authorization-auxiliary",
	"x-ms-client-principal-id",
	"x-ms-client-principal-name",
	"x-on-behalf-of",
	"x-real-user",
	"x-remote-user",
	"x-run-as",
	"x-session-id",
	"x-signature",
	"x-ssl-client-s-dn",
	"x-ssl-client-verify",
	"x-user",
	"x-user-email",
	"x-user-id",
	"x-webauth-email",
	"x-webauth-user",
};

/* ... unless it is one of these: they end like one and say something else. */
static const char *const harmless_names[] = {
	"idempotency-key",
	"x-idempotency-key",
	"sec-websocket-key",
	"x-amz-server-side-encryption-customer-key",
	"x-amz-copy-source-server-side-encryption-customer-key",
	"x-goog-encryption-key",
	"x-goog-copy-source-encryption-key",
	"x-ms-encryption-key",
	"x-ms-source-encryption-key",
};

/* A signature of AWS is made anew as a whole: of the client's nothing may stand beside it. */
static const char *const sigv4_fields[] = {
	"authorization",    "x-amz-content-sha256", "x-amz-date",
	"x-amz-region-set", "x-amz-security-token",
};

/* ... and where it stands in the query (presigned URLs), folded as below. */
static const char *const sigv4_keys[] = {
	"awsaccesskeyid", "signature",	       "xamzalgorithm",	    "xamzcontentsha256",
	"xamzcredential", "xamzdate",	       "xamzexpires",	    "xamzregionset",
	"xamzsignature",  "xamzsecuritytoken", "xamzsignedheaders",
};

/* Query keys, without case and without what is neither letter nor digit. */
static const char *const query_keys[] = {
	"accesskey",
	"accesskeyid",
	"accesstoken",
	"accountkey",
	"apikey",
	"apipassword",
	"apisecret",
	"apitoken",
	"appkey",
	"assertion",
	"auth",
	"authkey",
	"authorization",
	"authtoken",
	"awsaccesskeyid",
	"bearer",
	"bearertoken",
	"circletoken",
	"clientassertion",
	"clientsecret",
	"credential",
	"credentials",
	"googleaccessid",
	"hapikey",
	"idtoken",
	"jobtoken",
	"jsessionid",
	"jwt",
	"key",
	"licensekey",
	"logintoken",
	"oauth2accesstoken",
	"oauthconsumerkey",
	"oauthsignature",
	"oauthtoken",
	"pass",
	"passphrase",
	"passwd",
	"password",
	"personalaccesstoken",
	"phpsessid",
	"privatetoken",
	"pwd",
	"refreshtoken",
	"sas",
	"secret",
	"secretaccesskey",
	"secretkey",
	"securitytoken",
	"servicekey",
	"sessid",
	"session",
	"sessionid",
	"sessionkey",
	"sessiontoken",
	"sid",
	"sig",
	"signature",
	"ssotoken",
	"subscriptionkey",
	"ticket",
	"token",
	"trackertoken",
	"userkey",
	"usertoken",
	"wstoken",
	"xaccesstoken",
	"xamzcredential",
	"xamzsecuritytoken",
	"xamzsignature",
	"xapikey",
	"xauthkey",
	"xauthtoken",
	"xgoogapikey",
	"xgoogcredential",
	"xgoogsignature",
};

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool field_is(struct str name, struct str folded)
{
	if (name.n != folded.n)
		return false;
	for (size_t i = 0; i < name.n; i++) {
		if (str_name_fold(name.p[i]) != str_name_fold(folded.p[i]))
			return false;
	}
	return true;
}

static bool field_is_in(struct str name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (field_is(name, str_from_c(list[i])))
			return true;
	}
	return false;
}

static bool is_identity_word(struct str word)
{
	for (size_t i = 0; i < ARRAY_LEN(last_words); i++) {
		struct str known = str_from_c(last_words[i]);
		size_t before = word.n > known.n && known.n >= SUFFIX_MIN ? word.n - known.n : 0;

		if (field_is(str_skip(word, before), known))
			return true;
	}
	return false;
}

static struct str last_word(struct str name)
{
	size_t at = name.n;

	while (at > 0 && str_name_fold(name.p[at - 1]) != '-')
		at--;
	return str_skip(name, at);
}

/* Browsers cannot set fields on a WebSocket, so some servers read a key out of the subprotocols. */
static bool subprotocol_is_identity(const struct field *f)
{
	static const char *const marks[] = {"key", "token", "bearer", "auth"};

	if (!field_is(f->name, STR("sec-websocket-protocol")))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
		struct str mark = str_from_c(marks[i]);

		for (size_t at = 0; at + mark.n <= f->value.n; at++) {
			if (str_eq_nocase(str_from(f->value.p + at, mark.n), mark))
				return true;
		}
	}
	return false;
}

static bool field_is_identity(const struct field *f)
{
	struct str name = f->name;

	if (field_is_in(name, harmless_names, ARRAY_LEN(harmless_names)))
		return false;
	return is_identity_word(last_word(name)) ||
	       field_is_in(name, whole_names, ARRAY_LEN(whole_names)) || subprotocol_is_identity(f);
}

static bool field_is_sought(const struct strip *s, const struct field *f)
{
	if (s->sigv4 && field_is_in(f->name, sigv4_fields, ARRAY_LEN(sigv4_fields)))
		return true;
	return (s->identities && field_is_identity(f)) ||
	       (s->field.n > 0 && field_is(f->name, s->field));
}

bool strip_fields(const struct strip *s, struct fields *f)
{
	size_t kept = 0, had = f->n;

	for (size_t i = 0; i < had; i++) {
		if (field_is_sought(s, &f->v[i]))
			continue;
		f->v[kept++] = f->v[i];
	}
	f->n = kept;
	return kept != had;
}

/* The letters and digits of a key, percent-decoded, in lower case, up to a "[" (a list's or a map's
 * element). -1: there are more than fit. */
static int fold_key(struct str key, char *out, size_t out_max, size_t *ret_n)
{
	size_t n = 0;

	for (size_t i = 0; i < key.n; i++) {
		int byte = percent_byte(key, i);
		char c = byte < 0 ? key.p[i] : (char)byte;

		if (byte >= 0)
			i += 2;
		if (c == '[' && n > 0)
			break;
		c = lower(c);
		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9'))
			continue;
		if (n == out_max)
			return -1;
		out[n++] = c;
	}
	*ret_n = n;
	return 0;
}

static bool key_is_sought(const struct strip *s, struct str key)
{
	struct str target = s->query;
	char mem[NAME_MAX_BYTES], want[NAME_MAX_BYTES];
	struct str name = {mem, 0};
	size_t want_n;

	/* The target itself, byte for byte, whatever its letters are. */
	if (target.n > 0 && str_eq_nocase(key, target))
		return true;
	if (fold_key(key, mem, sizeof(mem), &name.n) != 0)
		return false;
	if (name.n > 0 && target.n > 0 && fold_key(target, want, sizeof(want), &want_n) == 0 &&
	    str_eq(name, (struct str){want, want_n}))
		return true;
	for (size_t i = 0; s->sigv4 && i < ARRAY_LEN(sigv4_keys); i++) {
		if (str_eq(name, str_from_c(sigv4_keys[i])))
			return true;
	}
	for (size_t i = 0; s->identities && i < ARRAY_LEN(query_keys); i++) {
		if (str_eq(name, str_from_c(query_keys[i])))
			return true;
	}
	return false;
}

/* Some servers end a pair at ";" as well, so both end one here; which of the two it was stays with
 * the pair behind it. */
static size_t pair_end(struct str q, size_t from)
{
	while (from < q.n && q.p[from] != '&' && q.p[from] != ';')
		from++;
	return from;
}

/* The key of the pair that begins at `at` and ends at `end`. */
static struct str pair_key(struct str q, size_t at, size_t end)
{
	size_t key_end = at;

	while (key_end < end && q.p[key_end] != '=')
		key_end++;
	return str_from(q.p + at, key_end - at);
}

static bool query_is_sought(const struct strip *s, const struct url *u)
{
	struct str q = u->query;

	for (size_t at = 0; u->has_query && q.n > 0 && at <= q.n;) {
		size_t end = pair_end(q, at);

		if (key_is_sought(s, pair_key(q, at, end)))
			return true;
		at = end + 1;
	}
	return false;
}

bool strip_finds(const struct strip *s, const struct fields *f, const struct url *u)
{
	for (size_t i = 0; i < f->n; i++)
		if (field_is_sought(s, &f->v[i]))
			return true;
	return query_is_sought(s, u);
}

bool strip_query(const struct strip *s, struct url *u)
{
	struct str q = u->query;
	char *to;
	size_t kept = 0, at = 0;
	bool first = true, found = false;

	if (!u->has_query || q.n == 0)
		return false;
	to = u->mem + (q.p - u->mem);
	while (at <= q.n) {
		size_t end = pair_end(q, at);

		if (key_is_sought(s, pair_key(q, at, end))) {
			found = true;
		} else {
			char separator = at > 0 ? q.p[at - 1] : '&';

			if (!first)
				to[kept++] = separator;
			memmove(to + kept, q.p + at, end - at);
			kept += end - at;
			first = false;
		}
		at = end + 1;
	}
	if (!found)
		return false;
	u->query.n = kept;
	u->has_query = !first;
	return true;
}

/*
 * The small change of signatures (sigv4.h): hashes of bodies, and the three parts of a secret in
 * one text. sigv4.c signs.
 */
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "logging/limits.h"
#include "proxy/credentials/sigv4.h"

#define HASH_BYTES 32

static void add_hex(struct strbuf *out, const unsigned char *p, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		strbuf_addc(out, digits[p[i] >> 4]);
		strbuf_addc(out, digits[p[i] & 15]);
	}
}

/* ---- hashes ---- */

struct sigv4_hash {
	EVP_MD_CTX *md;
};

int sigv4_hash_new(struct sigv4_hash **ret)
{
	struct sigv4_hash *h = calloc(1, sizeof(*h));

	if (h)
		h->md = EVP_MD_CTX_new();
	if (!h || !h->md || EVP_DigestInit_ex2(h->md, EVP_sha256(), NULL) != 1) {
		sigv4_hash_free(h);
		return -1;
	}
	*ret = h;
	return 0;
}

void sigv4_hash_free(struct sigv4_hash *h)
{
	if (!h)
		return;
	EVP_MD_CTX_free(h->md);
	free(h);
}

int sigv4_hash_add(struct sigv4_hash *h, struct str data)
{
	return EVP_DigestUpdate(h->md, data.p, data.n) == 1 ? 0 : -1;
}

int sigv4_hash_end(struct sigv4_hash *h, char out[SIGV4_HASH_HEX])
{
	unsigned char raw[HASH_BYTES] = {0};
	char mem[SIGV4_HASH_HEX + 1];
	struct strbuf b;

	if (EVP_DigestFinal_ex(h->md, raw, NULL) != 1)
		return -1;
	strbuf_init_fixed(&b, mem, sizeof(mem));
	add_hex(&b, raw, sizeof(raw));
	memcpy(out, mem, SIGV4_HASH_HEX);
	return 0;
}

/* ---- parts ---- */

static bool is_part(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] <= 0x20 || s.p[i] > 0x7e)
			return false;
	return s.n > 0;
}

/* What an access key id is made of: it stands in Authorization, between `=` and `/`. */
static bool is_id(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '_' || c == '-' || c == '.'))
			return false;
	}
	return s.n > 0 && s.n <= 128;
}

static int check_parts(const struct sigv4_parts *p, struct err *e)
{
	if (!is_id(p->id) || !is_part(p->key) || p->key.n > SIGV4_KEY_MAX ||
	    (p->token.n > 0 && !is_part(p->token)))
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "it is no access key id and secret access key");
	return 0;
}

int sigv4_read_parts(struct str text, struct sigv4_parts *ret, struct err *e)
{
	struct str rest = text;
	struct sigv4_parts p = {.id = str_split(&rest, ' ')};

	p.key = str_split(&rest, ' ');
	if (rest.p) {
		p.token = rest;
		if (rest.n == 0)
			return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
					  "a blank stands at its end");
	}
	if (check_parts(&p, e) < 0)
		return -1;
	*ret = p;
	return 0;
}

int sigv4_join_parts(const struct sigv4_parts *p, struct secret **ret, struct err *e)
{
	size_t n = p->id.n + 1 + p->key.n + (p->token.n ? 1 + p->token.n : 0);
	struct secret *s;
	char *to;

	if (check_parts(p, e) < 0)
		return -1;
	s = secret_new(n + 1);
	if (!s)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
	to = secret_room(s);
	memcpy(to, p->id.p, p->id.n);
	to += p->id.n;
	*to++ = ' ';
	memcpy(to, p->key.p, p->key.n);
	to += p->key.n;
	if (p->token.n > 0) {
		*to++ = ' ';
		memcpy(to, p->token.p, p->token.n);
	}
	secret_trim(s, n);
	if (secret_check(s, e) < 0) {
		secret_unref(s);
		return -1;
	}
	*ret = s;
	return 0;
}

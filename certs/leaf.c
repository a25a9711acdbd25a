/*
 * What a leaf says (RFC 5280 section 4.2), and for how long. The extensions that do not depend on
 * the host are encoded once per signer. It keeps no leaf: leaf_cache.c does.
 */
#include "certs/leaf.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/x509v3.h>

#include "certs/tls_err.h"
#include "certs/x509_build.h"

#define COMMON_NAME_MAX 64 /* ub-common-name, RFC 5280 appendix A */
#define LEAF_EXTS	5
#define KIND_DNS	'd'
#define KIND_IP		'i'

struct leaf_maker {
	/* owned */
	X509_EXTENSION *exts[LEAF_EXTS];
	/* counted */
	struct ca *ca;
	EVP_PKEY *key;
	/* plain */
	time_t ca_ends;
	unsigned char point[SIGNER_POINT_LEN]; /* key, as it stands in a leaf */
};

static bool is_host_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static int key_add_dns(struct leaf_key *k, struct str name, struct err *e)
{
	char text[LIMIT_HOST_BYTES + 1];
	struct in_addr v4;
	size_t label = 0;

	if (name.n == 0 || name.n > LIMIT_HOST_BYTES)
		return err_reason(e, REASON_INTERNAL_ERROR, "a host name of %zu bytes", name.n);
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		if (c == '.' ? label == 0 : !is_host_char(c))
			return err_reason(e, REASON_INTERNAL_ERROR,
					  "a character that a certificate's host name cannot hold");
		label = c == '.' ? 0 : label + 1;
		text[i] = c;
		k->bytes[1 + i] = (unsigned char)c;
	}
	text[name.n] = '\0';
	if (label == 0 || inet_pton(AF_INET, text, &v4) == 1)
		return err_reason(e, REASON_INTERNAL_ERROR, "%s is no host name", text);
	k->bytes[0] = KIND_DNS;
	k->len = 1 + name.n;
	return 0;
}

int leaf_key_init(struct leaf_key *k, const struct leaf_name *name, struct err *e)
{
	if (!name->ip)
		return key_add_dns(k, name->text, e);
	if (name->ip_len != 4 && name->ip_len != 16)
		return err_reason(e, REASON_INTERNAL_ERROR, "an address of %zu bytes",
				  name->ip_len);
	k->bytes[0] = KIND_IP;
	memcpy(k->bytes + 1, name->ip, name->ip_len);
	k->len = 1 + name->ip_len;
	return 0;
}

/* Section 4.2.1.1: the issuer's key identifier, as the issuer's own certificate spells it. */
static X509_EXTENSION *make_aki(X509 *issuer)
{
	const ASN1_OCTET_STRING *have = X509_get0_subject_key_id(issuer);
	AUTHORITY_KEYID *aki = AUTHORITY_KEYID_new();
	X509_EXTENSION *ext = NULL;

	if (!aki)
		return NULL;
	aki->keyid = have ? ASN1_OCTET_STRING_dup(have) : x509_key_id(issuer);
	if (aki->keyid)
		ext = X509V3_EXT_i2d(NID_authority_key_identifier, 0, aki);
	AUTHORITY_KEYID_free(aki);
	return ext;
}

static X509_EXTENSION *make_ski(EVP_PKEY *key)
{
	X509 *x = X509_new();
	ASN1_OCTET_STRING *id = NULL;
	X509_EXTENSION *ext = NULL;

	if (x && X509_set_pubkey(x, key) == 1 && (id = x509_key_id(x)))
		ext = X509V3_EXT_i2d(NID_subject_key_identifier, 0, id);
	ASN1_OCTET_STRING_free(id);
	X509_free(x);
	return ext;
}

static X509_EXTENSION *make_eku(void)
{
	EXTENDED_KEY_USAGE *eku = EXTENDED_KEY_USAGE_new();
	X509_EXTENSION *ext = NULL;

	/* OBJ_nid2obj's objects are static; freeing the stack leaves them alone. */
	if (eku && sk_ASN1_OBJECT_push(eku, OBJ_nid2obj(NID_server_auth)) > 0)
		ext = X509V3_EXT_i2d(NID_ext_key_usage, 0, eku);
	EXTENDED_KEY_USAGE_free(eku);
	return ext;
}

int leaf_maker_new(struct ca *ca, struct leaf_maker **ret, struct err *e)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	int rc = key ? leaf_maker_new_for(ca, key, ret, e)
		     : tls_err(e, REASON_NONE, "cannot make a key for leaves");

	EVP_PKEY_free(key);
	return rc;
}

int leaf_maker_new_for(struct ca *ca, EVP_PKEY *key, struct leaf_maker **ret, struct err *e)
{
	static const int usage[] = {0}; /* digitalSignature */
	struct leaf_maker *m = calloc(1, sizeof(*m));
	size_t point_n = 0;

	if (!m)
		return err_set(e, "out of memory");
	m->ca = ca_ref(ca);
	if (EVP_PKEY_up_ref(key))
		m->key = key;
	if (!m->key || x509_time_to_unix(X509_get0_notAfter(ca_cert(ca)), &m->ca_ends) != 0 ||
	    EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, m->point,
					    sizeof(m->point), &point_n) != 1 ||
	    point_n != sizeof(m->point))
		goto fail;
	m->exts[0] = x509_ext_basic(false, -1);
	m->exts[1] = x509_ext_key_usage(usage, ARRAY_LEN(usage));
	m->exts[2] = make_eku();
	m->exts[3] = make_ski(m->key);
	m->exts[4] = make_aki(ca_cert(ca));
	for (size_t i = 0; i < LEAF_EXTS; i++)
		if (!m->exts[i])
			goto fail;
	*ret = m;
	return 0;
fail:
	leaf_maker_free(m);
	return tls_err(e, REASON_NONE, "cannot prepare the signing of leaves");
}

void leaf_maker_free(struct leaf_maker *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < LEAF_EXTS; i++)
		X509_EXTENSION_free(m->exts[i]);
	EVP_PKEY_free(m->key);
	ca_unref(m->ca);
	free(m);
}

/* The subjectAltName; critical when nothing else names the subject (section 4.2.1.6). */
static int add_san(X509 *x, const struct leaf_key *k, bool critical)
{
	GENERAL_NAMES *names = GENERAL_NAMES_new();
	GENERAL_NAME *name = GENERAL_NAME_new();
	bool dns = k->bytes[0] == KIND_DNS;
	ASN1_STRING *value = dns ? ASN1_IA5STRING_new() : ASN1_OCTET_STRING_new();
	int rc = -1;

	if (!names || !name || !value ||
	    ASN1_STRING_set(value, k->bytes + 1, (int)(k->len - 1)) != 1)
		goto out;
	GENERAL_NAME_set0_value(name, dns ? GEN_DNS : GEN_IPADD, value);
	value = NULL;
	if (sk_GENERAL_NAME_push(names, name) <= 0)
		goto out;
	name = NULL;
	rc = x509_add_ext_free(x, X509V3_EXT_i2d(NID_subject_alt_name, critical, names));
out:
	ASN1_STRING_free(value);
	GENERAL_NAME_free(name);
	GENERAL_NAMES_free(names);
	return rc;
}

/* What X509_set_pubkey does, without asking OpenSSL's encoders, which take longer than the
 * signature does. Where the leaf is used in this process that one is better: it leaves the key with
 * it. */
static int set_point(X509 *x, const struct leaf_maker *m)
{
	unsigned char *copy = OPENSSL_memdup(m->point, sizeof(m->point));

	if (copy &&
	    X509_PUBKEY_set0_param(X509_get_X509_PUBKEY(x), OBJ_nid2obj(NID_X9_62_id_ecPublicKey),
				   V_ASN1_OBJECT, OBJ_nid2obj(NID_X9_62_prime256v1), copy,
				   (int)sizeof(m->point)) == 1)
		return 0;
	OPENSSL_free(copy);
	return -1;
}

static int fill(X509 *x, const struct leaf_maker *m, const struct leaf_key *k,
		struct str common_name, bool is_sent)
{
	bool has_cn = common_name.n > 0 && common_name.n <= COMMON_NAME_MAX;

	if (x509_set_serial(x) != 0 ||
	    X509_set_issuer_name(x, X509_get_subject_name(ca_cert(m->ca))) != 1 ||
	    (is_sent ? set_point(x, m) != 0 : X509_set_pubkey(x, m->key) != 1))
		return -1;
	if (has_cn && x509_add_name(X509_get_subject_name(x), NID_commonName, common_name) != 0)
		return -1;
	for (size_t i = 0; i < LEAF_EXTS; i++)
		if (X509_add_ext(x, m->exts[i], -1) != 1)
			return -1;
	return add_san(x, k, !has_cn);
}

/* A leaf never outlives the CA; one that the CA has cut short is not made anew before it ends,
 * since the next would end at the same moment. */
static void plan_life(time_t ca_ends, time_t from, time_t not_after, struct leaf *l)
{
	l->usable_from = from;
	l->renew_at = not_after < ca_ends ? not_after - (not_after + 1 - from) / 4 : ca_ends;
}

static int bind_tickets(const struct leaf_key *k, struct leaf *l)
{
	return EVP_Q_digest(NULL, "SHA256", NULL, k->bytes, k->len, l->sid_ctx, NULL) == 1 ? 0 : -1;
}

/* The certificate alone, up to *ret_not_after. NULL: see OpenSSL's queue. */
static X509 *sign(const struct leaf_maker *m, const struct leaf_key *k, struct str common_name,
		  time_t from, time_t life, bool is_sent, time_t *ret_not_after)
{
	X509 *x = X509_new();

	*ret_not_after = from + life - 1;
	if (*ret_not_after > m->ca_ends)
		*ret_not_after = m->ca_ends;
	if (x && fill(x, m, k, common_name, is_sent) == 0 &&
	    x509_set_validity(x, from, *ret_not_after) == 0 && x509_sign(x, ca_key(m->ca)) == 0)
		return x;
	X509_free(x);
	return NULL;
}

static int check_ca(const struct leaf_maker *m, time_t now, struct err *e)
{
	if (now < m->ca_ends)
		return 0;
	return err_reason(e, REASON_INTERNAL_ERROR,
			  "stile's CA has expired (`stile ca rotate` makes a new one)");
}

static struct leaf *leaf_new(struct ca *ca, EVP_PKEY *key, const struct leaf_key *k)
{
	struct leaf *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	atomic_init(&l->refs, 1);
	l->ca = ca_ref(ca);
	if (EVP_PKEY_up_ref(key))
		l->key = key;
	if (l->key && bind_tickets(k, l) == 0)
		return l;
	leaf_unref(l);
	return NULL;
}

int leaf_make(const struct leaf_maker *m, const struct leaf_key *k, struct str common_name,
	      time_t now, struct leaf **ret, struct err *e)
{
	time_t from = now - CERT_BACKDATE_SECS, not_after = 0;
	struct leaf *l;

	if (check_ca(m, now, e) != 0)
		return -1;
	l = leaf_new(m->ca, m->key, k);
	if (!l)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	l->cert = sign(m, k, common_name, from, LEAF_LIFE_SECS, false, &not_after);
	if (!l->cert) {
		leaf_unref(l);
		return tls_err(e, REASON_INTERNAL_ERROR, "cannot sign a leaf");
	}
	plan_life(m->ca_ends, from, not_after, l);
	*ret = l;
	return 0;
}

int leaf_make_der(const struct leaf_maker *m, const struct leaf_key *k, struct str common_name,
		  time_t now, time_t life, struct strbuf *out, struct err *e)
{
	time_t not_after = 0;
	unsigned char *der = NULL;
	X509 *x;
	int n;

	if (check_ca(m, now, e) != 0)
		return -1;
	x = sign(m, k, common_name, now - CERT_BACKDATE_SECS, life, true, &not_after);
	n = x ? i2d_X509(x, &der) : -1;
	X509_free(x);
	if (n <= 0)
		return tls_err(e, REASON_INTERNAL_ERROR, "cannot sign a leaf");
	strbuf_add(out, str_from((const char *)der, (size_t)n));
	OPENSSL_free(der);
	return out->overflowed ? err_reason(e, REASON_INTERNAL_ERROR, "out of memory") : 0;
}

/* Are these the bytes of our key? To compare them as keys would cost more than the signature. */
static bool is_over(const X509 *x, EVP_PKEY *key)
{
	const ASN1_BIT_STRING *bits = X509_get0_pubkey_bitstr(x);
	unsigned char point[SIGNER_POINT_LEN];
	size_t n = 0;

	return EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point),
					       &n) == 1 &&
	       bits && n == (size_t)ASN1_STRING_length(bits) &&
	       memcmp(point, ASN1_STRING_get0_data(bits), n) == 0;
}

/* Over our key, and with dates that can be read. */
static int take_cert(struct leaf *l, struct leaf_blanks *b, struct str der)
{
	time_t from, not_after, ca_ends;

	l->cert = leaf_blanks_read(b, der);
	if (!l->cert || !is_over(l->cert, l->key) ||
	    x509_time_to_unix(X509_get0_notBefore(l->cert), &from) != 0 ||
	    x509_time_to_unix(X509_get0_notAfter(l->cert), &not_after) != 0 ||
	    x509_time_to_unix(X509_get0_notAfter(ca_cert(l->ca)), &ca_ends) != 0)
		return -1;
	plan_life(ca_ends, from, not_after, l);
	return 0;
}

int leaf_from_der(struct str der, EVP_PKEY *key, struct leaf_blanks *b, struct ca *ca,
		  const struct leaf_key *k, struct leaf **ret, struct err *e)
{
	struct leaf *l = leaf_new(ca, key, k);

	if (!l)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	if (take_cert(l, b, der) != 0) {
		leaf_unref(l);
		return tls_err(e, REASON_INTERNAL_ERROR, "a leaf that was signed cannot be used");
	}
	*ret = l;
	return 0;
}

struct leaf *leaf_ref(struct leaf *l)
{
	atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
	return l;
}

void leaf_unref(struct leaf *l)
{
	if (!l || atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
		return;
	X509_free(l->cert);
	EVP_PKEY_free(l->key);
	ca_unref(l->ca);
	free(l);
}

X509 *leaf_cert(const struct leaf *l)
{
	return l->cert;
}

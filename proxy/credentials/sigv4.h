/*
 * AWS Signature Version 4: the signature of a request as it will be written, and the keys that it
 * is made with. It knows no socket and no clock; signing.h decides what is signed of a client's
 * request.
 */
#ifndef STILE_PROXY_CREDENTIALS_SIGV4_H
#define STILE_PROXY_CREDENTIALS_SIGV4_H

#include <time.h>

#include "proxy/credentials/secret.h"
#include "proxy/http/message.h"

#define SIGV4_KEY_MAX	 256 /* a secret access key has 40 bytes */
#define SIGV4_HASH_HEX	 64
#define SIGV4_EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SIGV4_UNSIGNED	 "UNSIGNED-PAYLOAD"
#define SIGV4_MAX_TEXT	 (3 * LIMIT_SECRET_BYTES) /* of what is added to a head */

/* Three parts of one secret: "ID KEY" or "ID KEY TOKEN", each without blanks. */
struct sigv4_parts {
	struct str id, key, token; /* token is empty when there is none */
};

/* -1: REASON_CREDENTIAL_UNAVAILABLE, it is not of that form; without its text. */
int sigv4_read_parts(struct str text, struct sigv4_parts *ret, struct err *e) ATTR_NODISCARD;
/* The form of three parts (token may be empty), checked like any secret; -1: as above, a part is
 * empty or holds what does not belong there. */
int sigv4_join_parts(const struct sigv4_parts *p, struct secret **ret,
		     struct err *e) ATTR_NODISCARD;

/* Derived keys (one a day, region, service and secret) in locked memory, and what OpenSSL needs for
 * each signature. One thread's own. */
struct sigv4;

int sigv4_new(struct sigv4 **ret, struct err *e) ATTR_NODISCARD;
void sigv4_free(struct sigv4 *s); /* wipes. NULL is accepted */

/* What is signed: everything here goes out as it is, but that the writer adds framing fields. */
struct sigv4_request {
	struct str method;
	const struct url *url;
	const struct fields *fields; /* without those that the signature adds */
	struct str payload;	     /* hash of the body in hex, or a word that stands for it */
	struct sigv4_parts who;
	struct str region, service;
	time_t now;
	/* Signs all fields, not just host, content-type, content-md5 and x-amz-*: those are what
	 * services ask for, and no hop changes them. */
	bool every_field;
	bool keep_canonical;   /* for sigv4_last_canonical; else it is wiped at once */
	bool no_payload_field; /* x-amz-content-sha256 is not sent: few services ask for it */
};

/* Adds X-Amz-Date, X-Amz-Content-Sha256, X-Amz-Security-Token and Authorization to *extra, whose
 * slices point into mem (empty before; a secret afterwards). -1: REASON_UNSIGNABLE, more than
 * LIMIT_SIGV4_QUERY_PAIRS in the query; REASON_INTERNAL_ERROR, memory is out. */
int sigv4_sign(struct sigv4 *s, const struct sigv4_request *r, struct strbuf *mem,
	       struct fields *extra, struct err *e) ATTR_NODISCARD;
/* What the last signature was made of, for tests, if that was to be kept. */
struct str sigv4_last_canonical(const struct sigv4 *s);

/* Does the service read a path as it is, once decoded (S3 and its kin), and not normalized? */
bool sigv4_keeps_path(struct str service);

/* A running hash in hex. */
struct sigv4_hash;
int sigv4_hash_new(struct sigv4_hash **ret);
void sigv4_hash_free(struct sigv4_hash *h);
int sigv4_hash_add(struct sigv4_hash *h, struct str data) ATTR_NODISCARD;
int sigv4_hash_end(struct sigv4_hash *h, char out[SIGV4_HASH_HEX]) ATTR_NODISCARD;

#endif

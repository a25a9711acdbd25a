/*
 * Secrets in memory. They do not come from malloc: a page that holds nothing else can be locked,
 * kept out of core dumps and kept from children, and is given back as a whole. The sources fill
 * them; the store shares them.
 */
#include "proxy/credentials/secret.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>

#include <openssl/crypto.h>

#include "certs/client_cert.h"
#include "logging/limits.h"
#include "proxy/credentials/redact.h"

struct secret {
	_Atomic unsigned refs;
	struct redactor *redactor; /* owned; NULL: none */
	size_t mapped;		   /* of the whole mapping, this header included */
	size_t n;
	char value[];
};

struct secret *secret_new(size_t room)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t mapped = (sizeof(struct secret) + room + page - 1) / page * page;
	struct secret *s =
		mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (s == MAP_FAILED)
		return NULL;
	/* Each as far as the system grants it: a small RLIMIT_MEMLOCK is no reason to do without.
	 */
	(void)mlock(s, mapped);
	(void)madvise(s, mapped, MADV_DONTDUMP);
	(void)madvise(s, mapped, MADV_WIPEONFORK);
	atomic_init(&s->refs, 1);
	s->redactor = NULL;
	s->mapped = mapped;
	s->n = 0;
	return s;
}

char *secret_room(struct secret *s)
{
	return s->value;
}

void secret_trim(struct secret *s, size_t n)
{
	s->n = n;
}

static void add(struct secret *s, struct str more)
{
	if (more.n > 0)
		memcpy(s->value + s->n, more.p, more.n);
	s->n += more.n;
}

struct secret *secret_copy(struct str value)
{
	struct secret *s = secret_new(value.n);

	if (s)
		add(s, value);
	return s;
}

struct secret *secret_join(struct str a, char between, struct str b)
{
	struct secret *s = secret_new(a.n + 1 + b.n);

	if (!s)
		return NULL;
	add(s, a);
	add(s, str_from(&between, 1));
	add(s, b);
	return s;
}

struct secret *secret_ref(struct secret *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}

void secret_unref(struct secret *s)
{
	size_t mapped;

	if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	redactor_free(s->redactor);
	mapped = s->mapped;
	OPENSSL_cleanse(s, mapped);
	munmap(s, mapped);
}

void secret_set_redactor(struct secret *s, struct redactor *r)
{
	s->redactor = r;
}

const struct redactor *secret_redactor(const struct secret *s)
{
	return s->redactor;
}

struct str secret_value(const struct secret *s)
{
	return str_from(s->value, s->n);
}

static int check_size(const struct secret *s, struct err *e)
{
	if (s->n == 0)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "it is empty");
	if (s->n > LIMIT_SECRET_BYTES)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "it is larger than %d bytes",
				  LIMIT_SECRET_BYTES);
	return 0;
}

int secret_check_as(const struct config_credential *c, const struct secret *s, struct err *e)
{
	struct client_cert *cert = NULL;

	if (c->as != CREDENTIAL_AS_MTLS)
		return secret_check(s, e);
	if (check_size(s, e) < 0 || client_cert_new(secret_value(s), &cert, e) < 0)
		return -1;
	client_cert_unref(cert);
	return 0;
}

int secret_check(const struct secret *s, struct err *e)
{
	if (check_size(s, e) < 0)
		return -1;
	for (size_t i = 0; i < s->n; i++) {
		unsigned char c = (unsigned char)s->value[i];

		if (c < 0x20 || c == 0x7f)
			return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
					  "it holds a control character");
	}
	return 0;
}

/*
 * Where the roots come from, what a client is given to trust, and how OpenSSL's errors read.
 */
#include "pki.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "certs/ca.h"
#include "certs/roots.h"
#include "certs/tls_err.h"
#include "certs/trust.h"

static char dir[] = "/tmp/stile-roots-XXXXXX";
static struct pki_pair one, two;

static const char *path(const char *name)
{
	static char buf[32][128];
	static int at;

	at = (at + 1) % 32;
	snprintf(buf[at], sizeof(buf[at]), "%s/%s", dir, name);
	return buf[at];
}

static int set_up(void **state)
{
	(void)state;
	one = pki_make(&(struct pki_spec){.cn = "one", .ca = true});
	two = pki_make(&(struct pki_spec){.cn = "two", .ca = true});
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	char cmd[64];

	(void)state;
	pki_free(&one);
	pki_free(&two);
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	return system(cmd);
}

/* How many certificates can be read from the text, and whether x is among them. */
static size_t count(const struct strbuf *pem, X509 *x, bool *ret_found)
{
	BIO *bio = BIO_new_mem_buf(pem->data, (int)pem->len);
	size_t n = 0;
	X509 *at;

	*ret_found = false;
	while ((at = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
		*ret_found |= X509_cmp(at, x) == 0;
		X509_free(at);
		n++;
	}
	ERR_clear_error();
	BIO_free(bio);
	return n;
}

static void system_and_ca(void **state)
{
	struct err e = ERR_INIT;
	struct strbuf ca_pem, system_only, out;
	struct ca *ca;
	bool found;
	size_t n;

	(void)state;
	strbuf_init(&system_only, ROOTS_BYTES_MAX);
	strbuf_init(&ca_pem, 65536);
	strbuf_init(&out, ROOTS_BYTES_MAX);
	assert_int_equal(ca_new_memory(1, &ca, &e), 0);
	assert_int_equal(ca_add_pem(ca, &ca_pem, &e), 0);
	if (roots_add_system(&system_only, &e) != 0) {
		assert_says(e.text, "ca-certificates");
		skip();
	}
	/* The environment must not matter. */
	setenv("SSL_CERT_FILE", path("planted.pem"), 1);
	setenv("SSL_CERT_DIR", dir, 1);
	pki_write(path("planted.pem"), (X509 *[]){one.cert}, 1);
	assert_int_equal(bundle_add(strbuf_str(&ca_pem), &out, &e), 0);
	n = count(&system_only, one.cert, &found);
	assert_true(n > 0);
	assert_int_equal(count(&out, ca_cert(ca), &found), n + 1);
	assert_true(found);
	count(&out, one.cert, &found);
	assert_false(found);
	unsetenv("SSL_CERT_FILE");
	unsetenv("SSL_CERT_DIR");
	/* Too little room is a failure, not half a bundle. */
	strbuf_clear(&out);
	strbuf_init(&out, system_only.len + 10);
	assert_int_equal(bundle_add(strbuf_str(&ca_pem), &out, &e), -1);
	strbuf_clear(&out);
	strbuf_clear(&ca_pem);
	strbuf_clear(&system_only);
	ca_unref(ca);
}

static void places(void **state)
{
	const char *const files[] = {path("absent"), path("empty.pem"), path("one.pem"),
				     path("two.pem")};
	struct err e = ERR_INIT;
	struct strbuf out;
	bool found;

	(void)state;
	pki_write(path("empty.pem"), NULL, 0);
	pki_write(path("one.pem"), &one.cert, 1);
	pki_write(path("two.pem"), &two.cert, 1);
	strbuf_init(&out, 65536);
	assert_int_equal(roots_add_from(files, 4, NULL, &out, &e), 0);
	assert_int_equal(count(&out, one.cert, &found), 1);
	assert_true(found);
	strbuf_clear(&out);
	assert_int_equal(roots_add_from(files, 2, NULL, &out, &e), -1);
	assert_int_equal(out.len, 0);
	assert_int_equal(roots_add_from(files, 2, path("hashed"), &out, &e), -1);
	/* A hashed folder: the hashed names count, the plain ones would be a second copy. */
	assert_int_equal(mkdir(path("hashed"), 0700), 0);
	pki_write(path("hashed/0123abcd.0"), &one.cert, 1);
	pki_write(path("hashed/0123abcd.1"), &two.cert, 1);
	pki_write(path("hashed/one.pem"), &one.cert, 1);
	pki_write(path("hashed/0123abcd.r0"), &one.cert, 1);
	assert_int_equal(roots_add_from(files, 2, path("hashed"), &out, &e), 0);
	assert_int_equal(count(&out, two.cert, &found), 2);
	assert_true(found);
	strbuf_clear(&out);
}

static void file_without_newline(void **state)
{
	struct err e = ERR_INIT;
	struct strbuf out;
	struct stat st;
	bool found;

	(void)state;
	pki_write(path("cut.pem"), &one.cert, 1);
	assert_int_equal(stat(path("cut.pem"), &st), 0);
	assert_int_equal(truncate(path("cut.pem"), st.st_size - 1), 0);
	pki_write(path("two.pem"), &two.cert, 1);
	strbuf_init(&out, 65536);
	assert_int_equal(roots_add_file(path("cut.pem"), &out, &e), 0);
	assert_int_equal(roots_add_file(path("two.pem"), &out, &e), 0);
	assert_int_equal(count(&out, two.cert, &found), 2);
	strbuf_clear(&out);
	assert_int_equal(roots_add_file(dir, &out, &e), -1);
	assert_says(e.text, "not a regular file");
}

static void errors_in_words(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	SSL_CTX_free(SSL_CTX_new(TLS_client_method())); /* loads the words */
	ERR_raise(ERR_LIB_SSL, SSL_R_WRONG_VERSION_NUMBER);
	ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
	assert_int_equal(tls_err(&e, REASON_UPSTREAM_TLS_FAILED, "with %s", "a.test"), -1);
	assert_string_equal(e.text, "with a.test: wrong version number");
	assert_int_equal(e.reason, REASON_UPSTREAM_TLS_FAILED);
	assert_int_equal(ERR_peek_error(), 0);
	ERR_raise(ERR_LIB_SYS, ENOENT);
	tls_err(&e, REASON_NONE, "x");
	assert_says(e.text, "x: No such file");
	assert_int_equal(e.sys_errno, ENOENT);
	tls_err(&e, REASON_NONE, "x");
	assert_says(e.text, "x: ");
	ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
	assert_int_equal(tls_err(NULL, REASON_NONE, "x"), -1);
	assert_int_equal(ERR_peek_error(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(system_and_ca),
		cmocka_unit_test(places),
		cmocka_unit_test(file_without_newline),
		cmocka_unit_test(errors_in_words),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}

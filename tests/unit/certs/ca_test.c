/*
 * The CA: what its certificate says, field by field, and how it is made, kept and refused on disk.
 */
#include "pki.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "certs/ca.h"
#include "logging/limits.h"

static char dir[256];

static const char *path(const char *name)
{
	static char buf[2][512];
	static int at;

	at = !at;
	snprintf(buf[at], sizeof(buf[at]), "%s/%s", dir, name);
	return buf[at];
}

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/stile-ca-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char cmd[300];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd);
}

static long seconds_from_now(const ASN1_TIME *t)
{
	int days, secs;

	assert_int_equal(ASN1_TIME_diff(&days, &secs, NULL, t), 1);
	return days * DAY + secs;
}

static void check_fields(X509 *x, unsigned days)
{
	char text[128];
	int crit = -1, secs, d;
	BASIC_CONSTRAINTS *bc = X509_get_ext_d2i(x, NID_basic_constraints, &crit, NULL);
	ASN1_OCTET_STRING *ski;
	unsigned char md[EVP_MAX_MD_SIZE];
	unsigned md_len;

	assert_non_null(bc);
	assert_int_equal(crit, 1);
	assert_true(bc->ca);
	assert_non_null(bc->pathlen);
	assert_int_equal(ASN1_INTEGER_get(bc->pathlen), 0);
	BASIC_CONSTRAINTS_free(bc);
	assert_int_equal(X509_get_key_usage(x), KU_KEY_CERT_SIGN | KU_CRL_SIGN);
	assert_int_equal(X509_EXTENSION_get_critical(
				 X509_get_ext(x, X509_get_ext_by_NID(x, NID_key_usage, -1))),
			 1);
	ski = X509_get_ext_d2i(x, NID_subject_key_identifier, &crit, NULL);
	assert_non_null(ski);
	assert_int_equal(crit, 0);
	assert_int_equal(X509_pubkey_digest(x, EVP_sha1(), md, &md_len), 1);
	assert_int_equal(ASN1_STRING_length(ski), md_len);
	assert_memory_equal(ASN1_STRING_get0_data(ski), md, md_len);
	ASN1_OCTET_STRING_free(ski);

	assert_int_equal(X509_get_version(x), X509_VERSION_3);
	assert_int_equal(ASN1_STRING_type(X509_get0_serialNumber(x)), V_ASN1_INTEGER);
	/* 16 octets as encoded: a first bit of 1 would cost a seventeenth, or mean a negative
	 * number. */
	assert_int_equal(i2d_ASN1_INTEGER(X509_get0_serialNumber(x), NULL), 18);
	assert_in_range(ASN1_STRING_get0_data(X509_get0_serialNumber(x))[0], 0x40, 0x7f);
	X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_organizationName, text,
				  sizeof(text));
	assert_string_equal(text, "stile");
	X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, text, sizeof(text));
	assert_memory_equal(text, "stile CA ", 9);
	assert_int_equal(strlen(text), 17);
	assert_int_equal(X509_NAME_cmp(X509_get_subject_name(x), X509_get_issuer_name(x)), 0);
	assert_int_equal(X509_get_signature_nid(x), NID_ecdsa_with_SHA256);
	EVP_PKEY_get_group_name(X509_get0_pubkey(x), text, sizeof(text), NULL);
	assert_string_equal(text, "prime256v1");

	assert_in_range(-seconds_from_now(X509_get0_notBefore(x)), 3600, 3660);
	assert_int_equal(ASN1_TIME_diff(&d, &secs, X509_get0_notBefore(x), X509_get0_notAfter(x)),
			 1);
	assert_int_equal(d * DAY + secs + 1, days * DAY);
}

static void in_memory(void **state)
{
	struct err e = ERR_INIT;
	struct ca *ca, *other;
	struct strbuf pem;
	BIO *bio;
	X509 *back;

	(void)state;
	assert_int_equal(ca_new_memory(LIMIT_CA_RUN_DAYS, &ca, &e), 0);
	assert_int_equal(ca_new_memory(LIMIT_CA_RUN_DAYS, &other, &e), 0);
	check_fields(ca_cert(ca), LIMIT_CA_RUN_DAYS);
	assert_int_equal(X509_check_private_key(ca_cert(ca), ca_key(ca)), 1);
	assert_int_equal(sk_X509_num(ca_chain(ca)), 0);
	assert_int_not_equal(X509_NAME_cmp(X509_get_subject_name(ca_cert(ca)),
					   X509_get_subject_name(ca_cert(other))),
			     0);
	assert_int_not_equal(ASN1_INTEGER_cmp(X509_get0_serialNumber(ca_cert(ca)),
					      X509_get0_serialNumber(ca_cert(other))),
			     0);

	strbuf_init(&pem, 65536);
	assert_int_equal(ca_add_pem(ca, &pem, &e), 0);
	assert_null(strstr(strbuf_cstr(&pem), "PRIVATE"));
	bio = BIO_new_mem_buf(pem.data, (int)pem.len);
	back = PEM_read_bio_X509(bio, NULL, NULL, NULL);
	assert_int_equal(X509_cmp(back, ca_cert(ca)), 0);
	X509_free(back);
	BIO_free(bio);
	strbuf_clear(&pem);
	strbuf_init(&pem, 100);
	assert_int_equal(ca_add_pem(ca, &pem, &e), -1);
	strbuf_clear(&pem);

	ca_unref(ca_ref(ca));
	ca_unref(ca);
	ca_unref(other);
	ca_unref(NULL);
}

static void made_on_first_use(void **state)
{
	struct err e = ERR_INIT;
	struct ca *ca, *again;
	struct stat st;

	(void)state;
	snprintf(dir + strlen(dir), sizeof(dir) - strlen(dir), "/a/ca/");
	assert_int_equal(ca_load(dir, &ca, &e), -1);
	assert_int_equal(e.sys_errno, ENOENT);
	assert_int_equal(ca_load_or_create(dir, &ca, &e), 0);
	check_fields(ca_cert(ca), LIMIT_CA_DAYS);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(stat(path("ca.key"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(stat(path("ca.pem"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(ca_load(dir, &again, &e), 0);
	assert_int_equal(X509_cmp(ca_cert(ca), ca_cert(again)), 0);
	assert_int_equal(EVP_PKEY_eq(ca_key(ca), ca_key(again)), 1);
	ca_unref(again);
	assert_int_equal(ca_load_or_create(dir, &again, &e), 0);
	assert_int_equal(X509_cmp(ca_cert(ca), ca_cert(again)), 0);
	ca_unref(again);
	ca_unref(ca);
	*strstr(dir, "/a/ca/") = '\0';
}

/* Many processes at once, in an empty folder: all end with the same CA, and nothing is left over.
 */
static void raced(void **state)
{
	enum { PROCS = 16 };
	unsigned char seen[PROCS][32];
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	for (int i = 0; i < PROCS; i++) {
		struct err e = ERR_INIT;
		unsigned char md[32] = {0};
		struct ca *ca;

		if (fork() != 0)
			continue;
		if (ca_load_or_create(dir, &ca, &e) != 0)
			fprintf(stderr, "%s\n", e.text);
		else
			X509_digest(ca_cert(ca), EVP_sha256(), md, NULL);
		_exit(write(fds[1], md, sizeof(md)) != sizeof(md));
	}
	for (int i = 0; i < PROCS; i++)
		assert_int_equal(read(fds[0], seen[i], 32), 32);
	while (wait(NULL) > 0)
		;
	for (int i = 0; i < PROCS; i++) {
		assert_memory_not_equal(seen[i], (unsigned char[32]){0}, 32);
		assert_memory_equal(seen[i], seen[0], 32);
	}
	assert_int_equal(unlink(path("ca.pem")), 0);
	assert_int_equal(unlink(path("ca.key")), 0);
	assert_int_equal(rmdir(dir), 0); /* fails if a temporary file is left */
	assert_int_equal(mkdir(dir, 0700), 0);
	close(fds[0]);
	close(fds[1]);
}

/* What is left when the maker dies half-way, or somebody deletes a file. */
static void half_a_pair(void **state)
{
	struct err e = ERR_INIT;
	struct ca *ca, *again;

	(void)state;
	assert_int_equal(ca_load_or_create(dir, &ca, &e), 0);
	assert_int_equal(unlink(path("ca.pem")), 0);
	assert_int_equal(ca_load(dir, &again, &e), -1);
	assert_int_equal(ca_load_or_create(dir, &again, &e), 0);
	assert_int_equal(EVP_PKEY_eq(ca_key(ca), ca_key(again)), 1);
	ca_unref(again);
	assert_int_equal(unlink(path("ca.key")), 0);
	assert_int_equal(ca_load_or_create(dir, &again, &e), -1);
	assert_says(e.text, "ca.key is not");
	assert_int_equal(access(path("ca.key"), F_OK), -1);
	ca_unref(ca);
}

static void refused(const char *why)
{
	struct err e = ERR_INIT;
	struct ca *ca;

	assert_int_equal(ca_load_or_create(dir, &ca, &e), -1);
	assert_says(e.text, why);
	assert_int_equal(ERR_peek_error(), 0);
}

static void refuses_open_key(void **state)
{
	static const mode_t modes[] = {0640, 0604, 0610, 0601, 0620, 0660, 0644};
	struct err e = ERR_INIT;
	struct ca *ca;

	(void)state;
	assert_int_equal(ca_load_or_create(dir, &ca, &e), 0);
	ca_unref(ca);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		assert_int_equal(chmod(path("ca.key"), modes[i]), 0);
		assert_int_equal(ca_load(dir, &ca, &e), -1);
		assert_says(e.text, "chmod 600 ");
		assert_says(e.text, path("ca.key"));
	}
	assert_int_equal(chmod(path("ca.key"), 0400), 0);
	assert_int_equal(ca_load(dir, &ca, &e), 0);
	ca_unref(ca);
}

/* Who can rename the files can put a pair there that is as good as ours. */
static void refuses_open_folder(void **state)
{
	struct err e = ERR_INIT;
	struct ca *ca;

	(void)state;
	assert_int_equal(ca_load_or_create(dir, &ca, &e), 0);
	ca_unref(ca);
	assert_int_equal(chmod(dir, 0777), 0);
	refused("everybody can write to the folder (chmod o-w ");
	assert_int_equal(ca_rotate(dir, &ca, &e), -1);
	assert_int_equal(chmod(dir, 0770), 0);
	assert_int_equal(ca_load(dir, &ca, &e), 0);
	ca_unref(ca);
}

/* In a process of its own, as who is not root: 0 when the key is taken. */
static int load_as(uid_t uid, gid_t group)
{
	struct err e = ERR_INIT;
	struct ca *ca;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		if (setgroups(1, &group) != 0 || setgid(uid) != 0 || setuid(uid) != 0)
			_exit(99);
		_exit(ca_load(dir, &ca, &e) == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* As a Secret of Kubernetes is mounted: root's, and of a group that the container is in. */
static void takes_a_key_of_root_that_is_lent(void **state)
{
	static const struct {
		uid_t owner;
		mode_t mode;
		int want;
	} cases[] = {
		{0, 0440, 0},	  {0, 0640, 0},	    {0, 0460, 1},     {0, 0444, 1},
		{65532, 0440, 1}, {65532, 0400, 0}, {65533, 0440, 1},
	};
	struct err e = ERR_INIT;
	struct ca *ca;

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(ca_load_or_create(dir, &ca, &e), 0);
	ca_unref(ca);
	assert_int_equal(chmod(dir, 0755), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(chown(path("ca.key"), cases[i].owner, 4242), 0);
		assert_int_equal(chmod(path("ca.key"), cases[i].mode), 0);
		assert_int_equal(load_as(65532, 4242), cases[i].want);
	}
	/* Root itself could change the mode. */
	assert_int_equal(chown(path("ca.key"), 0, 4242), 0);
	assert_int_equal(chmod(path("ca.key"), 0440), 0);
	assert_int_equal(ca_load(dir, &ca, &e), -1);
	assert_says(e.text, "chmod 600 ");
}

static void put_pair(X509 *const *certs, size_t n, EVP_PKEY *key)
{
	FILE *f;

	pki_write(path("ca.pem"), certs, n);
	f = fopen(path("ca.key"), "w");
	assert_non_null(f);
	assert_int_equal(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
	fclose(f);
	chmod(path("ca.key"), 0600);
}

static void refuses_bad_pairs(void **state)
{
	struct pki_pair good = pki_make(&(struct pki_spec){.cn = "a", .ca = true});
	struct pki_pair other = pki_make(&(struct pki_spec){.cn = "b", .ca = true});
	struct pki_pair leaf = pki_make(&(struct pki_spec){.cn = "c", .san = "DNS:c"});
	struct pki_pair old =
		pki_make(&(struct pki_spec){.cn = "d", .ca = true, .from = -9 * DAY, .to = -1});
	struct pki_pair young =
		pki_make(&(struct pki_spec){.cn = "e", .ca = true, .from = DAY, .to = 9 * DAY});
	int fds[2];
	FILE *f;

	(void)state;
	put_pair(&good.cert, 1, other.key);
	refused("not the key");
	put_pair(&leaf.cert, 1, leaf.key);
	refused("not a CA");
	put_pair(&old.cert, 1, old.key);
	refused("expired");
	put_pair(&young.cert, 1, young.key);
	refused("not valid yet");
	put_pair(&good.cert, 0, good.key);
	refused("no certificate");
	put_pair(&good.cert, 1, good.key);
	f = fopen(path("ca.key"), "w");
	fputs("garbage\n", f);
	fclose(f);
	refused("no private key");
	/* A key with a passphrase must not lead to a question, although the answer would be there.
	 */
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], "pass\n", 5), 5);
	assert_int_equal(dup2(fds[0], 0), 0);
	close(fds[0]);
	close(fds[1]);
	f = fopen(path("ca.key"), "w");
	PEM_write_PrivateKey(f, good.key, EVP_aes_128_cbc(), (const unsigned char *)"pass", 4, NULL,
			     NULL);
	fclose(f);
	refused("without a passphrase");
	unlink(path("ca.key"));
	assert_int_equal(mkfifo(path("ca.key"), 0600), 0);
	refused("not a regular file");
	pki_free(&good);
	pki_free(&other);
	pki_free(&leaf);
	pki_free(&old);
	pki_free(&young);
}

/* A CA that somebody else signed: the chain has it and what is between, not the root. */
static void intermediate(void **state)
{
	struct pki_pair root = pki_make(&(struct pki_spec){.cn = "root", .ca = true});
	struct pki_pair mid =
		pki_make(&(struct pki_spec){.cn = "mid", .ca = true, .issuer = &root});
	struct pki_pair low = pki_make(
		&(struct pki_spec){.cn = "low", .ca = true, .issuer = &mid, .rsa_bits = 2048});
	X509 *certs[] = {low.cert, mid.cert, root.cert};
	struct err e = ERR_INIT;
	struct strbuf pem;
	struct ca *ca;
	size_t n = 0;

	(void)state;
	put_pair(certs, 3, low.key);
	assert_int_equal(ca_load(dir, &ca, &e), 0);
	assert_int_equal(sk_X509_num(ca_chain(ca)), 2);
	assert_int_equal(X509_cmp(sk_X509_value(ca_chain(ca), 0), low.cert), 0);
	assert_int_equal(X509_cmp(sk_X509_value(ca_chain(ca), 1), mid.cert), 0);
	strbuf_init(&pem, 65536);
	assert_int_equal(ca_add_pem(ca, &pem, &e), 0);
	for (const char *p = pem.data; (p = strstr(p, "BEGIN CERT")); p++)
		n++;
	assert_int_equal(n, 3);
	strbuf_clear(&pem);
	ca_unref(ca);
	pki_free(&root);
	pki_free(&mid);
	pki_free(&low);
}

static void rotated(void **state)
{
	struct err e = ERR_INIT;
	struct ca *ca, *next, *again;

	(void)state;
	assert_int_equal(ca_rotate(dir, &ca, &e), 0);
	assert_int_equal(ca_rotate(dir, &next, &e), 0);
	assert_int_equal(EVP_PKEY_eq(ca_key(ca), ca_key(next)), 0);
	assert_int_equal(access(path("ca.pem.old"), F_OK), 0);
	assert_int_equal(ca_load(dir, &again, &e), 0);
	assert_int_equal(X509_cmp(ca_cert(next), ca_cert(again)), 0);
	ca_unref(ca);
	ca_unref(next);
	ca_unref(again);
}

static void says_why_it_cannot_write(void **state)
{
	struct err e = ERR_INIT;
	struct ca *ca;

	(void)state;
	assert_int_equal(ca_load_or_create("/proc/nowhere/ca", &ca, &e), -1);
	assert_says(e.text, "/proc/nowhere");
	assert_int_equal(ca_load_or_create("", &ca, &e), -1);
}

int main(void)
{
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_memory),
		IN_DIR(made_on_first_use),
		IN_DIR(raced),
		IN_DIR(half_a_pair),
		IN_DIR(refuses_open_key),
		IN_DIR(refuses_open_folder),
		IN_DIR(takes_a_key_of_root_that_is_lent),
		IN_DIR(refuses_bad_pairs),
		IN_DIR(intermediate),
		IN_DIR(rotated),
		cmocka_unit_test(says_why_it_cannot_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The whole configuration file as plain data: what `serve`, `run`, `check` and `explain` read.
 * Loading touches the file itself and nothing else: no listener is opened, no secret read, no name
 * looked up.
 */
#ifndef STILE_POLICY_CONFIG_H
#define STILE_POLICY_CONFIG_H

#include "policy/policy.h"
#include "policy/yaml.h"

enum config_log_wait { CONFIG_WAIT_WRITTEN, CONFIG_WAIT_SYNCED, CONFIG_WAIT_NONE };

/* `deny:`, what a CONNECT that is refused gets: the refusal within TLS of ours, so that it reaches
 * whoever made the request, or in the answer to CONNECT. Not said: run explains, serve refuses. */
enum config_deny { CONFIG_DENY_UNSAID, CONFIG_DENY_EXPLAIN, CONFIG_DENY_REFUSE };

/* `reload:`, when `serve` reads the file again: told by a signal alone, or also when it changes. */
enum config_reload { CONFIG_RELOAD_SIGNAL, CONFIG_RELOAD_WATCH };

/* `tokens:`, who is served: whoever connects; a sandbox by its token, or else whoever connects;
 * sandboxes by their tokens alone. */
enum config_tokens { CONFIG_TOKENS_NONE, CONFIG_TOKENS_OPTIONAL, CONFIG_TOKENS_REQUIRED };

struct config_place {
	uint32_t line, col;
};

/* What is spoken at a listener: HTTP to a proxy; whatever a program says that knows of none, and
 * was led here by an address; questions for names. */
enum config_listener_kind { CONFIG_LISTEN_PROXY, CONFIG_LISTEN_TRANSPARENT, CONFIG_LISTEN_DNS };

struct config_listener {
	/* owned */
	char *name;	 /* "proxy-0" unless given by `name:` */
	char *unix_path; /* NULL for TCP */
	char *netns;	 /* the network namespace to open it in; NULL: stile's own */
	/* Resolved; NULL with CONFIG_TOKENS_REQUIRED (the token decides), and never else after a
	 * load without faults. */
	char *policy_name;
	/* plain */
	enum config_listener_kind kind;
	enum config_tokens tokens;
	struct ipaddr addr;
	uint16_t port;		/* 0: any free one, printed at start */
	struct config_place at; /* of the address, or of `netns` */
	unsigned unix_mode;	/* `mode:`, default 0660 */
	/* borrowed from the config; NULL as policy_name */
	struct policy *policy;
};

struct config_host { /* one entry of upstream.hosts */
	struct host name;
	struct ipaddr *addrs; /* owned */
	size_t addrs_n;
};

/* A host of upstream.proxy.no_proxy. */
struct config_direct {
	struct host host;
	bool below; /* `*.host`: every name below it, not itself */
};

/* `upstream.proxy`: the way out leads through this one. */
struct config_parent {
	/* owned */
	char *text;	  /* host:port, for messages and records; never a secret */
	char *credential; /* the name in `credentials:`; NULL: it asks for none */
	struct config_direct *direct;
	struct iprange *direct_ranges;
	/* plain */
	size_t direct_n, direct_ranges_n;
	struct host host;
	uint16_t port;
	bool tls;     /* https:// */
	bool by_name; /* `send: name` */
};

/* `state`: where stiles that share the tokens of sandboxes keep them. */
struct config_state {
	/* owned */
	char *text;	  /* redis://host:port/db or unix:/path, for messages; never a secret */
	char *unix_path;  /* NULL for TCP */
	char *prefix;	  /* of every key there */
	char *credential; /* the name in `credentials:`; NULL: it asks for none */
	/* plain */
	struct host host;
	uint16_t port;
	unsigned db;
	bool tls; /* rediss:// */
	uint64_t grace_ms;
};

enum credential_source {
	CREDENTIAL_FROM_FILE,
	CREDENTIAL_FROM_ENV,
	CREDENTIAL_FROM_EXEC,
	CREDENTIAL_FROM_OAUTH2,
	CREDENTIAL_FROM_VAULT,
	CREDENTIAL_FROM_JWT,
	CREDENTIAL_FROM_GITHUB_APP,
	CREDENTIAL_FROM_GCP,
	CREDENTIAL_FROM_KUBERNETES,
	CREDENTIAL_FROM_AWS,
};

/* What a source that has a map of its own is told, one of `from.<kind>.<key>`. */
enum config_param_key {
	PARAM_TOKEN_URL,
	PARAM_GRANT,
	PARAM_CLIENT_ID,
	PARAM_CLIENT_SECRET,
	PARAM_CLIENT_AUTH,
	PARAM_SCOPE,
	PARAM_AUDIENCE,
	PARAM_RESOURCE,
	PARAM_REFRESH_TOKEN,
	PARAM_SUBJECT_TOKEN,
	PARAM_SUBJECT_TOKEN_TYPE,
	PARAM_ASSERTION,
	PARAM_VAULT_ADDRESS,
	PARAM_VAULT_NAMESPACE,
	PARAM_VAULT_PATH,
	PARAM_VAULT_FIELD,
	PARAM_VAULT_FIELD_2,
	PARAM_VAULT_VERSION,
	PARAM_VAULT_TOKEN,
	PARAM_VAULT_ROLE_ID,
	PARAM_VAULT_SECRET_ID,
	PARAM_VAULT_WRAPPED,
	PARAM_VAULT_ROLE,
	PARAM_VAULT_JWT,
	PARAM_VAULT_MOUNT,
	PARAM_KEY,
	PARAM_ALGORITHM,
	PARAM_KID,
	PARAM_CLAIMS, /* members of a JSON object; CONFIG_SANDBOX stands for the caller */
	PARAM_APP_ID,
	PARAM_INSTALLATION_ID,
	PARAM_OWNER,
	PARAM_REPOSITORY,
	PARAM_REPOSITORIES, /* a JSON array of texts, as all lists */
	PARAM_PERMISSIONS,  /* a JSON object of texts */
	PARAM_API,
	PARAM_METADATA,
	PARAM_SCOPES,
	PARAM_IMPERSONATE,
	PARAM_LIFETIME, /* in seconds, without a unit */
	PARAM_IAM,
	PARAM_TOKEN,
	PARAM_AUDIENCES,
	PARAM_CA,
	PARAM_NAMESPACE,
	PARAM_SERVICE_ACCOUNT,
	PARAM_ACCESS_KEY_ID,
	PARAM_SECRET_ACCESS_KEY,
	PARAM_SESSION_TOKEN,
	PARAM_PROFILES,
	PARAM_PROFILE,
	PARAM_CONTAINER_URL,
	PARAM_AUTHORIZATION_TOKEN,
	PARAM_WEB_IDENTITY_TOKEN,
	PARAM_ROLE_ARN,
	PARAM_STS_URL,
	PARAM_STS_REGION,
	PARAM_SESSION_NAME,
	PARAM_DURATION,
	PARAM_EXTERNAL_ID,
	PARAM_POLICY,
};

/* In a claim: the name of the sandbox whose request it is. */
#define CONFIG_SANDBOX "{sandbox}"

/* A text; or where a secret is, which no configuration holds itself. */
enum config_param_kind { PARAM_TEXT, PARAM_FILE, PARAM_ENV };

struct config_param {
	/* owned */
	char *text; /* or path, or variable */
	/* plain */
	enum config_param_key key;
	enum config_param_kind kind;
};

enum credential_as {
	CREDENTIAL_AS_BEARER,
	CREDENTIAL_AS_BASIC,
	CREDENTIAL_AS_HEADER,
	CREDENTIAL_AS_QUERY,
	CREDENTIAL_AS_COOKIE,
	CREDENTIAL_AS_PLACEHOLDER,
	CREDENTIAL_AS_MTLS, /* a client certificate in the TLS towards the origin */
	CREDENTIAL_AS_SIGV4,
};

/* Where a placeholder is swapped for the value. */
enum placeholder_place {
	PLACEHOLDER_IN_HEADER = 1u << 0,
	PLACEHOLDER_IN_BASIC = 1u << 1, /* one half of the pair of Authorization: Basic */
	PLACEHOLDER_IN_QUERY = 1u << 2,
	PLACEHOLDER_IN_PATH = 1u << 3,
	PLACEHOLDER_IN_BODY = 1u << 4,
	PLACEHOLDER_IN_WEBSOCKET = 1u << 5, /* text frames of the client's */
};

/* `as: {placeholder: {...}}`: the sandbox holds a made-up value, which stile swaps. */
struct config_placeholder {
	/* owned; NULL: not given */
	char *env;    /* the variable that `run` sets */
	char *file;   /* where `serve` writes it */
	char *prefix; /* how the value begins, which is no secret */
	char *header; /* the one field; NULL: any that could carry an identity */
	char *query;  /* the one key of the query; likewise */
	char *user;   /* the other half of a Basic pair; NULL: the client's choice */
	/* plain */
	unsigned places;     /* placeholder_place */
	uint64_t length;     /* 0: not given */
	uint64_t body_bytes; /* of a body or a message, in which it is swapped; 0: not given */
};

struct config_credential {
	/* owned */
	char *name;
	char *from;	/* path, variable, program or endpoint, for messages too */
	char *key_file; /* FROM_FILE: the other one of a certificate and its key; NULL: there is
			 * none */
	char *as_name;	/* header, query key or cookie; NULL otherwise */
	char *username; /* AS_BASIC: `as: {basic: USER}`; NULL: the secret is "user:password" */
	char **args;	/* FROM_EXEC: the program's arguments, without itself */
	char *service;	/* AS_SIGV4, as `region` */
	char *region;
	struct config_param *params;		/* of a source that has a map of its own */
	struct iprange *ranges;			/* `from.addresses`: what its endpoint may have */
	struct config_placeholder *placeholder; /* AS_PLACEHOLDER alone */
	/* plain */
	size_t args_n, params_n, ranges_n;
	uint64_t timeout_ms;   /* for one answer of a source that takes time */
	uint64_t ttl_ms;       /* `ttl`: how long a value holds at most; 0: not said */
	bool payload_unsigned; /* AS_SIGV4: `payload: unsigned` */
	enum credential_source source;
	enum credential_as as;
	uint32_t line, col;
};

/* `limits:`; each starts at its default of limits.h. */
struct config_limits {
	uint64_t connections, connections_per_address;
	uint64_t head_bytes;
	uint64_t head_ms, client_idle_ms, peek_ms, dns_ms, dial_ms, tls_ms, first_byte_ms,
		body_idle_ms;
	uint64_t request_life_ms, tunnel_idle_ms, tunnel_life_ms, drain_ms;
	uint64_t workers; /* 0: one a core */
};

/* One entry of a policy's `tests:`: a request and what is to become of it. */
struct config_test {
	/* owned */
	char *policy; /* its name */
	char *method; /* CONNECT: url is host:port */
	char *url; /* as written: a URL that is refused before the policy is asked is a test too */
	/* plain */
	enum rule_effect expect;
	uint32_t line, col;
};

struct config {
	/* owned */
	char *file;
	char *text; /* as it was read (text_n bytes): config_with_allows reads it once more */
	size_t text_n;
	char version_hash[17]; /* first 16 hex digits of the file's SHA-256 */
	struct config_listener *listeners;
	size_t listeners_n;
	char *ca_dir;			   /* NULL: default */
	char **trust;			   /* PEM files; "system" stands for the system's roots */
	struct config_place *trust_places; /* of each, for who opens them */
	size_t trust_n;
	struct config_host *hosts; /* sorted by name */
	size_t hosts_n;
	char **dns_servers; /* `upstream.dns: [127.0.0.1:5353]`; NULL: the system's */
	size_t dns_servers_n;
	struct config_parent *parent;	       /* NULL: origins are dialled directly */
	struct config_state *state;	       /* NULL: tokens are this process's own */
	char *log_to;			       /* NULL: stdout */
	char *user;			       /* `user:`; NULL: stay who we are */
	char *admin_path;		       /* the socket of `admin:`; NULL: none */
	struct config_listener *metrics;       /* the address of `metrics:`; NULL: none */
	struct config_credential *credentials; /* sorted by name */
	size_t credentials_n;
	struct config_test *tests;
	size_t tests_n;
	struct policy **policies; /* counted; sorted by name */
	size_t policies_n;
	/* plain */
	enum config_log_wait log_wait;
	enum config_deny deny;
	enum config_reload reload;
	struct config_limits limits;
	/* counted: the config itself; atomic */
	int refs;
};

/* Reads a file (or text, for tests and --allow). Every fault of the file is in f, warnings
 * included. 0 and *ret (one reference) when there is no error; -1 otherwise. A missing or
 * unreadable file is a fault with line 0. */
int config_load_file(const char *path, struct config **ret, struct faults *f) ATTR_NODISCARD;
int config_load_text(const char *file, struct str text, struct config **ret,
		     struct faults *f) ATTR_NODISCARD;
/* The path of `admin` alone, for who asks a stile that runs: it goes on under the old policy when
 * the file is broken since. *ret is the caller's to free, NULL when there is none; the result is
 * that of config_load_file. */
int config_find_admin(const char *path, char **ret, struct faults *f) ATTR_NODISCARD;
/* The bytes of a file as config_load_file would read them, for who passes them on; *ret is the
 * caller's to free. */
int config_read_file(const char *path, char **ret, size_t *ret_n, struct faults *f) ATTR_NODISCARD;
/* `run --allow TARGET`: a rule for each target behind those of c's policy of that name (NULL: its
 * only one, or `default`; otherwise a fault); c NULL: a config with a policy `default` of only
 * that. Not to be given what it returned: targets do not add up. Faults name the flag. Their rules
 * say `--allow:N` as their place. */
int config_with_allows(struct config *c, const char *policy, const char *const *targets,
		       size_t targets_n, struct config **ret, struct faults *f) ATTR_NODISCARD;
/* As it is written in `listen:`. */
const char *config_kind_word(enum config_listener_kind kind);
struct config *config_ref(struct config *c);
void config_unref(struct config *c); /* NULL is accepted; thread-safe */
struct policy *config_policy(const struct config *c, const char *name);
const struct config_credential *config_credential(const struct config *c, const char *name);
/* NULL: not given. */
const struct config_param *config_param(const struct config_credential *c,
					enum config_param_key key);
const char *config_param_text(const struct config_credential *c, enum config_param_key key);
/* The n-th file that a secret of c is read from; NULL: there are no more. */
const char *config_credential_file(const struct config_credential *c, size_t n);
/* What else of c's files a line of its log would spoil: of the one that is_same says is the log's.
 * NULL: none. By their names here (load.c), by what they are in proxy/keeper. */
const char *config_spoilt_by_log(const struct config *c,
				 bool (*is_same)(const void *arg, const char *path),
				 const void *arg);
/* Has each sandbox a value of its own? */
bool config_credential_is_per_sandbox(const struct config_credential *c);
/* Does the way to this host go through upstream.proxy, as far as its name says? NULL: it does not;
 * or it may not, when one of its addresses is in a range of no_proxy. */
const struct config_parent *config_parent_for(const struct config *c, const struct host *h);
bool config_parent_spares(const struct config_parent *p, const struct ipaddr *a);
/* Is the proxy told the name, so that it is not resolved here? */
bool config_sends_name(const struct config *c, const struct host *h);
int config_cmp_hosts(const void *a, const void *b); /* of struct config_host, by name */
/* What is known of a host's addresses without a look-up (it is one, `upstream.hosts` has it, it is
 * localhost), judged under the rule as `serve` would. 0: one is admitted, or none is known; -1 with
 * REASON_ADDRESS_DENIED and the why. The machine's own addresses are not known here. */
int config_check_known(const struct config *c, const struct rule *r, const struct host *h,
		       struct err *e) ATTR_NODISCARD;
/* The same for all that a CONNECT to it may carry: what is not admitted is taken out of m. */
void config_check_connect(const struct config *c, const struct host *h, struct policy_connect *m,
			  struct err *e);
/* Every key that a file may have, dotted ("listen[].proxy"), NULL-terminated: the docs are tested
 * against it. */
const char *const *config_keys(void);

#endif

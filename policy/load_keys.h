/*
 * Every key that a configuration file may have, in one table: what is read, what is proposed for a
 * misspelt key and what the documentation is compared with all come from it.
 */
#ifndef STILE_POLICY_LOAD_KEYS_H
#define STILE_POLICY_LOAD_KEYS_H

#include "policy/yaml.h"

/* X(section, name of the enum, key). The keys of a section stand together. */
#define CONFIG_KEYS(X)                                                                             \
	X(TOP, VERSION, "version")                                                                 \
	X(TOP, LISTEN, "listen")                                                                   \
	X(TOP, CA, "ca")                                                                           \
	X(TOP, UPSTREAM, "upstream")                                                               \
	X(TOP, LOG, "log")                                                                         \
	X(TOP, CREDENTIALS, "credentials")                                                         \
	X(TOP, POLICIES, "policies")                                                               \
	X(TOP, LIMITS, "limits")                                                                   \
	X(TOP, DENY, "deny")                                                                       \
	X(TOP, USER, "user")                                                                       \
	X(TOP, ADMIN, "admin")                                                                     \
	X(TOP, METRICS, "metrics")                                                                 \
	X(TOP, RELOAD, "reload")                                                                   \
	X(TOP, STATE, "state")                                                                     \
	X(LISTEN, PROXY, "proxy")                                                                  \
	X(LISTEN, TRANSPARENT, "transparent")                                                      \
	X(LISTEN, DNS, "dns")                                                                      \
	X(LISTEN, NAME, "name")                                                                    \
	X(LISTEN, POLICY, "policy")                                                                \
	X(LISTEN, MODE, "mode")                                                                    \
	X(LISTEN, TOKENS, "tokens")                                                                \
	X(PLACE, ADDRESS, "address")                                                               \
	X(PLACE, NETNS, "netns")                                                                   \
	X(CA, DIR, "dir")                                                                          \
	X(UPSTREAM, TRUST, "trust")                                                                \
	X(UPSTREAM, HOSTS, "hosts")                                                                \
	X(UPSTREAM, DNS, "dns")                                                                    \
	X(UPSTREAM, PROXY, "proxy")                                                                \
	X(PARENT, URL, "url")                                                                      \
	X(PARENT, CREDENTIAL, "credential")                                                        \
	X(PARENT, SEND, "send")                                                                    \
	X(PARENT, NO_PROXY, "no_proxy")                                                            \
	X(STATE, URL, "url")                                                                       \
	X(STATE, CREDENTIAL, "credential")                                                         \
	X(STATE, PREFIX, "prefix")                                                                 \
	X(STATE, GRACE, "grace")                                                                   \
	X(LOG, TO, "to")                                                                           \
	X(LOG, WAIT, "wait")                                                                       \
	X(CREDENTIAL, FROM, "from")                                                                \
	X(CREDENTIAL, AS, "as")                                                                    \
	X(CREDENTIAL, TTL, "ttl")                                                                  \
	X(FROM, FILE, "file")                                                                      \
	X(FROM, ENV, "env")                                                                        \
	X(FROM, EXEC, "exec")                                                                      \
	X(FROM, OAUTH2, "oauth2")                                                                  \
	X(FROM, VAULT, "vault")                                                                    \
	X(FROM, JWT, "jwt")                                                                        \
	X(FROM, GITHUB_APP, "github_app")                                                          \
	X(FROM, GCP, "gcp")                                                                        \
	X(FROM, KUBERNETES, "kubernetes")                                                          \
	X(FROM, AWS, "aws")                                                                        \
	X(FROM, TIMEOUT, "timeout")                                                                \
	X(FROM, ADDRESSES, "addresses")                                                            \
	X(OAUTH2, TOKEN_URL, "token_url")                                                          \
	X(OAUTH2, GRANT, "grant")                                                                  \
	X(OAUTH2, CLIENT_ID, "client_id")                                                          \
	X(OAUTH2, CLIENT_SECRET, "client_secret")                                                  \
	X(OAUTH2, CLIENT_AUTH, "client_auth")                                                      \
	X(OAUTH2, SCOPE, "scope")                                                                  \
	X(OAUTH2, AUDIENCE, "audience")                                                            \
	X(OAUTH2, RESOURCE, "resource")                                                            \
	X(OAUTH2, REFRESH_TOKEN, "refresh_token")                                                  \
	X(OAUTH2, SUBJECT_TOKEN, "subject_token")                                                  \
	X(OAUTH2, SUBJECT_TOKEN_TYPE, "subject_token_type")                                        \
	X(OAUTH2, ASSERTION, "assertion")                                                          \
	X(VAULT, ADDRESS, "address")                                                               \
	X(VAULT, NAMESPACE, "namespace")                                                           \
	X(VAULT, PATH, "path")                                                                     \
	X(VAULT, FIELD, "field")                                                                   \
	X(VAULT, VERSION, "version")                                                               \
	X(VAULT, TOKEN, "token")                                                                   \
	X(VAULT, APPROLE, "approle")                                                               \
	X(VAULT, KUBERNETES, "kubernetes")                                                         \
	X(APPROLE, ROLE_ID, "role_id")                                                             \
	X(APPROLE, SECRET_ID, "secret_id")                                                         \
	X(APPROLE, WRAPPED, "wrapped")                                                             \
	X(APPROLE, MOUNT, "mount")                                                                 \
	X(KUBERNETES, ROLE, "role")                                                                \
	X(KUBERNETES, JWT, "jwt")                                                                  \
	X(KUBERNETES, MOUNT, "mount")                                                              \
	X(JWT, KEY, "key")                                                                         \
	X(JWT, ALGORITHM, "algorithm")                                                             \
	X(JWT, KID, "kid")                                                                         \
	X(JWT, CLAIMS, "claims")                                                                   \
	X(GITHUB_APP, APP_ID, "app_id")                                                            \
	X(GITHUB_APP, CLIENT_ID, "client_id")                                                      \
	X(GITHUB_APP, KEY, "key")                                                                  \
	X(GITHUB_APP, INSTALLATION_ID, "installation_id")                                          \
	X(GITHUB_APP, OWNER, "owner")                                                              \
	X(GITHUB_APP, REPOSITORY, "repository")                                                    \
	X(GITHUB_APP, REPOSITORIES, "repositories")                                                \
	X(GITHUB_APP, PERMISSIONS, "permissions")                                                  \
	X(GITHUB_APP, API, "api")                                                                  \
	X(GCP, KEY, "key")                                                                         \
	X(GCP, METADATA, "metadata")                                                               \
	X(GCP, SCOPES, "scopes")                                                                   \
	X(GCP, AUDIENCE, "audience")                                                               \
	X(GCP, IMPERSONATE, "impersonate")                                                         \
	X(GCP, LIFETIME, "lifetime")                                                               \
	X(GCP, IAM, "iam")                                                                         \
	X(CLUSTER, TOKEN, "token")                                                                 \
	X(CLUSTER, AUDIENCES, "audiences")                                                         \
	X(CLUSTER, API, "api")                                                                     \
	X(CLUSTER, CA, "ca")                                                                       \
	X(CLUSTER, NAMESPACE, "namespace")                                                         \
	X(CLUSTER, SERVICE_ACCOUNT, "service_account")                                             \
	X(CLUSTER, LIFETIME, "lifetime")                                                           \
	X(PAIR, CERT, "cert")                                                                      \
	X(PAIR, KEY, "key")                                                                        \
	X(AWS, ACCESS_KEY_ID, "access_key_id")                                                     \
	X(AWS, SECRET_ACCESS_KEY, "secret_access_key")                                             \
	X(AWS, SESSION_TOKEN, "session_token")                                                     \
	X(AWS, PROFILES, "profiles")                                                               \
	X(AWS, PROFILE, "profile")                                                                 \
	X(AWS, CONTAINER_URL, "container_url")                                                     \
	X(AWS, AUTHORIZATION_TOKEN, "authorization_token")                                         \
	X(AWS, WEB_IDENTITY_TOKEN, "web_identity_token")                                           \
	X(AWS, ROLE_ARN, "role_arn")                                                               \
	X(AWS, STS_URL, "sts_url")                                                                 \
	X(AWS, STS_REGION, "sts_region")                                                           \
	X(AWS, SESSION_NAME, "session_name")                                                       \
	X(AWS, DURATION, "duration")                                                               \
	X(AWS, EXTERNAL_ID, "external_id")                                                         \
	X(AWS, POLICY, "policy")                                                                   \
	X(SECRET, FILE, "file")                                                                    \
	X(SECRET, ENV, "env")                                                                      \
	X(AS, BASIC, "basic")                                                                      \
	X(AS, HEADER, "header")                                                                    \
	X(AS, QUERY, "query")                                                                      \
	X(AS, COOKIE, "cookie")                                                                    \
	X(AS, PLACEHOLDER, "placeholder")                                                          \
	X(AS, SIGV4, "sigv4")                                                                      \
	X(PLACEHOLDER, ENV, "env")                                                                 \
	X(PLACEHOLDER, FILE, "file")                                                               \
	X(PLACEHOLDER, IN, "in")                                                                   \
	X(PLACEHOLDER, PREFIX, "prefix")                                                           \
	X(PLACEHOLDER, LENGTH, "length")                                                           \
	X(PLACEHOLDER, HEADER, "header")                                                           \
	X(PLACEHOLDER, QUERY, "query")                                                             \
	X(PLACEHOLDER, USER, "user")                                                               \
	X(PLACEHOLDER, BODY_BYTES, "body_bytes")                                                   \
	X(SIGV4, SERVICE, "service")                                                               \
	X(SIGV4, REGION, "region")                                                                 \
	X(SIGV4, PAYLOAD, "payload")                                                               \
	X(POLICY, RULES, "rules")                                                                  \
	X(POLICY, TESTS, "tests")                                                                  \
	X(RULE, ALLOW, "allow")                                                                    \
	X(RULE, DENY, "deny")                                                                      \
	X(RULE, NAME, "name")                                                                      \
	X(RULE, METHODS, "methods")                                                                \
	X(RULE, CREDENTIAL, "credential")                                                          \
	X(RULE, CLIENT_CREDENTIALS, "client_credentials")                                          \
	X(RULE, ADDRESSES, "addresses")                                                            \
	X(RULE, TLS, "tls")                                                                        \
	X(RULE, ECH, "ech")                                                                        \
	X(TEST, EXPECT, "expect")                                                                  \
	X(TEST, REQUEST, "request")                                                                \
	X(LIMITS, CONNECTIONS, "connections")                                                      \
	X(LIMITS, CONNECTIONS_PER_ADDRESS, "connections_per_address")                              \
	X(LIMITS, HEAD_BYTES, "head_bytes")                                                        \
	X(LIMITS, HEAD, "head")                                                                    \
	X(LIMITS, IDLE, "idle")                                                                    \
	X(LIMITS, PEEK, "peek")                                                                    \
	X(LIMITS, DNS, "dns")                                                                      \
	X(LIMITS, DIAL, "dial")                                                                    \
	X(LIMITS, TLS, "tls")                                                                      \
	X(LIMITS, FIRST_BYTE, "first_byte")                                                        \
	X(LIMITS, BODY_IDLE, "body_idle")                                                          \
	X(LIMITS, REQUEST_LIFE, "request_life")                                                    \
	X(LIMITS, TUNNEL_IDLE, "tunnel_idle")                                                      \
	X(LIMITS, TUNNEL_LIFE, "tunnel_life")                                                      \
	X(LIMITS, DRAIN, "drain")                                                                  \
	X(LIMITS, WORKERS, "workers")

/* The prefix of a section's keys in config_keys(). */
#define SECTION_PREFIX_TOP	  ""
#define SECTION_PREFIX_LISTEN	  "listen[]."
#define SECTION_PREFIX_PLACE	  "listen[].<kind>."
#define SECTION_PREFIX_CA	  "ca."
#define SECTION_PREFIX_UPSTREAM	  "upstream."
#define SECTION_PREFIX_PARENT	  "upstream.proxy."
#define SECTION_PREFIX_STATE	  "state."
#define SECTION_PREFIX_LOG	  "log."
#define SECTION_PREFIX_CREDENTIAL "credentials.<name>."
#define SECTION_PREFIX_FROM	  "credentials.<name>.from."
#define SECTION_PREFIX_OAUTH2	  "credentials.<name>.from.oauth2."
#define SECTION_PREFIX_VAULT	  "credentials.<name>.from.vault."
#define SECTION_PREFIX_APPROLE	  "credentials.<name>.from.vault.approle."
#define SECTION_PREFIX_KUBERNETES "credentials.<name>.from.vault.kubernetes."
#define SECTION_PREFIX_JWT	  "credentials.<name>.from.jwt."
#define SECTION_PREFIX_GITHUB_APP "credentials.<name>.from.github_app."
#define SECTION_PREFIX_GCP	  "credentials.<name>.from.gcp."
#define SECTION_PREFIX_CLUSTER	  "credentials.<name>.from.kubernetes."
#define SECTION_PREFIX_PAIR	  "credentials.<name>.from.file."
#define SECTION_PREFIX_AWS	  "credentials.<name>.from.aws."
/* Wherever a source is told of a secret, such as client_secret. */
#define SECTION_PREFIX_SECRET	   "credentials.<name>.from.<kind>.<secret>."
#define SECTION_PREFIX_AS	   "credentials.<name>.as."
#define SECTION_PREFIX_PLACEHOLDER "credentials.<name>.as.placeholder."
#define SECTION_PREFIX_SIGV4	   "credentials.<name>.as.sigv4."
#define SECTION_PREFIX_POLICY	   "policies.<name>."
#define SECTION_PREFIX_RULE	   "policies.<name>.rules[]."
#define SECTION_PREFIX_TEST	   "policies.<name>.tests[]."
#define SECTION_PREFIX_LIMITS	   "limits."

enum section {
	SECTION_TOP,
	SECTION_LISTEN,
	SECTION_PLACE,
	SECTION_CA,
	SECTION_UPSTREAM,
	SECTION_PARENT,
	SECTION_STATE,
	SECTION_LOG,
	SECTION_CREDENTIAL,
	SECTION_FROM,
	SECTION_OAUTH2,
	SECTION_VAULT,
	SECTION_APPROLE,
	SECTION_JWT,
	SECTION_GITHUB_APP,
	SECTION_GCP,
	SECTION_CLUSTER,
	SECTION_KUBERNETES,
	SECTION_PAIR,
	SECTION_AWS,
	SECTION_SECRET,
	SECTION_AS,
	SECTION_PLACEHOLDER,
	SECTION_SIGV4,
	SECTION_POLICY,
	SECTION_RULE,
	SECTION_TEST,
	SECTION_LIMITS,
	SECTION_COUNT
};

enum config_key {
#define X(section, id, key) KEY_##section##_##id,
	CONFIG_KEYS(X)
#undef X
		KEY_COUNT
};

#define SECTION_KEYS_MAX 16

/* One map of the file, sorted by key. Read it with section_value and section_key. */
struct section_values {
	enum config_key first;
	/* borrowed from the tree; NULL: not given */
	const struct yaml_node *key[SECTION_KEYS_MAX], *value[SECTION_KEYS_MAX];
	bool has_unknown;
};

static inline const struct yaml_node *section_value(const struct section_values *v,
						    enum config_key k)
{
	return v->value[k - v->first];
}

static inline const struct yaml_node *section_key(const struct section_values *v, enum config_key k)
{
	return v->key[k - v->first];
}

/* The key itself, without its section. */
const char *config_key_word(enum config_key k);
/* Sorts the pairs of a map; an unknown key is a fault that proposes a known one. */
void section_read(const struct yaml_node *map, enum section section, struct section_values *ret,
		  struct faults *f);

/* The nearest of n words to s, by edit distance, case aside; NULL when none is near. */
const char *nearest_word(struct str s, const char *const *words, size_t n);

#endif

/*
 * The table of proxy and trust variables. Each line is a client that reads that name and no other;
 * where a client knows none, the sandbox puts the bundle over the system's own file (files.c).
 */
#include "proxy/sandbox/client_env.h"

#include <string.h>

#include "logging/strbuf.h"

/* Every spelling that a client is known to read; curl wants http_proxy in lower case alone. */
static const char *const proxies[] = {
	"HTTP_PROXY", "http_proxy", "HTTPS_PROXY",     "https_proxy",
	"ALL_PROXY",  "all_proxy",  "YARN_HTTP_PROXY", "YARN_HTTPS_PROXY",
	"WS_PROXY",   "ws_proxy",   "WSS_PROXY",       "wss_proxy",
};

/* Each reads another one. Most of them replace the client's own roots: the bundle holds both. */
static const char *const bundles[] = {
	"SSL_CERT_FILE", /* OpenSSL and what is built on it: Python, Ruby, PHP; Go; rustls */
	"NODE_EXTRA_CA_CERTS",
	"REQUESTS_CA_BUNDLE",
	"CURL_CA_BUNDLE",
	"GIT_SSL_CAINFO",
	"PIP_CERT",
	"CARGO_HTTP_CAINFO",
	"npm_config_cafile",
	"YARN_HTTPS_CA_FILE_PATH",
	"DENO_CERT",
	"AWS_CA_BUNDLE",
	"HTTPLIB2_CA_CERTS",
	"NIX_SSL_CERT_FILE",
	"BUNDLE_SSL_CA_CERT",
	"PERL_LWP_SSL_CA_FILE",
	"HEX_CACERTS_PATH",
	"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
	"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
};

/* Java reads no variable but this one, which the virtual machine takes its options from. A value
 * with blanks is quoted as it wants (JVM Tool Interface, JAVA_TOOL_OPTIONS). */
static void java_options(const struct client_env *c, struct strbuf *b)
{
	static const char *const schemes[] = {"http", "https"};
	const char *quote = strpbrk(c->dir, " \t") ? "\"" : "";

	for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
		strbuf_addf(b, "-D%s.proxyHost=%.*s -D%s.proxyPort=%u ", schemes[i],
			    STR_FMT(c->proxy_host), schemes[i], c->proxy_port);
	/* http.nonProxyHosts is loopback unless it is set. */
	strbuf_addf(b, "%s-Djavax.net.ssl.trustStore=%s/" CLIENT_TRUSTSTORE "%s ", quote, c->dir,
		    quote);
	strbuf_adds(b, "-Djavax.net.ssl.trustStoreType=PKCS12");
}

int client_env_each(const struct client_env *c,
		    int (*put)(void *arg, const char *name, const char *value), void *arg)
{
	struct strbuf bundle, java;
	int rc = 0;

	strbuf_init(&bundle, 8192);
	strbuf_init(&java, 16384);
	strbuf_addf(&bundle, "%s/" CLIENT_BUNDLE, c->dir);
	java_options(c, &java);
	if (bundle.overflowed || java.overflowed)
		rc = -1;
	for (size_t i = 0; i < ARRAY_LEN(proxies) && rc == 0; i++)
		rc = put(arg, proxies[i], c->proxy_url);
	if (rc == 0 && ((rc = put(arg, "NO_PROXY", CLIENT_NO_PROXY)) != 0 ||
			(rc = put(arg, "no_proxy", CLIENT_NO_PROXY)) != 0 ||
			(rc = put(arg, "NODE_USE_ENV_PROXY", "1")) != 0))
		goto out;
	for (size_t i = 0; i < ARRAY_LEN(bundles) && rc == 0; i++)
		rc = put(arg, bundles[i], strbuf_cstr(&bundle));
	if (rc == 0)
		rc = put(arg, "JAVA_TOOL_OPTIONS", strbuf_cstr(&java));
out:
	strbuf_clear(&bundle);
	strbuf_clear(&java);
	return rc;
}

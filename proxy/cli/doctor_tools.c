/*
 * The clients that `stile doctor` knows: how each is asked for its version and for a URL, and what
 * to do when it fails. A program prints "status N" and the Proxy-Status of the answer, whatever the
 * status; a package tool says in its own words that it was answered, if not with what it wanted.
 */
#include <stddef.h>

#include "proxy/cli/doctor.h"

#define ARGV(...)                                                                                  \
	(const char *const[])                                                                      \
	{                                                                                          \
		__VA_ARGS__, NULL                                                                  \
	}

#define VARIABLES "set HTTPS_PROXY and its like (stile ca env)"

/* Not "status 000", as curl says of no answer. */
static const char *const status_line[] = {"\nstatus 2", "\nstatus 3", "\nstatus 4", "\nstatus 5",
					  NULL};

static const char urllib_text[] =
	"import sys, urllib.error, urllib.request\n"
	"class Stay(urllib.request.HTTPRedirectHandler):\n"
	"    def redirect_request(self, *args):\n"
	"        return None\n"
	"try:\n"
	"    r = urllib.request.build_opener(Stay).open(sys.argv[1], timeout=50)\n"
	"except urllib.error.HTTPError as e:\n"
	"    r = e\n"
	"print('\\nstatus', r.status, '\\nproxy-status:', r.headers.get('Proxy-Status'))\n";

static const char requests_text[] =
	"import sys, requests\n"
	"r = requests.get(sys.argv[1], timeout=50, allow_redirects=False)\n"
	"print('\\nstatus', r.status_code, '\\nproxy-status:', r.headers.get('Proxy-Status'))\n";

static const char httpx_text[] =
	"import sys, httpx\n"
	"r = httpx.get(sys.argv[1], timeout=50)\n"
	"print('\\nstatus', r.status_code, '\\nproxy-status:', r.headers.get('Proxy-Status'))\n";

/* The same for Node, Deno and Bun. */
static const char fetch_text[] =
	"const url = process.argv[2];\n"
	"fetch(url, {redirect: 'manual'}).then(\n"
	"  r => console.log('\\nstatus ' + r.status + '\\nproxy-status: ' +\n"
	"    r.headers.get('proxy-status')),\n"
	"  e => { console.error(e, e.cause); process.exitCode = 1; });\n";

static const char deno_text[] = "try {\n"
				"  const r = await fetch(Deno.args[0], {redirect: 'manual'});\n"
				"  console.log('\\nstatus ' + r.status + '\\nproxy-status: ' +\n"
				"    r.headers.get('proxy-status'));\n"
				"} catch (e) { console.error(e, e.cause); Deno.exit(1); }\n";

static const char go_text[] =
	"package main\n"
	"import (\"fmt\"; \"net/http\"; \"os\")\n"
	"func main() {\n"
	"	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {\n"
	"		return http.ErrUseLastResponse }}\n"
	"	r, err := c.Get(os.Args[1])\n"
	"	if err != nil { fmt.Println(err); os.Exit(1) }\n"
	"	fmt.Printf(\"\\nstatus %d\\nproxy-status: %s\\n\", r.StatusCode,\n"
	"		r.Header.Get(\"Proxy-Status\"))\n"
	"}\n";

static const char java_text[] =
	"import java.net.URI; import java.net.http.*;\n"
	"public class Doctor { public static void main(String[] a) throws Exception {\n"
	"	HttpResponse<Void> r = HttpClient.newHttpClient().send(\n"
	"		HttpRequest.newBuilder(URI.create(a[0])).build(),\n"
	"		HttpResponse.BodyHandlers.discarding());\n"
	"	System.out.println(\"\\nstatus \" + r.statusCode() + \"\\nproxy-status: \" +\n"
	"		r.headers().firstValue(\"Proxy-Status\").orElse(\"\"));\n"
	"}}\n";

const struct doctor_tool doctor_tools[] = {
	{
		.name = "curl",
		.version = ARGV("curl", "-q", "--version"),
		.ask = ARGV("curl", "-sS", "--max-time", "50", "-o", "{dir}/out", "-D", "-", "-w",
			    "\nstatus %{http_code}\n", "{url}"),
		.answered = status_line,
		.proxy_how = VARIABLES,
		.trust_how = "CURL_CA_BUNDLE, or --cacert",
	},
	{
		.name = "wget",
		.version = ARGV("wget", "--version"),
		.ask = ARGV("wget", "-nv", "-S", "--tries=1", "--timeout=50", "--max-redirect=0",
			    "-O", "{dir}/out", "{url}"),
		.answered = ARGV("  HTTP/1."),
		.proxy_how = VARIABLES,
		.trust_how = "ca_certificate in ~/.wgetrc, or the bundle over the system's own",
	},
	{
		.name = "git",
		.version = ARGV("git", "--version"),
		.ask = ARGV("git", "ls-remote", "{url}"),
		.env = ARGV("GIT_TERMINAL_PROMPT=0"),
		.answered = ARGV("not valid: is this a git repository", "' not found",
				 "requested URL returned error: 404", "could not read Username",
				 "\tHEAD\n", "\trefs/"),
		.proxy_how = VARIABLES,
		.trust_how = "GIT_SSL_CAINFO, or git config http.sslCAInfo",
	},
	{
		.name = "python urllib",
		.version = ARGV("python3", "--version"),
		.ask = ARGV("python3", "{file}", "{url}"),
		.file = "urllib_probe.py",
		.text = urllib_text,
		.answered = status_line,
		.proxy_how = VARIABLES,
		.trust_how = "SSL_CERT_FILE",
	},
	{
		.name = "python requests",
		.version = ARGV("python3", "-c", "import requests; print(requests.__version__)"),
		.ask = ARGV("python3", "{file}", "{url}"),
		.file = "requests_probe.py",
		.text = requests_text,
		.answered = status_line,
		.proxy_how = VARIABLES,
		.trust_how = "REQUESTS_CA_BUNDLE",
	},
	{
		.name = "python httpx",
		.version = ARGV("python3", "-c", "import httpx; print(httpx.__version__)"),
		.ask = ARGV("python3", "{file}", "{url}"),
		.file = "httpx_probe.py",
		.text = httpx_text,
		.answered = status_line,
		.proxy_how = VARIABLES,
		.trust_how = "SSL_CERT_FILE",
	},
	{
		.name = "pip",
		.version = ARGV("python3", "-m", "pip", "--version"),
		.ask = ARGV("python3", "-m", "pip", "download", "--no-deps", "--no-cache-dir",
			    "--no-input", "--disable-pip-version-check", "--retries", "0",
			    "--timeout", "50", "-d", "{dir}", "{url}"),
		.answered = ARGV("Cannot unpack file", "Cannot determine archive format",
				 "HTTP error 404", "Saved ", "does not appear to be a Python"),
		.proxy_how = VARIABLES,
		.trust_how = "PIP_CERT",
	},
	{
		.name = "node",
		.version = ARGV("node", "--version"),
		.ask = ARGV("node", "{file}", "{url}"),
		.file = "probe.js",
		.text = fetch_text,
		.answered = status_line,
		.proxy_how = "NODE_USE_ENV_PROXY=1 with Node 22.21, 24.0 or later; before, a "
			     "proxy agent in the program",
		.trust_how = "NODE_EXTRA_CA_CERTS",
	},
	{
		.name = "npm",
		.version = ARGV("npm", "--version"),
		.ask = ARGV("npm", "pack", "--fetch-retries=0", "--fetch-timeout=50000",
			    "--no-update-notifier", "--cache={dir}/npm", "{url}"),
		.answered = ARGV("TAR_BAD_ARCHIVE", "E404", ".tgz\n", "zlib", "EBADENGINE",
				 "package.json"),
		.proxy_how = VARIABLES,
		.trust_how = "npm_config_cafile, or NODE_EXTRA_CA_CERTS",
	},
	{
		.name = "go",
		.version = ARGV("go", "version"),
		.build = ARGV("go", "build", "-o", "{dir}/probe", "{file}"),
		.ask = ARGV("{dir}/probe", "{url}"),
		.env = ARGV("GO111MODULE=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0"),
		.file = "probe.go",
		.text = go_text,
		.answered = status_line,
		.proxy_how = VARIABLES,
		.trust_how = "SSL_CERT_FILE",
	},
	{
		.name = "cargo",
		.version = ARGV("cargo", "--version"),
		.ask = ARGV("cargo", "install", "--index", "sparse+{url}", "--root", "{dir}",
			    "doctor"),
		.env = ARGV("CARGO_HOME={dir}/cargo", "CARGO_NET_RETRY=0"),
		.answered = ARGV("expected value at line", "while parsing", "missing field",
				 "invalid type", "config.json not found", "got 404", "got 401",
				 "could not find `doctor`"),
		.proxy_how = VARIABLES,
		.trust_how = "CARGO_HTTP_CAINFO",
	},
	{
		.name = "java",
		.version = ARGV("java", "-version"),
		.ask = ARGV("java", "-XX:TieredStopAtLevel=1", "{file}", "{url}"),
		.file = "Doctor.java",
		.text = java_text,
		.answered = status_line,
		.proxy_how = "JAVA_TOOL_OPTIONS with -Dhttps.proxyHost and its like (stile ca env)",
		.trust_how = "JAVA_TOOL_OPTIONS with -Djavax.net.ssl.trustStore (stile ca env)",
	},
	{
		.name = "deno",
		.version = ARGV("deno", "--version"),
		.ask = ARGV("deno", "run", "--allow-net", "--allow-env", "{file}", "{url}"),
		.file = "probe.ts",
		.text = deno_text,
		.answered = status_line,
		.proxy_how = VARIABLES,
		.trust_how = "DENO_CERT",
	},
	{
		.name = "bun",
		.version = ARGV("bun", "--version"),
		.ask = ARGV("bun", "{file}", "{url}"),
		.file = "bun_probe.js",
		.text = fetch_text,
		.answered = status_line,
		.proxy_how = VARIABLES,
		.trust_how = "NODE_EXTRA_CA_CERTS",
	},
	{
		.name = "apt",
		.version = ARGV("apt-get", "--version"),
		.ask = ARGV("/usr/lib/apt/apt-helper", "-o", "Acquire::Retries=0", "-o",
			    "APT::Sandbox::User=root", "download-file", "{url}", "{dir}/apt"),
		.answered = ARGV("\nFetched ", " 404 "),
		.proxy_how = VARIABLES,
		.trust_how = "Acquire::https::CAInfo, or the bundle over the system's own",
	},
	{0},
};

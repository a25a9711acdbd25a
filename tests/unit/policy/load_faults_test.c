/*
 * Every fault and every warning that loading a configuration can say, with its place; several of
 * them in one file; and that no fault lets a configuration through.
 */
#include <stdio.h>

#include "logging/limits.h"
#include "tests/unit/policy/faults_check.h"

/* A file that has everything but what the row is about. */
#define TOP	  "version: 1\npolicies: {default: {rules: [{allow: a.test}]}}\n"  /* 2 lines */
#define RULE(r)	  "version: 1\npolicies:\n  default:\n    rules:\n      - " r "\n" /* 5:9 */
#define TARGET(t) RULE("allow: " t)						   /* 5:16 */
/* 3 lines and 6:9; the credentials are used. */
#define CRED_RULE(r)                                                                               \
	"version: 1\ncredentials: {tok: {from: {env: TOK}, as: bearer}}\npolicies:\n  default:\n"  \
	"    rules:\n      - " r "\n      - {allow: z.test, credential: tok}\n"

static void check_rows(const struct fault_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct config *c = NULL;
		struct faults f;
		int rc;

		faults_init(&f, "f.yaml");
		rc = config_load_text("f.yaml", str_from_c(rows[i].text), &c, &f);
		check_faults(&f, rows[i].text, rows[i].want);
		assert_int_equal(rc, f.errors > 0 ? -1 : 0);
		assert_true((rc == 0) == (c != NULL));
		config_unref(c);
		faults_clear(&f);
	}
}

/* ---- the file as a whole ---- */

static void test_nothing_listed(void **state)
{
	static const char empty[] = "1:1: the file is empty: a policy needs";
	static const struct fault_row rows[] = {
		{"", {empty}},
		{"{}", {empty}},
		{"# a comment\n", {empty}},
		{"---\n", {"the file is empty"}},
		{"null\n", {empty}},
		{"[]", {"1:1: the file must be a map (`version: 1` and so on), not a list"}},
		{"hello", {"1:1: the file must be a map (`version: 1` and so on), not a text"}},
		{"version: 1\n", {"1:1: `policies` is missing: nothing would be allowed"}},
		{"version: 1\npolicies: {}\n",
		 {"2:11: `policies` must be a map with at least one policy"}},
		{"version: 1\npolicies:\n", {"2:10: `policies` must be a map with"}},
		{"version: 1\npolicies: [a]\n", {"2:11: `policies` must be a map with"}},
		{"version: 1\npolicies: a\n", {"2:11: `policies` must be a map with"}},
		{"version: 1\npolicies: {default: }\n",
		 {"2:21: policy `default` must be a map (write `rules:` in it), not empty"}},
		{"version: 1\npolicies: {default: []}\n",
		 {"2:21: policy `default` must be a map (write `rules:` in it), not a list"}},
		{"version: 1\npolicies: {default: {rules: []}}\n",
		 {"2:29: `rules` is an empty list (list something or remove the key)"}},
		{"version: 1\npolicies:\n  default:\n    rules:\n",
		 {"4:11: `rules` is an empty list"}},
		{"version: 1\npolicies: {default: {rules: [null]}}\n",
		 {"2:30: an empty rule (write `- allow: HOST` or remove it)"}},
		{"version: 1\npolicies: {default: {rules: [{}]}}\n", {"2:30: an empty rule"}},
		{"version: 1\npolicies: {default: {rules: [a.test]}}\n",
		 {"2:30: a rule must be a map (write `- allow: a.test`)"}},
		{"version: 1\npolicies: {default: {rules: [[a.test]]}}\n",
		 {"2:30: a rule must be a map, not a list (write `- allow: [...]`)"}},
		{"version: 1\npolicies: {default: {rules: a.test}}\n",
		 {"2:29: `rules` must be a list (write `- allow: HOST` below it)"}},
		{"version: 1\npolicies: {default: {rules: {allow: a.test}}}\n",
		 {"2:29: `rules` must be a list, not a map (put `- ` before each item)"}},
		/* these load, and refuse everything */
		{"version: 1\npolicies: {default: {}}\n",
		 {"2:12: warning: policy `default` allows nothing: every request is refused"}},
		{RULE("deny: a.test"), {"3:3: warning: policy `default` allows nothing"}},
		{"policies: {default: {rules: [{allow: a.test}]}}\n",
		 {"1:1: `version` is missing (write `version: 1`)"}},
		{"version: 2\npolicies: {default: {rules: [{allow: a.test}]}}\n",
		 {"1:10: unknown version `2` (write 1)"}},
		{"version:\npolicies: {default: {rules: [{allow: a.test}]}}\n",
		 {"1:9: `version` has no value"}},
		{"version: [1]\npolicies: {default: {rules: [{allow: a.test}]}}\n",
		 {"1:10: `version` must be a single value, not a list"}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

static void test_keys(void **state)
{
	static const struct fault_row rows[] = {
		{TOP "polices: {}\n", {"3:1: unknown key `polices` (did you mean `policies`?)"}},
		{"version: 1\npolicy: {}\n",
		 {"2:1: unknown key `policy` (did you mean `policies`?)"}},
		{TOP "Listen: []\n", {"3:1: unknown key `Listen` (did you mean `listen`?)"}},
		{TOP "zebra: 1\n",
		 {"3:1: unknown key `zebra` (known here: version, listen, ca, upstream, log, "
		  "credentials, policies, limits, deny, user, admin, metrics, reload, state)"}},
		{RULE("{allow: a.test, metods: [GET]}"),
		 {"5:25: unknown key `metods` (did you mean `methods`?)"}},
		{RULE("Allow: a.test"), {"5:9: unknown key `Allow` (did you mean `allow`?)"}},
		{RULE("dney: a.test"), {"5:9: unknown key `dney` (did you mean `deny`?)"}},
		{RULE("{allow: a.test, credentials: x}"),
		 {"5:25: unknown key `credentials` (did you mean `credential`?)"}},
		{RULE("{allow: a.test, allow: b.test}"), {"5:25: duplicate key `allow`"}},
		{RULE("{allow: a.test, \"allow\": b.test}"), {"5:25: duplicate key `allow`"}},
		{RULE("? allow"), {"6:1: `allow` is an empty list"}},
		{"version: 1\npolicies:\n  a:\n    rules: [{allow: a.test}]\n    rules: [{allow: "
		 "b.test}]\n",
		 {"5:5: duplicate key `rules` (it already stands in line 4)"}},
		{"version: 1\npolicies:\n  a: {rules: [{allow: a.test}]}\n  a: {rules: [{allow: "
		 "b.test}]}\n",
		 {"4:3: duplicate key `a`"}},
		{"version: 1\nversion: 1\npolicies: {a: {rules: [{allow: a.test}]}}\n",
		 {"2:1: duplicate key `version`"}},
		{RULE("{<<: {allow: a.test}, allow: b.test}"), {"5:10: a merge key <<"}},
		{TOP "log: {too: stdout}\n", {"3:7: unknown key `too` (did you mean `to`?)"}},
		{TOP "ca: {folder: x}\n", {"3:6: unknown key `folder` (known here: dir)"}},
		{TOP "limits: {conections: 3}\n",
		 {"3:10: unknown key `conections` (did you mean `connections`?)"}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

/* ---- rules ---- */

static void test_rules(void **state)
{
	static const struct fault_row rows[] = {
		{RULE("{allow: a.test, deny: b.test}"),
		 {"5:25: `allow` and `deny` in one rule (make two rules)"}},
		{RULE("{deny: '*x', allow: '*y'}"),
		 {"5:10: `allow` and `deny` in one rule", "5:16: the host `*x`",
		  "5:29: the host `*y`"}},
		{RULE("methods: [GET]"), {"5:9: a rule without `allow` or `deny`"}},
		{RULE("allow: []"), {"5:16: `allow` is an empty list"}},
		{RULE("deny:"), {"5:14: `deny` is an empty list"}},
		{RULE("allow: {a.test: b}"), {"5:16: `allow` must be a list, not a map"}},
		{RULE("allow: [a.test, [b.test]]"),
		 {"5:25: `allow` must be a single value, not a list"}},
		{RULE("allow: [a.test, null]"),
		 {"5:25: `allow` has no value (null stands for none)"}},
		{RULE("allow: ''"), {"5:16: `allow` has no value"}},
		/* what YAML 1.1 makes of it */
		{TARGET("yes"),
		 {"5:16: `allow` must be a text, and `yes` is a boolean to YAML "
		  "(quote it: \"yes\")"}},
		{TARGET("On"), {"5:16: `allow` must be a text, and `On` is a boolean"}},
		{TARGET("true"), {"5:16: `allow` must be a text, and `true` is a boolean"}},
		{TARGET("NO"), {"5:16: `allow` must be a text, and `NO` is a boolean"}},
		{TARGET("443"), {"5:16: `allow` must be a text, and `443` is a number to YAML"}},
		{TARGET("1.5"), {"5:16: `allow` must be a text, and `1.5` is a number"}},
		{TARGET("0x7f"), {"5:16: `allow` must be a text, and `0x7f` is a number"}},
		{TARGET("0b11"), {"5:16: `allow` must be a text, and `0b11` is a number"}},
		{TARGET("1e3"), {"5:16: `allow` must be a text, and `1e3` is a number"}},
		{TARGET("-1e-3"), {"5:16: `allow` must be a text, and `-1e-3` is a number"}},
		{TARGET("1_000"), {"5:16: `allow` must be a text, and `1_000` is a number"}},
		{TARGET("190:20:30"), {"5:16: `allow` must be a text, and `190:20:30` is a num"}},
		{TARGET(".inf"), {"5:16: `allow` must be a text, and `.inf` is a number"}},
		{TARGET("~"), {"5:16: `allow` is an empty list"}},
		/* name */
		{RULE("{allow: a.test, name: on}"), {"5:31: `name` must be a text, and `on` is"}},
		{RULE("{allow: a.test, name: [x]}"), {"5:31: `name` must be a single value"}},
		{RULE("{allow: a.test, name: \"a\\nb\"}"),
		 {"5:31: `name` holds a control character (remove it)"}},
		{RULE("{allow: a.test, name: "
		      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		      "aaa"
		      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}"),
		 {"5:31: `name` is longer than 128 bytes"}},
		/* methods */
		{RULE("{allow: a.test, methods: GET}"),
		 {"5:34: `methods` must be a list (write [GET])"}},
		{RULE("{allow: a.test, methods: []}"), {"5:34: `methods` is an empty list"}},
		{RULE("{allow: a.test, methods: }"), {"`methods` is an empty list"}},
		{RULE("{allow: a.test, methods: [\"G T\", \"a\\0b\"]}"),
		 {"5:35: `G T` is not a method (such as GET)", "5:42: `a` is not a method",
		  "5:42: a text with the character U+0000 (remove it)"}},
		{RULE("{deny: a.test, methods: [\"*\", ANY, all]}"),
		 {"5:34: `*` is no pattern here, but a method of that name (leave `methods` out",
		  "5:39: warning: `ANY` is a method of that name (leave `methods` out",
		  "5:44: warning: `all` is a method of that name"}},
		{RULE("{allow: a.test, \"methods\\0\": [GET]}"),
		 {"5:25: a text with the character U+0000", "5:25: unknown key `methods`"}},
		{RULE("{allow: a.test, methods: [TRACE, GET, CONNECT]}"),
		 {"5:35: `TRACE` can never match: TRACE is refused whatever a rule says",
		  "5:47: `CONNECT` can never match: a tunnel is admitted by its target"}},
		{RULE("{allow: a.test, methods: [get]}"),
		 {"5:35: warning: methods are case-sensitive, and `get` is not GET"}},
		{RULE("{allow: a.test, methods: [GET, GET]}"),
		 {"5:40: warning: `GET` is listed twice"}},
		{RULE("{allow: a.test, methods: [off]}"), {"5:35: a method must be a text, and"}},
		{RULE("{allow: a.test, methods: [A,B,C,D,E,F,G,H,I,J,K,L,M,O,P,Q,R,S,T,U,V,W,X,Z,"
		      "AA,AB,AC,AD,AE,AF,AG,AH,AI]}"),
		 {"5:34: `methods` has more than 32 entries"}},
		/* addresses */
		{RULE("{allow: a.test, addresses: 10.0.0.0/8}"),
		 {"5:36: `addresses` must be a list (write [10.0.0.0/8])"}},
		{RULE("{allow: a.test, addresses: []}"), {"5:36: `addresses` is an empty list"}},
		{RULE("{allow: a.test, addresses: [10.0.0.1/8, 10.1, x/8, 010.0.0.0/8]}"),
		 {"5:37: `10.0.0.1/8`: the range has host bits set (write 10.0.0.0/8)",
		  "5:49: a range of `addresses` must be a text, and `10.1` is a number",
		  "5:55: `x/8`: not an address or range", "5:60: `010.0.0.0/8`: not an address"}},
		{RULE("{allow: a.test, addresses: [0.0.0.0/0, '::/0']}"),
		 {"5:37: warning: `0.0.0.0/0` admits every address, internal ones too",
		  "5:48: warning: `::/0` admits every address"}},
		{RULE("{allow: a.test, addresses: [0.0.0.0/1, 128.0.0.0/2, '::/8', '8000::/1']}"),
		 {"5:37: warning: `0.0.0.0/1` admits internal addresses of several kinds",
		  "5:48: warning: `128.0.0.0/2` admits", "5:61: warning: `::/8` admits",
		  "5:69: warning: `8000::/1` admits"}},
		{RULE("{allow: a.test, addresses: [10.0.0.0/8, 100.64.0.0/10, 240.0.0.0/4, "
		      "'fc00::/7', '::1', '::ffff:0:0/96', '2000::/3']}"),
		 {0}},
		/* an address that its own rule does not admit */
		{RULE("allow: [10.0.0.1, 'https://[::1]', localhost, b.localhost, 8.8.8.8]"),
		 {"5:17: warning: this never admits anything: address 10.0.0.1 is refused: private",
		  "5:27: warning: this never admits anything: address ::1 is refused: loopback",
		  "5:44: warning: this never admits anything: address ::1 is refused",
		  "5:55: warning: this never admits anything: address ::1 is refused"}},
		{RULE("{allow: [10.0.0.1, localhost], addresses: [10.0.0.0/8, 127.0.0.1]}"), {0}},
		{RULE("{allow: 'http://169.254.169.254', addresses: [169.254.0.0/16]}"),
		 {"5:17: warning: this never admits anything: address 169.254.169.254 is refused: "
		  "cloud metadata (only its exact address in `addresses:` opens it)"}},
		{RULE("deny: [10.0.0.1, localhost]"), {"3:3: warning: policy `default` allows"}},
		/* tls and ech */
		{RULE("{allow: a.test, tls: passthru}"),
		 {"5:30: `tls`: unknown `passthru` (did you mean `passthrough`?)"}},
		{RULE("{allow: a.test, tls: off}"),
		 {"5:30: `tls`: unknown `off` (write inspect or passthrough)"}},
		{RULE("{allow: a.test, tls: passthrough, ech: never}"),
		 {"5:48: `ech`: unknown `never` (write allow or refuse)"}},
		{RULE("{allow: a.test, ech: refuse}"),
		 {"5:25: warning: `ech` says nothing without `tls: passthrough`"}},
		{RULE("{allow: [a.test, http://b.test, tcp://c.test:1], tls: passthrough}"),
		 {"5:26: `tls` is for https targets", "5:41: `tls` is for https targets"}},
		/* a deny */
		{RULE("{deny: a.test, addresses: [10.0.0.0/8], tls: inspect, ech: allow}"),
		 {"5:24: `addresses` in a deny, which admits nothing (remove it)",
		  "5:49: `tls` in a deny", "5:63: `ech` in a deny"}},
		{RULE("{deny: tcp://a.test:22, methods: [GET]}"),
		 {"5:33: `methods` with a tcp:// target, where no method can be read"}},
		/* a tunnel */
		{RULE("{allow: a.test/x, tls: passthrough, methods: [GET]}"),
		 {"5:17: a path with `tls: passthrough`, where no path can be read (remove one)",
		  "5:45: `methods` with `tls: passthrough`, where no method can be read"}},
		{RULE("{allow: tcp://a.test:22, methods: [GET]}"),
		 {"5:34: `methods` with a tcp:// target, where no method can be read"}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

static void test_targets(void **state)
{
	static const struct fault_row rows[] = {
		{TARGET("'*.com'"),
		 {"5:16: warning: this wildcard covers every name of a whole top-level domain"}},
		{TARGET("'*.co.uk'"), {"5:16: warning: this wildcard covers names of everybody"}},
		{TARGET("'http://*.GitHub.io.'"),
		 {"5:16: warning: this wildcard covers names of everybody"}},
		{TARGET("'*.example.co.uk'"), {NULL}},
		{TARGET("'*.example.test'"), {NULL}},
		{TARGET("'*'"), {"5:16: warning: `*` stands for every host there is"}},
		{TARGET("https://*"), {"5:16: warning: `*` stands for every host"}},
		{TARGET("https://h.test/"), {"5:16: warning: this covers the path / alone"}},
		{TARGET("https://h.test/a/.*"),
		 {"5:16: warning: a path is no regular expression: /.* covers segments that "
		  "begin"}},
		{RULE("{deny: 'https://h.test/a/.*'}\n      - {allow: h.test}"), {NULL}},
		{TARGET("'**'"), {"5:16: the host `**` (write * for any host)"}},
		{TARGET("'*.'"), {"5:16: the host `*.` (write * for any host)"}},
		{TARGET("'*good.test'"),
		 {"5:16: the host `*good.test`: a wildcard is one whole label (write "
		  "*.good.test)"}},
		{TARGET("'**.good.test'"),
		 {"5:16: the host `**.good.test`: a wildcard is one whole label (write "
		  "*.good.test)"}},
		{TARGET("'*..good.test'"), {"5:16: the host `*..good.test`: a wildcard is one"}},
		{TARGET("good.*"),
		 {"5:16: the host `good.*`: a wildcard stands only in front (write *.example.com"}},
		{TARGET("a.*.test"),
		 {"5:16: the host `a.*.test`: a wildcard stands only in front"}},
		{TARGET("'*.a.*.test'"), {"5:16: the host `*.a.*.test`: a wildcard stands only"}},
		{TARGET("ex*mple.test"), {"5:16: the host `ex*mple.test`: a wildcard stands only"}},
		{TARGET(".good.test"),
		 {"5:16: the host `.good.test` begins with a dot (write *.good.test for the "
		  "names below it)"}},
		{TARGET("'*.10.0.0.1'"), {"5:16: the host `*.10.0.0.1`: nothing is below an add"}},
		{TARGET("'*.0.0.1'"), {"5:16: the host `*.0.0.1`: a host that ends in a number"}},
		{TARGET("*.wild.test"), {"5:16: quote a value that begins with `*`"}},
		{TARGET("/path"), {"5:16: `/path` has no host (write https://HOST/path)"}},
		{TARGET("http://"), {"5:16: the host is missing (write * for any host)"}},
		{TARGET("https:///x"), {"5:16: the host is missing"}},
		{TARGET("https://:443"), {"5:16: the host is missing"}},
		{TARGET("https:/h.test"), {"5:16: `https:/h.test`: a scheme ends in ://"}},
		{TARGET("h.test//a"), {NULL}},
		{TARGET("http/a"), {NULL}},
		{TARGET("https://u:p@h.test/"),
		 {"5:16: a user name or password stands before the host (drop it"}},
		{TARGET("https://h.test/a?b=c"),
		 {"5:16: `https://h.test/a?b=c` has a query, and rules look at the path alone"}},
		{TARGET("https://h.test/a#b"), {"5:16: `https://h.test/a#b` has a fragment"}},
		{TARGET("https://h.test?x"), {"5:16: `https://h.test?x` has a query"}},
		{TARGET("tcp://h.test"), {"5:16: tcp:// needs a port (write tcp://h.test:22"}},
		{TARGET("tcp://h.test:22/"), {"5:16: tcp:// has no path (drop `/`)"}},
		{RULE("{allow: [ws://h.test, 'WSS://h.test:*/a'], methods: [GET]}"),
		 {"5:52: `methods` with a ws:// or wss:// target, where the method is GET"}},
		{RULE("{allow: wss://h.test, tls: passthrough}"),
		 {"5:17: `tls` is for https targets"}},
		{TARGET("ftp://h.test"),
		 {"5:16: unknown scheme `ftp` (write https, http, wss, ws or tcp)"}},
		{TARGET("://h.test"), {"5:16: unknown scheme `` (write https"}},
		{TARGET("h.test:0"), {"5:16: the port `0` (write 1 to 65535, a range 8000-8999"}},
		{TARGET("h.test:65536"), {"5:16: the port `65536`"}},
		{TARGET("'h.test:'"), {"5:16: a `:` and no port behind it (write 1 to 65535"}},
		{TARGET("https://https://h.test/"), {"5:16: a `:` and no port behind it"}},
		{TARGET("h.test:0443"), {"5:16: the port `0443`"}},
		{TARGET("h.test:https"), {"5:16: the port `https`"}},
		{TARGET("h.test:80-"), {"5:16: the port `80-`"}},
		{TARGET("h.test:-1"), {"5:16: the port `-1`"}},
		{TARGET("h.test:80-0"), {"5:16: the port `80-0`"}},
		{TARGET("https//h.test/a"),
		 {"5:16: `https//h.test/a` lacks the colon of its scheme (write "
		  "https://h.test/a)"}},
		{TARGET("TCP//h.test"), {"5:16: `TCP//h.test` lacks the colon of its scheme"}},
		{TARGET("h.test:+80"), {"5:16: the port `+80`"}},
		{TARGET("h.test:90-80"), {"5:16: the port range `90-80` is empty"}},
		{TARGET("2001:db8::1"),
		 {"5:16: `2001:db8::1` has too many colons (an IPv6 address stands in brackets"}},
		{TARGET("\"[2001:db8::1\""), {"5:16: the host `[2001:db8::1`: "}},
		{TARGET("\"[::1]x\""), {"5:16: `[::1]x`: only a port can follow the bracket"}},
		{TARGET("10.0.0.0/8"),
		 {"5:16: `10.0.0.0/8` reads as the path /8 of one address (write `*` and put "
		  "ranges under `addresses:`"}},
		{TARGET("10.0.0.0/8:443"), {"5:16: `10.0.0.0/8:443` reads as the path /8:443 of"}},
		{TARGET("\"[fd00::]/64:*\""), {"5:16: `[fd00::]/64:*` reads as the path /64:*"}},
		{TARGET("\"[fd00::]/64\""), {"5:16: `[fd00::]/64` reads as the path /64"}},
		{TARGET("127.1"), {"5:16: `allow` must be a text, and `127.1` is a number"}},
		{TARGET("https://127.1"), {"5:16: the host `127.1`: a host that ends in a number"}},
		{TARGET("https://0x7f.0.0.1"), {"5:16: the host `0x7f.0.0.1`: a host that ends"}},
		{TARGET("b\xc3\xbc"
			"cher.test"),
		 {"5:16: the host `b\xc3\xbc"
		  "cher.test` is international (write its A-label"}},
		{TARGET("a..test"), {"5:16: the host `a..test`: an empty label"}},
		{TARGET("h.test/a/../b"), {"5:16: the path `/a/../b`: "}},
		{TARGET("h.test/a**"), {"5:16: the path `/a**`: ** stands for whole segments"}},
		{TARGET("h.test/%zz"), {"5:16: the path `/%zz`: "}},
		{TARGET("a.test b.test"),
		 {"5:16: `a.test b.test` holds a blank (one target an item: [a.test, b.test])"}},
		{TARGET("a.test\\x"), {"5:16: `a.test\\x` holds a backslash (write /)"}},
		{TARGET("\"a.test\\0b\""),
		 {"5:16: a target holds the control character 0x00",
		  "5:16: a text with the character U+0000"}},
		{TARGET("\"\\e[2Ja.test\""), {"5:16: a target holds the control character 0x1b"}},
		/* a deny may be as wide as it likes */
		{RULE("{deny: ['*', '*.com', https://h.test/]}"), {"3:3: warning: policy"}},
		/* a wildcard that no name can fit */
		{TARGET("'*.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."
			"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."
			"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."
			"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"),
		 {"can never match: no name below it is short enough"}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

/* ---- credentials ---- */

#define VAULT "{from: {vault: {address: 'https://v.test', path: s/data/a, "
#define CRED(c)                                                                                    \
	"version: 1\npolicies: {p: {rules: [{allow: a.test, credential: t}]}}\ncredentials: "      \
	"{t: " c "}\n" /* 3:15 and 3:18 */

static void test_credentials(void **state)
{
	static const struct fault_row rows[] = {
		{CRED_RULE("{allow: a.test, credential: nope}"),
		 {"6:37: no credential is called `nope` (add it under `credentials:`)"}},
		{CRED_RULE("{allow: a.test, credential: tokk}"),
		 {"6:37: no credential is called `tokk` (did you mean `tok`?)"}},
		{CRED_RULE("{deny: a.test, credential: tok}"),
		 {"6:24: `credential` in a deny, which admits nothing (remove it)"}},
		{CRED_RULE("{allow: [b.test, http://a.test], credential: tok}"),
		 {"6:26: a credential over http://, where anybody on the way reads it"}},
		{CRED_RULE("{allow: a.test, tls: passthrough, client_credentials: deny}"),
		 {"6:43: `client_credentials` with `tls: passthrough`, where no credential can be "
		  "seen (remove one)"}},
		{CRED_RULE("{allow: tcp://a.test:1, client_credentials: strip}"),
		 {"6:33: `client_credentials` with a tcp:// target, where no credential can be "
		  "seen (remove it)"}},
		{CRED_RULE("{deny: a.test, client_credentials: strip}"),
		 {"6:24: `client_credentials` in a deny, which admits nothing (remove it)"}},
		{CRED_RULE("{allow: a.test, client_credentials: drop}"),
		 {"6:45: `client_credentials`: unknown `drop` (write pass, strip or deny)"}},
		{CRED_RULE("{allow: a.test, tls: passthrough, credential: tok}"),
		 {"6:43: `credential` with `tls: passthrough`, where nothing can be added"}},
		{CRED_RULE("{allow: tcp://a.test:1, credential: tok}"),
		 {"6:33: `credential` with a tcp:// target, where nothing can be added"}},
		{CRED_RULE("{allow: a.test, credential: }"), {"`credential` has no value"}},
		{TOP "credentials: {t: {from: {env: T}, as: bearer}}\n",
		 {"3:15: warning: nothing uses the credential `t`"}},
		{TOP "credentials: {}\n", {"3:14: `credentials` must be a map with at least one"}},
		{TOP "credentials: [t]\n", {"3:14: `credentials` must be a map with at least"}},
		{CRED(""), {"credential `t` must be a map"}},
		{CRED("x"),
		 {"3:18: credential `t` must be a map (write {from: {file: PATH}, as: "
		  "bearer}), not a single value"}},
		{CRED("{as: bearer}"), {"3:15: credential `t` needs `from` (where the secret is)"}},
		{CRED("{from: {env: T}}"), {"3:15: credential `t` needs `from`"}},
		{CRED("{form: {env: T}, as: bearer}"),
		 {"3:19: unknown key `form` (did you mean `from`?)"}},
		{CRED("{from: /run/x, as: bearer}"),
		 {"3:25: `from` must be a map (write {file: PATH}), not a single value"}},
		{CRED("{from: {env: T, file: x}, as: bearer}"),
		 {"3:25: `from` takes one of `file: PATH`, `env: NAME`, `exec: [PROGRAM, "
		  "...]`, `oauth2: {...}`, `vault: {...}`, `aws: {...}`, `jwt: {...}`, "
		  "`github_app: {...}`, "
		  "`gcp: {...}` and `kubernetes: {...}`"}},
		{CRED("{from: {}, as: bearer}"), {"3:25: `from` takes one of"}},
		{CRED("{from: {env: $T}, as: bearer}"),
		 {"3:31: `$T` is not the name of an environment variable (write it without $)"}},
		{CRED("{from: {env: 1T}, as: bearer}"), {"3:31: `1T` is not the name of an"}},
		{CRED("{from: {env: yes}, as: bearer}"), {"3:31: `env` must be a text, and"}},
		{CRED("{from: {file: ~/x}, as: bearer}"),
		 {"3:32: `~/x`: ~ is not expanded (write the whole path)"}},
		{CRED("{from: {file: \"a\\0b\"}, as: bearer}"),
		 {"3:32: `a` is not a path", "3:32: a text with the character U+0000"}},
		{CRED("{from: {file: ''}, as: bearer}"), {"3:32: `file` has no value"}},
		{CRED("{from: {env: T}, as: baerer}"),
		 {"3:39: `as`: unknown `baerer` (did you mean `bearer`?)"}},
		{CRED("{from: {env: T}, as: digest}"),
		 {"3:39: `as`: unknown `digest` (write bearer, basic or mtls)"}},
		{CRED("{from: {env: T}, as: header}"),
		 {"3:39: `as: header` needs a name (write {header: NAME})"}},
		{CRED("{from: {env: T}, as: [bearer]}"),
		 {"3:39: `as` must be a single value, not a"}},
		{CRED("{from: {env: T}, as: {header: A, query: b}}"),
		 {"3:39: `as` takes one of `basic: USER`, `header: NAME`, `query: NAME`, "
		  "`cookie: NAME`"}},
		{CRED("{from: {env: A}, as: {cookie: 'a b'}}"),
		 {"3:48: `a b` is not the name of a cookie (such as session)"}},
		{CRED("{from: {oauth2: {}}, as: bearer}"), {"3:34: `oauth2` needs `token_url`"}},
		{CRED("{from: {oauth2: {token_url: ftp://a.test/}}, as: bearer}"),
		 {"3:46: `token_url`: `ftp://a.test/`"}},
		{CRED("{from: {oauth2: {token_url: 'https://a.test/'}}, as: bearer}"),
		 {"3:34: the grant `client_credentials` needs `client_id`",
		  "3:34: the grant `client_credentials` needs `client_secret`"}},
		{CRED("{from: {oauth2: {token_url: 'https://a.test/', client_id: a, client_secret: "
		      "s3cr3t}}, as: bearer}"),
		 {"3:94: `client_secret` is a secret, so say where it is ({file: PATH} or {env: "
		  "NAME})"}},
		{CRED("{from: {oauth2: {token_url: 'https://a.test/', grant: jwt_bearer}}, as: "
		      "bearer}"),
		 {"3:34: the grant `jwt_bearer` needs `assertion`"}},
		{CRED("{from: {file: {cert: a}}, as: mtls}"),
		 {"3:32: `file` is a path, or {cert: PATH, key: PATH} for `as: mtls`"}},
		{CRED("{from: {file: {cert: a, kye: b}}, as: mtls}"),
		 {"unknown key `kye` (did you mean `key`?)"}},
		{CRED("{from: {oauth2: {token_url: 'https://a.test/', client_id: a, client_secret: "
		      "{env: A}}}, as: mtls}"),
		 {"3:15: credential `t`: `as: mtls` takes a certificate and its key, from `file`, "
		  "`env`, `exec` or `vault`"}},
		{CRED("{from: {file: {cert: a, key: b}}, as: bearer}"),
		 {"3:15: credential `t`: {cert: ..., key: ...} is for `as: mtls` (name one file)"}},
		{CRED("{from: {oauth2: {token_url: 'https://a.test/', client_id: a, client_secret: "
		      "{file: "
		      "{cert: a, key: b}}}}, as: bearer}"),
		 {"`file` must be a single value, not a map"}},
		{TOP "upstream: {proxy: {url: 'http://p.test:1', credential: t}}\ncredentials: {t: "
		     "{from: {env: T}, as: mtls}}\n",
		 {"a proxy takes a credential `as: basic` or `as: bearer`, and `t` goes into a TLS "
		  "handshake"}},
		{CRED("{from: {vault: {}}, as: bearer}"),
		 {"3:33: `vault` needs `address`", "3:33: `vault` needs `field`",
		  "3:33: `vault` needs `path`", "3:33: `vault` takes one of `token"}},
		{CRED(VAULT "field: a, token: s3cr3t}}, as: bearer}"),
		 {"`token` is a secret, so say where it is ({file: PATH} or {env: NAME})"}},
		{CRED(VAULT "field: a, token: {env: A}, kubernetes: {role: r}}}, as: bearer}"),
		 {"3:33: `vault` takes one of `token: {file: PATH}`, `approle: {role_id: ..., "
		  "secret_id: ...}` and `kubernetes: {role: ...}`"}},
		{CRED(VAULT "field: a, approle: {}}}, as: bearer}"), {"`approle` needs `role_id`"}},
		{CRED(VAULT "field: a, approle: {role_id: r, wrapped: true}}}, as: bearer}"),
		 {"`wrapped` says how `secret_id` is handed over, and there is none"}},
		{CRED(VAULT "field: a, kubernetes: {mount: m}}}, as: bearer}"),
		 {"`kubernetes` needs `role`"}},
		{CRED(VAULT "field: [a, b, c], token: {env: A}}}, as: basic}"),
		 {"`field` is one name, or a list of two (such as [username, password])"}},
		{CRED(VAULT "field: [a, b], token: {env: A}}}, as: bearer}"),
		 {"`field` of two names is user and password, for `as: basic`"}},
		{CRED(VAULT "field: a, version: 0, token: {env: A}}}, as: bearer}"),
		 {"`version` is a number from 1"}},
		{CRED(VAULT "field: a, namespace: 'a b', token: {env: A}}}, as: bearer}"),
		 {"`namespace`: `a b` holds what cannot stand there"}},
		{CRED("{from: {vault: {address: 'https://v.test/x', path: v1/../a, field: a, "
		      "token: {env: A}}}, as: bearer}"),
		 {"`address` is the server alone", "`path` is written without v1/",
		  "`path`: `v1/../a`: "}},
		{CRED("{from: {vault: {address: 'https://v.test', path: /a?b, field: a, token: "
		      "{env: A}}}, as: bearer}"),
		 {"`path`: `/a?b` holds what cannot stand there"}},
		{CRED("{from: {jwt: {}}, as: bearer}"),
		 {"3:31: `jwt` needs `claims`", "3:31: `jwt` needs `key`"}},
		{CRED("{from: {jwt: {key: {env: A}, claims: {exp: 5, sub: '{sanbox}', x: {a: b}, "
		      "l: "
		      "[], y: 1.5, '{a': b}}}, as: bearer}"),
		 {"3:43: `key` has more than one line, which no variable holds (write {file: "
		  "PATH})",
		  "3:56: the claim `exp` is made anew each time (remove it; `ttl` on the "
		  "credential "
		  "says how long a token holds)",
		  "3:69: the claim `sub`: `{sanbox}` has a placeholder that is none (there is "
		  "{sandbox} alone)",
		  "3:84: the claim `x` must be a single value or a list (quote a text that begins "
		  "with {)",
		  "3:95: the claim `l` is an empty list",
		  "3:102: the claim `y` must be a text, and `1.5` is a number to YAML",
		  "3:107: the claim `{a`: a name holds no { and no NUL"}},
		{CRED("{from: {jwt: {key: {file: a}, claims: {a: b}, algorithm: HS256}}, as: "
		      "bearer}"),
		 {"3:75: `algorithm`: unknown `HS256` (did you mean"}},
		{CRED("{from: {jwt: {key: {file: a}, claims: {a: b}}, timeout: 5s}, as: bearer}"),
		 {"3:65: `timeout` says nothing of a token that is signed here (remove it)"}},
		{CRED("{from: {github_app: {key: {file: a}}}, as: bearer}"),
		 {"3:38: `github_app` takes one of `app_id` and `client_id`",
		  "3:38: `github_app` takes one of `installation_id`, `owner` and `repository`"}},
		{CRED("{from: {github_app: {app_id: a/b, key: {file: a}, repository: x, "
		      "repositories: [a/b], permissions: {contents: all}}}, as: bearer}"),
		 {"3:47: `app_id`: `a/b` may have letters and digits alone",
		  "3:98: `repositories`: `a/b` may have letters, digits and `-_.` alone",
		  "3:128: the permission `contents`: unknown `all`"}},
		{CRED("{from: {github_app: {app_id: 1, key: {file: a}, repository: x}}, as: "
		      "bearer}"),
		 {"3:38: `repository` is OWNER/NAME (such as acme/site)"}},
		{CRED("{from: {gcp: {scopes: a, audience: b, lifetime: 1h}}, as: bearer}"),
		 {"3:31: `gcp` takes one of `key` and `metadata`",
		  "3:31: `lifetime` without `impersonate`, of which it is",
		  "3:31: `scopes` are of an access token and `audience` is of an ID token"}},
		{CRED("{from: {gcp: {metadata: default}, addresses: [169.254.0.0/16]}, as: "
		      "bearer}"),
		 {"3:25: `metadata` is asked at 169.254.169.254 (add `addresses: "
		  "[169.254.169.254]` beside the kind)"}},
		{CRED("{from: {kubernetes: {token: {file: a}, ca: b}}, as: bearer}"),
		 {"3:38: `ca` without `api`, which would be asked"}},
		{CRED("{from: {kubernetes: {token: {file: a}, api: 'https://a.test/', lifetime: "
		      "1m}}, as: bearer}"),
		 {"3:91: `lifetime`"}},
		{CRED("{from: {kubernetes: {token: {file: a}, api: 'https://a.test/'}}, as: "
		      "bearer}"),
		 {"3:38: a token of the cluster's `api` needs `audiences`",
		  "3:38: a token of the cluster's `api` needs `namespace`",
		  "3:38: a token of the cluster's `api` needs `service_account`"}},
		{CRED("{from: {exec: [a], addresses: [10.0.0.0/8]}, as: bearer}"),
		 {"3:37: `addresses` is for a source that calls an endpoint (remove it)"}},
		{CRED("{from: {exec: /bin/true}, as: bearer}"),
		 {"3:32: `exec` is a list, as no shell reads it (write [PROGRAM, ARGUMENT])"}},
		{CRED("{from: {exec: []}, as: bearer}"),
		 {"3:32: `exec` is an empty list (list something or remove the key)"}},
		{CRED("{from: {exec: [a, {b: c}]}, as: bearer}"), {"3:36: an argument of `exec`"}},
		{CRED("{from: {exec: [a], timeout: 5}, as: bearer}"),
		 {"3:46: `timeout`: `5` has no unit (write 5s, or ms, m, h)"}},
		{CRED("{from: {exec: [a], timeout: 1h}, as: bearer}"),
		 {"3:46: `timeout`: `1h` is not within 100ms and 5m"}},
		{CRED("{from: {env: A, timeout: 5s}, as: bearer}"),
		 {"3:34: `timeout` says nothing of a file or a variable (remove it)"}},
		{CRED("{from: {env: A}, ttl: 5m, as: bearer}"),
		 {"3:35: `ttl` says nothing of a file or a variable (remove it)"}},
		{CRED("{from: {exec: [a]}, ttl: 100ms, as: bearer}"),
		 {"3:43: `ttl`: `100ms` is not within 1s and 720h"}},
		{CRED("{from: {env: A}, as: cookie}"),
		 {"3:39: `as: cookie` needs a name (write {cookie: NAME})"}},
		{CRED("{from: {env: T}, as: {}}"), {"3:39: `as` takes one of"}},
		{CRED("{from: {env: T}, as: {headr: A}}"),
		 {"3:40: unknown key `headr` (did you mean `header`?)"}},
		{CRED("{from: {env: T}, as: {header: Host}}"),
		 {"3:48: the header `Host` is governed by stile (a secret goes into another)"}},
		{CRED("{from: {env: T}, as: {header: Transfer_Encoding}}"),
		 {"3:48: the header `Transfer_Encoding` is governed by stile (a secret goes into "
		  "another)"}},
		{CRED("{from: {env: T}, as: {header: proxy_x}}"),
		 {"3:48: the header `proxy_x` is governed by stile (a secret goes into another)"}},
		{CRED("{from: {env: T}, as: {header: Proxy}}"),
		 {"3:48: the header `Proxy` is governed by stile (a secret goes into another)"}},
		{CRED("{from: {env: T}, as: {header: content-LENGTH}}"),
		 {"3:48: the header `content-LENGTH` is governed"}},
		{CRED("{from: {env: T}, as: {header: Transfer-Encoding}}"), {"3:48: the header"}},
		{CRED("{from: {env: T}, as: {header: Connection}}"), {"3:48: the header"}},
		{CRED("{from: {env: T}, as: {header: Proxy-Authorization}}"), {"3:48: the header"}},
		{CRED("{from: {env: T}, as: {header: 'X Y'}}"),
		 {"3:48: `X Y` is not a header name (such as X-Api-Key)"}},
		{CRED("{from: {env: T}, as: {header: \"X\\r\\nY\"}}"),
		 {"3:48: `X\\x0d\\x0aY` is not"}},
		{CRED("{from: {env: T}, as: {query: 'a&b'}}"),
		 {"3:47: `a&b` is not a query key (such as api_key)"}},
		{CRED("{from: {env: T}, as: {basic: 'a:b'}}"),
		 {"3:47: a user name has no colon and no control character"}},
		{"version: 1\npolicies: {p: {rules: [{allow: a.test}]}}\ncredentials: {'a b': "
		 "{from: "
		 "{env: T}, as: bearer}}\n",
		 {"3:15: the credential `a b`: a name has letters, digits, `.`, `_` and `-`"}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

/* ---- the state that is shared ---- */

static void test_state(void **state)
{
#define STATE(x) TOP "state: " x "\n" /* 3:8 */
	static const struct fault_row rows[] = {
		{STATE("redis.example.com:6379"), {"3:8: `state` is redis://HOST:PORT, rediss://"}},
		{STATE("http://a.test:1"), {"3:8: `state` is redis://"}},
		{STATE("'redis://'"), {"3:8: `state` is redis://"}},
		{STATE("'redis://a.test:0'"), {"3:8: `state` is redis://"}},
		{STATE("'redis://a.test:65536'"), {"3:8: `state` is redis://"}},
		{STATE("'redis://a.test:1/x'"), {"3:8: `state` is redis://"}},
		{STATE("'redis://a.test:1/65536'"), {"3:8: `state` is redis://"}},
		{STATE("'redis://a.test:1/1/2'"), {"3:8: `state` is redis://"}},
		{STATE("'redis://[::1'"), {"3:8: `state` is redis://"}},
		{STATE("'redis://a b:1'"), {"3:8: `state` is redis://"}},
		{STATE("'unix:'"), {"3:8: `state` is redis://"}},
		{STATE("'redis://u:s3cr3t@a.test:1'"),
		 {"a user name or password in the URL of `state`"}},
		{STATE("'rediss://:s3cr3t@a.test'"),
		 {"a user name or password in the URL of `state`"}},
		{STATE("[]"), {"3:8: `state` must be a map (`key: value`), not a list"}},
		{STATE("{}"), {"3:8: `state` needs its `url`"}},
		{STATE("{urk: 'redis://a.test'}"),
		 {"3:9: unknown key `urk` (did you mean `url`?)"}},
		{STATE("{url: 'redis://a.test', grace: 1}"), {"3:39: `grace`"}},
		{STATE("{url: 'redis://a.test', grace: 10ms}"), {"3:39: `grace`"}},
		{STATE("{url: 'redis://a.test', grace: 2h}"), {"3:39: `grace`"}},
		{STATE("{url: 'redis://a.test', prefix: 'a b'}"), {"the prefix `a b`"}},
		{STATE("{url: 'redis://a.test', prefix: 'a}b'}"), {"the prefix `a}b`"}},
		{STATE("{url: 'rediss://a.test', credential: none}"),
		 {"3:45: no credential is called `none`"}},
		{STATE("{url: 'redis://[::1]', credential: c}") "credentials: {c: {from: {env: C}, "
								"as: "
								"{header: x-key}}}\n",
		 {"`state` takes a credential `as: bearer`"}},
		{STATE("{url: 'redis://a.test', credential: c}") "credentials: {c: {from: {env: "
								 "C}, as: "
								 "bearer}}\n",
		 {"3:14: the password of `state` goes over the network in clear"}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

/* ---- the small parts ---- */

static void test_listen(void **state)
{
#define LISTEN(x) TOP "listen: [" x "]\n" /* 3:10 */
	static const struct fault_row rows[] = {
		{TOP "listen: []\n", {"3:9: `listen` is an empty list"}},
		{TOP "listen: {proxy: '127.0.0.1:1'}\n",
		 {"3:9: `listen` must be a list, not a map"}},
		{LISTEN("'127.0.0.1:1'"),
		 {"3:10: a listener must be a map (write `- proxy: 127.0.0.1:3128`)"}},
		{LISTEN("{name: a}"),
		 {"3:10: a listener needs `proxy` (an address, such as 127.0.0.1:3128) or `tran"}},
		{LISTEN("{proxy: 3128}"),
		 {"3:18: `3128` is not an address to listen on (write 127.0.0.1:3128, "
		  "\"[::1]:3128\" or unix:/path)"}},
		{LISTEN("{proxy: ':3128'}"), {"3:18: `:3128` is not an address to listen on"}},
		{LISTEN("{proxy: '*:3128'}"), {"3:18: `*:3128` is not an address"}},
		{LISTEN("{proxy: 'proxy.test:3128'}"), {"3:18: `proxy.test:3128` is not an add"}},
		{LISTEN("{proxy: '127.0.0.1'}"), {"3:18: `127.0.0.1` is not an address to"}},
		{LISTEN("{proxy: '127.0.0.1:65536'}"), {"3:18: `127.0.0.1:65536` is not an"}},
		{LISTEN("{proxy: '::1:3128'}"), {"3:18: `::1:3128` is not an address"}},
		{LISTEN("{proxy: '[127.0.0.1]:3128'}"), {"3:18: `[127.0.0.1]:3128` is not"}},
		{LISTEN("{proxy: 'unix:'}"), {"3:18: `unix:` is not an address"}},
		{LISTEN("{proxy: [a]}"), {"3:18: `proxy` must be a single value"}},
		{LISTEN("{proxy: 'unix:/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
			"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}"),
		 {"3:18: the path of a socket has at most 107 bytes"}},
		{LISTEN("{proxy: '0.0.0.0:3128'}"),
		 {"3:18: warning: `0.0.0.0:3128` may be reachable from other machines"}},
		{LISTEN("{proxy: '[::]:3128'}"), {"3:18: warning: `[::]:3128` may be reachable"}},
		{LISTEN("{proxy: '10.1.2.3:3128'}"), {"3:18: warning: `10.1.2.3:3128` may be"}},
		{LISTEN("{transparent: 443}"), {"3:24: `443` is not an address to listen on"}},
		{LISTEN("{transparent: '127.0.0.1:443'}"),
		 {"3:10: warning: no `dns` listener has the policy `default`: only addresses"}},
		{LISTEN("{transparent: '0.0.0.0:443'}, {dns: '127.0.0.1:53'}"),
		 {"3:24: warning: `0.0.0.0:443` may be"}},
		{LISTEN("{transparent: 'unix:/s'}"),
		 {"3:24: only a `proxy` may be a unix: socket (write ADDR:PORT)"}},
		{LISTEN("{proxy: '127.0.0.1:1', transparent: '127.0.0.1:2'}"),
		 {"3:33: a listener is one of `proxy`, `transparent` and `dns`"}},
		{LISTEN("{transparent: '127.0.0.1:1', tokens: required}"),
		 {"3:39: `tokens` is for `proxy`: who knows of no proxy"}},
		{LISTEN("{transparent: '127.0.0.1:1', mode: 0600}"),
		 {"3:39: `mode` is for unix: sockets (remove it)"}},
		{LISTEN("{proxy: '127.0.0.1:1'}, {transparent: '127.0.0.1:1'}"),
		 {"3:34: an earlier listener has the same address"}},
		{LISTEN("{proxy: {netns: /n}}"),
		 {"3:18: `proxy` needs `netns` and `address` (such as {netns: "}},
		{LISTEN("{transparent: {address: '127.0.0.1:1'}}"),
		 {"3:24: `transparent` needs `netns` and `address`"}},
		{LISTEN("{proxy: {netns: /n, adress: '127.0.0.1:1'}}"),
		 {"3:30: unknown key `adress` (did you mean `address`?)"}},
		{LISTEN("{proxy: {netns: /n, address: 'unix:/s'}}"),
		 {"3:39: a unix: socket is in no network namespace (write ADDR:PORT)"}},
		{LISTEN("{proxy: {netns: [a], address: '127.0.0.1:1'}}"),
		 {"3:26: `netns` must be a single value"}},
		{LISTEN("{proxy: {netns: /n, address: 'h:1'}}"), {"3:39: `h:1` is not an addr"}},
		{LISTEN("{proxy: {netns: /n, address: '127.0.0.1:1'}}, "
			"{proxy: {netns: /n, address: '127.0.0.1:1'}}"),
		 {"3:56: an earlier listener has the same address"}},
		{LISTEN("{proxy: '127.0.0.1:1', mode: 0600}"),
		 {"3:33: `mode` is for unix: sockets (remove it)"}},
		{LISTEN("{proxy: 'unix:/s', mode: rw}"),
		 {"3:35: `mode` `rw` (write 0600, 0660 or 0666)"}},
		{LISTEN("{proxy: 'unix:/s', mode: 1777}"), {"3:35: `mode` `1777`"}},
		{LISTEN("{proxy: 'unix:/s', mode: 00660}"), {"3:35: `mode` `00660`"}},
		{LISTEN("{proxy: 'unix:/s', mode: 0666}"),
		 {"3:35: warning: every user of this machine may connect to a socket of mode "
		  "0666"}},
		{LISTEN("{proxy: '127.0.0.1:1', policy: defaullt}"),
		 {"3:41: no policy is called `defaullt` (did you mean `default`?)"}},
		{LISTEN("{proxy: '127.0.0.1:1', policy: other}"),
		 {"3:41: no policy is called `other` (add it under `policies:`)"}},
		{"version: 1\npolicies: {a: {rules: [{allow: a.test}]}, b: {rules: [{allow: "
		 "a.test}]}}\nlisten: [{proxy: '127.0.0.1:1'}]\n",
		 {"3:10: a listener needs `policy`, since there are 2 policies"}},
		{LISTEN("{proxy: '127.0.0.1:1', name: 'a b'}"),
		 {"3:39: the listener `a b`: a name"}},
		{LISTEN("{proxy: '127.0.0.1:1'}, {proxy: 'localhost:1'}"),
		 {"3:34: an earlier listener has the same address"}},
		{LISTEN("{proxy: 'unix:/s', tokens: require}"),
		 {"3:37: `tokens`: unknown `require` (did you mean `required`?)"}},
		{LISTEN("{proxy: 'unix:/s', tokens: yes}"), {"3:37: `tokens`: unknown `yes`"}},
		{LISTEN("{proxy: 'unix:/s', tokens: optional}"),
		 {"3:37: warning: no token can be made without `admin`"}},
		{LISTEN("{proxy: 'unix:/s', tokens: required, policy: p}"),
		 {"3:37: warning: no token", "3:55: with `tokens: required` the token decides"}},
		{LISTEN("{proxy: 'unix:/s'}") "admin: unix:/s\n",
		 {"3:10: `admin` has the same path"}},
		{LISTEN("{proxy: 'unix:/s'}") "admin: 127.0.0.1:80\n",
		 {"4:8: `admin` `127.0.0.1:80` (write unix:/path"}},
		{LISTEN("{proxy: 'unix:/s'}") "admin: 'unix:'\n", {"4:8: `admin` `unix:` (write"}},
		{LISTEN("{proxy: 'unix:/s'}") "admin: [a]\n",
		 {"4:8: `admin` must be a single value"}},
		{LISTEN("{proxy: 'unix:/a'}, {proxy: 'unix:/a'}"),
		 {"3:30: an earlier listener has the same address"}},
		{LISTEN("{proxy: '127.0.0.1:1', name: a}, {proxy: '127.0.0.1:2', name: a}"),
		 {"3:43: an earlier listener has the name `a`"}},
		{LISTEN("x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,"
			"x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x"),
		 {"3:9: more than 64 listeners (the limit)"}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

static void test_sections(void **state)
{
	static const struct fault_row rows[] = {
		{TOP "ca: /x\n",
		 {"3:5: `ca` must be a map (write {dir: DIR}), not a single value"}},
		{TOP "ca: {dir: 1}\n", {"3:11: `dir` must be a text, and `1` is a number"}},
		{TOP "ca: {dir: ~/ca}\n", {"3:11: `~/ca`: ~ is not expanded"}},
		{TOP "upstream: {trust: system}\n",
		 {"3:19: `trust` must be a list (write [system])"}},
		{TOP "upstream: {trust: []}\n", {"3:19: `trust` is an empty list"}},
		{TOP "upstream: {trust: [[a]]}\n", {"3:20: an entry of `trust` must be a single"}},
		{TOP "upstream: {hosts: []}\n", {"3:19: `hosts` must be a map of names"}},
		{TOP "upstream: {hosts: {a..b: 127.0.0.1}}\n",
		 {"3:20: `a..b` in `hosts`: an empty"}},
		{TOP "upstream: {hosts: {10.0.0.1: 127.0.0.1}}\n",
		 {"3:20: `10.0.0.1` in `hosts`: an address needs no entry"}},
		{TOP "upstream: {hosts: {b.test: 1.1.1.1, B.test: 1.1.1.2, c.test: 1.1.1.1,\n"
		     " b.test.: 1.1.1.3}}\n",
		 {"3:37: `B.test` in `hosts` is the name of line 3 again",
		  "4:2: `b.test.` in `hosts` is the name of line 3 again"}},
		{TOP "upstream: {hosts: {a.test: 10.0.0.1}}\n",
		 {"2:38: warning: this never admits anything: address 10.0.0.1 is refused"}},
		{TOP "upstream: {hosts: {a.test: [10.0.0.1, 1.1.1.1]}}\n", {0}},
		{TOP "upstream: {hosts: {a.test: 127.1.1}}\n",
		 {"3:28: `127.1.1` is not an address (write 192.0.2.1 or \"2001:db8::1\")"}},
		{TOP "upstream: {hosts: {a.test: []}}\n",
		 {"3:28: an entry of `hosts` is an empty"}},
		{TOP "upstream: {hosts: {a.test: [127.0.0.1, b]}}\n",
		 {"3:40: `b` is not an address"}},
		{TOP "upstream: {hosts: {a.test: ['::', '::', '::', '::', '::', '::', '::', '::', "
		     "'::', '::', '::', '::', '::', '::', '::', '::', '::', '::', '::', '::', "
		     "'::', '::', '::', '::', '::', '::', '::', '::', '::', '::', '::', '::', "
		     "'::']}}\n",
		 {"3:28: more than 32 addresses for one name"}},
		{TOP
		 "upstream: {dns: [dns.test, '127.0.0.1:0', '1.2.3.4:5x', '[::1', '1.2.3.4:']}\n",
		 {"3:18: `dns.test` is not a DNS server (write 192.0.2.53", "3:28: `127.0.0.1:0`",
		  "3:43: `1.2.3.4:5x`", "3:57: `[::1`", "3:65: `1.2.3.4:`"}},
		{TOP "log: stdout\n",
		 {"3:6: `log` must be a map (write {to: FILE}), not a single value"}},
		{TOP "log: {to: stderr}\n",
		 {"3:11: `to: stderr` (write stdout, a file or syslog:)"}},
		{TOP "log: {to: 'syslog:lokal0'}\n",
		 {"3:11: `syslog:lokal0`: unknown facility (auth, authpriv, daemon"}},
		{TOP "log: {to: f.yaml}\n", {"3:6: `to` is this configuration, and each line"}},
		{TOP "ca: {dir: d}\nlog: {to: d/ca.key}\n", {"4:6: `to` is a file of the CA"}},
		{TOP "ca: {dir: d}\nlog: {to: d/ca.pem}\n", {"4:6: `to` is a file of the CA"}},
		{TOP "ca: {dir: d/}\nlog: {to: d/ca.key}\n", {"4:6: `to` is a file of the CA"}},
		{TOP "ca: {dir: ./d}\nlog: {to: d//./ca.key}\n", {"4:6: `to` is a file of the CA"}},
		{TOP "ca: {dir: d}\nlog: {to: /d/ca.key}\n", {0}},
		{TOP "log: {to: ./f.yaml}\n", {"3:6: `to` is this configuration, and each line"}},
		{TOP "log: {to: ./f.yaml/g}\n", {0}},
		{TOP "ca: {dir: d}\nlog: {to: d/ca.jsonl}\nupstream: {trust: [system, r.pem]}\n",
		 {0}},
		{TOP "log: {to: r.pem}\nupstream: {trust: [system, r.pem]}\n",
		 {"3:6: `to` is a file of `trust`"}},
		{"version: 1\npolicies: {default: {rules: [{allow: a.test, credential: t}]}}\n"
		 "log: {to: t}\ncredentials: {t: {from: {file: t}, as: bearer}}\n",
		 {"3:6: `to` is the file of a credential"}},
		{TOP "ca: {dir: d}\nlog: {to: d/log}\n", {0}},
		{TOP "log: {to: }\n", {"`to` has no value"}},
		{TOP "log: {wait: sync}\n",
		 {"3:13: `wait`: unknown `sync` (did you mean `synced`?)"}},
		{TOP "log: {wait: [a]}\n", {"3:13: `wait` must be a single value, not a list"}},
		{TOP "log: {wait: none}\n",
		 {"3:13: warning: with `wait: none` a request may leave before its record"}},
		{TOP "user: 0\n", {"3:7: `user` must be a text, and `0` is a number"}},
		{TOP "user: 'a b'\n", {"3:7: the user `a b`: a name has letters"}},
		{TOP "user: ..\n", {"3:7: the user `..`: that is the name of a folder"}},
		{TOP "user: '.'\n", {"3:7: the user `.`: that is the name of a folder"}},
		{TOP "user: ...\n", {NULL}},
		{TOP "deny: explian\n",
		 {"3:7: `deny`: unknown `explian` (did you mean `explain`?)"}},
		{TOP
		 "metrics: 127.0.0.1:1\nlisten: [{proxy: '127.0.0.1:2'}, {proxy: '127.0.0.1:1'}]\n",
		 {"4:34: `metrics` has the same address"}},
		{TOP "metrics: 9464\n",
		 {"3:10: `9464` is not an address to listen on (write 127.0.0.1:3128,"}},
		{TOP "metrics: unix:/run/m\n", {"3:10: `unix:/run/m` is not an address to"}},
		{TOP "metrics: [127.0.0.1:1]\n",
		 {"3:10: `metrics` must be a single value, not a list"}},
		{TOP "metrics: 0.0.0.0:9464\n",
		 {"3:10: warning: `0.0.0.0:9464` may be reachable from other machines"}},
		{TOP "reload: wacth\n", {"3:9: `reload`: unknown `wacth` (did you mean `watch`?)"}},
		{TOP "reload: [a]\n", {"3:9: `reload` must be a single value, not a list"}},
		{TOP "deny: [a]\n", {"3:7: `deny` here is explain or refuse (rules stand under"}},
		/* limits */
		{TOP "limits: []\n", {"3:9: `limits` must be a map"}},
		{TOP "limits: {connections: 0}\n",
		 {"3:23: `connections`: `0` is not within 1 and 1048576"}},
		{TOP "limits: {connections: many}\n",
		 {"3:23: `connections`: `many` is not a number"}},
		{TOP "limits: {connections: -1}\n", {"3:23: `connections`: `-1` is not a number"}},
		{TOP "limits: {connections: 10, connections_per_address: 20}\n",
		 {"3:27: warning: `connections_per_address` is more than `connections` (10)"}},
		{TOP "limits: {head_bytes: 65KiB}\n",
		 {"3:22: `head_bytes`: `65KiB` is not within 1KiB and 64KiB"}},
		{TOP "limits: {head_bytes: 64kb}\n",
		 {"3:22: `head_bytes`: `64kb` is not a size: 16384, 16KiB"}},
		{TOP "limits: {head_bytes: 99999999999999999999}\n",
		 {"`head_bytes`: `99999999999999"}},
		{TOP "limits: {head_bytes: 18446744073709551615MiB}\n", {"is not within"}},
		{TOP "limits: {dial: 15}\n",
		 {"3:16: `dial`: `15` has no unit (write 15s, or ms, m, h)"}},
		{TOP "limits: {dial: 1.5s}\n",
		 {"3:16: `dial`: `1.5s` is not a time with a unit: 500ms, 15s, 2m, 1h"}},
		{TOP "limits: {dial: 15 s}\n", {"3:16: `dial`: `15 s` is not a time"}},
		{TOP "limits: {dial: 2d}\n", {"3:16: `dial`: `2d` is not a time"}},
		{TOP "limits: {dial: 10ms, head: 2h, tunnel_life: 1000h}\n",
		 {"3:16: `dial`: `10ms` is not within 100ms and 10m",
		  "3:28: `head`: `2h` is not within 100ms and 1h",
		  "3:45: `tunnel_life`: `1000h` is not within 100ms and 720h"}},
		{TOP "limits: {workers: 65}\n", {"3:19: `workers`: `65` is not within 1 and 64"}},
		{TOP "limits: {workers: [1]}\n", {"3:19: `workers` must be a single value"}},
		/* policies and tests */
		{"version: 1\npolicies: {'a b': {rules: [{allow: a.test}]}}\n",
		 {"2:12: the policy `a b`: a name has letters"}},
		{"version: 1\npolicies: {p: {rulez: [{allow: a.test}]}}\n",
		 {"2:16: unknown key `rulez` (did you mean `rules`?)"}},
#define TESTS(t) "version: 1\npolicies: {p: {rules: [{allow: a.test}], tests: " t "}}\n"
		{TESTS("[]"), {"2:49: `tests` is an empty list"}},
		{TESTS("[x]"), {"2:50: a test must be a map"}},
		{TESTS("[{expect: allow}]"), {"2:50: a test needs `expect` (allow or deny) and"}},
		{TESTS("[{expect: maybe, request: GET https://a.test/}]"),
		 {"2:59: `expect`: unknown `maybe` (write allow or deny)"}},
		{TESTS("[{expect: deny, request: https://a.test/}]"),
		 {"2:74: `request` must be a method and a URL (\"GET https://h.test/x\")"}},
		{TESTS("[{expect: deny, request: GET https://a.test/ x}]"),
		 {"2:74: `request` must"}},
		{TESTS("[{expect: allow, request: GET https://a.test/../x}]"),
		 {"2:75: `request` can never be allowed: "}},
		{TESTS("[{expect: allow, request: CONNECT a.test}]"),
		 {"2:75: `request` can never be allowed: "}},
		{TESTS("[{expect: deny, request: GET https://a.test/../x}]"), {NULL}},
		{TESTS("[{expect: deny, request: CONNECT 'a.test:25'}]"), {NULL}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

/* ---- rules that are odd together ---- */

static void test_doubts(void **state)
{
#define RULES(r) "version: 1\npolicies:\n  default:\n    rules:\n" r /* from line 5, column 9 */
#define R(x)	 "      - " x "\n"
	static const struct fault_row rows[] = {
		{RULES(R("allow: a.test/x/**") R("allow: a.test/x/y")),
		 {"6:16: warning: this never decides: line 5 covers it"}},
		{RULES(R("allow: a.test/x/y") R("allow: a.test/x/**")), {NULL}},
		{RULES(R("allow: a.test") R("{allow: a.test, methods: [GET]}")),
		 {"6:17: warning: this never decides: line 5 covers it"}},
		{RULES(R("{allow: a.test, methods: [GET]}") R("allow: a.test")), {NULL}},
		{RULES(R("{allow: a.test, methods: [GET]}") R("{allow: a.test, methods: [HEAD]}")),
		 {"6:17: warning: this never decides: line 5"}},
		{RULES(R("{allow: a.test, methods: [HEAD]}") R("{allow: a.test, methods: [GET]}")),
		 {NULL}},
		{RULES(R("allow: '*.x.test'") R("allow: a.b.x.test/y")),
		 {"6:16: warning: this never decides: line 5"}},
		{RULES(R("allow: '*.x.test'") R("allow: '*.y.x.test'")),
		 {"6:16: warning: this never decides: line 5"}},
		{RULES(R("allow: '*.x.test'") R("allow: x.test")), {NULL}},
		{RULES(R("allow: a.test") R("deny: a.test/x/*.git/**")),
		 {"6:15: warning: `*.git` misses repositories that are asked for without .git "
		  "(deny"}},
		{RULES(R("allow: a.test/x/*.git/**")
			       R("deny: [a.test/x/b*.git/**, a.test/*/.git]")),
		 {NULL}},
		{RULES(R("allow: '*.y.x.test'") R("allow: '*.x.test'")), {NULL}},
		{RULES(R("allow: [a.test, b.test, a.test]")),
		 {"5:33: warning: this never decides: line 5"}},
		{RULES(R("allow: a.test:8000-8999") R("allow: a.test:8443")),
		 {"6:16: warning: this never decides: line 5"}},
		{RULES(R("allow: a.test:8443") R("allow: a.test:8000-8999")), {NULL}},
		{RULES(R("allow: a.test") R("allow: http://a.test") R("allow: tcp://a.test:443")),
		 {NULL}},
		{RULES(R("allow: a.test/**") R("allow: a.test")),
		 {"6:16: warning: this never decides: line 5"}},
		{RULES(R("allow: a.test/*/**") R("allow: a.test/**")),
		 {"6:16: warning: this never decides: line 5"}},
		{RULES(R("allow: a.test/*/*") R("allow: a.test/**")), {NULL}},
		{RULES(R("allow: a.test/*") R("allow: a.test/**")), {NULL}},
		{RULES(R("allow: a.test/x/*") R("allow: a.test/x/**")), {NULL}},
		{RULES(R("allow: a.test/x/**/z") R("allow: a.test/x/y/*/z")),
		 {"6:16: warning: this never decides: line 5"}},
		{RULES(R("allow: a.test/a*") R("allow: a.test/a*b*")),
		 {"6:16: warning: this never decides: line 5"}},
		{RULES(R("allow: a.test/a*b*") R("allow: a.test/a*")), {NULL}},
		/* RFC 6066 section 3 */
		{RULES(R("{allow: ['[2600::44]', 8.8.8.8, a.test], tls: passthrough}")),
		 {"5:18: warning: this never admits anything: what is passed through is known by",
		  "5:32: warning: this never admits anything: what is passed through is known by"}},
		{RULES(R("allow: ['[2600::44]', tcp://8.8.8.8:443]")), {NULL}},
		/* of the https rules of a host the first says how */
		{RULES(R("{allow: a.test, tls: passthrough}") R("allow: a.test/x")),
		 {"6:16: warning: this never decides: line 5"}},
		{RULES(R("allow: a.test/x") R("{allow: a.test, tls: passthrough}")),
		 {"6:17: warning: this never decides: line 5"}},
		/* a deny */
		{RULES(R("allow: a.test/x/y") R("deny: a.test/x/**")),
		 {"5:16: warning: this never admits anything: the deny in line 6 covers it"}},
		{RULES(R("deny: '*.x.test'") R("allow: a.x.test")),
		 {"6:16: warning: this never admits anything: the deny in line 5"}},
		{RULES(R("deny: tcp://a.test:443") R("allow: a.test/x")),
		 {"6:16: warning: this never admits anything: the deny in line 5"}},
		{RULES(R("allow: a.test/**") R("deny: a.test/x/**")), {NULL}},
		{RULES(R("allow: a.test") R("{deny: a.test, methods: [POST]}")), {NULL}},
		/* a tunnel */
		{RULES(R("{allow: a.test, tls: passthrough}") R("deny: a.test/x/**")),
		 {"5:17: warning: the deny in line 6 cannot be kept to within a tunnel, so it "
		  "refuses the tunnel wherever both match"}},
		{RULES(R("{allow: '*.x.test', tls: passthrough}") R("deny: a.x.test/s")),
		 {"5:17: warning: the deny in line 6 cannot be kept to"}},
		{RULES(R("{deny: '*.x.test', methods: [PUT]}") R("allow: tcp://a.x.test:443")),
		 {"6:16: warning: the deny in line 5 cannot be kept to"}},
		{RULES(R("{allow: a.test:8443, tls: passthrough}") R("deny: a.test/x/**")), {NULL}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

/* ---- several at once ---- */

static void test_all_at_once(void **state)
{
	static const struct fault_row rows[] = {
		{"version: 2\n"
		 "listen:\n"
		 "  - proxy: 0.0.0.0:3128\n"
		 "    policy: defualt\n"
		 "log: {to: /var/log/x, wait: nevr}\n"
		 "limits: {dial: 15, zzz: 1}\n"
		 "credentials:\n"
		 "  tok: {from: {file: a, env: B}, as: bearer}\n"
		 "policies:\n"
		 "  default:\n"
		 "    rules:\n"
		 "      - allow: \"*good.test\"\n"
		 "        metods: [GET]\n"
		 "      - allow: yes\n"
		 "      - {allow: http://a.test, credential: tok}\n"
		 "      - deny: []\n"
		 "      - null\n",
		 {"1:10: unknown version `2`", "3:12: warning: `0.0.0.0:3128` may be reachable",
		  "4:13: no policy is called `defualt` (did you mean `default`?)",
		  "5:29: `wait`: unknown `nevr`", "6:16: `dial`: `15` has no unit",
		  "6:20: unknown key `zzz`", "8:15: `from` takes one of", "12:16: the host `*good",
		  "13:9: unknown key `metods` (did you mean `methods`?)",
		  "14:16: `allow` must be a text", "15:17: a credential over http://",
		  "16:15: `deny` is an empty list", "17:9: an empty rule"}},
		/* behind a syntax error only what was read is judged */
		{"version: 1\nlog: {wait: x}\npolicies:\n  default:\n    rules:\n      - allow: "
		 "a.test\n\t\tmethods: [GET]\n",
		 {"2:13: `wait`: unknown `x`", "7:1: a tab (indent with spaces)"}},
		{"version: 1\nversio: 2\npolicies:\n  default:\n    rules:\n      - allow: [a.test",
		 {"2:1: unknown key `versio` (did you mean `version`?)",
		  "6:16: a `[` that is not"}},
		/* behind a second document the first is judged as a whole */
		{"policies: {p: {rules: [{allow: a.test}]}}\n---\nversion: 1\n",
		 {"1:1: `version` is missing", "2:1: a second document"}},
		/* one mistake behind an alias is one fault */
		{"version: 1\npolicies:\n  a: &p\n    rules: [{allow: '*x'}]\n  b: *p\n  c: *p\n",
		 {"4:21: the host `*x`"}},
	};

	(void)state;
	check_rows(rows, ARRAY_LEN(rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_listed), cmocka_unit_test(test_keys),
		cmocka_unit_test(test_rules),	       cmocka_unit_test(test_targets),
		cmocka_unit_test(test_credentials),    cmocka_unit_test(test_state),
		cmocka_unit_test(test_listen),	       cmocka_unit_test(test_sections),
		cmocka_unit_test(test_doubts),	       cmocka_unit_test(test_all_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

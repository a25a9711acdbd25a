#!/usr/bin/env bash
# `make demo`: a command that wants out, in a sandbox whose only way out is stile. Starts the test origin
# with a CA made up on the spot, writes a small policy, runs tests/demo_inside.sh under `stile run`,
# prints what the origin received and the audit log, and compares every attempt with what was to be
# expected. Exit 1 if any differs. Nothing leaves this machine.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
stile=${STILE:?STILE must name the binary}
python=${PYTHON:-/usr/bin/python3}
if [ -t 1 ]; then bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'; else bold='' red='' green='' plain=''; fi

dir=$(mktemp -d) || exit 1
origin_pid=
cleanup()
{
	[ -z "$origin_pid" ] || kill "$origin_pid" 2>/dev/null
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

cd "$dir" || exit 1

title() { printf '\n%s== %s ==%s\n' "$bold" "$1" "$plain"; }
die() { printf 'demo: %s\n' "$1" >&2; exit 1; }

# ---- the origin, and two tokens that only stile and the origin are to see ----

random() { head -c 18 /dev/urandom | base64 | tr '+/' 'xy'; }
token=demo-file-$(random)
key=demo-env-$(random)
mkdir -m 700 secrets audit work record
(umask 077; printf '%s\n' "$token" >secrets/token)

"$python" "$here/origin/origin.py" --pki pki --name api.test --record record \
	>origin.json 2>origin.err </dev/null &
origin_pid=$!
for _ in $(seq 150); do
	[ -s origin.json ] && break
	kill -0 "$origin_pid" 2>/dev/null || break
	sleep 0.1
done
port=$(sed -n 's/.*"tls": \([0-9]*\).*/\1/p' origin.json)
[ -n "$port" ] || die "the test origin did not start: $(cat origin.err)"

# ---- the policy ----

cat >stile.yaml <<END
version: 1
upstream:
  trust: [pki/ca.pem]                    # the made-up CA, and no other
  hosts: {api.test: 127.0.0.1, rebind.test: 169.254.169.254}
log: {to: audit/audit.jsonl}
credentials:
  token: {from: {file: secrets/token}, as: bearer}
  key: {from: {env: DEMO_KEY}, as: {header: X-Api-Key}}
policies:
  demo:
    rules:
      - name: read
        allow: https://api.test:$port/ok/public/**
        methods: [GET]
        credential: token
        addresses: [127.0.0.1]           # the origin of this demo is local
      - name: upload
        allow: https://api.test:$port/upload
        methods: [POST]
        credential: key
        addresses: [127.0.0.1]
      - allow: rebind.test               # allowed by name, at an address that is not
END
title 'The policy'
sed 's/^/  /' stile.yaml
faults=$("$stile" check stile.yaml 2>&1) || die "$faults"

# ---- the attempts ----

title 'Inside stile run'
: >work/results
: >work/loot
started=$SECONDS
DEMO_KEY=$key "$stile" run -c stile.yaml --workspace work --show "$here/demo_inside.sh" \
	--env RESULTS=results --env LOOT=loot --env ORIGIN="api.test:$port" \
	--env FILE_OUTSIDE="$dir/secrets/token" --env AUDIT_LOG="$dir/audit/audit.jsonl" \
	-- bash "$here/demo_inside.sh"
status=$?
# Its own way to say so, with the reason above: 23 rows of "nothing" would say less.
[ "$status" != 125 ] || die 'no sandbox can be made here, so there is nothing to show (in a container the engine has to allow it user namespaces)'

title 'What the origin received'
cat record/*.bin 2>/dev/null | tr -d '\r' >received
grep -aiE '^(GET|POST|PUT|DELETE|Host:|Authorization:|X-Api-Key:)' received | sed 's/^/  /'
title 'The audit log (stile log)'
"$stile" log audit/audit.jsonl | sed 's/^/  /'

# ---- the comparison ----

# leaks FILE TEXT: how often a token stands in a file, which must hold TEXT as a proof that it was filled.
leaks()
{
	grep -qF -- "$2" "$1" || { echo 'not filled'; return; }
	printf '%d times\n' "$(grep -cF -e "$token" -e "$key" "$1")"
}
received()
{
	grep -qF -- "$1" received && echo received || echo 'not received'
}
{
	printf 'exit\t%s\n' "$status"
	printf 'token-arrived\t%s\n' "$(received "$token")"
	printf 'key-arrived\t%s\n' "$(received "$key")"
	printf 'loot\t%s\n' "$(leaks work/loot ORIGIN=api.test)"
	printf 'log-clean\t%s\n' "$(leaks audit/audit.jsonl '"credential":"token"')"
	requests=$("$stile" log audit/audit.jsonl 2>&1 | grep -cE 'request\.(deny|start)|tunnel\.deny')
	printf 'log-whole\t%s requests\n' "$requests"
} >>work/results

failed=0
title 'Attempt, expected, got'
printf '  %-46s %-24s %s\n' ATTEMPT EXPECTED GOT
while IFS='|' read -r name expected what; do
	got=$(awk -F '\t' -v n="$name" '$1 == n { print $2 }' work/results)
	# shellcheck disable=SC2254
	case ${got:-nothing} in
	$expected) mark=$green ;;
	*) mark=$red; failed=$((failed + 1)) ;;
	esac
	printf '  %-46s %-24s %s%s%s\n' "$what" "${expected/\[1-9\]\*/n}" "$mark" "${got:-nothing}" "$plain"
done <<'END'
allowed-path|200|an allowed path
second-key|200|another allowed path, with another key
token-arrived|received|... the token at the origin
key-arrived|received|... the key at the origin
forbidden-path|403 no_rule|a forbidden path of the same host
forbidden-method|403 no_rule|a forbidden method on the allowed path
dotted-path|400 ambiguous_url|the forbidden path, by way of ..
other-host|403 no_rule|another host
metadata|403 no_rule|the metadata address
rebinding|403 address_denied|an allowed name that leads to it
noproxy|refused|past the proxy, to the origin's address
raw-socket|unreachable|a raw connection to a public address
dns-query|unreachable|a DNS query to a public address
dns-lookup|no answer|a lookup by the system's resolver
env|[1-9]* variables read|the environment
secret-file|not there|the token's file
proc|[1-9]* processes read|/proc of every process in sight
proc-1|no permission|/proc of process 1
loot|0 times|... tokens in all that was read
audit-log|not there|writing into the audit log
log-whole|8 requests|... requests in the log
log-clean|0 times|... tokens in the log
exit|0|the command's own exit status
END
printf '\n'
if [ "$failed" -gt 0 ]; then
	printf '%s%d differ%s\n' "$red" "$failed" "$plain"
	exit 1
fi
printf '%sAll as expected, in %d s.%s\n' "$green" $((SECONDS - started)) "$plain"

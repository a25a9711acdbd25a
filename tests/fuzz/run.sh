#!/bin/sh
# Runs fuzz targets: run.sh fuzz|regress BUILD SECONDS JOBS TARGET...
# fuzz: each for SECONDS, JOBS at a time, from its corpus; what it learns stays in BUILD/corpus/TARGET
# and a crash in BUILD/crashes/. regress: each once over its corpus. Prints a line a target; exit 1 if
# one of them failed.
set -u
if [ "$1" = one ]; then
	how=$2 build=$3 secs=$4 name=$5
	here=$(dirname "$0")
	learnt=$build/corpus/$name seeds=$here/corpus/$name out=$build/$name.log
	mkdir -p "$learnt" "$build/crashes"
	set -- -artifact_prefix="$build/crashes/$name-" -timeout=10 -rss_limit_mb=2048
	[ -f "$here/dict/$name.dict" ] && set -- "$@" -dict="$here/dict/$name.dict"
	[ -f "$here/dict/$name.options" ] && set -- "$@" $(cat "$here/dict/$name.options")
	if [ "$how" = regress ]; then
		set -- "$@" -runs=0 "$seeds"
	else
		set -- "$@" -max_total_time="$secs" -print_final_stats=1 "$learnt" "$seeds"
	fi
	export ASAN_OPTIONS="detect_leaks=1:$(echo "${ASAN_OPTIONS:-}")" UBSAN_OPTIONS=print_stacktrace=1
	if nice -n 10 "$build/fuzz/$name" "$@" >"$out" 2>&1; then
		if [ "$how" = regress ]; then
			printf '%-12s ok, %s inputs\n' "$name" "$(find "$seeds" -type f | wc -l)"
		else
			printf '%-12s ok, %s runs, %s/s, coverage %s\n' "$name" \
				"$(sed -n 's/^stat::number_of_executed_units: *//p' "$out")" \
				"$(sed -n 's/^stat::average_exec_per_sec: *//p' "$out")" \
				"$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$out" | tail -n 1)"
		fi
		exit 0
	fi
	printf '%-12s FAILED, see %s\n' "$name" "$out"
	grep -E 'does not hold|not the same|ERROR: |runtime error|SUMMARY|Test unit written' "$out"
	exit 1
fi
how=$1 build=$2 secs=$3 jobs=$4
shift 4
printf '%s\n' "$@" | xargs -P "$jobs" -I '{}' sh "$0" one "$how" "$build" "$secs" '{}'

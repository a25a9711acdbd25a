# The tests, inside of the machine: `ok NAME` or `not ok NAME: why` for each function t_NAME.
G=/sys/fs/cgroup
LOG=/tmp/log
AS_USER="/usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups"

fail() {
	echo "    $*"
	FAILED=1
}

# stile run FLAGS... -- CMD: what it said on stderr is in $SAID, its status in $STATUS.
stile_run() {
	stile run --allow a.test --log $LOG "$@" >/tmp/out 2>/tmp/err </dev/null
	STATUS=$?
	SAID=$(cat /tmp/err)
}

# The same as somebody else, from within the group $1.
user_run_in() {
	chmod 666 $LOG 2>/dev/null
	(
		echo 0 >"$1/cgroup.procs" || exit 99
		shift
		cd /home/user
		exec env HOME=/home/user $AS_USER stile run --allow a.test --log /home/user/log "$@"
	) >/tmp/out 2>/tmp/err </dev/null
	STATUS=$?
	SAID=$(cat /tmp/err)
}

want_status() {
	[ "$STATUS" = "$1" ] || fail "status $STATUS, not $1: $SAID"
}

want_said() {
	case $SAID in
	*"$1"*) ;;
	*) fail "not said: $1; but: $SAID" ;;
	esac
}

want_out() {
	[ "$(cat /tmp/out)" = "$1" ] || fail "out: $(cat /tmp/out), not $1: $SAID"
}

groups() {
	find $G -name 'stile-*' -type d
}

want_no_groups() {
	for i in $(seq 100); do
		[ -z "$(groups)" ] && return
		usleep 50000
	done
	fail "left: $(groups)"
}

t_memory_of_a_process() {
	stile_run --memory 64M -- tail /dev/zero
	want_status 137
	want_said "it reached --memory 64M (oom_kill)"
	want_no_groups
}

t_memory_of_files_in_memory() {
	stile_run --memory 64M -- dd if=/dev/zero of=/tmp/x bs=1M count=100
	want_status 137
	want_said "it reached --memory 64M (oom_kill)"
}

# The same in four processes, each of which stays below.
t_memory_of_many_processes() {
	stile_run --memory 64M -- sh -c 'for i in 1 2 3 4; do head -c 30000000 /dev/zero | tail -c 30000000 | (sleep 2; cat) >/dev/null & done; wait; echo whole'
	want_status 137
	want_said "it reached --memory 64M"
	want_out ""
}

t_memory_that_is_enough() {
	stile_run --memory 64M -- sh -c 'head -c 10000000 /dev/zero | tail -c 10000000 | wc -c'
	want_status 0
	want_out 10000000
	[ -z "$SAID" ] || fail "said: $SAID"
	want_no_groups
}

t_pids() {
	stile_run --pids 50 -- sh -c 'i=0; while :; do sleep 60 & i=$((i+1)); [ $i -gt 500 ] && exit 3; done'
	[ "$STATUS" != 3 ] || fail "501 processes"
	want_said "the command reached --pids 50"
	want_no_groups
}

t_fork_bomb() {
	stile_run --pids 100 --memory 256M --timeout 3 -- sh -c 'b() { b | b & b; }; b'
	[ -n "$STATUS" ] || fail "no status"
	[ "$(ps | grep -c "[b]() {")" = 0 ] || fail "some are left"
	want_no_groups
}

t_cpus() {
	stile_run --cpus 0.2 --timeout 3 -- sh -c 'trap "" TERM; cat /proc/self/stat >/dev/null; while :; do :; done' &
	p=$!
	while [ -z "$(groups)" ]; do usleep 20000; done
	g=$(groups)
	grep -q '^20000 100000' $g/cpu.max || fail "cpu.max: $(cat $g/cpu.max)"
	while ! grep -q '^nr_throttled [1-9]' $g/cpu.stat; do usleep 100000; done
	a=$(sed -n 's/usage_usec //p' $g/cpu.stat)
	sleep 2
	b=$(sed -n 's/usage_usec //p' $g/cpu.stat)
	# A fifth of two seconds, and as much again for what the machine does late.
	[ $((b - a)) -lt 800000 ] || fail "$((b - a)) us in 2 s"
	wait $p
	want_no_groups
}

t_file_size() {
	stile_run --workspace none --file-size 1M -- dd if=/dev/zero of=x bs=1M count=100
	want_status 153
	want_said "it reached --file-size 1M"
}

t_the_group_is_not_within_reach() {
	stile_run --memory 64M -- sh -c 'ls /sys/fs/cgroup 2>/dev/null | wc -l; mount -t cgroup2 x /tmp 2>/dev/null && echo mounted; find / -name memory.max 2>/dev/null'
	want_out 0
}

t_killed_stile_leaves_none() {
	stile run --allow a.test --log $LOG --memory 64M -- sh -c 'echo up; sleep 1000' >/tmp/up 2>/dev/null &
	p=$!
	for i in $(seq 100); do grep -q up /tmp/up && break; usleep 50000; done
	[ -n "$(groups)" ] || fail "no group"
	kill -9 $p
	wait $p
	want_no_groups
	[ -z "$(ps | grep '[s]leep 1000')" ] || fail "the command lives"
	[ -z "$(ps | grep '[s]tile-cgroup')" ] || fail "the remover lives"
}

t_killed_process_group_leaves_none() {
	setsid stile run --allow a.test --log $LOG --memory 64M -- sh -c 'echo up; sleep 1001' >/tmp/up 2>/dev/null &
	p=$!
	for i in $(seq 100); do grep -q up /tmp/up && break; usleep 50000; done
	[ -n "$(groups)" ] || fail "no group"
	kill -9 -$p
	wait $p
	want_no_groups
}

t_many_at_once() {
	for i in $(seq 8); do
		(stile run --allow a.test --log /tmp/log$i --cpus 1 -- sh -c "exit $i" 2>/tmp/err$i; echo $? >/tmp/st$i) &
	done
	wait
	for i in $(seq 8); do
		[ "$(cat /tmp/st$i)" = $i ] || fail "$i: $(cat /tmp/st$i) $(cat /tmp/err$i)"
	done
	want_no_groups
}

# As systemd gives it to a user; in the terminal's group is a shell beside stile.
delegate() {
	mkdir -p $G/users/app/term
	echo +memory +pids +cpu >$G/cgroup.subtree_control
	echo +memory +pids +cpu >$G/users/cgroup.subtree_control
	chown user $G/users/app $G/users/app/cgroup.procs $G/users/app/cgroup.subtree_control
	echo +memory +pids +cpu >$G/users/app/cgroup.subtree_control
	chown -R user $G/users/app/term
	sleep 1002 &
	SHELL_PID=$!
	echo $SHELL_PID >$G/users/app/term/cgroup.procs
}

undelegate() {
	kill $SHELL_PID
	wait $SHELL_PID
}

# A terminal of a desktop: beside the own group, in what systemd has given to the user.
t_user_beside_the_own_group() {
	delegate
	user_run_in $G/users/app/term --memory 64M -- tail /dev/zero
	want_status 137
	want_said "it reached --memory 64M (oom_kill)"
	want_no_groups
	[ -z "$(cat $G/users/app/term/cgroup.subtree_control)" ] || fail "it was within"
	undelegate
}

t_user_does_not_leave_a_limit() {
	delegate
	echo 100M >$G/users/app/term/memory.max
	user_run_in $G/users/app/term --pids 300 --cpus 1 -- echo ran
	want_status 125
	want_said "limits that the command would leave"
	want_out ""
	user_run_in $G/users/app/term --memory 200M -- echo ran
	want_status 125
	user_run_in $G/users/app/term --memory 64M -- echo ran
	want_status 0
	want_out ran
	echo max >$G/users/app/term/memory.max
	undelegate
}

# `systemd-run --scope -p Delegate=yes`: alone in a group of its own, whose limits it stays in.
t_user_alone_in_its_group() {
	delegate
	mkdir $G/users/app/scope
	echo 100M >$G/users/app/scope/memory.max
	chown -R user $G/users/app/scope
	# So that there is no place beside it.
	chown root $G/users/app
	user_run_in $G/users/app/scope --memory 64M -- tail /dev/zero
	want_status 137
	want_said "it reached --memory 64M (oom_kill)"
	want_no_groups
	[ -z "$(cat $G/users/app/scope/cgroup.subtree_control)" ] || fail "controllers are left"
	user_run_in $G/users/app/scope --memory 64M -- sh -c 'exit 4'
	want_status 4
	rmdir $G/users/app/scope || fail "the group is not as it was"
	chown user $G/users/app
	undelegate
}

t_user_without_a_place() {
	mkdir -p $G/none
	user_run_in $G/none --memory 64M -- echo ran
	want_status 125
	want_said "--memory needs a control group"
	want_out ""
	rmdir $G/none
}

# RLIMIT_NPROC, without a group: of the sandbox alone, whatever else the user runs.
t_user_pids() {
	for i in $(seq 30); do $AS_USER sleep 1000 & done
	user_run_in $G --pids 20 -- sh -c 'i=0; while [ $i -lt 19 ]; do sleep 60 & i=$((i+1)); done; echo all; sleep 60 & echo one more'
	[ "$(head -1 /tmp/out)" = all ] || fail "out: $(cat /tmp/out) $SAID"
	grep -q "one more" /tmp/out && fail "one more"
	[ -z "$(groups)" ] || fail "a group"
	killall sleep
	wait
}

t_user_default_pids() {
	user_run_in $G -- sed -n 's/^Max processes *\([0-9]*\) *\([0-9]*\) .*/\1 \2/p' /proc/self/limits
	want_out "4097 4097"
}

t_roots_pid_max_is_the_machines() {
	before=$(cat /proc/sys/kernel/pid_max)
	stile_run --pids 400 -- true
	want_status 0
	[ "$(cat /proc/sys/kernel/pid_max)" = "$before" ] || fail "$(cat /proc/sys/kernel/pid_max)"
}

# The sandbox itself, on this kernel.
t_network_is_empty() {
	stile_run -- sh -c 'ip -o link | wc -l; ip route | wc -l; ping -c 1 -w 1 203.0.113.1 >/dev/null 2>&1 || echo none'
	want_out "$(printf '1\n0\nnone')"
}

t_user_status_and_files() {
	user_run_in $G -- sh -c 'id -u; echo x >here; cat here; touch /etc/x 2>/dev/null || echo read-only; exit 7'
	want_status 7
	want_out "$(printf '1000\nx\nread-only')"
}

t_escape() {
	user_run_in $G -- stile doctor --escape
	want_status 0
	tail -3 /tmp/out
}

t_no_namespaces() {
	echo 0 >/proc/sys/kernel/unprivileged_userns_clone
	user_run_in $G -- echo ran
	want_status 125
	want_said "kernel.unprivileged_userns_clone is 0"
	want_out ""
	echo 1 >/proc/sys/kernel/unprivileged_userns_clone
}

echo "Linux $(uname -r), $(nproc) processors, up for $(cut -d. -f1 /proc/uptime) s"
tests=${*:-$(sed -n 's/^\(t_[a-z_]*\)() {$/\1/p' /inside.sh)}
cd /root
# More than stile's own bound.
ulimit -u 20000
for t in $tests; do
	FAILED=
	echo "   $t, at $(cut -d. -f1 /proc/uptime) s"
	$t
	if [ "$FAILED" ]; then echo "not ok ${t#t_}"; else echo "ok ${t#t_}"; fi
done
echo "all is done"

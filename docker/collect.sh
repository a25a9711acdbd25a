#!/bin/sh
# Makes the root of the image: a program, the libraries that it loads, the roots that it trusts, and
# folders for what it writes. Called by the Dockerfile, in a Debian.
#
#   collect.sh PROGRAM OUT
#
# OUT/usr/share/stile/packages gets the Debian packages of what was copied, for sbom.sh.
set -eu
program=$1 out=$2
id=65532

umask 022
mkdir -p "$out/usr/bin" "$out/usr/lib" "$out/etc/ssl/certs" "$out/etc/stile" "$out/usr/share/stile"
for l in bin sbin lib lib64; do
	ln -s "usr/$( [ $l = sbin ] && echo bin || echo $l )" "$out/$l"
done
mkdir -p "$out/usr/lib64"
install -m 755 "$program" "$out/usr/bin/stile"

# A path as the image has it: Debian's /lib is /usr/lib.
in_usr() {
	case $1 in
	/lib/* | /lib64/*) echo "/usr$1" ;;
	*) echo "$1" ;;
	esac
}

owners=$out/usr/share/stile/packages.all
: >"$owners"
# Which package owns a file; its database may know it by the name of either side of the merge.
note_owner() {
	for name in "$1" "${1#/usr}"; do
		owner=$(dpkg-query -S "$name" 2>/dev/null) || continue
		echo "$owner" | sed 's/: .*//' >>"$owners"
		return 0
	done
	echo "collect.sh: no package owns $1" >&2
	return 1
}

# `a => /lib/a (0x...)`, and the loader as `/lib64/ld-linux.so (0x...)`; not found ends it. A file of its
# own, since the end of a loop in a pipe is not ours.
ldd "$program" >"$owners.ldd"
if grep -q 'not found' "$owners.ldd"; then
	cat "$owners.ldd" >&2
	exit 1
fi
sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) .*/\1/p' "$owners.ldd" >"$owners.files"
# What libc opens by itself when a thread is ended.
echo "/usr/lib/$(gcc -print-multiarch)/libgcc_s.so.1" >>"$owners.files"
while read -r lib; do
	# The file under the name that the loader asks for; links of the way are not kept.
	at=$(in_usr "$lib")
	mkdir -p "$out$(dirname "$at")"
	cp -L "$lib" "$out$at"
	chmod 755 "$out$at"
	note_owner "$(in_usr "$(readlink -f "$lib")")"
done <"$owners.files"

cp /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/"
echo ca-certificates >>"$owners"

sort -u "$owners" >"$out/usr/share/stile/packages"
rm "$owners" "$owners.ldd" "$owners.files"
# Who copies a library copies its licence.
while read -r package; do
	name=${package%%:*}
	[ -e "/usr/share/doc/$name/copyright" ] || continue
	mkdir -p "$out/usr/share/doc/$name"
	cp -L "/usr/share/doc/$name/copyright" "$out/usr/share/doc/$name/"
done <"$out/usr/share/stile/packages"
cp LICENSE "$out/usr/share/stile/"

echo "stile:x:$id:$id:stile:/var/lib/stile:/nonexistent" >"$out/etc/passwd"
echo "stile:x:$id:" >"$out/etc/group"
# Volumes take over owner and mode of these.
for dir in /var/lib/stile /var/log/stile /run/stile /run/stile-trust; do
	mkdir -p "$out$dir"
	chown $id:$id "$out$dir"
	chmod 700 "$out$dir"
done
mkdir -p "$out/tmp"
chmod 1777 "$out/tmp"
# Other containers open the sockets in the one and read the certificates in the other.
chmod 755 "$out/run/stile" "$out/run/stile-trust"

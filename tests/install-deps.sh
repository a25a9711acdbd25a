#!/bin/sh
# Installs the Debian packages that stile needs, if any is missing: `build` for compiling, `test` for
# the test suite, `lint` for the linters, `bench` for the peers that `make bench` races against, `fuzz`
# for the fuzzers, `containers` for `make containers`, `kernel` for `make kernel`. Asks for root (sudo, or says what root
# is to type) only when there is something to install. `test` also fetches the packages of tests/clients/node, botocore and four servers into build/ and the
# modules of tests/clients/go, and compiles these once, as tests fetch nothing; `containers` fetches two into
# build-containers/. `kubernetes`, which `containers` holds too, compiles tests/kubernetes.
set -eu

build="gcc make pkg-config libc6-dev libevent-dev libssl-dev libyaml-dev libc-ares-dev libnghttp2-dev
 libjansson-dev libexpat1-dev libpsl-dev libseccomp-dev libhiredis-dev libunistring-dev zlib1g-dev libbrotli-dev
 ca-certificates"
test="libcmocka-dev python3 python3-pytest python3-pytest-xdist python3-requests python3-aiohttp
 python3-cryptography python3-yaml python3-h11 python3-h2 python3-grpcio nghttp2-client curl wget git nodejs
 default-jdk-headless golang-go chromium libnss3-tools fonts-dejavu-core
 python3-websockets python3-gunicorn python3-brotli python3-oauthlib python3-jwt node-ws node-https-proxy-agent npm
 python3-prometheus-client python3-httpx python3-jmespath python3-dateutil python3-pip openssl iproute2 strace procps bind9-dnsutils tinyproxy-bin util-linux man-db redis-tools"
demo="python3 python3-cryptography curl"
lint="clang clang-tidy clang-format cppcheck libclang-rt-14-dev llvm"
fuzz="clang libclang-rt-14-dev llvm python3 python3-h11 nodejs"
bench="python3 python3-cryptography python3-venv openssl squid-openssl tinyproxy-bin bubblewrap"
containers="mmdebstrap podman runc crun runsc netavark uidmap iptables iproute2 python3-pip curl"
kernel="python3 qemu-system-x86 busybox-static ca-certificates"

kubernetes="golang-go"

want=
for group in "$@"; do
	case $group in
	build) want="$want $build" ;;
	test) want="$want $build $test" ;;
	demo) want="$want $build $demo" ;;
	lint) want="$want $build $lint" ;;
	bench) want="$want $build $bench" ;;
	fuzz) want="$want $build $fuzz" ;;
	kernel) want="$want $build $kernel" ;;
	containers) want="$want $build $test $containers $kubernetes" ;;
	kubernetes) want="$want $kubernetes" ;;
	*) echo "install-deps.sh: unknown group $group (build, demo, test, lint, bench, fuzz, kernel, containers or kubernetes)" >&2
		exit 2 ;;
	esac
done

missing=
for p in $want; do
	dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || {
		# A tool that is already there from elsewhere (nodejs from its makers) will do.
		case $p in
		nodejs) tool=node ;;
		default-jdk-headless) tool=javac ;;
		golang-go) tool=go ;;
		npm) tool=npm ;;
		*) tool= ;;
		esac
		[ -n "$tool" ] && command -v "$tool" >/dev/null && continue
		missing="$missing $p"
	}
done

# A failure is no failure here: the tests that need the packages skip and say so.
fetch_node() {
	here=$(dirname "$0")
	into=$here/../build/clients/node
	cmp -s "$here/clients/node/package.json" "$into/node_modules/fetched.json" && return 0
	command -v npm >/dev/null || return 0
	echo "fetching the packages of tests/clients/node"
	mkdir -p "$into" && cp "$here/clients/node/package.json" "$into/" &&
		npm install --prefix "$into" --no-package-lock --ignore-scripts --no-audit --no-fund --silent &&
		cp "$into/package.json" "$into/node_modules/fetched.json" ||
		echo "stile: tests/clients/node was not fetched" >&2
}

fetch_go() {
	command -v go >/dev/null || return 0
	(cd "$(dirname "$0")/clients/go" &&
		export GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off
		GOPROXY=off go list -deps . >/dev/null 2>&1 && exit 0
		echo "fetching the modules of tests/clients/go"
		go mod download && go build -o /dev/null .) ||
		echo "stile: tests/clients/go was not fetched" >&2
}

# AWS's own client, of which a few services are enough, and the published vectors of its signatures,
# which come with its sources alone.
fetch_aws() {
	version=1.43.11
	into=$(dirname "$0")/../build/clients/aws
	[ "$(cat "$into/fetched" 2>/dev/null)" = $version ] && return 0
	/usr/bin/python3 -m pip --version >/dev/null 2>&1 || return 0
	echo "fetching botocore"
	rm -rf "$into" && mkdir -p "$into/sdist" &&
		/usr/bin/python3 -m pip download -q --no-deps --no-binary :all: --no-build-isolation \
			-d "$into/sdist" botocore==$version &&
		tar -xzf "$into/sdist/botocore-$version.tar.gz" -C "$into" --strip-components=1 --wildcards \
			'*/botocore/*.py' '*/botocore/cacert.pem' '*/unit/auth/aws4_testsuite/*' &&
		tar -xzf "$into/sdist/botocore-$version.tar.gz" -C "$into" --strip-components=1 --wildcards \
			--no-wildcards-match-slash '*/botocore/data/*.json' '*/botocore/data/s3/*/*' \
			'*/botocore/data/dynamodb/*/*' '*/botocore/data/sts/*/*' &&
		mv "$into/tests/unit/auth/aws4_testsuite" "$into/vectors" && rm -rf "$into/tests" "$into/sdist" &&
		echo $version >"$into/fetched" ||
		echo "stile: botocore was not fetched" >&2
}

# Debian's servers that tests talk to through stile: unpacked, as installing them would start them.
fetch_servers() {
	into=$(dirname "$0")/../build/clients/servers
	[ -e "$into/fetched" ] && return 0
	[ -x /usr/sbin/sshd ] && ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 && return 0
	echo "fetching OpenSSH's and PostgreSQL's servers"
	rm -rf "$into" && mkdir -p "$into" && (cd "$into" &&
		apt-get download -qq -o APT::Sandbox::User=root openssh-server libwrap0 postgresql-15 postgresql-client-15 libpq5 libldap-2.5-0 \
			libsasl2-2 libxml2 2>/dev/null &&
		for p in *.deb; do dpkg-deb -x "$p" . || exit 1; done && rm -rf -- *.deb etc var && touch fetched) ||
		echo "stile: the servers of OpenSSH and PostgreSQL were not fetched" >&2
}

# Servers that test_real_servers.py has behind stile, unpacked too.
fetch_origins() {
	into=$(dirname "$0")/../build/clients/origins
	[ -e "$into/fetched" ] && return 0
	[ -x /usr/sbin/nginx ] && [ -x /usr/sbin/apache2 ] && return 0
	echo "fetching nginx and Apache"
	rm -rf "$into" && mkdir -p "$into" && (cd "$into" &&
		apt-get download -qq -o APT::Sandbox::User=root nginx apache2-bin libapr1 libaprutil1 2>/dev/null &&
		for p in *.deb; do dpkg-deb -x "$p" . || exit 1; done && rm -rf -- *.deb etc var && touch fetched) ||
		echo "stile: nginx and Apache were not fetched" >&2
}

# podman-compose, as Debian's is too old to check a file, and what says whether an SBOM is one.
fetch_containers() {
	into=$(dirname "$0")/../build-containers/pip
	[ -e "$into/spdx_tools" ] && [ -e "$into/podman_compose.py" ] && return 0
	echo "fetching podman-compose and spdx-tools"
	mkdir -p "$into" && /usr/bin/python3 -m pip install --quiet --no-compile --disable-pip-version-check \
		--target "$into" podman-compose==1.6.0 spdx-tools==0.8.5 2>/dev/null ||
		echo "stile: podman-compose and spdx-tools were not fetched" >&2
}

# Debian's kernel for virtual machines, unpacked and not installed.
fetch_kernel() {
	into=$(dirname "$0")/../build-kernel
	ls "$into"/vmlinuz-* >/dev/null 2>&1 && return 0
	package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/ *Depends: \(linux-image-[^ ]*\).*/\1/p' | head -1)
	echo "fetching $package"
	mkdir -p "$into" && (cd "$into" && apt-get download -qq -o APT::Sandbox::User=root "$package" && dpkg-deb --fsys-tarfile "$package"_*.deb |
		tar -x --strip-components=2 --wildcards './boot/vmlinuz-*' && rm -f "$package"_*.deb) ||
		echo "stile: $package was not fetched" >&2
}

# Kubernetes's own types need a newer Go than Debian 12 has. Without optimizing it takes a third less.
fetch_kubernetes() {
	here=$(dirname "$0")
	into=$here/../build/clients/kubernetes
	command -v go >/dev/null || return 0
	mkdir -p "$into"
	key=$(cat "$here"/kubernetes/*.go "$here"/kubernetes/go.* | cksum)
	[ -x "$into/kubernetes" ] && [ "$(cat "$into/key" 2>/dev/null)" = "$key" ] && return 0
	echo "compiling tests/kubernetes"
	(cd "$here/kubernetes" && GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off GOPROXY=off \
		go build -gcflags="all=-N -l" -ldflags="-s -w" -o ../../build/clients/kubernetes/ . 2>/dev/null ||
		GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off \
			go build -gcflags="all=-N -l" -ldflags="-s -w" -o ../../build/clients/kubernetes/ .) &&
		echo "$key" >"$into/key" ||
		echo "stile: tests/kubernetes was not compiled" >&2
}

fetch() {
	case " $* " in *" kernel "*) fetch_kernel ;; esac
	case " $* " in *" containers "* | *" kubernetes "*) fetch_kubernetes ;; esac
	case " $* " in *" containers "*) fetch_containers ;; esac
	case " $* " in *" test "*) fetch_node; fetch_go; fetch_aws; fetch_servers; fetch_origins ;; esac
}

if [ -z "$missing" ]; then
	fetch "$@"
	exit 0
fi

command -v apt-get >/dev/null || {
	echo "stile: these packages are missing and this is no Debian:$missing" >&2; exit 1; }
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
[ -z "$sudo" ] || command -v sudo >/dev/null || {
	echo "stile: there is no sudo here; as root (su -), say: apt-get update && apt-get install$missing" >&2; exit 1; }
echo "installing:$missing"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
fetch "$@"

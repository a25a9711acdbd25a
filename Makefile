# stile: build, test, install. `make help` lists the targets.
# Each layer becomes a static library, and a test links only against its own layer and those below,
# so an arrow that points up does not link.

PREFIX  ?= /usr/local
DESTDIR ?=
BUILD   ?= build
CC      ?= cc
VERSION := 0.1.0

PKGS     := libevent_core libevent_pthreads openssl yaml-0.1 libcares libnghttp2 jansson expat libpsl libseccomp zlib \
            libbrotlidec hiredis
CPPFLAGS += -I. -D_GNU_SOURCE -DSTILE_VERSION='"$(VERSION)"'
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
            -Wpointer-arith -Wwrite-strings -Wswitch-enum -Wformat=2 -Wundef -Werror
HARDEN   := -fstack-protector-strong -fstack-clash-protection -fPIE -fno-strict-overflow
OPT      ?= -O2 -g -D_FORTIFY_SOURCE=2
CFLAGS   += -std=c17 $(OPT) $(WARN) $(HARDEN) -pthread
LDFLAGS  += -pie -Wl,-z,relro,-z,now,-z,noexecstack -pthread
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
# libunistring has no description for pkg-config, and libresolv is of the C library.
PKG_LIBS   = $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lunistring -lresolv

# The layers, lowest first. LINK_x is what a test of layer x may see: x and the layers below it.
LAYERS := logging policy certs net http state credentials keeper session sandbox export prover cli
DIR_logging := logging
DIR_policy  := policy
DIR_certs   := certs
$(foreach l,net http state credentials keeper session sandbox export prover cli,$(eval DIR_$(l) := proxy/$(l)))
LINK_logging     := logging
LINK_policy      := policy logging
LINK_certs       := certs logging
LINK_net         := net policy certs logging
LINK_http        := http net policy certs logging
LINK_state       := state net policy certs logging
LINK_credentials := credentials http net policy certs logging
LINK_keeper      := keeper credentials http net policy certs logging
LINK_session     := session state keeper credentials http net policy certs logging
LINK_sandbox     := sandbox session state keeper credentials http net policy certs logging
LINK_export      := export logging
LINK_prover      := prover logging
LINK_cli         := cli prover export sandbox session state keeper credentials http net policy certs logging

SRC_ALL := $(foreach l,$(LAYERS),$(wildcard $(DIR_$(l))/*.c)) proxy/main.c
lib      = $(BUILD)/lib$(1).a
libs     = $(foreach l,$(LINK_$(1)),$(call lib,$(l)))

.PHONY: all
all: $(BUILD)/stile

define layer_rules
SRC_$(1) := $$(wildcard $$(DIR_$(1))/*.c)
OBJ_$(1) := $$(SRC_$(1):%.c=$(BUILD)/%.o)
$(BUILD)/lib$(1).a: $$(OBJ_$(1))
	@rm -f $$@
	$(Q)ar rcs $$@ $$(OBJ_$(1))
TEST_$(1) := $$(patsubst tests/unit/%.c,$(BUILD)/unit/%,$$(wildcard tests/unit/$(1)/*_test.c))
$$(TEST_$(1)): $(BUILD)/unit/%: tests/unit/%.c $$(call libs,$(1)) | deps
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CPPFLAGS) $$(PKG_CFLAGS) $$(CFLAGS) $$(LDFLAGS) -MMD -MP -MF $$@.d -o $$@ $$< $$(call libs,$(1)) -lcmocka $$(PKG_LIBS)
endef
Q := @
$(foreach l,$(LAYERS),$(eval $(call layer_rules,$(l))))
UNIT_TESTS := $(foreach l,$(LAYERS),$(TEST_$(l)))

$(BUILD)/%.o: %.c | deps
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/stile: $(BUILD)/proxy/main.o $(call libs,cli)
	@echo "  LD $@"
	$(Q)$(CC) $(LDFLAGS) $(CFLAGS) -o $@ $< $(call libs,cli) $(PKG_LIBS)

# Installs Debian packages when one is missing; needs root or sudo only then.
.PHONY: deps demo-deps test-deps lint-deps
deps:
	@sh tests/install-deps.sh build
demo-deps:
	@sh tests/install-deps.sh demo
test-deps:
	@sh tests/install-deps.sh test
lint-deps:
	@sh tests/install-deps.sh lint

.PHONY: help
help:
	@echo "make            build $(BUILD)/stile"
	@echo "make demo       build, then show stile at work in a sandbox"
	@echo "make test       unit and integration tests"
	@echo "make unit       unit tests alone"
	@echo "make integration  integration tests alone (T=tests/integration/test_x.py picks some)"
	@echo "make asan       all tests under AddressSanitizer and UBSan"
	@echo "make tsan       all tests under ThreadSanitizer"
	@echo "make torture    system calls and allocations of stile that fail, a sample; FULL=1 for all"
	@echo "make unit-torture  unit tests and leak scenarios for each allocation, which then fails (PER_TEST=6: some)"
	@echo "make bypass     the corpus of ways around an allowlist, against the real binary"
	@echo "make fuzz TIME=60  each fuzzer that long (FUZZ=\"url body\" picks some)"
	@echo "make fuzz-regress  each fuzzer once over its corpus"
	@echo "make fuzz-compare  our verdicts on HTTP/1 beside those of llhttp and h11"
	@echo "make replay     scenarios over a fake network, clock and log (R=NAME picks some)"
	@echo "make replay-torture  each scenario again for each allocation, which then fails"
	@echo "make soak MINUTES=10  mixed traffic and faults for so long; SAN=asan or tsan"
	@echo "make vault      a real Vault, built (long) and asked by its tests"
	@echo "make bench      against other proxies (installs them); BENCH=\"--quick j k\": short, some rows"
	@echo "make lint       clang-format, clang-tidy, cppcheck, layers, banned functions"
	@echo "make containers the image, the compose file and the launcher of docker/, with Podman (needs root)"
	@echo "make kernel     stile run on a kernel of its own, in a virtual machine (x86-64)"
	@echo "make manifests  docker/kubernetes/*.yaml out of its chart"
	@echo "make strace     the system calls of one forwarded request"
	@echo "make install    into DESTDIR/PREFIX ($(PREFIX))"
	@echo "make clean      remove build folders"

# ---- tests ----
PYTHON ?= /usr/bin/python3
T      ?= tests/integration
JOBS   ?= 4

.PHONY: test unit unit-build integration demo
test: test-deps
	@$(MAKE) --no-print-directory unit integration
unit-build: $(UNIT_TESTS)
unit: test-deps
	@$(MAKE) --no-print-directory unit-build
	@set -e; for t in $(UNIT_TESTS); do echo "== $$t"; $$t; done
integration: test-deps all
	STILE=$(abspath $(BUILD)/stile) $(PYTHON) -m pytest -q -rs -n $(JOBS) --dist loadgroup -p no:cacheprovider $(T)
demo: demo-deps
	@$(MAKE) --no-print-directory all
	@STILE=$(abspath $(BUILD)/stile) bash tests/demo.sh

ASAN := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
TSAN := -O1 -g -fsanitize=thread -fno-omit-frame-pointer
.PHONY: asan asan-build tsan
asan-build:
	@$(MAKE) --no-print-directory BUILD=build-asan OPT="$(ASAN)" all unit-build \
		unit-torture-build build-asan/replay
asan: test-deps
	@ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:quarantine_size_mb=4 UBSAN_OPTIONS=print_stacktrace=1 \
		$(MAKE) --no-print-directory BUILD=build-asan OPT="$(ASAN)" unit integration
tsan: test-deps
	@TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1:suppressions=$(abspath tests/tsan.supp) \
		$(MAKE) --no-print-directory BUILD=build-tsan OPT="$(TSAN)" unit integration

.PHONY: bypass
bypass: test-deps all
	@STILE=$(abspath $(BUILD)/stile) $(PYTHON) tests/bypass/run.py

# As root. `make test` runs of that file what needs no engine.
.PHONY: containers
containers: all
	@sh tests/install-deps.sh containers
	STILE_CONTAINERS=1 STILE=$(abspath $(BUILD)/stile) $(PYTHON) -m pytest -q -rs -p no:cacheprovider \
		--durations=10 tests/integration/test_docker.py tests/integration/test_kubernetes.py

.PHONY: kernel
kernel: all
	@sh tests/install-deps.sh kernel
	@$(PYTHON) tests/kernel/run.py --build $(BUILD)

.PHONY: bench
bench: test-deps all
	@$(PYTHON) tests/bench/run.py --build $(BUILD) $(BENCH)

-include tests/fuzz/fuzz.mk
-include tests/replay/replay.mk
-include tests/soak/soak.mk
-include tests/torture/torture.mk
-include tests/vault/vault.mk
-include tests/kubernetes/kubernetes.mk

.PHONY: strace
strace: test-deps all
	@STILE=$(abspath $(BUILD)/stile) $(PYTHON) tests/bench/syscalls.py

# ---- lint ----
SOURCES = $(shell git ls-files '*.c' '*.h')
.PHONY: lint
lint: lint-deps
	@echo "clang-format"; clang-format --dry-run --Werror $(SOURCES)
	@echo "layers and banned functions"; sh tests/lint.sh
	@echo "cppcheck"; cppcheck -q -j 2 --std=c11 --enable=warning,performance,portability --inline-suppr \
		--suppressions-list=tests/cppcheck.txt --error-exitcode=1 \
		--include=/usr/include/$(shell $(CC) -print-multiarch)/sys/queue.h -I. -D_GNU_SOURCE $(SRC_ALL)
	@echo "clang-tidy"; printf '%s\n' $(SRC_ALL) | xargs -P 2 -n 4 sh -c 'clang-tidy --quiet \
		--warnings-as-errors="*" --config-file=tests/clang-tidy.yaml "$$@" -- -std=c17 -I. \
		-D_GNU_SOURCE -DSTILE_VERSION=\"x\" $(PKG_CFLAGS) 2>/dev/null' clang-tidy

# ---- install ----
INSTALL ?= install
.PHONY: install
install: all
	$(INSTALL) -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/man/man5 $(DESTDIR)$(PREFIX)/lib/systemd/system \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(INSTALL) -m 755 $(BUILD)/stile $(DESTDIR)$(PREFIX)/bin/stile
	$(INSTALL) -m 644 proxy/man/stile.1 $(DESTDIR)$(PREFIX)/share/man/man1/stile.1
	$(INSTALL) -m 644 proxy/man/stile.yaml.5 $(DESTDIR)$(PREFIX)/share/man/man5/stile.yaml.5
	sed 's|@PREFIX@|$(PREFIX)|g' proxy/systemd/stile.service > $(BUILD)/stile.service
	$(INSTALL) -m 644 $(BUILD)/stile.service $(DESTDIR)$(PREFIX)/lib/systemd/system/stile.service
	$(INSTALL) -m 644 proxy/completions/stile.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/stile
	$(INSTALL) -m 644 proxy/completions/_stile $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_stile
	$(INSTALL) -m 644 proxy/completions/stile.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/stile.fish

.PHONY: clean
clean:
	rm -rf build build-*

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

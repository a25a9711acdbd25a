# Fuzzing. Included by the Makefile at the root, whose rules build the libraries a second time, with
# clang and its sanitizers, into build-fuzz/.
#   make fuzz TIME=60    each target for TIME seconds, FUZZ_JOBS at a time; finds go to build-fuzz/
#   make fuzz FUZZ="url pattern"   some of them
#   make fuzz-regress    each target once over its corpus
#   make fuzz-compare    our verdicts on HTTP/1 beside those of two other parsers (COMPARE="COUNT SEED")

TIME      ?= 60
FUZZ_JOBS ?= 2
COMPARE   ?= 40000 1
FUZZ      ?= $(patsubst tests/fuzz/%_fuzz.c,%,$(wildcard tests/fuzz/*_fuzz.c))

FUZZ_BUILD := build-fuzz
FUZZ_OPT   := -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
              -fno-sanitize-recover=all
FUZZ_MAKE   = $(MAKE) --no-print-directory BUILD=$(FUZZ_BUILD) CC=clang OPT="$(FUZZ_OPT)" \
              WARN="-Wall -Wextra -Werror"

.PHONY: fuzz fuzz-regress fuzz-compare fuzz-build fuzz-targets fuzz-deps
fuzz-deps:
	@sh tests/install-deps.sh build fuzz
fuzz-build: fuzz-deps
	@+$(FUZZ_MAKE) fuzz-targets
fuzz: fuzz-build
	@sh tests/fuzz/run.sh fuzz $(FUZZ_BUILD) $(TIME) $(FUZZ_JOBS) $(FUZZ)
fuzz-regress: fuzz-build
	@sh tests/fuzz/run.sh regress $(FUZZ_BUILD) 0 $(FUZZ_JOBS) $(FUZZ)

# What a target links besides itself: its layer and those below; the log reader alone
# out of cli.
FUZZ_LINK_keeper := $(call libs,keeper)
FUZZ_LINK_log := $(BUILD)/proxy/cli/log.o $(BUILD)/proxy/net/poll_again.o $(call libs,policy)
FUZZ_LINK_placeholder := $(call libs,credentials)
FUZZ_LINK_blank := $(call libs,credentials)
FUZZ_LINK_jwt := $(call libs,credentials)
FUZZ_LINK_helper := $(call libs,credentials)

.SECONDEXPANSION:
fuzz-targets: $(FUZZ:%=$(BUILD)/fuzz/%)
$(BUILD)/fuzz/%: tests/fuzz/%_fuzz.c $(wildcard tests/fuzz/*.h) \
		$$(or $$(FUZZ_LINK_$$*),$$(call libs,http)) | deps
	@mkdir -p $(@D)
	@echo "  FUZZ $*"
	$(Q)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer -o $@ $< \
		$(or $(FUZZ_LINK_$*),$(call libs,http)) $(PKG_LIBS)

fuzz-compare: fuzz-deps
	@$(MAKE) --no-print-directory $(BUILD)/fuzz/verdicts
	@$(PYTHON) tests/fuzz/compare/compare.py $(BUILD)/fuzz/verdicts $(COMPARE)
$(BUILD)/fuzz/verdicts: tests/fuzz/compare/verdicts.c $(call libs,http) | deps
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< $(call libs,http) $(PKG_LIBS)

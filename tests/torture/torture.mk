# Failing system calls and failing allocations (tests/torture/README.md).
#   make torture               a sample of the system calls and allocations of stile, each made to fail
#   make torture FULL=1        every call; SECONDS=60 stops after that long
#   make torture FULL=1 SHARDS=8   the same as so many runs side by side, since most of a run is waiting
#   make torture-asan          the same under AddressSanitizer

FULL    ?=
SECONDS ?= 0
SHARDS  ?=
TFLAGS  ?=
TORTURE_SO  = $(BUILD)/torture/fail.so $(BUILD)/torture/fail_alloc.so
IS_ASAN     = $(findstring -fsanitize=address,$(OPT))

$(TORTURE_SO): $(BUILD)/torture/%.so: tests/torture/%.c tests/torture/fail.h
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(CPPFLAGS) -std=c17 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -Werror -fPIC -shared -o $@ $< -ldl

.PHONY: torture torture-asan
torture: test-deps all $(TORTURE_SO)
	@export STILE=$(abspath $(BUILD)/stile) FAIL=$(abspath $(firstword $(TORTURE_SO))) \
		LIBASAN=$(if $(IS_ASAN),$(shell $(CC) -print-file-name=libasan.so)); \
		$(if $(SHARDS),seq $(SHARDS) | xargs -P $(SHARDS) -I@ nice -n 10) \
		$(PYTHON) tests/torture/run.py $(if $(FULL),--full) --seconds $(SECONDS) \
		$(if $(SHARDS),--part @/$(SHARDS) --seed $(or $(SEED),1)) $(TFLAGS)
torture-asan:
	@ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:quarantine_size_mb=4 UBSAN_OPTIONS=print_stacktrace=1 \
		$(MAKE) --no-print-directory BUILD=build-asan OPT="$(ASAN)" torture

# Unit tests again for each allocation of what they test, which then fails. PER_TEST bounds the runs
# of a test (0: all), UNIT picks some ("net/dial_test policy/url_test"), JOBS_TORTURE are side by side.
# Without the tests whose threads, processes or network are their own (README.md here).
PER_TEST ?= 0
UNIT     ?=
JOBS_TORTURE ?= 2
UNIT_TORTURE_LAYERS := logging policy certs net http state credentials keeper session sandbox export
UNIT_TORTURE_NOT    := logging/writer_test logging/writer_trouble_test sandbox/seccomp_test \
		       credentials/helpers_test net/name_map_full_test
UNIT_TORTURE := $(filter-out $(UNIT_TORTURE_NOT:%=$(BUILD)/unit-torture/%),$(foreach \
	l,$(UNIT_TORTURE_LAYERS),$(TEST_$(l):$(BUILD)/unit/%=$(BUILD)/unit-torture/%)))
TORTURE_O = $(BUILD)/torture/alloc.o $(BUILD)/torture/unit.o
$(TORTURE_O): $(BUILD)/torture/%.o: tests/torture/%.c tests/torture/alloc.h | deps
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fno-builtin -c -o $@ $<
UNIT_TORTURE_NOW = $(if $(UNIT),$(UNIT:%=$(BUILD)/unit-torture/%),$(UNIT_TORTURE))
define unit_torture_rules
$$(TEST_$(1):$$(BUILD)/unit/%=$$(BUILD)/unit-torture/%): $$(BUILD)/unit-torture/%: tests/unit/%.c \
		tests/torture/steady.h $(TORTURE_O) $$(call libs,$(1)) | deps
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CPPFLAGS) $$(PKG_CFLAGS) $$(CFLAGS) -include tests/torture/steady.h -c -o $$@.o $$<
	$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) -Wl,--wrap=_cmocka_run_group_tests -o $$@ $$@.o $(TORTURE_O) \
		$$(call libs,$(1)) -lcmocka $$(PKG_LIBS)
endef
$(foreach l,$(UNIT_TORTURE_LAYERS),$(eval $(call unit_torture_rules,$(l))))

# Scenarios in which every allocation fails, OpenSSL's too, and nothing may be left behind.
# LEAK_SECONDS bounds them all (0: every allocation).
LEAK_SECONDS ?= 40
LEAKS = $(BUILD)/torture/leaks
$(LEAKS): $(wildcard tests/torture/leaks*.[ch]) $(BUILD)/torture/alloc.o $(call libs,sandbox) | deps
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(wildcard tests/torture/leaks*.c) \
		$(BUILD)/torture/alloc.o $(call libs,sandbox) $(PKG_LIBS)

.PHONY: unit-torture unit-torture-build unit-torture-run leaks leaks-run
unit-torture-build: $(UNIT_TORTURE) $(LEAKS)
unit-torture: test-deps
	@$(MAKE) --no-print-directory BUILD=build-asan OPT="$(ASAN)" unit-torture-run \
		$(if $(UNIT),,leaks-run)
unit-torture-run: $(UNIT_TORTURE_NOW)
	@printf '%s\n' $(UNIT_TORTURE_NOW) | TORTURE_PER_TEST=$(PER_TEST) UBSAN_OPTIONS=print_stacktrace=1 \
		ASAN_OPTIONS= xargs -P $(JOBS_TORTURE) -n 1 nice -n 10
leaks: test-deps
	@$(MAKE) --no-print-directory BUILD=build-asan OPT="$(ASAN)" leaks-run
leaks-run: $(LEAKS)
	@ASAN_OPTIONS=detect_leaks=1:leak_check_at_exit=0 UBSAN_OPTIONS=print_stacktrace=1 \
		$(LEAKS) $(LEAK_SECONDS) $(LEAK)

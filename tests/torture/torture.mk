# Failing system calls and failing allocations (tests/README.md, "Torture").
#   make torture               a sample of the system calls of a running stile, each made to fail
#   make torture FULL=1        every call; SECONDS=60 stops after that long
#   make torture-asan          the same under AddressSanitizer

FULL    ?=
SECONDS ?= 0
TFLAGS  ?=
TORTURE_SO  = $(BUILD)/torture/fail.so
IS_ASAN     = $(findstring -fsanitize=address,$(OPT))

$(TORTURE_SO): tests/torture/fail.c tests/torture/fail.h
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(CPPFLAGS) -std=c17 -O1 -g -Wall -Wextra -Werror -fPIC -shared -o $@ $< -ldl

.PHONY: torture torture-asan
torture: test-deps all $(TORTURE_SO)
	@STILE=$(abspath $(BUILD)/stile) FAIL=$(abspath $(TORTURE_SO)) \
		LIBASAN=$(if $(IS_ASAN),$(shell $(CC) -print-file-name=libasan.so)) \
		$(PYTHON) tests/torture/run.py $(if $(FULL),--full) --seconds $(SECONDS) $(TFLAGS)
torture-asan:
	@ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:quarantine_size_mb=4 UBSAN_OPTIONS=print_stacktrace=1 \
		$(MAKE) --no-print-directory BUILD=build-asan OPT="$(ASAN)" torture

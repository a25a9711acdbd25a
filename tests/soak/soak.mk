# The soak: the real binary under mixed traffic and faults, for minutes (tests/soak/README.md).
#   make soak MINUTES=10            the plain build
#   make soak MINUTES=10 SAN=asan   or SAN=tsan: under a sanitizer
#   make soak SEED=1234             the faults of an earlier run
#   make soak-prove                 the soak finds what is broken on purpose

MINUTES ?= 10
SAN     ?=
SEED    ?=
SOAK_RUN = STILE=$(abspath $(if $(SAN),build-$(SAN),$(BUILD))/stile) $(PYTHON) tests/soak/run.py \
           $(if $(SEED),--seed $(SEED))
SOAK_OPT_asan = BUILD=build-asan OPT="$(ASAN)"
SOAK_OPT_tsan = BUILD=build-tsan OPT="$(TSAN)"
SOAK_ENV = ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:quarantine_size_mb=4 UBSAN_OPTIONS=print_stacktrace=1 \
           TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1:suppressions=$(abspath tests/tsan.supp)

.PHONY: soak soak-prove
soak: test-deps
	@$(MAKE) --no-print-directory $(SOAK_OPT_$(SAN)) all
	@$(if $(SAN),$(SOAK_ENV)) $(SOAK_RUN) --minutes $(MINUTES)
soak-prove: test-deps
	@$(MAKE) --no-print-directory all
	@set -e; for what in memory descriptor term log; do $(SOAK_RUN) --minutes 1 --prove $$what; done

# stile: build, test, install. `make help` lists the targets.
# Each layer becomes a static library, and a test links only against its own layer and those below,
# so an arrow that points up does not link.

PREFIX  ?= /usr/local
DESTDIR ?=
BUILD   ?= build
CC      ?= cc
VERSION := 0.1.0

PKGS     := libevent_core libevent_pthreads openssl yaml-0.1 libcares libnghttp2 jansson libseccomp
CPPFLAGS += -I. -D_GNU_SOURCE -DSTILE_VERSION='"$(VERSION)"'
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
            -Wpointer-arith -Wwrite-strings -Wswitch-enum -Wformat=2 -Wundef -Werror
HARDEN   := -fstack-protector-strong -fstack-clash-protection -fPIE -fno-strict-overflow
OPT      ?= -O2 -g -D_FORTIFY_SOURCE=2
CFLAGS   += -std=c17 $(OPT) $(WARN) $(HARDEN) -pthread
LDFLAGS  += -pie -Wl,-z,relro,-z,now,-z,noexecstack -pthread
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS   = $(shell pkg-config --libs $(PKGS) 2>/dev/null)

# The layers, lowest first. LINK_x is what a test of layer x may see: x and the layers below it.
LAYERS := logging policy certs net http credentials session sandbox cli
DIR_logging := logging
DIR_policy  := policy
DIR_certs   := certs
$(foreach l,net http credentials session sandbox cli,$(eval DIR_$(l) := proxy/$(l)))
LINK_logging     := logging
LINK_policy      := policy logging
LINK_certs       := certs logging
LINK_net         := net policy certs logging
LINK_http        := http net policy certs logging
LINK_credentials := credentials http net policy certs logging
LINK_session     := session credentials http net policy certs logging
LINK_sandbox     := sandbox session credentials http net policy certs logging
LINK_cli         := cli sandbox session credentials http net policy certs logging

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
.PHONY: deps
deps:
	@sh tests/install-deps.sh build

.PHONY: unit
unit: $(UNIT_TESTS)
	@set -e; for t in $(UNIT_TESTS); do echo "== $$t"; $$t; done

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

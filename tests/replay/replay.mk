# Replay: scenarios over a fake network, resolver, clock and log (tests/replay/README.md).
#   make replay                every scenario, and the moves between states that they made
#   make replay R="retry" RFLAGS=-v    those whose name has "retry" in it, traced
#   make replay-torture        every scenario again for each allocation, which then fails
#   make connection-fuzz TIME=60       whole connections from random bytes, on the same network

R          ?=
RFLAGS     ?= -m
REPLAY_BUILD := build-asan
REPLAY_MAKE = $(MAKE) --no-print-directory BUILD=$(REPLAY_BUILD) OPT="$(ASAN)"

# What the fakes replace is left out: of proxy/net only what stands above sockets and time is real.
REPLAY_NET := stream stream_tls stream_relay pool listener_counts pass_fd poll_again name_map dns_message
REPLAY_OBJ  = $(patsubst tests/%.c,$(BUILD)/tests/%.o,$(filter-out tests/replay/replay.c \
              tests/replay/scenario.c,$(wildcard tests/replay/*.c)))
REPLAY_LIBS = $(REPLAY_NET:%=$(BUILD)/proxy/net/%.o) $(BUILD)/libsession.a $(BUILD)/libstate.a \
              $(BUILD)/libkeeper.a $(BUILD)/libcredentials.a $(BUILD)/libhttp.a $(BUILD)/libcerts.a \
              $(BUILD)/libpolicy.a $(BUILD)/logging/port.o $(BUILD)/liblogging.a
REPLAY_WRAP := malloc calloc realloc free strdup recv send sendmsg shutdown setsockopt close
REPLAY_LD   := $(REPLAY_WRAP:%=-Wl,--wrap=%)

$(BUILD)/replay: $(BUILD)/tests/replay/replay.o $(BUILD)/tests/replay/scenario.o $(REPLAY_OBJ) \
		$(REPLAY_LIBS)
	@echo "  LD $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(REPLAY_LD) -o $@ $^ $(PKG_LIBS)

.PHONY: replay replay-torture connection-fuzz
replay:
	@+$(REPLAY_MAKE) $(REPLAY_BUILD)/replay
	@$(REPLAY_BUILD)/replay $(RFLAGS) -n "$(R)" tests/replay/scenarios/*.txt
replay-torture:
	@+$(REPLAY_MAKE) $(REPLAY_BUILD)/replay
	@nice -n 10 $(REPLAY_BUILD)/replay -t -n "$(R)" tests/replay/scenarios/*.txt

# The fuzz target of whole connections: built by tests/fuzz/fuzz.mk with the fakes beside it.
FUZZ_LINK_connection = $(REPLAY_OBJ) $(REPLAY_LIBS)
$(BUILD)/fuzz/connection: LDFLAGS += $(REPLAY_LD)
connection-fuzz:
	@$(MAKE) --no-print-directory fuzz FUZZ=connection

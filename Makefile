# sparring - `make help` lists what you can do. No configure step: what the machine lacks is left
# out, and the build says so.

CC     ?= cc
CFLAGS ?= -O2 -g
O      ?= build

WARN  = -Wall -Wextra -Wconversion -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Werror
FLAGS = -std=gnu11 -D_GNU_SOURCE -I. -Iinclude -fPIC -fvisibility=hidden $(WARN) $(SAN) -MMD -MP $(CFLAGS)
LIBS  = -lzstd -luring -pthread

LIB_DIRS = base shm transport collector encoder
LIB_OBJS = $(patsubst %.c,$(O)/%.o,$(wildcard $(LIB_DIRS:=/*.c)))
# What a sender alone needs; lives in other people's processes.
WRITER_OBJS = $(filter $(O)/base/sys.o $(O)/base/error.o $(O)/base/clock_now.o $(O)/base/kinds_find.o \
                       $(O)/shm/writer%.o $(O)/transport/producer.o,$(LIB_OBJS))
TESTS = $(patsubst %.c,$(O)/%,$(wildcard tests/*_test.c))


# bench/NAME.c with a main() becomes build/bench/NAME; the rest of bench/ is shared by all of them.
BENCH_SHARED = $(patsubst %,$(O)/bench/%.o,stats report harness rig floors yardstick peers)
BENCHES = $(patsubst %.c,$(O)/%,$(wildcard $(patsubst %,bench/%.c,ring wake take attach embedded \
                                                                  backlog encode trace spy)))

Q = $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' $(1) $(2))

## all: the libraries, the command, the spies
all: $(O)/libsparring.a $(O)/libsparring-writer.a

$(O)/libsparring.a: $(LIB_OBJS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(O)/libsparring-writer.a: $(WRITER_OBJS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(O)/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(FLAGS) -c -o $@ $<

$(O)/tests/%_test: $(O)/tests/%_test.o $(O)/libsparring.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(SAN) -o $@ $^ -lcmocka $(LIBS)

$(O)/bench/%: $(O)/bench/%.o $(BENCH_SHARED) $(O)/libsparring.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(SAN) -o $@ $^ $(LIBS) -lm

$(O)/tests/bench_stats_test: $(O)/bench/stats.o
$(O)/tests/bench_stats_test: LIBS += -lm

## bench: every question of bench/, about two minutes; fails if a row could not be measured
bench: all $(BENCHES)
	$(Q)failed=; for b in $(BENCHES); do $$b $(BENCH_FLAGS) || failed="$$failed $$b"; done; \
	    [ -z "$$failed" ] || { echo "could not measure all of:$$failed" >&2; exit 1; }

## help: this list
help:
	@sed -n 's/^## \([^:]*\): /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

## clean: remove build/
clean: ; rm -rf $(O)

.PHONY: all bench help clean
.DELETE_ON_ERROR:
-include $(wildcard $(O)/*/*.d)
.SECONDARY:

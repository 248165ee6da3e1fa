# sparring - `make help` lists what you can do. No configure step: what the machine lacks is left
# out, and the build says so. Everything is built into $(O); V=1 shows the commands.

CC     ?= cc
AR     ?= ar
LD     ?= ld
NM     ?= nm
OBJCOPY ?= objcopy
CFLAGS ?= -O2 -g
O      ?= build
PREFIX ?= /usr/local
S      ?= 60
T      ?=

VERSION := $(shell sed -n 's/^\#define SPR_VERSION_M[AJINOR]* \([0-9]*\)$$/\1/p' \
             include/sparring/sparring.h | paste -sd.)
SOVERSION := $(firstword $(subst ., ,$(VERSION)))

# --- What the machine has. Asked of the compiler, so that nothing else need be installed ---------
have = $(shell printf '\#include <$(1)>\n' | $(CC) -E -x c - >/dev/null 2>&1 && echo 1)
WITH_ZSTD   ?= $(call have,zstd.h)
WITH_URING  ?= $(call have,liburing.h)
WITH_CMOCKA ?= $(call have,setjmp.h>\n\#include <stdarg.h>\n\#include <stddef.h>\n\#include <stdint.h>\n\#include <cmocka.h)
MULTIARCH   := $(shell $(CC) -print-multiarch 2>/dev/null)
# What the dynamic linker puts for $LIB in LD_PRELOAD; the spies lie in $(O)/$LIB.
DST_LIB     := $(if $(MULTIARCH),lib/$(MULTIARCH),lib64)

# --- Flags ----------------------------------------------------------------------------------------
WARN  = -Wall -Wextra -Wconversion -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Werror
BASIC = -std=gnu11 -D_GNU_SOURCE -I. -Iinclude $(WARN) $(if $(WITH_URING),,-DSPR_NO_URING)
FLAGS = $(BASIC) -fPIC -fvisibility=hidden $(SAN) -MMD -MP $(CFLAGS)
# Code in other people's processes: nothing exported, no sanitizer, no TLS that could allocate.
HIDE  = '-DSPR_API=__attribute__((visibility("hidden")))'
INSIDE = $(BASIC) -fPIC -fvisibility=hidden $(HIDE) -ftls-model=initial-exec -fno-stack-protector \
         -U_FORTIFY_SOURCE -MMD -MP $(if $(SAN),-O2 -g,$(CFLAGS))
LIBS  = $(if $(WITH_ZSTD),-lzstd) $(if $(WITH_URING),-luring) -pthread

# --- What is built from what ----------------------------------------------------------------------
LIB_DIRS = base shm transport collector $(if $(WITH_ZSTD),encoder)
LIB_OBJS = $(patsubst %.c,$(O)/%.o,$(wildcard $(LIB_DIRS:=/*.c)))
# What a sender alone needs; lives in other people's processes.
WRITER_SRC = $(wildcard base/sys.c base/error.c base/clock_now.c base/kinds_find.c shm/writer*.c \
                        transport/producer.c)
WRITER_OBJS = $(WRITER_SRC:%.c=$(O)/inside/%.o)
# What else a spy may take from the library: declarations of kinds, and base/ without its threads.
SPY_BASE = $(patsubst %.c,$(O)/inside/%.o,$(wildcard base/sys.c base/kinds_spies.c base/error.c))
# spy/files*.c live in the target, spy/program.c on both sides, the rest of spy/ in the command.
SPY_INSIDE = $(wildcard spy/files*.c)
SPY_OBJS = $(patsubst %.c,$(O)/inside/%.o,$(SPY_INSIDE) $(if $(SPY_INSIDE),$(wildcard spy/program.c)))
CLI_OBJS = $(patsubst %.c,$(O)/%.o,$(wildcard cli/*.c) $(filter-out $(SPY_INSIDE),$(wildcard spy/*.c)))
TESTS    = $(patsubst %.c,$(O)/%,$(wildcard tests/*_test.c))
TEST_HELP = $(patsubst %.c,$(O)/%.o,$(filter-out %_test.c $(if $(WITH_ZSTD),,tests/trace_support.c), \
              $(wildcard tests/*.c)))
TARGETS  = $(patsubst %.c,$(O)/%,$(wildcard tests/targets/*.c))
EXAMPLES = $(patsubst %.c,$(O)/%,$(wildcard examples/*.c))
# bench/NAME.c with a main() becomes build/bench/NAME; the rest of bench/ is shared by all of them.
BENCH_MAINS = $(shell grep -ls '^int main\b' bench/*.c)
BENCHES  = $(BENCH_MAINS:%.c=$(O)/%)
BENCH_HELP = $(patsubst %.c,$(O)/%.o,$(filter-out $(BENCH_MAINS),$(wildcard bench/*.c)))

SPY      = $(if $(SPY_OBJS),$(O)/$(DST_LIB)/libsparring-files.so)
# An object of the other class that does nothing: a 32-bit program of the tree loads it in silence.
STUB     = $(if $(and $(SPY),$(filter x86_64%,$(MULTIARCH))),$(O)/lib/i386-linux-gnu/libsparring-files.so)
SPARRING = $(if $(and $(wildcard cli/main.c),$(WITH_ZSTD)),$(O)/sparring)

Q = $(if $(V),,@)
say = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),,@printf '  %-6s %s\n' $(1) $(2))

## all: the libraries, the command, the spies
all: $(O)/libsparring.a $(O)/libsparring.so $(O)/libsparring-writer.a $(SPARRING) $(SPY) $(STUB) \
     left-out

left-out:
ifeq ($(WITH_ZSTD),)
	@echo "left out: encoder, trace, the command (no zstd.h; make deps installs libzstd-dev)"
endif
ifeq ($(WITH_URING),)
	@echo "left out: the io_uring collector (no liburing.h; make deps installs liburing-dev)"
endif

# Files that change only when their text does: what is built again when flags or lists are others.
define stamp
	$(Q)mkdir -p $(@D) && printf '%s\n' '$(subst ','\'',$(1))' | cmp -s - $@ || \
	  printf '%s\n' '$(subst ','\'',$(1))' >$@
endef
$(O)/flags: FORCE
	$(call stamp,$(CC) $(FLAGS) $(INSIDE))
$(O)/sources: FORCE
	$(call stamp,$(LIB_OBJS) $(WRITER_OBJS) $(CLI_OBJS) $(SPY_OBJS))

$(O)/%.o: %.c $(O)/flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(FLAGS) -c -o $@ $<

$(O)/inside/%.o: %.c $(O)/flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(INSIDE) -c -o $@ $<

$(O)/libsparring.a: $(LIB_OBJS) $(O)/sources
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(LIB_OBJS)

$(O)/libsparring.map: include/symbols.txt
	$(Q)mkdir -p $(@D) && { echo 'SPARRING_$(VERSION) { global:'; sed '/^#/d; /^$$/d; s/$$/;/' $<; \
	  echo 'local: *; };'; } >$@

$(O)/libsparring.so.$(VERSION): $(LIB_OBJS) $(O)/libsparring.map $(O)/sources
	$(call say,LINK,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) -shared -Wl,-soname,libsparring.so.$(SOVERSION) \
	  -Wl,--version-script=$(O)/libsparring.map $(if $(SAN),,-Wl,-z,defs) -o $@ $(LIB_OBJS) $(LIBS)

$(O)/libsparring.so: $(O)/libsparring.so.$(VERSION)
	$(Q)ln -sf $(<F) $(O)/libsparring.so.$(SOVERSION) && ln -sf libsparring.so.$(SOVERSION) $@

# One object, in which only the sender's calls can be linked to, and those are hidden.
$(O)/libsparring-writer.a: $(WRITER_OBJS) include/writer-symbols.txt $(O)/sources
	$(call say,AR,$@)
	$(Q)$(LD) -r -o $(O)/inside/writer.o $(WRITER_OBJS)
	$(Q)sed '/^#/d; /^$$/d' include/writer-symbols.txt >$(O)/inside/writer.keep
	$(Q)$(OBJCOPY) --keep-global-symbols=$(O)/inside/writer.keep $(O)/inside/writer.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(O)/inside/writer.o

$(O)/inside/libbase.a: $(SPY_BASE)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# What it exports is what the table of watched calls names, no more. Every process of a target maps
# it: two segments instead of four, and nothing to protect afterwards.
$(O)/spy.map: spy/exports.h base/calls.h
	$(Q)mkdir -p $(@D) && $(CC) -E -P -I. -x c spy/exports.h | sed -n '/^{ global/,$$p' >$@

$(SPY): $(SPY_OBJS) $(O)/libsparring-writer.a $(O)/inside/libbase.a $(O)/spy.map $(O)/sources
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -shared -nostdlib -Wl,-soname,libsparring-files.so \
	  -Wl,-z,now -Wl,-z,defs -Wl,-z,initfirst \
	  -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,-Bsymbolic-functions \
	  -Wl,--version-script=$(O)/spy.map -o $@ $(SPY_OBJS) \
	  $(O)/libsparring-writer.a $(O)/inside/libbase.a

$(STUB):
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && { $(CC) -m32 -shared -nostdlib -Wl,-soname,libsparring-files.so -o $@ \
	  -x c /dev/null 2>/dev/null || echo "left out: the silent i386 stub (no $(CC) -m32)"; }

$(O)/sparring: $(CLI_OBJS) $(O)/libsparring.a $(O)/sources
	$(call say,LINK,$@)
	$(Q)$(CC) $(SAN) $(CFLAGS) -o $@ $(CLI_OBJS) $(O)/libsparring.a $(LIBS)

$(O)/tests/%_test: $(O)/tests/%_test.o $(TEST_HELP) $(O)/libsparring.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(SAN) -o $@ $(filter %.o,$^) $(O)/libsparring.a \
	  $(if $(filter small,$(WITH_CMOCKA)),,-lcmocka) $(LIBS) -lm
# A test that looks inside a program names the objects it needs.
$(O)/tests/spy_test $(O)/tests/spy_calls_test: $(O)/spy/supervise.o $(O)/spy/program.o
$(O)/tests/bench_stats_test: $(O)/bench/stats.o
$(O)/tests/cli_values_test: $(patsubst %,$(O)/cli/%.o,value json say input part progress)
$(O)/tests/cli_watch_test: $(patsubst %,$(O)/cli/%.o,watch value json say input part progress)
$(O)/tests/bench_harness_test: $(patsubst %,$(O)/bench/%.o,harness report stats)

# Programs that tests record or kill: plain, no sanitizer; NAME_static is linked statically.
$(O)/tests/targets/%: tests/targets/%.c
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(BASIC) $(CFLAGS) -o $@ $< -pthread
$(O)/tests/targets/%_static: tests/targets/%_static.c
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(BASIC) $(CFLAGS) -static -o $@ $< -pthread

# As a user would build them: the public header, the library, nothing else.
$(O)/examples/%: examples/%.c $(O)/libsparring.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) -std=c11 -Wall -Wextra -Werror -Iinclude $(SAN) $(CFLAGS) -o $@ $< \
	  $(O)/libsparring.a $(LIBS)

$(O)/bench/%: $(O)/bench/%.o $(BENCH_HELP) $(O)/libsparring.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(SAN) -o $@ $< $(BENCH_HELP) $(O)/libsparring.a $(LIBS) -lm

# What benches start by the hundred, and what they preload.
BENCH_TARGETS = $(O)/bench/client $(O)/bench/libnothing.so
$(O)/bench/client: $(O)/bench/targets/client.o $(O)/bench/yardstick.o $(O)/libsparring-writer.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(SAN) -o $@ $^

$(O)/bench/libnothing.so: $(O)/bench/targets/nothing.o
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -shared -o $@ $^

## deps: installs with apt what is missing here to build and test (Debian 12; asks nothing)
deps:
	$(Q)tests/deps.sh $(DEPS)

## deps-all: the same for every other target too: tidy, fuzz, model, musl, aarch64
deps-all:
	$(Q)tests/deps.sh --all

## demo: builds, records a real compile, shows the summary and ten records
demo: deps
	$(Q)$(MAKE) --no-print-directory all && examples/demo.sh $(O)

test-programs: all $(TESTS) $(TARGETS) $(EXAMPLES) $(if $(SAN),,$(if $(shell command -v musl-gcc),musl))
ifeq ($(WITH_CMOCKA),)
	@echo "no cmocka.h: make deps installs libcmocka-dev" >&2; exit 1
endif

## test: every test, as root also as an ordinary user; what CI runs
test: deps
	$(Q)$(MAKE) --no-print-directory test-programs && tests/run.sh -o $(O)

## test-long: the same with the hours that some tests can use
test-long: deps
	$(Q)$(MAKE) --no-print-directory test-programs && \
	  SPARRING_TEST_LONG=1 TEST_TIMEOUT=7200 tests/run.sh -o $(O)

## asan: every test again under AddressSanitizer and UBSan, in a build folder of its own
asan: SAN_FLAGS = -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined
asan: sanitized
## tsan: every test again under ThreadSanitizer
# TSan does not know fences; the accesses around them stay visible to it.
tsan: SAN_FLAGS = -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan
tsan: sanitized
## ubsan: every test again under UBSan alone, at full speed
ubsan: SAN_FLAGS = -fsanitize=undefined -fno-sanitize-recover=undefined
ubsan: sanitized
sanitized:
	$(Q)$(MAKE) --no-print-directory O=$(O)/$(MAKECMDGOALS) CFLAGS='-O1 -g' SAN='$(SAN_FLAGS)' \
	  test-programs
	$(Q)ASAN_OPTIONS=detect_stack_use_after_return=0 TSAN_OPTIONS=report_thread_leaks=0 \
	  tests/run.sh -1 -o $(O)/$(MAKECMDGOALS) \
	  -s $(MAKECMDGOALS)

## tidy: what a compiler can't check: layers, lengths, memory-order pairs; then clang-tidy
tidy: $(O)/libsparring.so
	$(Q)tests/tidy.sh && tests/symbols.sh $(O) && tests/lint.sh '$(CC) $(BASIC)'

## format: reflows what is wider than 100 columns (needs clang-format)
format:
	$(Q)tests/format.sh

## bench: every question of bench/, three to four minutes; fails if a row could not be measured
bench: all $(BENCHES) $(BENCH_TARGETS)
	$(Q)failed=; for b in $(BENCHES); do $$b $(BENCH_FLAGS) || failed="$$failed $$b"; done; \
	  [ -z "$$failed" ] || { echo "could not measure all of:$$failed" >&2; exit 1; }

## fuzz: T=NAME S=SECONDS: one libFuzzer target, or every one, for so long (needs clang)
fuzz:
	$(Q)FUZZ_FLAGS='$(filter-out -MMD -MP,$(BASIC))' FUZZ_LIBS='$(LIBS)' \
	  tests/fuzz/run.sh $(O)/fuzz $(S) $(T)

## model: checks the Spin model of the ring, and that it finds the seeded faults
model:
	$(Q)if [ -x model/run.sh ]; then model/run.sh $(O)/model; else echo "no model/run.sh"; exit 1; fi

## musl: the sender's library with musl-gcc, and a static program that links it
musl:
	$(Q)$(MAKE) --no-print-directory O=$(O)/musl CC='musl-gcc -idirafter /usr/include \
	  -idirafter /usr/include/$(MULTIARCH)' WITH_ZSTD= WITH_URING= $(O)/musl/libsparring-writer.a

## aarch64: cross-compiles what needs no library of that machine; runs those tests under qemu
aarch64:
	$(Q)$(MAKE) --no-print-directory O=$(O)/aarch64 CC=aarch64-linux-gnu-gcc \
	  LD=aarch64-linux-gnu-ld AR=aarch64-linux-gnu-ar OBJCOPY=aarch64-linux-gnu-objcopy \
	  WITH_ZSTD= WITH_URING= WITH_CMOCKA=small CFLAGS='-O2 -g -Itests/small' SAN=-static \
	  $(O)/aarch64/libsparring.a $(O)/aarch64/libsparring-writer.a \
	  $(FOREIGN_TESTS:%=$(O)/aarch64/tests/%)
	$(Q)if command -v qemu-aarch64 >/dev/null; then \
	  EMULATOR=qemu-aarch64 tests/run.sh -1 -o $(O)/aarch64 -s aarch64 $(FOREIGN_TESTS); \
	else echo "left out: running them (no qemu-aarch64; make deps-all installs qemu-user)"; fi
FOREIGN_TESTS = $(patsubst tests/%.c,%,$(wildcard $(patsubst %,tests/%_test.c,error options atomic \
                  escape clock kinds place probe collector ring_*)))

## install: into PREFIX (/usr/local), under DESTDIR if given
install: all
	$(Q)tests/install.sh install $(O) '$(DESTDIR)$(PREFIX)' '$(PREFIX)' '$(DST_LIB)' $(VERSION)

## uninstall: takes away what install put there
uninstall:
	$(Q)tests/install.sh uninstall $(O) '$(DESTDIR)$(PREFIX)' '$(PREFIX)' '$(DST_LIB)' $(VERSION)

## help: this list of targets
help:
	@sed -n 's/^## \([^:]*\): /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

## clean: removes the build folder
clean: ; rm -rf $(O)

FORCE:
.PHONY: all left-out deps deps-all demo test-programs test test-long asan tsan ubsan sanitized tidy \
        format bench fuzz model musl aarch64 install uninstall help clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(wildcard $(O)/*/*.d $(O)/*/targets/*.d $(O)/inside/*/*.d)

# SPDX-License-Identifier: Apache-2.0
#
# Variables that belong to the user:
#   CC CFLAGS CPPFLAGS LDFLAGS   compiler and flags; a change rebuilds
#   SAN=address,undefined        sanitizers (objects in a build folder of their own)
#   WERROR=1                     warnings are errors (as CI does)
#   DESTDIR PREFIX SBINDIR BINDIR MANDIR UNITDIR SYSCONFDIR   where install puts things
#   V=1                          show commands
#   ONLY='verity/*.c' TAG=x      for work in one folder: libvs.a from base/ and these
#                                only, in a build folder of its own (build/gcc-x)
# `make help` lists the targets.

comma := ,
PREFIX ?= /usr/local
SBINDIR ?= $(PREFIX)/sbin
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
DATADIR ?= $(PREFIX)/share/verity-snapshotter
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSCONFDIR ?= /etc
ifeq ($(origin CC),default)
CC := gcc
endif
CFLAGS ?= -O2 -g
PROTOC_C ?= protoc-c
CLANG ?= clang
CLANG_FORMAT ?= clang-format-14

VERSION := 0.1.0
B := build/$(notdir $(CC))$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(TAG),-$(TAG))
GEN := build/gen

PKGS := fuse3 libfsverity libcurl json-c libsystemd libnghttp2 libprotobuf-c sqlite3 libcrypto libisal zlib libzstd libmicrohttpd
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS))
PKG_LIBS := $(shell pkg-config --libs $(PKGS))

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
	-Wformat=2 -Wundef -Wpointer-arith -Wwrite-strings -Wimplicit-fallthrough \
	$(if $(WERROR),-Werror)
HARDEN := -fstack-protector-strong -fno-common -fvisibility=hidden -fPIE
LDHARDEN := -pie -Wl,-z,relro,-z,now
ifeq ($(SAN),)
HARDEN += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
else
SANFLAGS := -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=undefined -DLOCK_CHECK
endif
ALL_CPPFLAGS := -D_GNU_SOURCE -DVERSION='"$(VERSION)"' -DSYSCONFDIR='"$(SYSCONFDIR)"' \
	-I. -Isnapshotter -I$(GEN) $(PKG_CFLAGS) $(CPPFLAGS)
ALL_CFLAGS := -std=gnu17 -pthread $(WARN) $(HARDEN) $(SANFLAGS) $(CFLAGS)
ALL_LDFLAGS := -pthread $(LDHARDEN) $(SANFLAGS) $(LDFLAGS)

PROTO := $(wildcard proto/*.proto)
GEN_C := $(PROTO:proto/%.proto=$(GEN)/proto/%.pb-c.c)
GEN_H := $(GEN_C:.c=.h)
ALL_LIB_SRC := $(wildcard snapshotter/base/*.c verity/*.c fuse/*.c snapshotter/rpc/*.c snapshotter/formats/*.c snapshotter/*.c) \
	$(filter-out plugin/main.c plugin/verityctl.c,$(wildcard plugin/*.c))
LIB_SRC := $(if $(ONLY),$(wildcard snapshotter/base/*.c $(ONLY)),$(ALL_LIB_SRC))
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o) $(GEN_C:$(GEN)/%.c=$(B)/gen/%.o)
TEST_SRC := $(wildcard tests/unit/test_*.c)
TESTS := $(TEST_SRC:%.c=$(B)/%)
FUZZ_SRC := $(filter-out tests/fuzz/replay.c,$(wildcard tests/fuzz/fuzz_*.c))
REPLAYS := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=$(B)/tests/fuzz/replay_%)
FUZZERS := $(FUZZ_SRC:tests/fuzz/%.c=build/fuzz/%)
TOOL_SRC := $(wildcard tests/lib/*.c tests/bench/*.c)
TOOLS := $(TOOL_SRC:%.c=$(B)/%)

ifeq ($(V),1)
say =
Q :=
else
say = @printf '  %-6s %s\n' '$(1)' '$@';
Q := @
endif

.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:
.PHONY: all check check-guest lint demo bench bench-faults bench-seal bench-view install uninstall clean help fuzz tools unit-tests replays FORCE

all: $(B)/verity-snapshotter $(B)/verityctl ## build the daemon and verityctl
ifeq ($(SAN),)
	$(Q)ln -sfn $(notdir $(B))/verity-snapshotter build/verity-snapshotter
	$(Q)ln -sfn $(notdir $(B))/verityctl build/verityctl
endif

# Rewritten only when the text of the flags changes.
$(B)/.flags: FORCE
	$(Q)mkdir -p $(@D); t='$(subst ','\'',$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS))'; \
	[ "$$t" = "$$(cat $@ 2>/dev/null)" ] || printf '%s\n' "$$t" >$@

$(GEN)/proto/%.pb-c.c $(GEN)/proto/%.pb-c.h: proto/%.proto
	$(Q)mkdir -p $(GEN)/proto
	$(call say,PROTO)$(PROTOC_C) --proto_path=. --c_out=$(GEN) $<

$(B)/gen/%.o: $(GEN)/%.c $(B)/.flags
	$(Q)mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(B)/%.o: %.c $(B)/.flags | $(GEN_H)
	$(Q)mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The schema is SQL in a file of its own, and a string in the program.
$(B)/snapshotter/store.o: $(GEN)/schema.sql.h
$(GEN)/schema.sql.h: snapshotter/schema.sql
	$(Q)mkdir -p $(@D)
	$(call say,GEN){ echo 'static const char schema_sql[] ='; sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$$/\\n"/' $<; echo ';'; } >$@

$(B)/libvs.a: $(LIB_OBJ)
	$(call say,AR)rm -f $@ && ar rcs $@ $^

$(B)/verity-snapshotter: $(B)/plugin/main.o $(B)/libvs.a
	$(call say,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(B)/verityctl: $(B)/plugin/verityctl.o $(B)/libvs.a
	$(call say,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(B)/tests/unit/test_%: $(B)/tests/unit/test_%.o $(B)/libvs.a
	$(call say,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS) -lcmocka

$(B)/tests/fuzz/replay_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/replay.o $(B)/libvs.a
	$(call say,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(B)/tests/lib/%: $(B)/tests/lib/%.o $(B)/libvs.a
	$(call say,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(B)/tests/bench/%: $(B)/tests/bench/%.o $(B)/libvs.a
	$(call say,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

# libFuzzer wants clang, and every object with its coverage: a library of its
# own, built by this Makefile with these flags.
FUZZ_SAN := fuzzer-no-link,address,undefined
FUZZ_B := build/$(notdir $(CLANG))-$(subst $(comma),-,$(FUZZ_SAN))
build/fuzz/%: $(FUZZ_B)/tests/fuzz/%.o $(FUZZ_B)/libvs.a
	$(Q)mkdir -p $(@D)
	$(call say,FUZZ)$(CLANG) -pthread -fsanitize=fuzzer,address,undefined -o $@ $^ $(PKG_LIBS)

ifneq ($(SAN),$(FUZZ_SAN))
$(FUZZ_B)/libvs.a $(FUZZ_SRC:%.c=$(FUZZ_B)/%.o): FORCE
	$(Q)$(MAKE) --no-print-directory CC='$(CLANG)' SAN='$(FUZZ_SAN)' CFLAGS='-g -O1' $@
endif

tools: $(TOOLS)
unit-tests: $(TESTS)
replays: $(REPLAYS)

check: all $(TESTS) $(REPLAYS) ## unit tests and corpus replay (tests/run.sh runs everything)
	$(Q)B=$(B) tests/check.sh

check-guest: ## the tests that need fs-verity, on a kernel built for them (run as root)
	$(Q)tests/run.sh guest

fuzz: $(FUZZERS) ## run every fuzzer for FUZZ_SECONDS (20) each
	$(Q)tests/fuzz/run.sh build/fuzz

lint: $(GEN_H) $(GEN)/schema.sql.h ## formatting, folder direction, banned calls, size caps, shellcheck
	$(Q)CC='$(CC)' CPPFLAGS='$(ALL_CPPFLAGS)' CLANG_FORMAT='$(CLANG_FORMAT)' tests/lint/run.sh

demo: ## a lazy pull and run of a real image, in namespaces of its own
	$(Q)bash deploy/demo.sh

bench: all tools ## the figures of the README, into build/bench.tsv
	$(Q)bash tests/bench/run.sh

bench-faults: all tools ## beside silent registries and fills, into build/bench-faults.tsv
	$(Q)bash tests/bench/run.sh faults

bench-seal: all tools ## what sealing costs and the page cache keeps, into build/bench-seal.tsv
	$(Q)bash tests/bench/run.sh sealing

bench-view: all tools ## reads of complete files, into build/bench-view.tsv
	$(Q)bash tests/bench/run.sh view

install: all ## install below DESTDIR and PREFIX
	$(Q)DESTDIR='$(DESTDIR)' B='$(B)' SBINDIR='$(SBINDIR)' BINDIR='$(BINDIR)' MANDIR='$(MANDIR)' DATADIR='$(DATADIR)' \
		UNITDIR='$(UNITDIR)' SYSCONFDIR='$(SYSCONFDIR)' sh deploy/install.sh install

uninstall: ## remove all that install put there
	$(Q)DESTDIR='$(DESTDIR)' B='$(B)' SBINDIR='$(SBINDIR)' BINDIR='$(BINDIR)' MANDIR='$(MANDIR)' DATADIR='$(DATADIR)' \
		UNITDIR='$(UNITDIR)' SYSCONFDIR='$(SYSCONFDIR)' sh deploy/install.sh uninstall

clean: ## remove build/
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | sort | expand -t 14

-include $(LIB_OBJ:.o=.d) $(B)/plugin/main.d $(B)/plugin/verityctl.d $(TESTS:=.d) $(TOOLS:=.d) $(FUZZ_SRC:%.c=$(B)/%.d) $(B)/tests/fuzz/replay.d

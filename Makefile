# pillion: `make` builds, `make demo` shows a comparison, `make test` runs all checks and tests.

CARGO ?= cargo
BPF := $(wildcard bpf/*/*.c bpf/*/*.h bpf/*/*/*.h include/*.h lab-kernel/*.c tests/src/*.bpf.c)

.PHONY: all setup demo lab-kernel test referee truth corpus soak storm inside sanitize kernels kernels-fetch kernels-accept kernels-table packages-test check format bench man pages book dist static reproducible deb rpm install uninstall clean

all: setup
	$(CARGO) build --release

setup:
	@scripts/setup

demo: setup
	$(CARGO) build --release --package pillion-lab --bins
	target/release/pillion-lab demo $(DEMO)

lab-kernel:
	@scripts/setup lab-kernel $(filter --source,$(LAB_KERNEL))
	@lab-kernel/build $(LAB_KERNEL)

test: setup check
	@if scripts/setup lab-kernel; then lab-kernel/build; else echo 'skipped: tests in the lab kernel'; fi
	@command -v chromium > /dev/null || echo 'skipped without chromium: tests of pages in a browser'
	@if command -v python3 > /dev/null; then tests/corpus/self_test; else echo 'skipped without python3: tests/corpus'; fi
	@[ "$$(id -u)" -eq 0 ] || echo 'skipped without root: tests/wire, tests/netns and tests of the path'
	scripts/count-tests $(CARGO) test --workspace --quiet --no-fail-fast -- --show-output

# Plays games for MINUTES (default 10), starting at SEED; MINUTES=0 plays ten games.
referee: setup
	PILLION_REFEREE_MINUTES=$(or $(MINUTES),10) $(if $(SEED),PILLION_REFEREE_SEED=$(SEED)) \
		$(CARGO) test -p pillion-lab --test virtual referee:: -- --nocapture

# Analyses trace pairs for MINUTES (default 10), starting at SEED; MINUTES=0 does one complete pair.
truth: setup
	PILLION_TRUTH_MINUTES=$(or $(MINUTES),10) PILLION_TRUTH_SEED=$(or $(SEED),1) \
		$(CARGO) test --release -p pillion-trace --test traces truth:: -- --nocapture

# Compares `pillion-lab analyse` with tshark and tcptrace on public captures, which it fetches.
corpus: setup
	$(CARGO) build --release -p pillion-lab --bins
	tests/corpus/run

# An hour has 10,000 connections and 1,000 attachments, which SEED determines.
soak: setup
	$(CARGO) build -p pillion-lab --bins
	PILLION_SOAK_MINUTES=$(or $(MINUTES),60) PILLION_SOAK_SEED=$(or $(SEED),1) \
		$(CARGO) test -p pillion --test netns soak:: -- --nocapture

# The same, faster, while devices and namespaces are added and removed all the time.
storm: setup
	$(CARGO) build -p pillion-lab --bins
	PILLION_STORM_MINUTES=$(or $(MINUTES),10) PILLION_SOAK_SEED=$(or $(SEED),1) \
		$(CARGO) test -p pillion --test netns soak:: -- --nocapture

# Tests that normally use this host's kernel, in the lab kernel.
IN_KERNEL := $(CARGO) test --release --config "target.'cfg(all())'.runner=['$(CURDIR)/scripts/inside']"
inside: all
	$(IN_KERNEL) -p pillion-tests --test wire
	$(IN_KERNEL) -p pillion --test netns

# The same and the referee's games, in a lab kernel with sanitizers (KASAN, UBSAN, lockdep).
sanitize: setup
	@$(MAKE) --no-print-directory lab-kernel LAB_KERNEL=--sanitize
	$(CARGO) test --release -p pillion-lab --test virtual sanitizers::
	PILLION_LAB_KERNEL=sanitizing $(MAKE) --no-print-directory inside
	PILLION_LAB_KERNEL=sanitizing $(CARGO) test --release -p pillion-lab --test virtual referee::

# Tests on distributions' stock kernels in a machine emulator: all, or a list as in KERNELS='6.1 newest'.
kernels: setup
	@scripts/setup kernels
	$(CARGO) run --quiet --package pillion-kernels -- run $(KERNELS)

kernels-fetch:
	@scripts/setup kernels
	$(CARGO) run --quiet --package pillion-kernels -- fetch $(KERNELS)

kernels-accept:
	$(CARGO) run --quiet --package pillion-kernels -- accept

kernels-table:
	$(CARGO) run --quiet --package pillion-kernels -- table

# Tests the packages of `make deb` and `make rpm` in a clean Debian.
packages-test:
	tests/packages/run

check:
	clang-format --dry-run --Werror $(BPF)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	scripts/book
	scripts/size
	scripts/words
	@if command -v promtool > /dev/null; then cd packaging/prometheus && promtool test rules alerts-test.yaml; \
	else echo 'skipped without promtool: the alerts of packaging/prometheus'; fi

format:
	clang-format -i $(BPF)
	$(CARGO) fmt --all

bench: setup
	$(CARGO) build --release -p pillion-lab --bins
	$(CARGO) bench --workspace --benches

# The binaries generate manual pages, completions and the default rules file.
BIN = target/$(PROFILE)/pillion
LAB = $(BIN)-lab
PROFILE ?= release
man: all
	@$(MAKE) --no-print-directory pages

pages:
	rm -rf target/pages && mkdir -p target/pages/lab
	$(BIN) man target/pages
	$(BIN) config example > target/pages/pillion.toml
	$(BIN) completions bash > target/pages/pillion.bash
	$(BIN) completions zsh > target/pages/_pillion
	$(BIN) completions fish > target/pages/pillion.fish
	$(LAB) man target/pages/lab
	$(LAB) completions bash > target/pages/lab/pillion-lab.bash
	$(LAB) completions zsh > target/pages/lab/_pillion-lab
	$(LAB) completions fish > target/pages/lab/pillion-lab.fish
	scripts/deb-changelog > target/pages/changelog
	scripts/deb-copyright pillion > target/pages/copyright
	scripts/deb-copyright pillion-lab > target/pages/lab/copyright

# Builds the README and docs/ as a site: target/book/index.html.
book:
	@command -v mdbook > /dev/null || { echo 'book: mdbook is missing; install it with: cargo install mdbook' >&2; exit 1; }
	scripts/book
	mdbook build

# Builds the binaries for packages; the service's binary may have at most 5 MB.
dist: setup
	$(CARGO) build --profile dist --package pillion --package pillion-lab --bins
	@$(MAKE) --no-print-directory pages PROFILE=dist
	@stat -c '%n: %s bytes' target/dist/pillion target/dist/pillion-lab
	@[ $$(stat -c %s target/dist/pillion) -le 5000000 ]

# Builds static programs (musl) for ARCH (amd64, arm64; default: both) and prints their sizes. They run
# on any distribution.
ARCH ?= amd64 arm64
static: setup
	@mkdir -p target/static
	for arch in $(ARCH); do \
		scripts/cross $$arch sh -c ' \
			$(CARGO) build --profile dist --package pillion --package pillion-lab --bins && \
			for name in pillion pillion-lab; do \
				cp target/$$CARGO_BUILD_TARGET/dist/$$name target/static/$$name-'$$arch' || exit; \
			done' || exit; \
	done
	@stat -c '%n: %s bytes' target/static/*

# Builds static programs in two clones of the commit, and compares them bit for bit.
reproducible: setup
	@scripts/reproducible $(ARCH)

# With ARCH=arm64 or amd64, the packages contain the static programs for that processor. The tool is
# looked for before the long build. DEBFULLNAME and DEBEMAIL name the maintainer, as for Debian's tools.
MUSL_amd64 = x86_64-unknown-linux-musl
MUSL_arm64 = aarch64-unknown-linux-musl
CROSS = $(if $(filter command,$(origin ARCH)),$(foreach arch,$(ARCH),--target=$(MUSL_$(arch))))
deb:
	@command -v cargo-deb > /dev/null || { echo 'deb: cargo-deb is missing; install it with: cargo install cargo-deb' >&2; exit 1; }
	@$(MAKE) --no-print-directory dist $(if $(CROSS),static)
	for package in pillion pillion-lab; do for target in $(or $(CROSS),''); do \
		$(CARGO) deb --package $$package --profile dist --no-build --no-strip $$target \
			$${DEBEMAIL:+--maintainer "$${DEBFULLNAME:-The pillion project} <$$DEBEMAIL>"} || exit; done; done

rpm:
	@command -v cargo-generate-rpm > /dev/null || { echo 'rpm: cargo-generate-rpm is missing; install it with: cargo install cargo-generate-rpm' >&2; exit 1; }
	@$(MAKE) --no-print-directory dist
	for package in pillion lab; do \
		$(CARGO) generate-rpm --package crates/$$package --profile dist --target-dir target || exit; done

PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
UNITDIR ?= /lib/systemd/system
SYSUSERSDIR ?= /usr/lib/sysusers.d
SHARE = $(DESTDIR)$(PREFIX)/share
DOC = $(SHARE)/doc/pillion
LAB_DOC = $(SHARE)/doc/pillion-lab
install: man
	install -D $(BIN) $(DESTDIR)$(PREFIX)/bin/pillion
	install -D $(LAB) $(DESTDIR)$(PREFIX)/bin/pillion-lab
	install -d $(SHARE)/man/man1 $(SHARE)/man/man5
	install -m 644 target/pages/*.1 target/pages/lab/*.1 $(SHARE)/man/man1
	install -m 644 target/pages/*.5 $(SHARE)/man/man5
	install -Dm 644 target/pages/pillion.bash $(SHARE)/bash-completion/completions/pillion
	install -Dm 644 target/pages/_pillion $(SHARE)/zsh/site-functions/_pillion
	install -Dm 644 target/pages/pillion.fish $(SHARE)/fish/vendor_completions.d/pillion.fish
	install -Dm 644 target/pages/lab/pillion-lab.bash $(SHARE)/bash-completion/completions/pillion-lab
	install -Dm 644 target/pages/lab/_pillion-lab $(SHARE)/zsh/site-functions/_pillion-lab
	install -Dm 644 target/pages/lab/pillion-lab.fish $(SHARE)/fish/vendor_completions.d/pillion-lab.fish
	install -Dm 644 include/pillion.h $(DESTDIR)$(PREFIX)/include/pillion.h
	install -Dm 644 packaging/sysusers.d/pillion.conf $(DESTDIR)$(SYSUSERSDIR)/pillion.conf
	install -d $(DOC)/bpf $(DOC)/examples
	install -m 644 README.md LICENSE* target/pages/copyright $(DOC)
	install -m 644 CHANGELOG.md $(DOC)/changelog
	install -m 644 packaging/grafana/pillion.json packaging/prometheus/alerts.yaml $(DOC)/examples
	install -m 644 bpf/LICENSE $(DOC)/bpf
	for file in $$(find docs -type f); do install -Dm 644 $$file $(DOC)/$$file; done
	install -d $(LAB_DOC)/bpf $(LAB_DOC)/examples/traces
	install -m 644 LICENSE* target/pages/lab/copyright $(LAB_DOC)
	install -m 644 CHANGELOG.md $(LAB_DOC)/changelog
	install -m 644 bpf/LICENSE $(LAB_DOC)/bpf
	install -m 644 experiments/*.toml $(LAB_DOC)/examples
	install -m 644 experiments/traces/*.toml experiments/traces/README.md experiments/traces/generated.* \
		$(LAB_DOC)/examples/traces
	install experiments/traces/fetch experiments/traces/generate $(LAB_DOC)/examples/traces
	install -d $(DESTDIR)$(UNITDIR)
	sed 's:/usr/bin/pillion:$(PREFIX)/bin/pillion:' packaging/systemd/pillion.service \
		> $(DESTDIR)$(UNITDIR)/pillion.service
	[ -e $(DESTDIR)$(SYSCONFDIR)/pillion/pillion.toml ] || \
		install -Dm 644 target/pages/pillion.toml $(DESTDIR)$(SYSCONFDIR)/pillion/pillion.toml
	@[ -n "$(DESTDIR)" ] || systemd-sysusers $(SYSUSERSDIR)/pillion.conf || \
		echo 'install: create the user pillion; the service runs as this user' >&2

# A changed rules file stays, and so does the user pillion.
uninstall:
	@[ -n "$(DESTDIR)" ] || ! [ -d /run/systemd/system ] || \
		systemctl disable --now pillion.service 2>/dev/null || true
	rm -f $(DESTDIR)$(PREFIX)/bin/pillion $(DESTDIR)$(PREFIX)/bin/pillion-lab $(DESTDIR)$(PREFIX)/include/pillion.h
	rm -f $(SHARE)/man/man1/pillion.1 $(SHARE)/man/man1/pillion-*.1 $(SHARE)/man/man5/pillion.toml.5
	rm -f $(SHARE)/bash-completion/completions/pillion $(SHARE)/zsh/site-functions/_pillion
	rm -f $(SHARE)/bash-completion/completions/pillion-lab $(SHARE)/zsh/site-functions/_pillion-lab
	rm -f $(SHARE)/fish/vendor_completions.d/pillion.fish $(SHARE)/fish/vendor_completions.d/pillion-lab.fish
	rm -rf $(DOC) $(LAB_DOC)
	rm -f $(DESTDIR)$(SYSUSERSDIR)/pillion.conf $(DESTDIR)$(UNITDIR)/pillion.service
	! cmp -s target/pages/pillion.toml $(DESTDIR)$(SYSCONFDIR)/pillion/pillion.toml || \
		rm $(DESTDIR)$(SYSCONFDIR)/pillion/pillion.toml
	[ ! -d $(DESTDIR)$(SYSCONFDIR)/pillion ] || \
		rmdir --ignore-fail-on-non-empty $(DESTDIR)$(SYSCONFDIR)/pillion

clean:
	$(CARGO) clean

# `make test` is all that CI runs. It installs what it needs (Debian 12/13, Ubuntu 24.04; root or sudo) and
# then needs nothing but the package registries.

CARGO ?= cargo

.PHONY: help test check deps fmt clippy unit full-size doc build clean

help:
	@echo "make build      the sapiens command and the GStreamer plugin, optimised, in target/release"
	@echo "make test       everything that CI runs: format, lints, tests, full-size networks, documentation"
	@echo "make check      the same without the full-size networks (some minutes less)"
	@echo "make full-size  0.3b and sapiens2-0.4b at 1024 x 768 against the authors' numbers (3 GB of memory)"

test: check full-size

check: deps fmt clippy unit doc

deps:
	@tools/install-deps.sh

fmt:
	$(CARGO) fmt --all --check

clippy: deps
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

unit: deps
	$(CARGO) test --workspace --locked

full-size:
	$(CARGO) test --workspace --locked --features sapiens-portable/full-size --test full_size -- --nocapture

doc: deps
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

build: deps
	$(CARGO) build --release --locked -p sapiens-cli -p gst-plugin-sapiensseg

clean:
	$(CARGO) clean

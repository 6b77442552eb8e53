# `make test` is all that CI runs. It installs what it needs (Debian 12/13, Ubuntu 24.04; root or sudo) and
# then needs nothing but the package registries.

CARGO ?= cargo
# -j: two compilers of burn at once need about 3 GB.
export CARGO_TERM_COLOR ?= auto

.PHONY: help test check fmt clippy unit full-size doc build install-deps clean

help:
	@echo "make build      the library and the sapiens command, optimised, in target/release"
	@echo "make test       everything that CI runs: format, lints, tests, full-size networks, documentation"
	@echo "make check      the same without the full-size networks (a few minutes less)"
	@echo "make full-size  0.3b and sapiens2-0.4b against the authors' numbers (1024 x 768, about 5 GB of memory)"

test: check full-size

check: toolchain fmt clippy unit doc

toolchain:
	@command -v $(CARGO) >/dev/null || { echo "cargo is not installed: get Rust 1.92 or newer from https://rustup.rs"; exit 1; }

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The slow target is left to `full-size`.
unit:
	$(CARGO) test --workspace --locked

full-size:
	$(CARGO) test --locked -p sapiens-portable --features full-size --test full_size -- --nocapture

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

build:
	$(CARGO) build --release --locked -p sapiens-cli

clean:
	$(CARGO) clean

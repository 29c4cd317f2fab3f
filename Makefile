# Everything a person does with this repository; the work is in scripts/ and in cargo.
# CARGO_TARGET_DIR is respected. OUT=DIR says where `demo` and `bench` leave their files.

SHELL := /bin/sh
OUT ?=
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test build release deb deb-check deb-reproducible rpm tarball image sbom dist publish-check book lint kernels torture bench accuracy corpus clock-check setup clean

# A recipe that fails makes make exit with 2. Without root the demo is to exit with 1, as every command here that could not do
# its work: that is make's code for "asked (-q), and not done". The script says why.
ifneq ($(filter demo,$(MAKECMDGOALS)),)
ifneq ($(shell id -u),0)
said := $(shell scripts/demo.sh >&2)
MAKEFLAGS += --question
endif
endif

help: ## this list
	@echo "Tailsight: why is your tail latency high?"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 27

demo: ## a server, a noisy neighbour, a load, a recording, the causes, a report (root; OUT=DIR)
	@scripts/demo.sh $(if $(OUT),"$(OUT)")

test: ## rustfmt, clippy, every test; as root also the live ones
	@scripts/setup.sh test
	@scripts/lint.sh format
	@scripts/test.sh

build: ## the binary with every command, as the tests use it (target/debug/tailsight)
	@scripts/setup.sh build
	@scripts/cargo.sh build --locked -p tailsight

release: ## the binary to ship, optimised and stripped (target/release/tailsight)
	@scripts/setup.sh build
	@scripts/package.sh program

deb: ## a package for Debian and Ubuntu (target/package/), the same bytes from the same sources
	@scripts/setup.sh deb
	@scripts/package.sh deb

deb-check: ## install it on fresh Debian 12, 13 and Ubuntu 24.04, use it, remove it (root, network, minutes)
	@scripts/setup.sh deb-check
	@scripts/deb-check.sh

deb-reproducible: ## build it twice from the last commit, in two folders, and compare the bytes (an hour at most)
	@scripts/deb-reproducible.sh

rpm: ## the same files as an rpm, for Fedora and its like; not signed
	@scripts/setup.sh build
	@scripts/package.sh rpm

tarball: ## the program with man pages and completions, needing no library of the machine
	@scripts/setup.sh build
	@scripts/package.sh tarball

image: ## the same program as an OCI image, in a file that podman and containerd load; no daemon is needed
	@scripts/setup.sh build
	@scripts/package.sh image

sbom: ## every component of the program, as CycloneDX JSON
	@scripts/setup.sh build
	@scripts/package.sh sbom

dist: ## deb, rpm, tarball, image and components with their SHA-256 in target/package/dist; two release builds
	@scripts/setup.sh deb
	@scripts/package.sh dist

publish-check: ## pack and build every library crate as a registry would get it; nothing is sent
	@scripts/publish-check.sh

book: ## the pages of docs/ as a book (target/book/html), with its links checked; `make test` does it too
	@scripts/book.sh

lint: ## rustfmt --check and clippy -D warnings
	@scripts/lint.sh

kernels: ## each kernel that apt offers, in QEMU: records, follows every message, traces functions (OUT=DIR)
	@OUT="$(OUT)" scripts/kernels.sh

torture: ## what strangers send, name and leave behind, again and again (root; ten minutes at most)
	@scripts/torture.sh

bench: ## the figures of docs/results/benchmarks.md, measured here beside the peers (root; OUT=DIR)
	@scripts/bench.sh $(if $(OUT),"$(OUT)")

accuracy: ## how often the named cause is right: faults with known causes, each 5 times (root; OUT=DIR)
	@scripts/accuracy.sh $(if $(OUT),"$(OUT)")

corpus: ## the lab's scenarios recorded, cut to short intervals, kept for `make test` to diagnose again (root; OUT=DIR)
	@scripts/corpus.sh $(if $(OUT),"$(OUT)")

clock-check: ## is the time-stamp counter brought to the clock in order, through thousands of changes? (root for the second part)
	@scripts/clock-check.sh

setup: ## only install what is missing for the tests and the demo
	@scripts/setup.sh test

clean: ## remove what was built
	@scripts/cargo.sh clean

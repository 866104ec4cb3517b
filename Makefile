# Everything a contributor runs. `make help` lists it; doc/ and CONTRIBUTING.md explain it.
# Fine-tuning: FUZZTIME=1m make fuzz, CHECKS=50000 make soak, make bench ARGS=..., ENVOY=/path/to/envoy make test.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two cores are enough for one build at a time; steps never run side by side.
.NOTPARALLEL:

# An older Go (1.21 or newer) fetches the toolchain that go.mod names.
export GOTOOLCHAIN := auto
# Without the folder's name in them, compiled packages are the same in every clone, and Go's build cache serves all clones of a machine.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

FUZZTIME ?= 10s
CHECKS ?= 5000
ARGS ?=
VERSION ?= 0.0.0~devel
DEB_ENVOY ?=
ARCHES ?= amd64,arm64
PUSH ?=
comma := ,
space := $(subst ,, )
LINT_VERSION := v2.15.0
LINT := .tools/golangci-lint-$(LINT_VERSION)/golangci-lint
# Later versions of Vale need a module that the public proxy does not serve.
VALE_VERSION := v3.15.2
VALE := .tools/vale-$(VALE_VERSION)/vale
GRPCURL_VERSION := v1.9.4
GRPCURL := .tools/grpcurl-$(GRPCURL_VERSION)/grpcurl
# The folders and pages that Vale reads.
PROSE = .github $(filter-out bin,$(patsubst %/,%,$(wildcard */))) $(wildcard *.md)
# Every Go module but those without Go files of their own, and one that would compile Kubernetes' tests first, ten minutes:
# `make lint MODULES=test/podrunner/nodeconformance` does that.
MODULES = $(sort $(filter-out test/cluster/build/% test/podrunner/nodeconformance,$(patsubst ./%,%,$(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './.tools/*')))))

.PHONY: help tools tools-registries test-registries tools-cluster packages clients build docs deb release demo demo-registries demo-cluster cluster test test-cluster exam check update bench bench-cluster arch fuzz soak chaos lint lint-code lint-prose lint-built mutate clean go

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

tools: go ## Fetch what tests and the demo need (real Envoy), once
	@go -C test run ./tools

packages: # Programs that make network namespaces, from Debian's packages; without one, its tests are skipped
	@scripts/packages.sh

clients: $(GRPCURL) # Clients of gateways, the same
	@scripts/packages.sh clients

$(GRPCURL): | go
	@echo "tools: building grpcurl $(GRPCURL_VERSION), once"
	@mkdir -p $(@D)
	@GOBIN=$(CURDIR)/$(@D) go install github.com/fullstorydev/grpcurl/cmd/grpcurl@$(GRPCURL_VERSION) || \
	  echo "tools: grpcurl was not built: its source comes through the Go module proxy. The test of a call of gRPC at a gateway will be skipped" >&2

tools-registries: go ## Get the servers of the tests of registries (Consul, ZooKeeper), once: some minutes
	@scripts/registries.sh

test-registries: tools tools-registries packages ## Test Consul, ZooKeeper and Dubbo with real servers and programs, and run their demo
	@go -C test test ./registries/... -count=1
	@$(MAKE) --no-print-directory demo-registries CI=1

tools-cluster: go ## Build what a test cluster runs (etcd, Kubernetes), once: some minutes
	@go -C test/cluster run ./cmd/tools

build: go ## Build the programs into bin/
	@mkdir -p bin
	@echo "build: programs into bin/"
	@go build -o bin/ ./cmd/...

deb: build ## Make the Debian package of the agent in bin/; VERSION=1.2.3 names it, DEB_ENVOY=/path/to/envoy goes into it
	@go -C packaging run . deb -version '$(VERSION)' $(if $(DEB_ENVOY),-envoy '$(abspath $(DEB_ENVOY))')

release: go ## Make everything of a release in bin/release; VERSION=1.2.3 names it, PUSH=registry.example.com/mesh pushes the images
	@go -C test run ./tools -for '$(subst $(space),$(comma),$(addprefix linux/,$(subst $(comma), ,$(ARCHES))))'
	@go -C packaging run . release -version '$(VERSION)' -envoy "$$(go -C test run ./tools -version)" -arches '$(ARCHES)' $(if $(PUSH),-push '$(PUSH)')

docs: go ## Write the reference of the commands into doc/reference, and man pages into bin/man
	@mkdir -p bin/man
	@go test ./cmd/... -count=1 -run '^Test(Reference|IstioSettings|Variables)$$' -update -man $(CURDIR)/bin/man

demo: tools build ## A bookstore with a real Envoy beside each service, and live edits; CI=1 for a bounded run
	@go build -o bin/bookstore ./samples/bookstore/app
	@go -C test build -o ../bin/demo ./demo
	@exec bin/demo $(if $(CI),-ci) $(ARGS)

demo-registries: tools tools-registries build ## The bookstore in real registries (Consul, ZooKeeper) that change and fail; CI=1 for a bounded run
	@go build -o bin/bookstore ./samples/bookstore/app
	@go -C test build -o ../bin/demo-registries ./demo/registries
	@exec bin/demo-registries $(if $(CI),-ci) $(ARGS)

demo-cluster: tools tools-cluster build ## The bookstore on a real Kubernetes: install, inject, edit, upgrade, remove; needs root; CI=1 for a bounded run
	@go -C test/cluster build -o $(CURDIR)/bin/demo-cluster ./cmd/demo
	@exec bin/demo-cluster $(if $(CI),-ci) $(ARGS)

cluster: tools-cluster ## A real Kubernetes on this machine, until Ctrl-C; needs root for nodes
	@go -C test/cluster build -o $(CURDIR)/bin/cluster ./cmd/cluster
	@bin/cluster $(ARGS)

test-cluster: go ## Only the tests of that cluster, which are a part of make test as well
	@go -C test run ./suite cluster

check: go ## The fast part of the tests (some minutes)
	@go -C test run ./suite check

test: tools packages clients ## Everything a contributor must pass: vet, arch, unit with -race, real Envoy, exam, cluster, demos
	@go -C test run ./suite test

exam: tools packages ## Hold real Envoy's behaviour against stored answers; ARGS='-run NAME -v' for one case
	@go -C test run ./exam $(ARGS)

update: go ## Rewrite golden files from what the code does now, then show what changed
	@scripts/update.sh

bench-cluster: tools tools-cluster ## The same with a real API server and pilot-discovery as a process; some minutes; ARGS='-run NAME'
	@go -C test/cluster run ./cmd/bench $(ARGS)

bench: tools ## Run the benchmarks and compare with the stored results
	@go -C test run ./bench $(ARGS)

arch: go ## Check import rules, size budgets and banned things
	@go -C test test ./arch

fuzz: go ## Run every fuzz target for FUZZTIME (default 10s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

soak: go ## Run every oracle over CHECKS random histories (default 5000); SEED and ONLY=query to look closer
	@CHECKS=$(CHECKS) scripts/soak.sh

chaos: tools ## Kill and edit at random beside real Envoys for ten minutes, then compare with a cold start; ARGS='-for 1m'
	@go -C test run ./chaos $(ARGS)

mutate: go ## Break what everything relies on, one line at a time: some test must notice each break
	@go -C test run ./mutate $(ARGS)

lint: lint-code lint-prose ## Run golangci-lint over every Go module, and Vale over all prose (both built from source at first use, a few minutes)

lint-code: go $(LINT) # golangci-lint alone; MODULES='test packaging' for some modules
	@failed=; for module in $(MODULES); do \
	  echo "lint: $$module"; (cd $$module && $(CURDIR)/$(LINT) run --allow-parallel-runners ./...) || failed="$$failed $$module"; done; \
	  if [ -n "$$failed" ]; then echo "lint: fails in:$$failed" >&2; exit 1; fi

lint-prose: $(VALE) # Vale alone, over pages, comments, help and error texts; PROSE='internal/loop doc/scale.md' for a part
	@echo "lint: prose"
	@$(VALE) --config=.vale.ini --no-global --output=line --glob='!**/testdata/**' $(PROSE) || { \
	  printf "\nlint: rewrite the sentences that Vale names; its rules are in doc/style/Pilot\n" >&2; exit 1; }

lint-built: # Whether golangci-lint and Vale are built, for make test
	@test -x $(LINT) -a -x $(VALE)

$(LINT): | go
	@echo "lint: building golangci-lint $(LINT_VERSION), once"
	@mkdir -p $(@D)
	@GOBIN=$(CURDIR)/$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION) || { $(call unbuilt,golangci-lint,make lint-prose); }

$(VALE): | go
	@echo "lint: building Vale $(VALE_VERSION), once"
	@mkdir -p $(@D)
	@GOBIN=$(CURDIR)/$(@D) CGO_ENABLED=1 go install github.com/errata-ai/vale/v3/cmd/vale@$(VALE_VERSION) || { $(call unbuilt,Vale,make lint-code); }

unbuilt = echo "lint: $(1) was not built: its source comes through the Go module proxy, and it needs a C compiler. Check GOPROXY (go env GOPROXY), the network, and gcc (Debian: apt-get install -y gcc libc6-dev). $(2) runs the other linter alone" >&2; exit 1

clean: ## Remove what make built (not what it fetched)
	@rm -rf bin

go:
	@command -v go >/dev/null || { echo "make: Go is not installed: get 1.21 or newer from https://go.dev/dl (newer toolchains it fetches by itself)" >&2; exit 1; }
	@v=$$(GOTOOLCHAIN=local go env GOVERSION); case $$v in go1.[0-9]|go1.[0-9].*|go1.1[0-9]*|go1.20*) \
	  echo "make: $$v is too old to fetch the toolchain that go.mod names: install Go 1.21 or newer" >&2; exit 1;; esac
	@go version >/dev/null || { echo "make: could not get the Go toolchain that go.mod names: it comes through the Go module proxy, check GOPROXY and the network" >&2; exit 1; }

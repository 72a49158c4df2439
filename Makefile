# Every target is explained by "make help". What needs a cluster starts one, or uses that of KUBECONFIG=FILE, but for
# test-e2e: some of its tests read the audit log of their cluster, or end parts of it, and fail on another.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules
ifdef KUBECONFIG
override KUBECONFIG := $(abspath $(KUBECONFIG))
endif

MODULE := github.com/stageset/stageset
# Pinned tools: a module of their own, so that what they need never decides a version of the product.
TOOL := go tool -modfile=$(CURDIR)/go.tools.mod
# The linker drops what nobody calls, a third of the memory that programs take, but not where plugins can be loaded, as
# Kustomize can with cgo, or templates call methods by name, as those of gRPC's debug pages do.
# Releases have no paths of the machine that built them; the same flags everywhere compile everything once.
STATIC := CGO_ENABLED=0 GOFLAGS='$(GOFLAGS) -tags=grpcnotrace -trimpath'

.DEFAULT_GOAL := help
.PHONY: help build bin/stageset-admission bin/stageset-reconciler bin/stagesetctl release-binaries run clean
.PHONY: part-tools part-program part part-ready
.PHONY: generate check-generated lint format test test-unit test-cluster test-controlplane test-e2e fuzz bench

help: ## Show what can be made
	@awk -F ':.*## ' '/^## / {print substr($$0, 4) ":"} \
		/^[a-zA-Z0-9_\/.-]+:.*## / {printf "  %-28s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## Programs
build: bin/stageset-admission bin/stageset-reconciler bin/stagesetctl ## Build the programs of the product

bin/stageset-admission bin/stageset-reconciler bin/stagesetctl:
	$(STATIC) go build -buildvcs=false -o $@ ./$(notdir $(@:bin/stageset-%=%))

# Nothing of the machine that builds is in a release: the same source and flags are the same bytes.
RELEASE ?= bin/release
PROGRAMS ?= stageset-admission stageset-reconciler stagesetctl
VERSION ?= $(shell git describe --tags --always --dirty)
REVISION ?= $(shell git rev-parse HEAD)
STAMPS = -X $(MODULE)/process.version=$(VERSION) -X $(MODULE)/process.revision=$(REVISION) \
	-X $(MODULE)/stagesetctl/app.release=$(VERSION) -X $(MODULE)/stagesetctl/app.revision=$(REVISION)
release-binaries: ## Build static programs with VERSION and REVISION in them, for GOOS and GOARCH, in RELEASE
	set -e; for program in $(PROGRAMS); do \
		$(STATIC) GOOS=$(GOOS) GOARCH=$(GOARCH) go build -trimpath -buildvcs=false \
			-ldflags '-s -w -buildid= $(STAMPS)' -o $(RELEASE)/$$program ./$${program#stageset-}; \
	done

# Only a KUBECONFIG of the command line counts here: that of the environment may be of a cluster that matters.
run: ## See the product at work: a cluster, a tenant, a release, refusals; until interrupted
	$(STATIC) go build -buildvcs=false -o bin/demo ./e2e/demo
	@exec bin/demo $(if $(filter KUBECONFIG=%,$(MAKEOVERRIDES)),--kubeconfig '$(KUBECONFIG)')

clean: ## Remove everything that was built
	rm -rf bin .run

## The same, part by part: what the Tiltfile does without a cluster
# Where the parts have data, credentials and programs; only its owner can read it.
PARTS ?= .run/tilt
part-tools: bin/controlplane bin/kwok bin/source-controller bin/source-controller-crds ## Build what parts are run with
	umask 077 && $(STATIC) go build -buildvcs=false -o $(PARTS)/bin/demo ./e2e/demo

# Linking takes half the time without what only a debugger reads.
part-program: ## Build the program of PART=admission or PART=reconciler
	umask 077 && $(STATIC) go build -buildvcs=false -ldflags=-w -o $(PARTS)/bin/stageset-$(PART) ./$(PART)

part: ## Run PART=controlplane, installation, source-controller, git, admission, reconciler or example
	@exec $(PARTS)/bin/demo --dir $(PARTS) --part $(PART)

part-ready: ## Succeed if PART is ready
	@exec $(PARTS)/bin/demo --dir $(PARTS) --ready $(PART)

## Sources
# The root below which generated files are written: check-generated has another than this.
OUT ?= .
GENERATE := $(TOOL) controller-gen
RBAC = paths=./$(1)/... paths=./policies/store rbac:roleName=stageset-$(1),fileName=$(1)-rbac.yaml output:rbac:dir=$(OUT)/charts/stageset/files

generate: ## Write what is generated: deep copies, CRDs, RBAC, lists of flags and values
	$(GENERATE) paths=./api/v1 object output:object:dir=$(OUT)/api/v1 crd output:crd:dir=$(OUT)/api/crds
	$(GENERATE) paths=./api/v1alpha1 object output:object:dir=$(OUT)/api/v1alpha1 crd output:crd:dir=$(OUT)/api/crds
	$(GENERATE) $(call RBAC,admission)
	$(GENERATE) $(call RBAC,reconciler)
	mkdir -p $(OUT)/charts/stageset/files/crds && cp $(OUT)/api/crds/*.yaml $(OUT)/charts/stageset/files/crds
	$(STATIC) go test ./docs -run '^Test(Flags|Reference|Metrics)$$' -write $(abspath $(OUT))/docs
	$(STATIC) go test ./charts -run '^Test(Readme|Dashboards)$$' -write $(abspath $(OUT))/charts/stageset

check-generated: ## Fail if a generated file is not what "make generate" writes
	@new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; mkdir "$$new/docs"; \
	$(MAKE) --no-print-directory generate OUT="$$new"; \
	stale=; for file in $$(cd "$$new" && find * -type f) api/crds/*.yaml charts/stageset/files/crds/*; do \
		diff -uN "$$file" "$$new/$$file" || stale=yes; \
	done; \
	if [[ $$stale ]]; then echo 'out of date: run "make generate"' >&2; exit 1; fi

lint: ## Check formatting, modules, go vet and staticcheck
	@wrong=$$({ gofmt -s -l . && $(TOOL) goimports -local $(MODULE) -l .; } | sort -u | grep -v /zz_generated || true); \
	if [[ $$wrong ]]; then echo "not formatted: run \"make format\""; echo "$$wrong"; exit 1; fi
	go mod tidy -diff
	$(STATIC) go vet ./...
	$(STATIC) $(TOOL) staticcheck ./...
	cd e2e/controlplane && go vet ./up && $(TOOL) staticcheck ./up

format: ## Format the Go files
	gofmt -s -w .
	$(TOOL) goimports -local $(MODULE) -w .

## Clusters for tests
# What the embedded control plane says it is. Only the link step depends on it.
COMPONENTS := k8s.io/component-base/version
KUBERNETES := -X $(COMPONENTS).gitVersion=v1.37.2 -X $(COMPONENTS).gitMajor=1 -X $(COMPONENTS).gitMinor=37
# These are modules of their own, as the tools are.
BUILD_MODULE = go build -C e2e/$(1) -buildvcs=false -o $(CURDIR)/$@ -ldflags

CONTROLPLANE_FILES := $(shell find e2e/controlplane -type f ! -name '*_test.go')
bin/controlplane: $(CONTROLPLANE_FILES) ## Build etcd, the Kubernetes components and "up" as one binary (20 CPU minutes cold)
	$(call BUILD_MODULE,controlplane) '-s -w $(KUBERNETES)' .

bin/kwok: e2e/kwok/go.mod e2e/kwok/go.sum ## Build KWOK, which pretends to run nodes and Pods
	$(call BUILD_MODULE,kwok) '-s -w' sigs.k8s.io/kwok/cmd/kwok

bin/helm: e2e/helm/go.mod e2e/helm/go.sum ## Build Helm, which installs the chart
	$(call BUILD_MODULE,helm) '-s -w' helm.sh/helm/v4/cmd/helm

bin/promtool: e2e/promtool/go.mod e2e/promtool/go.sum ## Build promtool, which checks alerts and dashboards
	$(call BUILD_MODULE,promtool) '-s -w' -tags remove_all_sd github.com/prometheus/prometheus/cmd/promtool

SOURCE_CONTROLLER := github.com/fluxcd/source-controller
SOURCES := e2e/sourcecontroller/go.mod e2e/sourcecontroller/go.sum
bin/source-controller: $(SOURCES) ## Build source-controller (9 CPU minutes cold)
	$(call BUILD_MODULE,sourcecontroller) '-s -w' $(SOURCE_CONTROLLER)

bin/source-controller-crds: $(SOURCES) ## Copy the CRDs of exactly that source-controller
	rm -rf $@ && mkdir -p $@
	install -m 0644 "$$(go list -C e2e/sourcecontroller -m -f '{{.Dir}}' $(SOURCE_CONTROLLER))"/config/crd/bases/*.yaml $@

OPERATOR := github.com/prometheus-operator/prometheus-operator:example/prometheus-operator-crd/monitoring.coreos.com
NEIGHBOURS := $(OPERATOR)_servicemonitors.yaml $(OPERATOR)_prometheusrules.yaml \
	github.com/fluxcd/kustomize-controller:config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml
bin/neighbour-crds: e2e/neighbours/go.mod e2e/neighbours/go.sum ## Copy CRDs of programs that run beside the product
	rm -rf $@ && mkdir -p $@
	go mod download -C e2e/neighbours
	set -e; for file in $(NEIGHBOURS); do \
		install -m 0644 "$$(go list -C e2e/neighbours -m -f '{{.Dir}}' $${file%:*})/$${file#*:}" $@; \
	done

## Tests
test: check-generated lint test-unit test-cluster test-controlplane test-e2e ## Run everything that CI runs

# The packages of the product, with what their tests import: those that import e2e/cluster start a cluster.
PACKAGES := go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | grep -v '^$(MODULE)/e2e\b'
# Nothing has to be built where another cluster is to be used.
CLUSTER := $(if $(KUBECONFIG)$(KUBEBUILDER_ASSETS),,bin/controlplane bin/kwok)

test-unit: ## Run the tests of packages that need no cluster
	go test -race -timeout 10m $$($(PACKAGES) | grep -v '/e2e/cluster\b' | cut -d ' ' -f 1)

test-cluster: $(CLUSTER) bin/promtool ## Run the tests of packages against a real apiserver
	go test -race -count 1 -p 2 -timeout 15m $$($(PACKAGES) | grep '/e2e/cluster\b' | cut -d ' ' -f 1)

test-controlplane: $(CLUSTER) ## Run the tests of the embedded control plane itself
	$(if $(CLUSTER),cd e2e/controlplane && go test -count 1 -timeout 15m ./up)

test-e2e: build $(CLUSTER) bin/helm bin/source-controller bin/source-controller-crds bin/neighbour-crds ## Run the built programs as their users do
	$(STATIC) go test -count 1 -p 2 -timeout 30m ./e2e/...

fuzz: ## Run each fuzz target for a minute
	@grep -roE --include='*_test.go' '^func Fuzz[[:alnum:]]+' . | while IFS=': ' read -r file _ target; do \
		echo "$$target"; go test "$${file%/*}" -run '^$$' -fuzz "^$$target\$$" -fuzztime 1m; \
	done

bench: build $(CLUSTER) bin/source-controller-crds ## Measure policies, their webhook, and releases of all sizes (half an hour)
	$(STATIC) go test -run '^$$' -bench . ./policies/... ./reconciler/tenant
	$(STATIC) go test -p 1 -run '^$$' -bench . -benchtime 1x -timeout 60m ./e2e ./e2e/admission

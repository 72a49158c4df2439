# Every target is explained by "make help".
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

.DEFAULT_GOAL := help

# What the embedded control plane says it is. Only the link step depends on it.
KUBERNETES_VERSION := v1.37.2
KUBERNETES_LDFLAGS := -s -w \
	-X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=37

# Tools are modules of their own, so that what they need never decides a version of the product.
TOOL_BUILD = go build -C $(1) -buildvcs=false

.PHONY: help
help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-zA-Z0-9_\/.-]+:.*## / {printf "  %-32s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf bin .run

##
## Clusters for tests

CONTROLPLANE_FILES := $(shell find e2e/controlplane -type f ! -name '*_test.go')
bin/controlplane: $(CONTROLPLANE_FILES) ## Build etcd, the Kubernetes components and "up" as one binary (20 CPU minutes cold)
	$(call TOOL_BUILD,e2e/controlplane) -ldflags '$(KUBERNETES_LDFLAGS)' -o ../../$@ .

bin/kwok: e2e/kwok/go.mod e2e/kwok/go.sum ## Build KWOK, which pretends to run nodes and Pods
	$(call TOOL_BUILD,e2e/kwok) -ldflags '-s -w' -o ../../$@ sigs.k8s.io/kwok/cmd/kwok

SOURCE_CONTROLLER := github.com/fluxcd/source-controller
bin/source-controller: e2e/sourcecontroller/go.mod e2e/sourcecontroller/go.sum ## Build Flux's source-controller (9 CPU minutes cold)
	$(call TOOL_BUILD,e2e/sourcecontroller) -ldflags '-s -w' -o ../../$@ $(SOURCE_CONTROLLER)

bin/source-controller-crds: e2e/sourcecontroller/go.mod ## Copy the CRDs of exactly that source-controller
	rm -rf $@ && mkdir -p $@
	install -m 0644 "$$(go list -C e2e/sourcecontroller -m -f '{{.Dir}}' $(SOURCE_CONTROLLER))"/config/crd/bases/*.yaml $@

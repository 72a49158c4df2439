module github.com/stageset/stageset/e2e/neighbours

go 1.26.0

// Not to be tidied: nothing is imported, only the definitions in these modules are installed.
require (
	github.com/fluxcd/kustomize-controller v1.9.6
	github.com/prometheus-operator/prometheus-operator v0.85.0
)

// Package crds holds the generated CustomResourceDefinitions, so that chart, tests, command line and control plane use the
// same bytes. It never parses or changes them.
package crds

import "embed"

// FS has one YAML file for each kind of the API.
//
//go:embed *.yaml
var FS embed.FS

// Package builtin holds the rules that the product ships with, as StageSetPolicies with their own tests. It never evaluates
// anything itself, and has no rule that an admin could not have written.
package builtin

import (
	"context"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// Policies are the built-in policies, sorted by name, as they are when no config changes them.
func Policies() []v1alpha1.StageSetPolicy { return nil }

// Compile compiles the built-in policies as config sets them.
func Compile(ctx context.Context, _ policies.Config) (*policies.Set, error) {
	return policies.Compile(ctx, Policies(), policies.Options{})
}

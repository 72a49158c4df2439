package pipeline

import (
	"cmp"
	"slices"

	v1 "github.com/stageset/stageset/api/v1"
)

// readyChecks are a stage's ready checks with their namespaces filled in; nil if it has none.
func readyChecks(set *v1.StageSet, stage v1.Stage) *v1.ReadyChecks {
	if stage.ReadyChecks == nil {
		return nil
	}
	filled := *stage.ReadyChecks
	filled.Checks = slices.Clone(filled.Checks)
	for i := range filled.Checks {
		check := &filled.Checks[i]
		check.Namespace = cmp.Or(check.Namespace, stage.TargetNamespace, set.Namespace)
	}
	return &filled
}

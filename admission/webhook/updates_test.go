package webhook

import (
	"testing"
)

// T-109, P-19, P-24: what is always allowed, what is refused while an object is deleted, and what the policies see.
func TestClassify(t *testing.T) {
	const (
		label     = "labels: {a: b}"
		note      = "annotations: {a: b}"
		requested = "annotations: {reconcile.fluxcd.io/requestedAt: x}"
		applied   = "annotations: {kubectl.kubernetes.io/last-applied-configuration: x}"
		orphan    = "deletionPolicy: Orphan"
		deleted   = "deletionTimestamp: '2026-01-01T00:00:00Z'"
	)
	// version is a StageSet of the flow-style content of its spec and metadata.
	type version struct{ spec, metadata string }
	hourly := version{"interval: 1h", ""}
	for name, test := range map[string]struct {
		old, updated version
		want         update
	}{
		"nothing":                  {hourly, hourly, updateAllowed},
		"spec":                     {hourly, version{"interval: 2h", ""}, updateEvaluated},
		"label":                    {hourly, version{"interval: 1h", label}, updateEvaluated},
		"annotation":               {hourly, version{"interval: 1h", note}, updateEvaluated},
		"annotation and spec":      {hourly, version{"interval: 2h", note}, updateEvaluated},
		"requestedAt":              {hourly, version{"interval: 1h", requested}, updateAllowed},
		"requestedAt and a label":  {hourly, version{"interval: 1h", requested + ", " + label}, updateEvaluated},
		"requestedAt and spec":     {hourly, version{"interval: 2h", requested}, updateEvaluated},
		"requestedAt removed":      {version{"interval: 1h", requested}, hourly, updateAllowed},
		"suspend on":               {hourly, version{"interval: 1h, suspend: true", ""}, updateAllowed},
		"suspend on, from false":   {version{"suspend: false", ""}, version{"suspend: true", ""}, updateAllowed},
		"suspend on by apply":      {hourly, version{"interval: 1h, suspend: true", applied}, updateAllowed},
		"suspend on and spec":      {hourly, version{"interval: 2h, suspend: true", ""}, updateEvaluated},
		"suspend on and a label":   {hourly, version{"interval: 1h, suspend: true", label}, updateEvaluated},
		"suspend off":              {version{"interval: 1h, suspend: true", ""}, hourly, updateEvaluated},
		"suspend stays, spec":      {version{"suspend: true", ""}, version{"interval: 2h, suspend: true", ""}, updateEvaluated},
		"orphan":                   {version{"", ""}, version{orphan, ""}, updateEvaluated},
		"deleted: label":           {version{"", deleted}, version{"", deleted + ", " + label}, updateAllowed},
		"deleted: orphan":          {version{"", deleted}, version{orphan, deleted}, updateAllowed},
		"deleted: orphan and spec": {version{"", deleted}, version{"interval: 2h, " + orphan, deleted}, updateRefused},
		"deleted: delete again":    {version{orphan, deleted}, version{"deletionPolicy: Delete", deleted}, updateRefused},
		"deleted: suspend":         {version{"", deleted}, version{"suspend: true", deleted}, updateAllowed},
		"deleted: spec":            {version{"", deleted}, version{"interval: 2h", deleted}, updateRefused},
		"a forged deletion":        {version{"", ""}, version{orphan, deleted}, updateEvaluated},
		"a deletion left out":      {version{"", deleted}, version{"interval: 2h", ""}, updateRefused},
	} {
		t.Run(name, func(t *testing.T) {
			text := func(v version) string { return "{spec: {" + v.spec + "}, metadata: {" + v.metadata + "}}" }
			if got := classify(stageSet(t, text(test.old)), stageSet(t, text(test.updated))); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

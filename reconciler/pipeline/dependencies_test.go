package pipeline

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/source"
)

// A dependency that is Ready counts when it runs what is about to be applied here, as far as both use the same source.
func TestADependencyIsReadyAtTheRevisionOfASharedSource(t *testing.T) {
	const other = "has applied one of source team-a/app, not yet two"
	cases := map[string]struct {
		kind    v1.SourceKind
		applied string
		want    string
	}{
		"the same revision":           {kind: v1.SourceKindGitRepository, applied: "two"},
		"another revision":            {kind: v1.SourceKindGitRepository, applied: "one", want: other},
		"a source of another kind":    {kind: v1.SourceKindOCIRepository, applied: "one"},
		"an ExternalArtifact, unsaid": {applied: "one"},
		// Its ExternalArtifact may well be called as it is.
		"a producer": {kind: "Release", applied: "one", want: other},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dependency := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "base"}}
			dependency.Spec.Stages = []v1.Stage{{Name: "app", SourceRef: v1.SourceReference{Kind: tc.kind, Name: "app"}}}
			dependency.Status.LastAppliedRevisions = map[string]string{"team-a/app": tc.applied}
			pin := source.Pin{Kind: v1.SourceKindGitRepository, Namespace: "team-a", Name: "app", Revision: "two"}
			if got := behind(dependency, Pinned{Stages: []PinnedStage{{Pin: pin}}}); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

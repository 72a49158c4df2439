package controller

import (
	"testing"

	"k8s.io/utils/ptr"

	v1 "github.com/stageset/stageset/api/v1"
)

func TestPruneOfTheSpecCounts(t *testing.T) {
	set := &v1.StageSet{Spec: v1.StageSetSpec{Stages: []v1.Stage{
		{Name: "default"}, {Name: "keeps", Prune: ptr.To(false)}, {Name: "deletes", Prune: ptr.To(true)},
	}}}
	cases := map[string]struct {
		stage          string
		recorded, want bool
	}{
		"default":                   {stage: "default", recorded: false, want: true},
		"set to false since":        {stage: "keeps", recorded: true, want: false},
		"set to true since":         {stage: "deletes", recorded: false, want: true},
		"a stage that is gone":      {stage: "gone", recorded: true, want: true},
		"one that kept and is gone": {stage: "gone", recorded: false, want: false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := prunes(set, tc.stage, tc.recorded); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

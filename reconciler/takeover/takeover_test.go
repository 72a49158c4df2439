package takeover

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const us = "stageset-reconciler/us"

// entry reads "manager operation version[/subresource] fields".
func entry(t *testing.T, text string) metav1.ManagedFieldsEntry {
	t.Helper()
	parts := strings.SplitN(text, " ", 4)
	version, subresource, _ := strings.Cut(parts[2], "/")
	return metav1.ManagedFieldsEntry{
		Manager: parts[0], Operation: metav1.ManagedFieldsOperationType(parts[1]), APIVersion: version,
		Subresource: subresource, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(parts[3]),
	}
}

func entries(t *testing.T, texts []string) []metav1.ManagedFieldsEntry {
	t.Helper()
	var list []metav1.ManagedFieldsEntry
	for _, text := range texts {
		list = append(list, entry(t, text))
	}
	return list
}

func texts(entries []metav1.ManagedFieldsEntry) []string {
	var list []string
	for _, entry := range entries {
		version := entry.APIVersion
		if entry.Subresource != "" {
			version += "/" + entry.Subresource
		}
		list = append(list, strings.Join([]string{
			entry.Manager, string(entry.Operation), version, entry.FieldsV1.GetRawString()}, " "))
	}
	return list
}

func TestMerge(t *testing.T) {
	heir := Heir{
		Manager: us, Earlier: Managers{"kubectl", "kubectl-*", "kustomize-controller"},
		Gone: func(manager string) bool { return manager == "stageset-reconciler/gone" },
	}
	for name, tc := range map[string]struct {
		before []string
		// want is empty where nothing is taken.
		want []string
	}{
		"nobody else":   {before: []string{us + ` Apply v1 {"f:data":{"f:a":{}}}`}},
		"somebody else": {before: []string{`controller Update v1 {"f:data":{"f:a":{}}}`}},
		"adoption: all of kubectl, in its version": {
			before: []string{`kubectl-client-side-apply Update v1 {"f:data":{"f:a":{},"f:old":{}}}`,
				`controller Update v1 {"f:data":{"f:b":{}}}`},
			want: []string{`controller Update v1 {"f:data":{"f:b":{}}}`, us + ` Apply v1 {"f:data":{"f:a":{},"f:old":{}}}`},
		},
		"adoption: what applied before, too": {
			before: []string{`kustomize-controller Apply v1 {"f:data":{"f:a":{}}}`, `kubectl-edit Update v1 {"f:data":{"f:b":{}}}`},
			want:   []string{us + ` Apply v1 {"f:data":{"f:a":{},"f:b":{}}}`},
		},
		"a restart by hand stays": {
			before: []string{`kubectl-rollout Update v1 {"f:spec":{"f:template":{"f:metadata":{"f:annotations":{".":{},` +
				`"f:kubectl.kubernetes.io/restartedAt":{}}}}}}`},
		},
		"a restart by hand stays, the rest is taken": {
			before: []string{
				`kubectl-edit Update v1 {"f:metadata":{"f:annotations":{".":{},"f:stages.metio.wtf/prune":{}}},"f:spec":{"f:a":{}}}`},
			want: []string{`kubectl-edit Update v1 {"f:metadata":{"f:annotations":{".":{},"f:stages.metio.wtf/prune":{}}}}`,
				us + ` Apply v1 {"f:spec":{"f:a":{}}}`},
		},
		"later: what both own": {
			before: []string{us + ` Apply v1 {"f:data":{"f:a":{}}}`, `kubectl Update v1 {"f:data":{"f:a":{},"f:b":{}}}`},
			want:   []string{`kubectl Update v1 {"f:data":{"f:b":{}}}`, us + ` Apply v1 {"f:data":{"f:a":{}}}`},
		},
		"later: who still applies keeps": {
			before: []string{us + ` Apply v1 {"f:data":{"f:a":{}}}`, `kustomize-controller Apply v1 {"f:data":{"f:a":{}}}`},
		},
		"later: what only they own": {
			before: []string{us + ` Apply v1 {"f:data":{"f:a":{}}}`, `kubectl Update v1 {"f:data":{"f:b":{}}}`},
		},
		"a StageSet that is gone": {
			before: []string{us + ` Apply v1 {"f:data":{"f:a":{}}}`,
				`stageset-reconciler/gone Apply v1 {"f:data":{"f:b":{}},"f:metadata":{"f:labels":{"f:b":{}}}}`},
			want: []string{us + ` Apply v1 {"f:data":{"f:a":{},"f:b":{}},"f:metadata":{"f:labels":{"f:b":{}}}}`},
		},
		"a StageSet that is there": {
			before: []string{us + ` Apply v1 {"f:data":{"f:a":{}}}`, `stageset-reconciler/there Apply v1 {"f:data":{"f:b":{}}}`},
		},
		"subresources": {before: []string{`kubectl Update v1/scale {"f:spec":{"f:replicas":{}}}`}},
		"another version than ours": {
			before: []string{us + ` Apply v1 {"f:data":{"f:a":{}}}`, `kubectl Update v1beta1 {"f:data":{"f:a":{}}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			merged, taken, err := heir.Merge(entries(t, tc.before))
			if err != nil {
				t.Fatal(err)
			}
			want := tc.want
			if want == nil {
				want = tc.before
			}
			if diff := cmp.Diff(want, texts(merged)); diff != "" {
				t.Errorf("managedFields (-want +got):\n%s", diff)
			}
			if taken != (tc.want != nil) {
				t.Errorf("taken is %t", taken)
			}
			if taken && !heir.Possible(entries(t, tc.before)) {
				t.Error("it was not thought possible")
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	outdated := func(version string) bool { return version == "v1alpha1" }
	before := entries(t, []string{
		`a Apply v1alpha1 {"f:spec":{"f:a":{}}}`, `b Update v1 {"f:spec":{"f:b":{}}}`, `b Update v1alpha1 {"f:spec":{"f:c":{}}}`,
		`b Update v1alpha1/status {"f:status":{}}`,
	})
	updated, changed, err := Update(before, outdated, "v1")
	if err != nil || !changed {
		t.Fatalf("changed %t, %v", changed, err)
	}
	want := []string{
		`a Apply v1 {"f:spec":{"f:a":{}}}`, `b Update v1 {"f:spec":{"f:b":{},"f:c":{}}}`, `b Update v1/status {"f:status":{}}`,
	}
	if diff := cmp.Diff(want, texts(updated)); diff != "" {
		t.Errorf("managedFields (-want +got):\n%s", diff)
	}
	if _, changed, err := Update(updated, outdated, "v1"); changed || err != nil {
		t.Errorf("changed again: %t, %v", changed, err)
	}
}

func TestOwners(t *testing.T) {
	list := entries(t, []string{
		us + ` Apply v1 {"f:spec":{"f:replicas":{},"f:template":{}}}`, `autoscaler Update v1/scale {"f:spec":{"f:replicas":{}}}`,
		`kubectl Update v1 {"f:spec":{"f:paused":{}}}`,
	})
	owners, err := Owners(list, "spec", "replicas")
	if diff := cmp.Diff([]string{us, "autoscaler"}, owners); diff != "" || err != nil {
		t.Errorf("owners, %v (-want +got):\n%s", err, diff)
	}
}

func TestSole(t *testing.T) {
	list := entries(t, []string{
		us + ` Apply v1 {"f:spec":{"f:size":{},"f:shared":{},"f:deep":{"f:size":{}},"f:list":{"k:{\"name\":\"a\"}":{"f:size":{}}}}}`,
		`kubectl Update v1 {"f:spec":{"f:shared":{}}}`, us + ` Update v1 {"f:spec":{"f:deep":{"f:other":{}}}}`,
	})
	fields, err := Sole(list, us)
	if diff := cmp.Diff([][]string{{"spec", "deep", "size"}, {"spec", "size"}}, fields, sorted); diff != "" || err != nil {
		t.Errorf("fields, %v (-want +got):\n%s", err, diff)
	}
}

var sorted = cmpopts.SortSlices(func(a, b []string) bool { return slices.Compare(a, b) < 0 })

func TestParseManagers(t *testing.T) {
	for _, wrong := range []string{"", "kubectl-["} {
		if _, err := ParseManagers([]string{"kubectl", wrong}); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
	managers, err := ParseManagers([]string{"kubectl", "kubectl-*"})
	if err != nil {
		t.Fatal(err)
	}
	for manager, want := range map[string]bool{"kubectl": true, "kubectl-edit": true, "kubectlx": false, "helm": false} {
		if got := managers.match(manager); got != want {
			t.Errorf("%s matches: %t, want %t", manager, got, want)
		}
	}
}

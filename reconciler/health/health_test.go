package health

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/reconciler/inventory"
)

func TestOf(t *testing.T) {
	cases := map[string]struct {
		manifest string
		want     Verdict
	}{
		"ConfigMap exists": {manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}", want: Healthy},
		"ConfigMap is being deleted": {want: Progressing,
			manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, deletionTimestamp: '2026-01-01T00:00:00Z'}"},
		"Deployment not observed": {want: Progressing,
			manifest: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, generation: 2}\nstatus: {observedGeneration: 1}"},
		"Deployment available": {want: Healthy, manifest: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, generation: 1}
spec: {replicas: 1}
status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1,
  conditions: [{type: Available, status: "True"}]}`},
		"Deployment exceeded its deadline": {want: Failed, manifest: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, generation: 1}
spec: {replicas: 1}
status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1,
  conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}`},
		// T-44: a partition keeps the lower ordinals as they are, for as long as somebody wants it.
		"StatefulSet is updated as far as its partition":   {want: Healthy, manifest: statefulSet("updatedReplicas: 1")},
		"StatefulSet is not updated down to its partition": {want: Progressing, manifest: statefulSet("updatedReplicas: 0")},
		// T-44: a generation that is written as text is one.
		"it is observed, as text":       {want: Healthy, manifest: observed("'2'")},
		"it is not observed, as text":   {want: Progressing, manifest: observed("'1'")},
		"what it observed is no number": {want: Healthy, manifest: observed("'x'")},
		// T-36: a Job is healthy when it completed, not when it started.
		"Job runs": {want: Progressing,
			manifest: "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nstatus: {active: 1, startTime: '2026-01-01T00:00:00Z'}"},
		"Job completed": {want: Healthy,
			manifest: "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nstatus: {conditions: [{type: Complete, status: 'True'}]}"},
		"Job failed": {want: Failed,
			manifest: "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nstatus: {conditions: [{type: Failed, status: 'True'}]}"},
		"Job is suspended": {want: Progressing,
			manifest: "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {suspend: true}"},
		// T-38: what says that it stalled will not become ready.
		"custom resource stalled": {want: Failed, manifest: `
apiVersion: example.com/v1
kind: Thing
metadata: {name: a, generation: 1}
status: {observedGeneration: 1, conditions: [{type: Stalled, status: "True", reason: Never, message: it will not}]}`},
		"custom resource not ready": {want: Progressing, manifest: `
apiVersion: example.com/v1
kind: Thing
metadata: {name: a, generation: 1}
status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", reason: Soon}]}`},
		"CRD not established": {want: Progressing,
			manifest: "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Of(object(t, tc.manifest))
			if got.Verdict != tc.want {
				t.Errorf("got %+v, want verdict %d", got, tc.want)
			}
			if (got.Message == "") != (tc.want == Healthy) {
				t.Errorf("message is %q", got.Message)
			}
		})
	}
}

// observed is a custom resource of generation 2 that is ready.
func observed(generation string) string {
	return "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a, generation: 2}\n" +
		"status: {observedGeneration: " + generation + ", conditions: [{type: Ready, status: 'True'}]}"
}

// statefulSet has three replicas that are ready, of which the last is to be updated.
func statefulSet(updated string) string {
	return `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: a, generation: 1}
spec: {replicas: 3, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}}
status: {observedGeneration: 1, replicas: 3, readyReplicas: 3, currentReplicas: 2, currentRevision: a-1, updateRevision: a-2, ` +
		updated + "}"
}

func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	content, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	if err := obj.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	return obj
}

// T-45: a StageSet stays Ready=True while it is suspended or a new spec waits: what it applied before runs on.
func TestOfStageSet(t *testing.T) {
	const ready = "conditions: [{type: Ready, status: 'True', reason: Succeeded, observedGeneration: %d, message: runs}]"
	cases := map[string]struct {
		spec, status string
		want         Result
	}{
		"ready": {status: "observedGeneration: 2, " + fmt.Sprintf(ready, 2)},
		"suspended": {spec: "suspend: true", status: "observedGeneration: 2, " + fmt.Sprintf(ready, 2),
			want: Result{Verdict: Progressing, Message: "is suspended"}},
		"not seen": {status: "observedGeneration: 1, " + fmt.Sprintf(ready, 1),
			want: Result{Verdict: Progressing, Message: "has not been reconciled at its current generation"}},
		"new": {want: Result{Verdict: Progressing, Message: "has not been reconciled at its current generation"}},
		"its spec waits": {status: "observedGeneration: 2, " + fmt.Sprintf(ready, 1),
			want: Result{Verdict: Progressing, Message: "has not applied its current generation: runs"}},
		"stalled": {status: "observedGeneration: 2, conditions: [{type: Ready, status: 'False', observedGeneration: 2}, " +
			"{type: Stalled, status: 'True', reason: BuildFailed, message: bad}]", want: Result{Verdict: Failed, Message: "bad"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Of(object(t, fmt.Sprintf("apiVersion: stages.metio.wtf/v1\nkind: StageSet\nmetadata: {name: a, generation: 2}\n"+
				"spec: {%s}\nstatus: {%s}", tc.spec, tc.status)))
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Result{})); diff != "" {
				t.Errorf("health (-want +got):\n%s", diff)
			}
		})
	}
}

// T-35: a custom resource that nobody has written a status of is given time, and then taken as it is.
func TestSilenceIsGivenTime(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		apiVersion, kind string
		status           map[string]any
		after            time.Duration
		want             Verdict
	}{
		"just created":                {apiVersion: "example.com/v1", kind: "Thing", want: Progressing},
		"with an empty status":        {apiVersion: "example.com/v1", kind: "Thing", status: map[string]any{}, want: Progressing},
		"nearly over":                 {apiVersion: "example.com/v1", kind: "Thing", after: grace - 1, want: Progressing},
		"over":                        {apiVersion: "example.com/v1", kind: "Thing", after: grace, want: Healthy},
		"it says something":           {apiVersion: "example.com/v1", kind: "Thing", status: map[string]any{"a": "b"}, want: Healthy},
		"of a group like Kubernetes'": {apiVersion: "gateway.networking.k8s.io/v1", kind: "HTTPRoute", want: Progressing},
		"a kind of Kubernetes":        {apiVersion: "batch/v1", kind: "CronJob", want: Healthy},
		"another kind of Kubernetes":  {apiVersion: "storage.k8s.io/v1", kind: "CSIDriver", want: Healthy},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{}
			obj.SetAPIVersion(tc.apiVersion)
			obj.SetKind(tc.kind)
			obj.SetCreationTimestamp(metav1.NewTime(created))
			if tc.status != nil {
				obj.Object["status"] = tc.status
			}
			if got := Of(obj).At(created.Add(tc.after)); got.Verdict != tc.want {
				t.Errorf("got %+v, want verdict %d", got, tc.want)
			}
		})
	}
}

// Every group of Kubernetes itself is known as such, whatever the next version adds.
func TestGroupsOfKubernetes(t *testing.T) {
	for _, version := range scheme.Scheme.PrioritizedVersionsAllGroups() {
		if strings.Contains(version.Group, ".") && !builtin[version.Group] {
			t.Errorf("%s is taken for a group of custom resources", version.Group)
		}
	}
}

// T-42: a message names what is not healthy, at most five objects, then a count.
func TestReportNamesFive(t *testing.T) {
	var report Report
	for i := range 7 {
		key := inventory.Key{Kind: "Thing", Name: fmt.Sprint(i)}
		report.Add(key, Result{Verdict: Progressing, Message: "soon"})
		report.Add(key, Result{})
	}
	want := "Thing 0: soon; Thing 1: soon; Thing 2: soon; Thing 3: soon; Thing 4: soon; and 2 more"
	if diff := cmp.Diff(want, report.ProgressingMessage()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if report.Healthy() || report.FailedMessage() != "" {
		t.Errorf("report is %+v", report)
	}
}

package chart_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// An upgrade from a chart that was another one, the way back, and the upgrade once more: what is installed is what the chart
// then has, and nothing of the other one; and a release of a tenant goes on.
func TestUpgradeFromAnotherChart(t *testing.T) {
	withoutCRDs(t)
	r := prepare(t, "upgraded", "")
	r.chart = former(t)
	r.install(t)
	r.isFormer(t, true)
	programs := r.programs(t)
	n := r.tenant(t)
	app := n.stageSet("app")
	revision := n.commit(t, "app", "1")
	n.create(t, app)
	n.ready(t, app, revision)
	uid := n.live(t, "v1", "ConfigMap", "app").GetUID()

	r.chart = chart
	for number, step := range []struct {
		former bool
		move   func()
	}{
		{false, func() { r.apply(t, "upgrade") }},
		{true, func() { r.helm(t, "rollback", "1", "--wait", "--timeout", "3m") }},
		{false, func() { r.apply(t, "upgrade") }},
	} {
		step.move()
		r.isFormer(t, step.former)
		programs()
		programs = r.programs(t)
		revision = n.commit(t, "app", fmt.Sprint(number+2))
		n.ready(t, app, revision)
		if got := n.live(t, "v1", "ConfigMap", "app").GetUID(); got != uid {
			t.Errorf("step %d: the tenant's object was made anew", number)
		}
	}
	n.delete(t, app)
}

// programs starts both programs as they are installed, and returns what ends them.
func (r *release) programs(t *testing.T) (end func()) {
	t.Helper()
	r.route(t)
	started := []*process.Process{r.start(t, "admission"), r.start(t, "reconciler")}
	return func() {
		t.Helper()
		for _, program := range started {
			if err := program.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
}

// extra is what the former chart has and today's has not, and lacks the field of StageSets that it lacks.
const (
	extra = "former"
	lacks = "suspend"
)

// former is a chart of another version than today's: its StageSets have a field less, and the reconciler's role a rule more; an
// object of it is in no chart that comes later.
func former(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "stageset")
	if err := os.CopyFS(folder, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	change := func(file string, change func(text string) string) {
		t.Helper()
		path := filepath.Join(folder, file)
		before, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		after := change(string(before))
		if after == string(before) {
			t.Fatalf("%s stays as it is", file)
		}
		if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change("Chart.yaml", func(text string) string { return strings.Replace(text, "version: 0.1.0", "version: 0.0.9", 1) })
	change("files/reconciler-rbac.yaml", func(text string) string {
		return strings.Replace(text, "rules:\n", "rules:\n- apiGroups: [example.com]\n  resources: ["+extra+"]\n  verbs: [list]\n", 1)
	})
	change("files/crds/stages.metio.wtf_stagesets.yaml", func(text string) string {
		crd := parse(t, text)[0]
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil {
			t.Fatal(err)
		}
		fields := append(append([]string{}, specProperties...), lacks)
		for _, version := range versions {
			unstructured.RemoveNestedField(version.(map[string]any), fields...)
		}
		if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		content, err := yaml.Marshal(crd.Object)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	})
	change("templates/former.yaml", func(string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: {{ .Release.Name }}-" + extra + "}}\n"
	})
	return folder
}

var specProperties = []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}

// isFormer wants what is installed to be the former chart's, or today's.
func (r *release) isFormer(t *testing.T, former bool) {
	t.Helper()
	left := cluster.Ref("v1", "ConfigMap", r.namespace, r.name+"-"+extra)
	if former {
		r.WaitFor(t, left)
	} else {
		r.WaitGone(t, left)
	}
	crd := r.WaitFor(t, cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "stagesets.stages.metio.wtf"))
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil || len(versions) == 0 {
		t.Fatalf("%d versions, %v", len(versions), err)
	}
	for _, version := range versions {
		fields, found, err := unstructured.NestedMap(version.(map[string]any), specProperties...)
		if _, has := fields[lacks]; !found || err != nil || has == former {
			t.Errorf("StageSets have the field %s: %t (%v), want %t", lacks, has, err, !former)
		}
	}
	role := r.WaitFor(t, cluster.Ref("rbac.authorization.k8s.io/v1", "ClusterRole", "", r.name+"-reconciler"))
	if has := strings.Contains(fmt.Sprint(role.Object["rules"]), extra); has != former {
		t.Errorf("the role has the former rule: %t, want %t", has, former)
	}
}

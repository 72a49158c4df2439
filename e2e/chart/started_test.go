package chart_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/gitserver"
)

// The commands of the README lead from a cluster to a release that is Ready, and back; then those of docs/migration.md, from
// objects that kustomize-controller has applied to a release that has adopted them, and back.
func TestFromNothingAsDocumented(t *testing.T) {
	withoutCRDs(t)
	c := cluster.Shared(t)
	c.StartSourceController(t)
	r := &release{Cluster: c, name: "stageset", namespace: "stageset-system", client: c.Client(t)}
	sh := newShell(t, c.Kubeconfig, valuesFile(t, fmt.Sprintf(processes, ports(t)...)))
	t.Cleanup(func() { r.leave(t) })

	readme := scripts(t, "README.md")
	sh.run(t, "kubectl create namespace flux-system") // as Flux is installed
	sh.run(t, readme[0].Text)
	sh.run(t, readme[1].Text)
	r.route(t)
	r.start(t, "admission")
	r.start(t, "reconciler")
	sh.run(t, readme[2].Text)
	sh.run(t, strings.ReplaceAll(readme[3].Text, "https://github.com/stageset/stageset", exampleRepository(t)))
	printed := sh.run(t, readme[4].Text)
	for _, want := range []string{"stageset.stages.metio.wtf/webshop condition met", "deployment.apps/database", "deployment.apps/shop"} {
		if !strings.Contains(printed, want) {
			t.Errorf("there is no %s in\n%s", want, printed)
		}
	}
	printed = sh.run(t, readme[5].Text)
	for _, want := range []string{"no-cross-namespace-refs", "service-account-required", "refused, as it should be"} {
		if !strings.Contains(printed, want) {
			t.Errorf("there is no %s in\n%s", want, printed)
		}
	}
	if printed = sh.run(t, readme[6].Text); !strings.Contains(printed, "No resources found") {
		t.Errorf("what is left:\n%s", printed)
	}

	t.Run("migration", func(t *testing.T) { r.migrates(t, sh) })
}

// migrates runs the commands of docs/migration.md that are about kustomize-controller.
func (r *release) migrates(t *testing.T, sh shell) {
	steps := scripts(t, "docs/migration.md")
	neighbours(t, r.Cluster)
	r.Apply(t, `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: webshop, namespace: team-a}
spec: {interval: 10m, prune: true, path: e2e/demo/example, sourceRef: {kind: GitRepository, name: webshop}}`)
	kustomization := cluster.Ref("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "team-a", "webshop")
	sh.run(t, `kubectl apply --server-side --field-manager=kustomize-controller --namespace team-a \
  --filename e2e/demo/example/database --filename e2e/demo/example/shop
kubectl label deployment shop --field-manager=kustomize-controller --namespace team-a kustomize.toolkit.fluxcd.io/name=webshop`)
	shop := cluster.Ref("apps/v1", "Deployment", "team-a", "shop")
	before := r.WaitFor(t, shop.DeepCopy())

	sh.run(t, steps[0].Text) // what policies and webhooks say
	if printed := sh.run(t, steps[1].Text); printed != "Nothing is missing.\n" {
		t.Errorf("permissions:\n%s", printed)
	}
	if printed := sh.run(t, steps[2].Text); printed != "" {
		t.Errorf("would change:\n%s", printed)
	}
	sh.run(t, steps[3].Text) // the Kustomization does nothing any more
	sh.run(t, steps[4].Text) // it is adopted
	after := r.WaitFor(t, shop.DeepCopy())
	if before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() {
		t.Errorf("the Deployment is another: %s, %d, and was %s, %d",
			after.GetUID(), after.GetGeneration(), before.GetUID(), before.GetGeneration())
	}
	if _, left := after.GetLabels()["kustomize.toolkit.fluxcd.io/name"]; left {
		t.Errorf("labels of kustomize-controller stay: %v", after.GetLabels())
	}
	suspended := r.WaitFor(t, kustomization.DeepCopy())
	for _, field := range []string{"suspend", "prune"} {
		value, found, err := unstructured.NestedBool(suspended.Object, "spec", field)
		if want := field == "suspend"; !found || err != nil || value != want {
			t.Errorf("%s of the Kustomization: %t (%v), want %t", field, value, err, want)
		}
	}
	sh.run(t, steps[5].Text) // it goes
	r.WaitGone(t, kustomization)
	sh.run(t, steps[6].Text) // the way back
	if diff := cmp.Diff(after.GetUID(), r.WaitFor(t, shop.DeepCopy()).GetUID()); diff != "" {
		t.Errorf("the Deployment that was left behind (-before +after):\n%s", diff)
	}
}

// leave takes away what the documents have made.
func (r *release) leave(t *testing.T) {
	t.Helper()
	args := []string{"uninstall", r.name, "--namespace", r.namespace, "--kubeconfig", r.Kubeconfig, "--ignore-not-found"}
	if _, err := helm(uncancelled{t}, args...); err != nil {
		t.Error(err)
	}
	deleteNamespaces(uncancelled{t}, r.Cluster, r.namespace, "flux-system", "team-a")
}

// exampleRepository is the URL of a Git repository with the example of this one.
func exampleRepository(t *testing.T) string {
	t.Helper()
	const example = "e2e/demo/example"
	files := map[string]string{}
	root := os.DirFS(filepath.Join(repository, example))
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		files[path.Join(example, name)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	git := gitserver.New(t, "stageset")
	git.MustCommit(t, files)
	return git.URL()
}

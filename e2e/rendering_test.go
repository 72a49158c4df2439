package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// T-12, T-60, T-63: a release may bring its own namespace, definition, role and binding, in whatever order they are
// written down.
func TestReleaseBringsWhatItNeedsItself(t *testing.T) {
	n := shared(t).tenant(t)
	gadget := gadgetKind{group: n.namespace + ".example.com"}
	home := n.namespace + "-home"
	n.allowEverywhere(t, fmt.Sprintf(`
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, create, patch, delete]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, create, patch, delete]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list, create, patch, delete]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: [get, list, create, patch, delete]}
- {apiGroups: [%s], resources: [gadgets], verbs: [get, list, create, patch, delete]}`, gadget.group))
	in := func(manifest string) string {
		return strings.Replace(manifest, "metadata: {", "metadata: {namespace: "+home+", ", 1)
	}
	revision := n.source(t, "app", map[string]string{"app/everything.yaml": documents(
		in(gadget.manifest("one")),
		in("apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: reader}\n"+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}\n"+
			"subjects: [{kind: ServiceAccount, name: deployer, namespace: "+n.namespace+"}]\n"),
		in(configMap("settings", "1")),
		in("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: reader}\n"+
			"rules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}]\n"),
		gadget.definition(),
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: "+home+"}\n",
	)})
	n.deleteAfter(t, cluster.Ref("v1", "Namespace", "", home))
	n.deleteAfter(t, gadget.definitionRef())
	mark := n.Audit(t)
	n.stageSet(t, "app", `
serviceAccountName: `+deployer+`
stages: [{name: app, path: app, sourceRef: {kind: GitRepository, name: app}}]`)
	set := n.waitReady(t, "app", "app", revision)
	if got := set.Status.Stages[0].Objects; got != 6 {
		t.Errorf("the stage has %d objects, want 6", got)
	}
	for _, ref := range []client.Object{
		gadget.ref(home, "one"), cluster.Ref("rbac.authorization.k8s.io/v1", "RoleBinding", home, "reader"),
		cluster.Ref("v1", "ConfigMap", home, "settings"),
	} {
		if err := n.Client.Get(t.Context(), client.ObjectKeyFromObject(ref), ref); err != nil {
			t.Error(err)
		}
	}
	// None is refused and tried again.
	if written := n.written(t, mark, deployer); len(written) != 6 {
		t.Errorf("writes: %v, want one of each of six objects", written)
	}
}

// allowEverywhere gives the account deployer rules in all namespaces.
func (n *tenant) allowEverywhere(t *testing.T, rules string) {
	t.Helper()
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules:%[2]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: deployer, namespace: %[1]s}]`, n.namespace, rules))
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding"} {
		n.deleteAfter(t, cluster.Ref("rbac.authorization.k8s.io/v1", kind, "", n.namespace))
	}
}

// T-63: what is wrong with an object is said at once, of all of them, also when others have to wait for their namespace.
func TestAllInvalidObjectsAreNamedBeforeTheFirstWrite(t *testing.T) {
	n := shared(t).tenant(t)
	n.allowEverywhere(t, `
- {apiGroups: [""], resources: [namespaces, configmaps], verbs: [get, list, create, patch, delete]}`)
	home := n.namespace + "-home"
	n.source(t, "app", map[string]string{
		"one/home.yaml": documents("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+home+"}\n",
			strings.Replace(configMap("settings", "1"), "metadata: {", "metadata: {namespace: "+home+", ", 1)),
		"one/service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 70000}]}\n",
		"two/web.yaml":     strings.Replace(deployment("web", "1"), "matchLabels: {app: web}", "matchLabels: {app: other}", 1),
	})
	mark := n.Audit(t)
	n.stageSet(t, "app", twoStages("app"))
	n.refusedWhole(t, "app", v1.ReasonApplyFailed,
		"stage one: Service "+n.namespace+"/web (one/service.yaml:1): ", "spec.ports[0].port: Invalid value: 70000",
		"stage two: Deployment.apps "+n.namespace+"/web (two/web.yaml:1): ", "spec.template.metadata.labels: Invalid value")
	n.wroteNothing(t, mark)
}

// targetNamespace, components, patches, images and commonMetadata, on a plain directory and on one that kustomize builds.
func TestStagesChangeWhatTheyRender(t *testing.T) {
	n := shared(t).tenant(t)
	other := n.suite.bareTenant(t)
	n.grant(t, other.namespace, deployer, "ClusterRole", "edit")
	revision := n.source(t, "app", map[string]string{
		"plain/web.yaml":                documents(deployment("web", "1"), configMap("settings", "1")),
		"base/kustomization.yaml":       "resources: [web.yaml]\n",
		"base/web.yaml":                 deployment("api", "1"),
		"customized/kustomization.yaml": "resources: [../base]\nnameSuffix: -blue\nreplicas: [{name: api, count: 0}]\n",
		"extra/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" +
			"resources: [more.yaml]\ncommonAnnotations: {extra: \"yes\"}\n",
		"extra/more.yaml": configMap("more", "1"),
	})
	n.stageSet(t, "app", `
serviceAccountName: `+deployer+`
stages:
- name: plain
  path: plain
  sourceRef: {kind: GitRepository, name: app}
  targetNamespace: `+other.namespace+`
  images: [{name: registry.invalid/app, newName: registry.invalid/new, newTag: "2"}]
  commonMetadata: {labels: {team: blue}, annotations: {owner: jo}}
  patches:
  - patch: |
      - {op: replace, path: /data/value, value: patched}
    target: {kind: ConfigMap}
  - patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web}
      spec: {template: {metadata: {annotations: {patched: "yes"}}}}
- name: customized
  path: customized
  components: [../extra]
  sourceRef: {kind: GitRepository, name: app}
  commonMetadata: {labels: {team: green}}
`)
	n.waitReady(t, "app", "app", revision)

	var settings corev1.ConfigMap
	n.get(t, other.namespace, "settings", &settings)
	if diff := cmp.Diff(map[string]string{"value": "patched"}, settings.Data); diff != "" {
		t.Errorf("ConfigMap (-want +got):\n%s", diff)
	}
	if settings.Labels["team"] != "blue" || settings.Annotations["owner"] != "jo" {
		t.Errorf("ConfigMap has labels %v, annotations %v", settings.Labels, settings.Annotations)
	}
	var web appsv1.Deployment
	n.get(t, other.namespace, "web", &web)
	template := web.Spec.Template
	if template.Spec.Containers[0].Image != "registry.invalid/new:2" || template.Annotations["patched"] != "yes" {
		t.Errorf("Deployment web has template %+v", template)
	}
	var api appsv1.Deployment
	n.get(t, n.namespace, "api-blue", &api)
	n.hasValue(t, "more-blue", "1")
	if *api.Spec.Replicas != 0 || api.Annotations["extra"] != "yes" || api.Labels["team"] != "green" || api.Labels[v1.LabelStage] != "customized" {
		t.Errorf("Deployment api-blue has %d replicas, annotations %v, labels %v", *api.Spec.Replicas, api.Annotations, api.Labels)
	}
}

func (n *tenant) get(t *testing.T, namespace, name string, into client.Object) {
	t.Helper()
	if err := n.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		t.Fatal(err)
	}
}

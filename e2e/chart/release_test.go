package chart_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// release is one that helm has installed.
type release struct {
	*cluster.Cluster
	name, namespace string
	client          client.Client
	chart           string   // folder
	values          []string // files
}

// prepare is a release in a namespace that admits only restricted Pods. It is uninstalled after the test.
func prepare(t *testing.T, name, values string) *release {
	t.Helper()
	c := cluster.Shared(t)
	crds, err := cluster.Binary("source-controller-crds")
	if err != nil {
		t.Fatal(err)
	}
	c.InstallCRDs(t, os.DirFS(crds))
	r := &release{Cluster: c, name: name, namespace: c.Namespace(t, name), client: c.Client(t), chart: chart}
	patch := `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`
	object := cluster.Ref("v1", "Namespace", "", r.namespace)
	if err := r.client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	r.values = []string{valuesFile(t, fmt.Sprintf(processes, ports(t)...)), valuesFile(t, values)}
	return r
}

// processes are the values of a release whose programs run on loopback, where artifacts are served, too.
const processes = `
webhook: {servicePort: %d}
admission: {flags: {webhook-port: %[1]d, webhook-host: 127.0.0.1, health-probe-bind-address: ":%[2]d",
  metrics-bind-address: ":%[3]d", log-format: text, drain-delay: 1s}}
reconciler: {flags: {artifact-hosts: [127.0.0.1], dial-allow: [127.0.0.0/8], health-probe-bind-address: ":%[4]d",
  metrics-bind-address: ":%[5]d", log-format: text}}`

func ports(t *testing.T) []any {
	t.Helper()
	var free []any
	for range 5 {
		free = append(free, process.FreePort(t))
	}
	return free
}

// helm runs a command of helm on this release, with more arguments.
func (r *release) helm(t *testing.T, command string, args ...string) string {
	t.Helper()
	own := append(strings.Fields(command), r.name, "--namespace", r.namespace, "--kubeconfig", r.Kubeconfig)
	output, err := helm(t, append(own, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// apply installs or upgrades the release with its values, and more arguments, and waits until all Pods are ready.
func (r *release) apply(t *testing.T, command string, args ...string) {
	t.Helper()
	args = append([]string{r.chart, "--wait", "--timeout", "3m"}, args...)
	for _, file := range r.values {
		args = append(args, "--values", file)
	}
	r.helm(t, command, args...)
}

// install installs the release, with more arguments, and has it uninstalled after the test, whatever happens in between.
func (r *release) install(t *testing.T, args ...string) {
	t.Helper()
	t.Cleanup(func() {
		args := []string{"uninstall", r.name, "--namespace", r.namespace, "--kubeconfig", r.Kubeconfig, "--ignore-not-found"}
		if _, err := helm(uncancelled{t}, args...); err != nil {
			t.Error(err)
		}
	})
	r.apply(t, "install", args...)
}

// start runs a program of the release as its Pod would: with the arguments and the environment of the Deployment that was
// installed, and a token of its account. What only a container has is translated: the places of volumes, and addresses that
// are not loopback's.
func (r *release) start(t *testing.T, component string) *process.Process {
	t.Helper()
	var deployment appsv1.Deployment
	if err := r.client.Get(t.Context(), r.key(component), &deployment); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	path, err := cluster.Binary("stageset-" + component)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--kubeconfig=" + r.WriteKubeconfig(t, r.TokenConfig(t, r.namespace, pod.ServiceAccountName))}
	places := r.volumes(t, pod)
	for _, arg := range pod.Containers[0].Args {
		args = append(args, everyAddress.ReplaceAllString(places.Replace(arg), "=127.0.0.1:$1"))
	}
	var env []string
	for _, variable := range pod.Containers[0].Env {
		env = append(env, places.Replace(variable.Name+"="+variable.Value))
	}
	var health int32
	for _, port := range pod.Containers[0].Ports {
		if port.Name == "health" {
			health = port.ContainerPort
		}
	}
	return process.Start(t, process.Options{
		Path: path, Args: args, Env: env, ReadyURL: fmt.Sprintf("http://127.0.0.1:%d/readyz", health),
	})
}

var everyAddress = regexp.MustCompile(`=:(\d+)$`)

// key is where an object of a component is.
func (r *release) key(component string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: r.name + "-" + component}
}

// volumes replaces where the container has its volumes by folders with the same content.
func (r *release) volumes(t *testing.T, pod corev1.PodSpec) *strings.Replacer {
	t.Helper()
	var replacements []string
	for _, mount := range pod.Containers[0].VolumeMounts {
		folder := t.TempDir()
		replacements = append(replacements, "="+mount.MountPath, "="+folder)
		for _, volume := range pod.Volumes {
			if volume.Name != mount.Name {
				continue
			}
			for name, content := range r.content(t, volume) {
				if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return strings.NewReplacer(replacements...)
}

// content is what the files of a volume have, by name.
func (r *release) content(t *testing.T, volume corev1.Volume) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	switch {
	case volume.ConfigMap != nil:
		var object corev1.ConfigMap
		key := types.NamespacedName{Namespace: r.namespace, Name: volume.ConfigMap.Name}
		if err := r.client.Get(t.Context(), key, &object); err != nil {
			t.Fatal(err)
		}
		for name, text := range object.Data {
			files[name] = []byte(text)
		}
	case volume.Secret != nil:
		var object corev1.Secret
		key := types.NamespacedName{Namespace: r.namespace, Name: volume.Secret.SecretName}
		if err := r.client.Get(t.Context(), key, &object); err != nil {
			t.Fatal(err)
		}
		files = object.Data
	}
	return files
}

// route has the Service lead to this machine: the API server then calls https://localhost at the port of the Service, and
// still wants the certificate to be that of the Service's name.
func (r *release) route(t *testing.T) {
	t.Helper()
	service := &corev1.Service{}
	service.Namespace, service.Name = r.namespace, r.name+"-admission"
	patch := `{"spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": null, "clusterIPs": null}}`
	if err := r.client.Patch(t.Context(), service, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// uncancelled is a test whose context has not ended, for cleanups.
type uncancelled struct{ testing.TB }

func (uncancelled) Context() context.Context { return context.Background() }

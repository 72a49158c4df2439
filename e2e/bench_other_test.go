package e2e

import (
	"bytes"
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// Another controller that BenchmarkUnits gives the same work, in the same run; none when otherBinary is empty.
var (
	otherBinary = flag.String("other", "", "binary of another controller to measure; it runs as a cluster admin")
	// The flags below are templates. Arguments have .Kubeconfig, .Namespace (where its account is) and .Dir (an empty folder).
	otherArgs = flag.String("other-args", "--kubeconfig {{.Kubeconfig}}", "its arguments, separated by spaces")
	// A unit has .Name, which is also that of its account and of its GitRepository, and .Namespace.
	otherUnit  = flag.String("other-unit", "", "file with the object that makes it apply a unit, as YAML")
	otherReady = flag.String("other-condition", "Ready", "condition of that object that is True when the unit is applied")
	otherCRDs  = flag.String("other-crds", "", "folder with definitions to install for it")
)

// otherController is one that runs.
type otherController struct {
	admin     client.Client
	process   *process.Process
	unit      *template.Template
	namespace string
}

func benchmarkOther(b *testing.B, units int) {
	s := setup(b)
	plain := plainApply(b, s.Cluster, units)
	running := s.startOther(b, units)
	watching := running.object(b, units)
	// One unit more than is measured: when it is Ready, the controller has started.
	if err := running.admin.Create(b.Context(), watching.DeepCopy()); err != nil {
		b.Fatal(err)
	}
	running.wait(b, s.Cluster, watching, 1)
	created := measure(b, s.Cluster, running.process, func() {
		inParallel(b, units, func(ctx context.Context, unit int) error {
			return running.admin.Create(ctx, running.object(b, unit))
		})
		running.wait(b, s.Cluster, watching, units+1)
	})
	reportCreated(b, created, plain, units)
	b.ReportMetric(float64(usage(b, running.process).peak)/(1<<20), "peak-MiB")
	waitNoneOf(b, running.admin, watching)
}

// startOther runs the controller, with accounts and sources of all units and of one more.
func (s *suite) startOther(b *testing.B, units int) otherController {
	b.Helper()
	const account = "controller"
	namespace := s.Namespace(b, "bench")
	prepareUnits(b, s.Cluster, artifacts.Start(b), namespace, units+1)
	if *otherCRDs != "" {
		s.InstallCRDs(b, os.DirFS(*otherCRDs))
	}
	s.Apply(b, strings.NewReplacer("NAMESPACE", namespace, "ACCOUNT", account).Replace(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: ACCOUNT, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: ACCOUNT, namespace: NAMESPACE}]`))
	s.deleteAfter(b, cluster.Ref("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", namespace))
	args := filled(b, template.Must(template.New("other-args").Parse(*otherArgs)), struct{ Kubeconfig, Namespace, Dir string }{
		s.WriteKubeconfig(b, s.TokenConfig(b, namespace, account)), namespace, b.TempDir(),
	})
	return otherController{
		admin: s.Client, namespace: namespace, unit: template.Must(template.ParseFiles(*otherUnit)),
		process: process.Start(b, process.Options{Path: *otherBinary, Args: strings.Fields(args)}),
	}
}

// object is what makes the controller apply a unit.
func (o otherController) object(b *testing.B, unit int) *unstructured.Unstructured {
	b.Helper()
	text := filled(b, o.unit, struct{ Name, Namespace string }{unitName(unit), o.namespace})
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		b.Fatalf("%v in\n%s", err, text)
	}
	object.SetNamespace(o.namespace)
	return object
}

func filled(b *testing.B, text *template.Template, with any) string {
	b.Helper()
	var out bytes.Buffer
	if err := text.Execute(&out, with); err != nil {
		b.Fatal(err)
	}
	return out.String()
}

// wait waits until that many units are applied.
func (o otherController) wait(b *testing.B, c *cluster.Cluster, kind *unstructured.Unstructured, units int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), benchTimeout)
	defer cancel()
	watching, err := client.NewWithWatch(c.Config, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	events, err := watching.Watch(ctx, listOf(kind), client.InNamespace(o.namespace))
	if err != nil {
		b.Fatal(err)
	}
	defer events.Stop()
	ready, applied := map[string]bool{}, cluster.Condition(*otherReady, "True")
	for len(ready) < units {
		event, open := <-events.ResultChan()
		if !open {
			b.Fatalf("the watch ended when %d of %d units were applied: %v", len(ready), units, ctx.Err())
		}
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			b.Fatalf("the watch says %v", event.Object)
		}
		if event.Type != watch.Deleted && applied(object) == nil {
			ready[object.GetName()] = true
		}
	}
}

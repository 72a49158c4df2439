package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/store"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // the clients of the tests have nothing to say
	os.Exit(cluster.Run(m, cluster.WithRestarts()))
}

// paramResources are what the installations of these tests allow.
var paramResources = []v1alpha1.ParamKind{
	{APIVersion: "v1", Kind: "ConfigMap"}, {APIVersion: "example.com/v1", Kind: "Limit"},
}

// lines is a log in memory.
type lines struct{ c chan string }

func (l lines) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		select {
		case l.c <- args:
		default:
		}
	}, funcr.Options{})
}

// start runs a store with a built-in policy that refuses the name forbidden, until the end of the test.
func start(t *testing.T, config *rest.Config, logger logr.Logger) *store.Store {
	t.Helper()
	return startAt(t, config, logger, clock.RealClock{})
}

// startAt is start with a clock.
func startAt(t *testing.T, config *rest.Config, logger logr.Logger, at clock.Clock) *store.Store {
	t.Helper()
	builtIn, err := policies.Compile(t.Context(), []v1alpha1.StageSetPolicy{
		*policy("built-in", "object.metadata.name != 'forbidden'", nil),
	}, policies.Options{BuiltIn: true, ParamResources: paramResources})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, web)
	if err != nil {
		t.Fatal(err)
	}
	watches, err := cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper, HTTPClient: web})
	if err != nil {
		t.Fatal(err)
	}
	direct, err := dynamic.NewForConfigAndClient(config, web)
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(store.Options{
		BuiltIn: builtIn, Cache: watches, Mapper: mapper, Dynamic: direct, Clock: at, Logger: logger,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- watches.Start(ctx) }()
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// policy refuses what the expression does not hold for.
func policy(name, expression string, params *v1alpha1.ParamRef) *v1alpha1.StageSetPolicy {
	made := &v1alpha1.StageSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	made.Spec.Validations = []v1alpha1.Validation{{Name: "rule", Expression: expression, Message: "no"}}
	if params != nil {
		made.Spec.ParamKind = &v1alpha1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		made.Spec.ParamRef = params
	}
	return made
}

// administrator is the client of an administrator, with a function that stores a policy until the end of the test.
func administrator(t *testing.T) (client.Client, func(*v1alpha1.StageSetPolicy)) {
	t.Helper()
	c := cluster.Shared(t).Client(t, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme)
	return c, func(p *v1alpha1.StageSetPolicy) {
		t.Helper()
		if err := c.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.IgnoreNotFound(c.Delete(context.Background(), p)) })
	}
}

// denials are what the set of s has against a StageSet of the name.
func denials(ctx context.Context, s *store.Store, namespace, name string) []string {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	object.SetNamespace(namespace)
	object.SetName(name)
	in := policies.Input{Object: object, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}}
	var denied []string
	for _, violation := range s.Set().Validate(ctx, in).Denied {
		denied = append(denied, violation.String())
	}
	return denied
}

// eventually waits until a StageSet is denied with exactly these words.
func eventually(t *testing.T, s *store.Store, namespace, name string, want ...string) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		if diff := cmp.Diff(want, denials(ctx, s, namespace, name)); diff != "" {
			return fmt.Errorf("denials (-want +got):\n%s", diff)
		}
		return nil
	})
}

// Without the CustomResourceDefinition the built-in policies hold, and the log says so; once it is there, those that are
// stored hold as well. What is broken is decided by its failurePolicy and stops no other. Everybody is told of changes.
func TestStoreFollowsPolicies(t *testing.T) {
	admin, keep := administrator(t)
	removeKind(t, admin)
	said := lines{make(chan string, 100)}
	s := start(t, cluster.Shared(t).Config, said.logger())
	told := s.Subscribe()
	if line := <-said.c; !strings.Contains(line, "only the built-in policies hold") {
		t.Errorf("the log says %s", line)
	}
	eventually(t, s, "a", "forbidden", "built-in/rule: no")

	cluster.Shared(t).InstallCRDs(t, crds.FS)
	first := policy("first", "object.metadata.name != 'x'", nil)
	keep(first)
	eventually(t, s, "a", "x", "first/rule: no")
	eventually(t, s, "a", "forbidden", "built-in/rule: no")
	<-told

	broken := policy("broken", "object.metadata.name ==", nil)
	broken.Spec.MatchConditions = []v1alpha1.MatchCondition{{Name: "y", Expression: "object.metadata.name == 'y'"}}
	keep(broken)
	second := policy("second", "object.metadata.name != 'z'", nil)
	keep(second)
	eventually(t, s, "a", "z", "second/rule: no")
	eventually(t, s, "a", "x", "first/rule: no")
	cluster.Eventually(t, func(ctx context.Context) error {
		said := denials(ctx, s, "a", "y")
		if len(said) != 1 || !strings.HasPrefix(said[0], "broken/rule: does not compile: ") {
			return fmt.Errorf("the broken policy says %q", said)
		}
		return nil
	})
	problems := s.Snapshot().Problems
	if len(problems) != 1 || problems[0].Field != "spec.validations[rule].expression" || problems[0].Line != 1 {
		t.Errorf("problems: %v", problems)
	}
	<-told

	first.Spec.Validations[0].Expression = "object.metadata.name != 'w'"
	if err := admin.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, "a", "w", "first/rule: no")
	eventually(t, s, "a", "x")
	<-told
	if err := admin.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, "a", "z")
}

// A status is no change: who writes it for each change of the set would never end.
func TestStatusChangesNothing(t *testing.T) {
	cluster.Shared(t).InstallCRDs(t, crds.FS)
	admin, keep := administrator(t)
	s := start(t, cluster.Shared(t).Config, logr.Discard())
	watched := policy("watched", "object.metadata.name != 'x'", nil)
	keep(watched)
	eventually(t, s, "a", "x", "watched/rule: no")
	before := s.Set()
	watched.Status.Installations = []v1alpha1.InstallationStatus{{Name: "a/b"}}
	if err := admin.Status().Update(t.Context(), watched); err != nil {
		t.Fatal(err)
	}
	// A later policy is compiled, so that the status has been seen by then.
	keep(policy("later", "object.metadata.name != 'y'", nil))
	eventually(t, s, "a", "y", "later/rule: no")
	if s.Snapshot().Stored[1].Name != "watched" || s.Set() == before {
		t.Error("the later policy is not in the set")
	}
	if got := len(s.Snapshot().Stored[1].Status.Installations); got != 1 {
		t.Errorf("%d installations in the status, want the one that was written", got)
	}
}

// removeKind removes what another test, or the installation of a cluster, may have installed.
func removeKind(t *testing.T, admin client.Client) {
	t.Helper()
	kind := &apiextensionsv1.CustomResourceDefinition{}
	kind.Name = "stagesetpolicies.stages.metio.wtf"
	if err := client.IgnoreNotFound(admin.Delete(t.Context(), kind)); err != nil {
		t.Fatal(err)
	}
	cluster.Shared(t).WaitGone(t, cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", kind.Name))
}

package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// readerStub answers every read with one object, list or error, and notes what was asked for.
type readerStub struct {
	object *unstructured.Unstructured
	list   []*unstructured.Unstructured
	err    error
	asked  string
}

func (r *readerStub) List(
	_ context.Context, gvk schema.GroupVersionKind, namespace string, visit func(*unstructured.Unstructured),
) error {
	r.asked = fmt.Sprintf("%s in %s", gvk, namespace)
	for _, object := range r.list {
		visit(object)
	}
	return r.err
}

func (r *readerStub) Get(_ context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	r.asked = fmt.Sprintf("%s %s/%s", gvk, namespace, name)
	return r.object, r.err
}

// namedReader also says whom it reads as.
type namedReader struct{ readerStub }

func (r *namedReader) Identity() string { return "account team-a/deployer" }

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := object.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return object
}

// repository is a GitRepository with the given status.
func repository(t *testing.T, status string) *unstructured.Unstructured {
	return parse(t, `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: app, namespace: team-a, uid: 5f3c0c55-8d1e-4a5b-9d52-0d9a3f0f7b11, generation: 3}
status: `+status)
}

var sum = "sha256:" + strings.Repeat("ab", 32)

func resolver(t *testing.T) *Resolver {
	t.Helper()
	hosts, err := ParseHosts(DefaultHosts)
	if err != nil {
		t.Fatal(err)
	}
	return NewResolver(hosts)
}

func TestResolvePins(t *testing.T) {
	artifact := `{artifact: {url: "http://sc.flux-system.svc/gitrepository/team-a/app/1.tar.gz", digest: "` +
		strings.ToUpper(sum) + `", revision: "main@sha1:c0ffee", size: 123}`
	want := Pin{Kind: v1.SourceKindGitRepository, Namespace: "team-a", Name: "app", UID: "5f3c0c55-8d1e-4a5b-9d52-0d9a3f0f7b11",
		URL: "http://sc.flux-system.svc/gitrepository/team-a/app/1.tar.gz", Digest: sum, Revision: "main@sha1:c0ffee", Size: 123}
	ref := v1.SourceReference{Kind: v1.SourceKindGitRepository, Name: "app"}
	cases := map[string]string{
		"ready":                    artifact + `, conditions: [{type: Ready, status: "True"}]}`,
		"not ready, but artifact":  artifact + `, conditions: [{type: Ready, status: "False", message: auth failed}]}`,
		"of an earlier generation": artifact + `, observedGeneration: 1}`,
	}
	for name, status := range cases {
		t.Run(name, func(t *testing.T) {
			reader := &readerStub{object: repository(t, status)}
			got, err := resolver(t).Resolve(context.Background(), reader, ref, "team-a")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pin (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolveReads(t *testing.T) {
	cases := map[string]struct {
		ref  v1.SourceReference
		want string
	}{
		"defaults":  {v1.SourceReference{Name: "app"}, "source.toolkit.fluxcd.io/v1, Kind=ExternalArtifact team-a/app"},
		"namespace": {v1.SourceReference{Name: "app", Namespace: "platform", Kind: v1.SourceKindBucket}, "source.toolkit.fluxcd.io/v1, Kind=Bucket platform/app"},
		"apiVersion": {v1.SourceReference{Name: "app", APIVersion: "source.toolkit.fluxcd.io/v1", Kind: v1.SourceKindOCIRepository},
			"source.toolkit.fluxcd.io/v1, Kind=OCIRepository team-a/app"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			reader := &readerStub{err: errors.New("enough")}
			_, _ = resolver(t).Resolve(context.Background(), reader, c.ref, "team-a")
			if diff := cmp.Diff(c.want, reader.asked); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolveFails(t *testing.T) {
	resource := schema.GroupResource{Group: v1.SourceGroup, Resource: "gitrepositories"}
	gone := failure.NewStalled(v1.ReasonServiceAccountNotFound, "account team-a/typo does not exist")
	status := func(status string) Reader { return &readerStub{object: repository(t, status)} }
	artifact := func(field, value string) Reader {
		object := repository(t, `{artifact: {url: "http://sc.flux-system.svc/gitrepository/team-a/app/1.tar.gz", digest: "`+sum+`", revision: main}}`)
		if err := unstructured.SetNestedField(object.Object, value, "status", "artifact", field); err != nil {
			t.Fatal(err)
		}
		return &readerStub{object: object}
	}
	cases := map[string]struct {
		reader Reader
		reason string
		kind   failure.Kind
		text   string
	}{
		"missing": {
			&readerStub{err: apierrors.NewNotFound(resource, "app")}, v1.ReasonSourceNotFound, failure.Waiting,
			"GitRepository team-a/app does not exist"},
		"resource not served": {
			&readerStub{err: apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "", "", 0, true)},
			v1.ReasonSourceNotFound, failure.Waiting,
			"GitRepository team-a/app: the cluster does not serve GitRepository of source.toolkit.fluxcd.io/v1; is Flux installed?"},
		"kind unknown to the mapper": {
			&readerStub{err: &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1.SourceGroup, Kind: "GitRepository"}}},
			v1.ReasonSourceNotFound, failure.Waiting,
			"GitRepository team-a/app: the cluster does not serve GitRepository of source.toolkit.fluxcd.io/v1; is Flux installed?"},
		"forbidden": {
			&readerStub{err: apierrors.NewForbidden(resource, "app", errors.New("no"))}, v1.ReasonAccessDenied, failure.Stalled,
			"the stage's account may not read GitRepository team-a/app: grant it get on gitrepositories.source.toolkit.fluxcd.io named app in namespace team-a"},
		"forbidden, account known": {
			&namedReader{readerStub{err: apierrors.NewForbidden(resource, "app", errors.New("no"))}}, v1.ReasonAccessDenied, failure.Stalled,
			"account team-a/deployer may not read GitRepository team-a/app: grant it get on gitrepositories.source.toolkit.fluxcd.io named app in namespace team-a"},
		"API server down": {
			&readerStub{err: errors.New("connection refused")}, v1.ReasonSourceNotReady, failure.Transient,
			"GitRepository team-a/app cannot be read: connection refused"},
		"failure of the reader": {
			&readerStub{err: fmt.Errorf("get: %w", gone)}, v1.ReasonServiceAccountNotFound, failure.Stalled,
			"account team-a/typo does not exist"},
		"no status": {status(`{}`), v1.ReasonSourceNotReady, failure.Waiting, "GitRepository team-a/app has no artifact: it does not say why"},
		"no artifact": {
			status(`{conditions: [{type: Ready, status: "False", reason: GitOperationFailed, message: "failed to checkout:\n authentication  required"}]}`),
			v1.ReasonSourceNotReady, failure.Waiting,
			"GitRepository team-a/app has no artifact: GitOperationFailed: failed to checkout: authentication required"},
		"endless message": {
			status(`{conditions: [{type: Ready, reason: R, message: "` + strings.Repeat("ü", 400) + `"}]}`),
			v1.ReasonSourceNotReady, failure.Waiting,
			"GitRepository team-a/app has no artifact: R: " + strings.Repeat("ü", 253) + "…"},
		"foreign url": {
			artifact("url", "http://evil.team-b.svc/gitrepository/team-a/app/1.tar.gz"), v1.ReasonArtifactFailed, failure.Stalled,
			`the artifact in the status of GitRepository team-a/app is refused: of its url, its host "evil.team-b.svc" is none of --artifact-hosts (*.flux-system.svc, *.flux-system.svc.cluster.local)`},
		"no digest": {
			artifact("digest", ""), v1.ReasonArtifactFailed, failure.Stalled,
			"the artifact in the status of GitRepository team-a/app is refused: the artifact has no digest"},
		"no revision": {
			artifact("revision", ""), v1.ReasonArtifactFailed, failure.Stalled,
			"the artifact in the status of GitRepository team-a/app is refused: it has no revision"},
		"endless revision": {
			artifact("revision", strings.Repeat("x", 1025)), v1.ReasonArtifactFailed, failure.Stalled,
			"the artifact in the status of GitRepository team-a/app is refused: its revision has 1025 bytes; at most 1024 are accepted"},
		"too large": {
			status(`{artifact: {url: "http://sc.flux-system.svc/gitrepository/team-a/app/1.tar.gz", digest: "` + sum + `", revision: main, size: 67108865}}`),
			v1.ReasonArtifactFailed, failure.Stalled,
			"the artifact in the status of GitRepository team-a/app is refused: its size is 67108865 bytes; at most 67108864 are accepted"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ref := v1.SourceReference{Kind: v1.SourceKindGitRepository, Name: "app"}
			_, err := resolver(t).Resolve(context.Background(), c.reader, ref, "team-a")
			var failed *failure.Error
			if !errors.As(err, &failed) {
				t.Fatalf("error %v is no failure.Error", err)
			}
			got := []string{failed.Reason, failed.Kind.String(), failed.Error()}
			if diff := cmp.Diff([]string{c.reason, c.kind.String(), c.text}, got); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolveRefusesReference(t *testing.T) {
	for name, ref := range map[string]v1.SourceReference{
		"producer without apiVersion": {Kind: "HelmChart", Name: "app"},
		"other apiVersion":            {Kind: v1.SourceKindBucket, Name: "app", APIVersion: "source.toolkit.fluxcd.io/v1beta2"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := &readerStub{err: apierrors.NewNotFound(schema.GroupResource{}, metav1.StatusSuccess)}
			_, err := resolver(t).Resolve(context.Background(), reader, ref, "team-a")
			var failed *failure.Error
			if !errors.As(err, &failed) || failed.Reason != v1.ReasonInvalidSpec || failed.Kind != failure.Stalled {
				t.Errorf("error %v is not a stalled InvalidSpec", err)
			}
			if reader.asked != "" {
				t.Errorf("read %s", reader.asked)
			}
		})
	}
}

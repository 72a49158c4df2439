package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// externalArtifact is one in team-a that points back as the YAML says.
func externalArtifact(t *testing.T, name, back string) *unstructured.Unstructured {
	return parse(t, `
apiVersion: source.toolkit.fluxcd.io/v1
kind: ExternalArtifact
metadata: {name: `+name+`, namespace: team-a, uid: 00000000-0000-0000-0000-00000000000`+fmt.Sprint(len(name))+`}
spec: `+back+`
status: {artifact: {url: "http://p.flux-system.svc/x/`+name+`.tar.gz", digest: "`+sum+`", revision: "1"}}`)
}

// A producer is found by who points back at it, whatever the version, and only in its own namespace.
func TestResolveProducer(t *testing.T) {
	const app = "apiVersion: example.com/v1, kind: Release, name: app"
	others := []*unstructured.Unstructured{
		externalArtifact(t, "unrelated", "{}"),
		externalArtifact(t, "other-name", "{sourceRef: {apiVersion: example.com/v1, kind: Release, name: other}}"),
		externalArtifact(t, "other-kind", "{sourceRef: {apiVersion: example.com/v1, kind: Build, name: app}}"),
		externalArtifact(t, "other-group", "{sourceRef: {apiVersion: example.org/v1, kind: Release, name: app}}"),
		externalArtifact(t, "other-namespace", "{sourceRef: {"+app+", namespace: team-b}}"),
	}
	ref := v1.SourceReference{APIVersion: "example.com/v1", Kind: "Release", Name: "app"}
	for name, back := range map[string]string{
		"same version":    app,
		"another version": "apiVersion: example.com/v1beta1, kind: Release, name: app",
		"no version":      "kind: Release, name: app",
		"its namespace":   app + ", namespace: team-a",
	} {
		t.Run(name, func(t *testing.T) {
			reader := &readerStub{list: append(others, externalArtifact(t, "made", "{sourceRef: {"+back+"}}"))}
			got, err := resolver(t).Resolve(t.Context(), reader, ref, "team-a")
			if err != nil {
				t.Fatal(err)
			}
			want := Pin{Kind: v1.SourceKindExternalArtifact, Namespace: "team-a", Name: "made",
				UID: "00000000-0000-0000-0000-000000000004", URL: "http://p.flux-system.svc/x/made.tar.gz", Digest: sum, Revision: "1"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pin (-want +got):\n%s", diff)
			}
			if want := "source.toolkit.fluxcd.io/v1, Kind=ExternalArtifact in team-a"; reader.asked != want {
				t.Errorf("read %s, want %s", reader.asked, want)
			}
		})
	}
}

// What Flux calls Bucket is a source; of another group it is a producer.
func TestResolveProducerFails(t *testing.T) {
	const app = "{sourceRef: {apiVersion: example.com/v1, kind: Bucket, name: app}}"
	many := make([]*unstructured.Unstructured, 8)
	for i := range many {
		many[i] = externalArtifact(t, strings.Repeat("m", i+1), app)
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "externalartifacts"}, "", errors.New("no"))
	const where = "Bucket.example.com team-a/app"
	cases := map[string]struct {
		reader Reader
		reason string
		kind   failure.Kind
		text   string
	}{
		"none": {&readerStub{}, v1.ReasonSourceNotFound, failure.Waiting,
			"no ExternalArtifact in namespace team-a has a spec.sourceRef that points back at " + where},
		"two": {&readerStub{list: many[:2]}, v1.ReasonArtifactFailed, failure.Stalled,
			"more than one ExternalArtifact points back at " + where + " (m, mm): delete the wrong one, or name the right one in sourceRef"},
		"many": {&readerStub{list: many}, v1.ReasonArtifactFailed, failure.Stalled,
			"more than one ExternalArtifact points back at " + where + " (m, mm, mmm, mmmm, mmmmm, and 3 more): " +
				"delete the wrong one, or name the right one in sourceRef"},
		"without an artifact": {
			&readerStub{list: []*unstructured.Unstructured{parse(t, "{apiVersion: source.toolkit.fluxcd.io/v1, kind: ExternalArtifact, "+
				"metadata: {name: made, namespace: team-a}, spec: "+app+"}")}},
			v1.ReasonSourceNotReady, failure.Waiting, "ExternalArtifact team-a/made has no artifact: it does not say why"},
		"forbidden": {&namedReader{readerStub{err: forbidden}}, v1.ReasonAccessDenied, failure.Stalled,
			"account team-a/deployer may not look for the ExternalArtifact of " + where +
				": grant it list on externalartifacts.source.toolkit.fluxcd.io in namespace team-a"},
		"API server down": {&readerStub{err: errors.New("connection refused")}, v1.ReasonSourceNotReady, failure.Transient,
			"the ExternalArtifact of " + where + " cannot be read: connection refused"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ref := v1.SourceReference{APIVersion: "example.com/v1", Kind: v1.SourceKindBucket, Name: "app"}
			_, err := resolver(t).Resolve(context.Background(), c.reader, ref, "team-a")
			failed := failure.From(err)
			got := []string{failed.Reason, failed.Kind.String(), failed.Error()}
			if diff := cmp.Diff([]string{c.reason, c.kind.String(), c.text}, got); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}

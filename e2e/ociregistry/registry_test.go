package ociregistry_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/stageset/stageset/e2e/ociregistry"
)

func TestPushedFilesCanBePulled(t *testing.T) {
	registry := ociregistry.New(t)
	files := map[string]string{"apps/web.yaml": "kind: Deployment\n", "empty": ""}
	digest := registry.MustPush(t, "team/fleet", "v1", files)

	image := pull(t, registry.URL("team/fleet")+":v1")
	if got, err := image.Digest(); err != nil || got.String() != digest {
		t.Errorf("pulled %s (%v), pushed %s", got, err, digest)
	}
	if diff := cmp.Diff(files, unpack(t, image)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestSameFilesHaveTheSameDigestAndATagMoves(t *testing.T) {
	registry := ociregistry.New(t)
	one := map[string]string{"a": "1", "b": "2"}
	first := registry.MustPush(t, "fleet", "latest", one)
	if again := registry.MustPush(t, "other", "latest", one); again != first {
		t.Errorf("the same files are %s and %s", first, again)
	}
	second := registry.MustPush(t, "fleet", "latest", map[string]string{"a": "1"})
	if second == first {
		t.Errorf("other files are %s too", first)
	}
	if got, err := pull(t, registry.URL("fleet")+":latest").Digest(); err != nil || got.String() != second {
		t.Errorf("the tag is at %s (%v), want %s", got, err, second)
	}
}

func TestLayerIsKeptAsItIs(t *testing.T) {
	registry := ociregistry.New(t)
	if _, err := registry.PushLayer(t.Context(), "fleet", "broken", []byte("no archive")); err != nil {
		t.Fatal(err)
	}
	if got := layer(t, pull(t, registry.URL("fleet")+":broken")); got != "no archive" {
		t.Errorf("got layer %q", got)
	}
}

func pull(t *testing.T, url string) v1.Image {
	t.Helper()
	reference, err := name.ParseReference(strings.TrimPrefix(url, "oci://"))
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(reference)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func layer(t *testing.T, image v1.Image) string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers (%v), want 1", len(layers), err)
	}
	reader, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func unpack(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	decompressor, err := gzip.NewReader(strings.NewReader(layer(t, image)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(decompressor); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

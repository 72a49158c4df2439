package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/process"
)

const mebi = 1 << 20

// maxMemory is what the reconciler may ever have used after everything here, in bytes.
const maxMemory = 300 * mebi

// T-78: an archive is small and becomes large, a stream does not end, a document multiplies: each is refused at a limit
// that is named, and costs neither memory nor the next release.
func TestBombsAreRefusedInLittleMemory(t *testing.T) {
	s := setup(t)
	reconciler := s.ownReconciler(t)
	n := s.tenant(t)
	r := n.running(t)
	t.Run("2 GiB of zeros", func(t *testing.T) {
		r.offer(t, bytes.Repeat(gzipped(t, zeros(64*mebi)), 32))
		r.refuses(t, v1.ReasonArtifactFailed, "it inflates to more than 536870912 bytes")
	})
	t.Run("2 GiB of files", func(t *testing.T) {
		var archive bytes.Buffer
		content := gzipped(t, zeros(16*mebi))
		for number := range 128 {
			archive.Write(gzipped(t, bytes.NewReader(tarHeader(t, fmt.Sprintf("one/%d.yaml", number), 16*mebi))))
			archive.Write(content)
		}
		r.offer(t, archive.Bytes())
		r.refuses(t, v1.ReasonArtifactFailed, "it inflates to more than 536870912 bytes")
	})
	t.Run("one large file", func(t *testing.T) {
		header := gzipped(t, bytes.NewReader(tarHeader(t, "one/large.yaml", 2<<30)))
		r.offer(t, slices.Concat(header, bytes.Repeat(gzipped(t, zeros(64*mebi)), 32)))
		r.refuses(t, v1.ReasonArtifactFailed, `entry "one/large.yaml" has 2147483648 bytes; at most 16777216 are accepted`)
	})
	t.Run("stream without an end", func(t *testing.T) {
		endless := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
			for chunk := make([]byte, mebi); request.Context().Err() == nil; {
				if _, err := response.Write(chunk); err != nil {
					return
				}
			}
		}))
		defer endless.Close()
		artifact := r.Artifacts.Put("gitrepository", n.namespace, "app", nil)
		artifact.URL, artifact.Revision = endless.URL+"/"+artifact.Path, "main@sha1:0"
		publish(t, s.Cluster, n.namespace, "app", artifact)
		r.refuses(t, v1.ReasonArtifactFailed, "it has more than 67108864 bytes")
	})
	t.Run("aliases of aliases", func(t *testing.T) {
		document := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\nx0: &x0 [lol]\n"
		for level := 1; level < 40; level++ {
			document += fmt.Sprintf("x%[1]d: &x%[1]d [*x%[2]d, *x%[2]d, *x%[2]d, *x%[2]d]\n", level, level-1)
		}
		r.offer(t, artifacts.TarGz(t, map[string]string{"one/config.yaml": document, "two/config.yaml": configMap("more", "1")}))
		r.refuses(t, v1.ReasonBuildFailed, "one/config.yaml:")
	})
	t.Run("replacement that doubles", func(t *testing.T) {
		const double = "- source: {kind: ConfigMap, name: settings, fieldPath: data.value}\n  targets: [{select: {kind: ConfigMap}, " +
			"fieldPaths: [data.value], options: {delimiter: '-', index: 9}}]\n"
		r.offer(t, artifacts.TarGz(t, map[string]string{
			"one/kustomization.yaml": "resources: [config.yaml]\nreplacements:\n" + strings.Repeat(double, 60),
			"one/config.yaml":        configMap("settings", "2"), "two/config.yaml": configMap("more", "1"),
		}))
		r.refuses(t, v1.ReasonBuildFailed, "one/kustomization.yaml: replacements: kustomize may have to copy more than 64 MiB")
	})
	peak := reconciler.PeakMemory(t)
	t.Logf("the reconciler has used %d MiB at most", peak/mebi)
	if peak > maxMemory {
		t.Errorf("want at most %d MiB", maxMemory/mebi)
	}
	n.waitReady(t, "app", "app", n.source(t, "app", map[string]string{
		"one/config.yaml": configMap("settings", "2"), "two/config.yaml": configMap("more", "1"),
	}))
}

// zeros is a reader of that many bytes.
func zeros(size int64) io.Reader { return io.LimitReader(zero{}, size) }

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// gzipped is a member of a gzip file, which may have any number of them.
func gzipped(t testing.TB, content io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	if _, err := io.Copy(writer, content); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// tarHeader is the header of a file, which its content, a multiple of 512 bytes, has to follow.
func tarHeader(t testing.TB, name string, size int64) []byte {
	t.Helper()
	var out bytes.Buffer
	header := tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Size: size}
	if err := tar.NewWriter(&out).WriteHeader(&header); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// One dialer: what a tenant's source names is not reached on loopback unless the operator says so.
func TestLoopbackIsRefusedUnlessAllowed(t *testing.T) {
	s := setup(t)
	s.stopReconciler(t)
	options := reconcilerOptions(t, s.Cluster, "127.0.0.1")
	options.Args = slices.DeleteFunc(options.Args, func(arg string) bool { return strings.HasPrefix(arg, "--dial-allow") })
	process.Start(t, options)
	n := s.tenant(t)
	archive := artifacts.TarGz(t, map[string]string{"a.yaml": configMap("a", "1")})
	artifact := n.Artifacts.Put("gitrepository", n.namespace, "app", archive)
	publish(t, s.Cluster, n.namespace, "app", artifact)
	n.stageSet(t, "app", oneStage("app"))
	message := n.waitRefused(t, "app", v1.ReasonArtifactFailed)
	for _, want := range []string{"127.0.0.1", "loopback", "--dial-allow"} {
		if !strings.Contains(message, want) {
			t.Errorf("message %q does not contain %q", message, want)
		}
	}
	if got := n.Artifacts.Requests(artifact); got != 0 {
		t.Errorf("the artifact was asked for %d times", got)
	}
	n.absent(t, n.configMap("a"))
}

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
)

// running is a release that runs while its successor is bad.
type running struct {
	*tenant
	object *unstructured.Unstructured
	short  string
	mark   cluster.AuditMark
}

// good is what the release has that runs.
var good = map[string]string{"one/config.yaml": configMap("settings", "1"), "two/config.yaml": configMap("more", "1")}

// running releases what is good.
func (n *tenant) running(t testing.TB) running {
	t.Helper()
	revision := n.source(t, "app", good)
	n.stageSet(t, "app", twoStages("app"))
	set := n.waitReady(t, "app", "app", revision)
	return running{tenant: n, object: n.live(t, n.configMap("settings")), short: set.Status.Revision, mark: n.Audit(t)}
}

// refuses waits until the release says, for the reason, all of the texts, and checks that what ran before runs on.
func (r running) refuses(t *testing.T, reason string, texts ...string) {
	t.Helper()
	predicates := []cluster.Predicate{cluster.Condition(v1.ConditionReady, "False", reason)}
	for _, text := range texts {
		predicates = append(predicates, messageHas(text))
	}
	message := readyMessage(r.wait(t, "app", predicates...))
	if want := "; still running " + r.short; !strings.HasSuffix(message, want) {
		t.Errorf("message %q does not end with %q", message, want)
	}
	r.waitEvent(t, "app", "Warning", reason, texts[0])
	if live := r.live(t, r.object); live.GetResourceVersion() != r.object.GetResourceVersion() {
		t.Errorf("ConfigMap settings was written: %v", live.Object)
	}
	if writes := r.written(t, r.mark, deployer); len(writes) > 0 {
		t.Errorf("the account wrote: %v", writes)
	}
}

// offer makes an artifact with that content the next of the source app, and waits until a pass has tried it: the one before
// may have been refused in the same words.
func (r running) offer(t testing.TB, content []byte) artifacts.Artifact {
	t.Helper()
	artifact := r.Artifacts.Put("gitrepository", r.namespace, "app", content)
	publish(t, r.Cluster, r.namespace, "app", artifact)
	r.wait(t, "app", r.revision("lastAttemptedRevisions", "app", artifact.Revision))
	return artifact
}

// entry is an archive of one entry that is not a file, and a good file.
func entry(t testing.TB, header tar.Header) []byte {
	t.Helper()
	const file = "one/config.yaml"
	content := configMap("settings", "2")
	return artifacts.Archive(t, []tar.Header{
		{Name: file, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(content))}, header,
	}, map[string]string{file: content})
}

// T-78, T-79, T-81: whatever is wrong with an archive is named with its entry, and nothing of it is used.
func TestBadArchiveLeavesTheReleaseAlone(t *testing.T) {
	archive := artifacts.TarGz(t, map[string]string{"one/config.yaml": configMap("settings", "2")})
	twice := tar.Header{Name: "one/config.yaml", Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(configMap("settings", "2")))}
	cases := map[string]struct {
		content []byte
		texts   []string
	}{
		"truncated":          {content: archive[:len(archive)/2], texts: []string{"unexpected EOF"}},
		"without its end":    {content: archive[:len(archive)-4], texts: []string{"unreadable after the last entry", "unexpected EOF"}},
		"no archive":         {content: []byte("<html>not found</html>"), texts: []string{"it is not a gzipped tar archive"}},
		"path with ..":       {content: entry(t, file("../evil.yaml")), texts: []string{`entry "../evil.yaml" has ".." in its path`}},
		"path with .. below": {content: entry(t, file("one/../../evil")), texts: []string{`entry "one/../../evil" has ".." in its path`}},
		"absolute path":      {content: entry(t, file("/etc/evil.yaml")), texts: []string{`entry "/etc/evil.yaml" has an absolute path`}},
		"symbolic link": {
			content: entry(t, tar.Header{Name: "one/link.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}),
			texts:   []string{`entry "one/link.yaml" is a symbolic link`},
		},
		"linked directory": {
			content: entry(t, tar.Header{Name: "one/base", Typeflag: tar.TypeSymlink, Linkname: "/etc"}),
			texts:   []string{`entry "one/base" is a symbolic link`},
		},
		"hard link": {
			content: entry(t, tar.Header{Name: "one/hard.yaml", Typeflag: tar.TypeLink, Linkname: "one/config.yaml"}),
			texts:   []string{`entry "one/hard.yaml" is a hard link`},
		},
		"device": {
			content: entry(t, tar.Header{Name: "one/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}),
			texts:   []string{`entry "one/null" is a device`},
		},
		"pipe": {content: entry(t, tar.Header{Name: "one/pipe", Typeflag: tar.TypeFifo}), texts: []string{`entry "one/pipe" is a named pipe`}},
		"size": {content: hugeEntry(t), texts: []string{`entry "one/huge.yaml" has 9223372036854775807 bytes`}},
		"entry twice": {
			content: artifacts.Archive(t, []tar.Header{twice, twice}, map[string]string{twice.Name: configMap("settings", "2")}),
			texts:   []string{`entry "one/config.yaml" appears twice`},
		},
	}
	r := shared(t).tenant(t).running(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r.offer(t, tc.content)
			r.refuses(t, v1.ReasonArtifactFailed, tc.texts...)
		})
	}
	t.Run("wrong digest", func(t *testing.T) {
		artifact := r.Artifacts.Put("gitrepository", r.namespace, "app", archive)
		artifact.Digest = "sha256:" + strings.Repeat("0", 64)
		publish(t, r.Cluster, r.namespace, "app", artifact)
		r.refuses(t, v1.ReasonArtifactFailed, "its digest is not "+artifact.Digest+", which the source says")
	})
	t.Run("wrong size", func(t *testing.T) {
		artifact := r.Artifacts.Put("gitrepository", r.namespace, "app", archive)
		artifact.Size--
		publish(t, r.Cluster, r.namespace, "app", artifact)
		r.refuses(t, v1.ReasonArtifactFailed, fmt.Sprintf("it does not have the %d bytes that the source says", artifact.Size))
	})
	t.Run("unknown digest", func(t *testing.T) {
		artifact := r.Artifacts.Put("gitrepository", r.namespace, "app", archive)
		artifact.Digest = "md5:" + strings.Repeat("0", 32)
		publish(t, r.Cluster, r.namespace, "app", artifact)
		r.refuses(t, v1.ReasonArtifactFailed, `digest algorithm "md5" is none of sha256, sha384, sha512, blake3`)
	})
	t.Run("a good one again", func(t *testing.T) {
		artifact := r.offer(t, artifacts.TarGz(t, map[string]string{
			"one/config.yaml": configMap("settings", "3"), "two/config.yaml": configMap("more", "1")}))
		r.waitReady(t, "app", "app", artifact.Revision)
		r.hasValue(t, "settings", "3")
	})
}

func file(name string) tar.Header { return tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg} }

// hugeEntry is an archive whose only entry says that it has more bytes than any number of disks.
func hugeEntry(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	header := file("one/huge.yaml")
	header.Size, header.Format = math.MaxInt64, tar.FormatGNU
	if err := tar.NewWriter(compressed).WriteHeader(&header); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// T-83, T-89: a build that fails names file and line, and both places of an object that is there twice.
func TestBadManifestsLeaveTheReleaseAlone(t *testing.T) {
	two := "two/config.yaml"
	scaler := "apiVersion: autoscaling/%s\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n" +
		"spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n"
	kustomization := "one/kustomization.yaml"
	cases := map[string]struct {
		files  map[string]string
		reason string
		texts  []string
	}{
		"missing path": {
			files: map[string]string{"other/config.yaml": configMap("settings", "2")},
			texts: []string{"stage one", `path "one" does not exist in the artifact`},
		},
		"invalid YAML": {
			files: map[string]string{"one/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings\ndata: {}\n"},
			texts: []string{"stage one", "one/config.yaml:3: invalid YAML"},
		},
		"tab": {
			files: map[string]string{"one/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n\tname: settings\n"},
			texts: []string{"one/config.yaml:4: "},
		},
		"control character": {
			files: map[string]string{"one/config.yaml": configMap("settings", "2") + "# \u0093\n"},
			texts: []string{"one/config.yaml:5: ", "U+0093"},
		},
		"duplicate key": {
			files: map[string]string{"one/config.yaml": configMap("settings", "2") + "data: {value: again}\n"},
			texts: []string{"one/config.yaml:5: ", `"data"`},
		},
		"in the second document": {
			files: map[string]string{"one/config.yaml": documents(configMap("settings", "2"), "kind: ConfigMap\nmetadata: {name: x}\n")},
			texts: []string{"one/config.yaml:6: ", "apiVersion is missing"},
		},
		"invalid JSON": { // T-88: it is not passed over
			files: map[string]string{"one/config.json": "{\"apiVersion\": \"v1\",\n\"kind\": }"},
			texts: []string{"one/config.json:2: "},
		},
		"no name": {
			files: map[string]string{"one/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: settings-}\n"},
			texts: []string{"one/config.yaml:1: ", "generateName"},
		},
		"unknown kind": {
			files: map[string]string{"one/gizmo.yaml": "apiVersion: example.invalid/v1\nkind: Gizmo\nmetadata: {name: g}\n"},
			texts: []string{"one/gizmo.yaml:1: ", "Gizmo", "example.invalid"},
		},
		"same object in two stages": {
			files:  map[string]string{"one/config.yaml": configMap("settings", "2"), two: configMap("settings", "3")},
			reason: v1.ReasonDuplicateObject,
			texts:  []string{"ConfigMap", "settings", `stage "one" (one/config.yaml:1)`, `stage "two" (two/config.yaml:1)`},
		},
		"same object in two versions": {
			files:  map[string]string{"one/a.yaml": fmt.Sprintf(scaler, "v1"), "two/b.yaml": fmt.Sprintf(scaler, "v2")},
			reason: v1.ReasonDuplicateObject,
			texts:  []string{"HorizontalPodAutoscaler", "one/a.yaml:1", "two/b.yaml:1"},
		},
		"same object in one stage": {
			files:  map[string]string{"one/a.yaml": configMap("settings", "2"), "one/b.yaml": configMap("settings", "3")},
			reason: v1.ReasonDuplicateObject,
			texts:  []string{"ConfigMap", "settings", "one/a.yaml:1", "one/b.yaml:1"},
		},
		"out of the artifact": { // T-21
			files: map[string]string{kustomization: "resources: [../../../../etc/passwd]\n"},
			texts: []string{kustomization, "../../../../etc/passwd"},
		},
		"includes itself": { // T-21
			files: map[string]string{kustomization: "resources: [../one]\n"},
			texts: []string{"kustomizations include each other: one → one"},
		},
		"missing resource": {
			files: map[string]string{kustomization: "resources:\n- config.yaml\n- missing.yaml\n", "one/config.yaml": configMap("settings", "2")},
			texts: []string{kustomization, "missing.yaml"},
		},
		"openapi": {
			files: map[string]string{kustomization: "resources: [config.yaml]\nopenapi: {path: schema.json}\n",
				"one/config.yaml": configMap("settings", "2"), "one/schema.json": "{}"},
			texts: []string{kustomization + ":2: ", "openapi"},
		},
		"helm": {
			files: map[string]string{kustomization: "helmCharts:\n- {name: nginx, repo: https://charts.invalid, version: 1.0.0}\n"},
			texts: []string{kustomization + ":1: ", "helmCharts"},
		},
	}
	r := shared(t).tenant(t).running(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.files[two] == "" {
				tc.files[two] = configMap("more", "1")
			}
			if tc.reason == "" {
				tc.reason = v1.ReasonBuildFailed
			}
			r.offer(t, artifacts.TarGz(t, tc.files))
			r.refuses(t, tc.reason, tc.texts...)
		})
	}
}

// T-82: a base that is somewhere else is refused by name, before any connection.
func TestRemoteBaseIsNeverFetched(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int32
	go func() {
		for {
			connection, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			connections.Add(1)
			connection.Close()
		}
	}()
	t.Cleanup(func() { listener.Close() })
	address := listener.Addr().String()
	r := shared(t).tenant(t).running(t)
	for name, kustomization := range map[string]string{
		"http":      "resources: ['http://" + address + "/base.yaml']\n",
		"https":     "resources: ['https://" + address + "/base.yaml']\n",
		"git":       "resources: ['git::http://" + address + "/base.git']\n",
		"ssh":       "resources: ['ssh://git@" + address + "/base.git?ref=main']\n",
		"component": "components: ['http://" + address + "/component']\n",
		"crd":       "crds: ['http://" + address + "/crd.json']\n",
		"patch":     "resources: [config.yaml]\npatches: [{path: 'http://" + address + "/patch.yaml'}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			r.offer(t, artifacts.TarGz(t, map[string]string{
				"one/kustomization.yaml": kustomization, "one/config.yaml": configMap("settings", "2"), "two/config.yaml": configMap("more", "1"),
			}))
			r.refuses(t, v1.ReasonBuildFailed, "one/kustomization.yaml:", address)
		})
	}
	if got := connections.Load(); got != 0 {
		t.Errorf("%d connections were made", got)
	}
}

// The status of a source is what tenants may write: it must not lead anywhere else than to the source's own artifact.
func TestArtifactFromElsewhereIsRefused(t *testing.T) {
	r := shared(t).tenant(t).running(t)
	archive := artifacts.TarGz(t, map[string]string{"one/config.yaml": configMap("settings", "2")})
	var reached atomic.Int32
	foreign := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer foreign.Close()
	elsewhere := strings.Replace(foreign.URL, "127.0.0.1", "localhost", 1)
	redirecting := httptest.NewServer(http.RedirectHandler(elsewhere+"/stolen", http.StatusFound))
	defer redirecting.Close()
	directory := "/gitrepository/" + r.namespace + "/app/"
	for name, tc := range map[string]struct {
		url   string
		texts []string
	}{
		"host that is not allowed": {
			url: elsewhere + directory + "a.tar.gz", texts: []string{`its host "localhost" is none of --artifact-hosts (127.0.0.1)`},
		},
		"redirect to such a host": { // T-07
			url:   redirecting.URL + directory + "a.tar.gz",
			texts: []string{"it redirects to a URL that is refused", `its host "localhost" is none of --artifact-hosts`},
		},
		"scheme": {url: "ftp://127.0.0.1" + directory + "a.tar.gz", texts: []string{`its scheme is "ftp", not http or https`}},
		"user": {
			url: strings.Replace(foreign.URL, "//", "//admin:canary@", 1) + directory + "a.tar.gz", texts: []string{"it carries a user name"},
		},
		"artifact of another source": {
			url:   r.Artifacts.Put("gitrepository", r.namespace, "other", archive).URL,
			texts: []string{"its path does not contain " + directory},
		},
		"artifact of another tenant": {
			url:   r.Artifacts.Put("gitrepository", "victim", "app", archive).URL,
			texts: []string{"its path does not contain " + directory},
		},
		"artifact of another kind": {
			url:   r.Artifacts.Put("bucket", r.namespace, "app", archive).URL,
			texts: []string{"its path does not contain " + directory},
		},
		"way around": {
			url:   foreign.URL + directory + "../../victim/app/a.tar.gz",
			texts: []string{"its path is not in its plain form"},
		},
		"nothing there": {
			url:   "http://" + r.Artifacts.Host() + directory + "missing.tar.gz",
			texts: []string{"the server answers 404 Not Found"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// No revision is attempted of what is refused here, so that only a release in between tells the cases apart.
			r.waitReady(t, "app", "app", r.source(t, "app", good))
			artifact := r.Artifacts.Put("gitrepository", r.namespace, "app", archive)
			artifact.URL, artifact.Revision = tc.url, "main@sha1:"+fmt.Sprintf("%x", name)
			publish(t, r.Cluster, r.namespace, "app", artifact)
			r.refuses(t, v1.ReasonArtifactFailed, tc.texts...)
			if message := readyMessage(r.wait(t, "app")); strings.Contains(message, "canary") {
				t.Errorf("the message has a password: %q", message)
			}
		})
	}
	if got := reached.Load(); got != 0 {
		t.Errorf("a server that must not be asked was asked %d times", got)
	}
}

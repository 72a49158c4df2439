package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
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

// goodFiles are those of the release that runs.
var goodFiles = map[string]string{"one/config.yaml": configMap("settings", "1"), "two/config.yaml": configMap("more", "1")}

// running releases what is good, in two stages.
func (n *tenant) running(t testing.TB) running {
	t.Helper()
	revision := n.source(t, "app", goodFiles)
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

// badArchives are archives that are refused, with what the message says.
func badArchives(t testing.TB) map[string]struct {
	content []byte
	text    string
} {
	t.Helper()
	archive := artifacts.TarGz(t, map[string]string{"one/config.yaml": configMap("settings", "2")})
	twice := fileEntry("one/config.yaml")
	twice.Size = int64(len(configMap("settings", "2")))
	link := func(flag byte, name, target string) []byte {
		return entry(t, tar.Header{Name: name, Typeflag: flag, Linkname: target})
	}
	return map[string]struct {
		content []byte
		text    string
	}{
		"truncated":          {archive[:len(archive)/2], "unexpected EOF"},
		"without its end":    {archive[:len(archive)-4], "unreadable after the last entry: unexpected EOF"},
		"no archive":         {[]byte("<html>not found</html>"), "it is not a gzipped tar archive"},
		"path with ..":       {entry(t, fileEntry("../evil.yaml")), `entry "../evil.yaml" has ".." in its path`},
		"path with .. below": {entry(t, fileEntry("one/../../evil")), `entry "one/../../evil" has ".." in its path`},
		"absolute path":      {entry(t, fileEntry("/etc/evil.yaml")), `entry "/etc/evil.yaml" has an absolute path`},
		"symbolic link":      {link(tar.TypeSymlink, "one/l.yaml", "/etc/passwd"), `entry "one/l.yaml" is a symbolic link`},
		"linked directory":   {link(tar.TypeSymlink, "one/base", "/etc"), `entry "one/base" is a symbolic link`},
		"hard link":          {link(tar.TypeLink, "one/h.yaml", "one/config.yaml"), `entry "one/h.yaml" is a hard link`},
		"device":             {link(tar.TypeChar, "one/null", ""), `entry "one/null" is a device`},
		"block device":       {link(tar.TypeBlock, "one/disk", ""), `entry "one/disk" is a device`},
		"pipe":               {link(tar.TypeFifo, "one/pipe", ""), `entry "one/pipe" is a named pipe`},
		"size":               {hugeEntry(t), `entry "one/huge.yaml" has 9223372036854775807 bytes`},
		"entry twice": {
			artifacts.Archive(t, []tar.Header{twice, twice}, map[string]string{twice.Name: configMap("settings", "2")}),
			`entry "one/config.yaml" appears twice`,
		},
	}
}

// T-78, T-79, T-81: whatever is wrong with an archive is named with its entry, and nothing of it is used.
func TestBadArchiveLeavesTheReleaseAlone(t *testing.T) {
	r := shared(t).tenant(t).running(t)
	for name, tc := range badArchives(t) {
		t.Run(name, func(t *testing.T) {
			r.offer(t, tc.content)
			r.refuses(t, v1.ReasonArtifactFailed, tc.text)
		})
	}
	t.Run("a good one again", func(t *testing.T) {
		artifact := r.offer(t, artifacts.TarGz(t, map[string]string{
			"one/config.yaml": configMap("settings", "3"), "two/config.yaml": configMap("more", "1"),
		}))
		r.waitReady(t, "app", "app", artifact.Revision)
		r.hasValue(t, "settings", "3")
	})
}

// T-80: an artifact that is not what its source says is not used, whatever it is.
func TestArtifactThatIsNotWhatTheSourceSaysIsRefused(t *testing.T) {
	r := shared(t).tenant(t).running(t)
	archive := artifacts.TarGz(t, map[string]string{"one/config.yaml": configMap("settings", "2")})
	artifact := r.Artifacts.Put("gitrepository", r.namespace, "app", archive)
	zeros := strings.Repeat("0", 64)
	for name, tc := range map[string]struct {
		say  func(*artifacts.Artifact)
		text string
	}{
		"digest": {
			say:  func(a *artifacts.Artifact) { a.Digest = "sha256:" + zeros },
			text: "its digest is not sha256:" + zeros + ", which the source says",
		},
		"size": {
			say:  func(a *artifacts.Artifact) { a.Size-- },
			text: fmt.Sprintf("it does not have the %d bytes that the source says", artifact.Size-1),
		},
		"algorithm": {
			say:  func(a *artifacts.Artifact) { a.Digest = "md5:" + zeros[:32] },
			text: `digest algorithm "md5" is none of sha256, sha384, sha512, blake3`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			said := artifact
			tc.say(&said)
			publish(t, r.Cluster, r.namespace, "app", said)
			r.refuses(t, v1.ReasonArtifactFailed, tc.text)
		})
	}
}

func fileEntry(name string) tar.Header {
	return tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}
}

// hugeEntry is an archive whose only entry says that it has more bytes than any number of disks.
func hugeEntry(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	header := fileEntry("one/huge.yaml")
	header.Size, header.Format = math.MaxInt64, tar.FormatGNU
	if err := tar.NewWriter(compressed).WriteHeader(&header); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
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
			url:   strings.Replace(foreign.URL, "//", "//admin:canary@", 1) + directory + "a.tar.gz",
			texts: []string{"it carries a user name"},
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
			r.waitReady(t, "app", "app", r.source(t, "app", goodFiles))
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

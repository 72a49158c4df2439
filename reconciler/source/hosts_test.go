package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
)

func TestCheckArtifactURL(t *testing.T) {
	const good = "http://source-controller.flux-system.svc.cluster.local./gitrepository/team-a/app/abc.tar.gz"
	notHost := func(host string) string {
		return `its host "` + host + `" is none of --artifact-hosts (*.flux-system.svc, *.flux-system.svc.cluster.local)`
	}
	cases := map[string]struct {
		url  string
		kind v1.SourceKind
		want string
	}{
		"source-controller":       {url: good},
		"short name":              {url: "http://source-controller.flux-system.svc/gitrepository/team-a/app/abc.tar.gz"},
		"upper case and port":     {url: "https://Source-Controller.Flux-System.svc:8443/gitrepository/team-a/app/abc.tar.gz"},
		"other source's":          {url: "http://source-controller.flux-system.svc/gitrepository/team-b/app/abc.tar.gz", want: "its path does not contain /gitrepository/team-a/app/"},
		"other kind's":            {url: "http://source-controller.flux-system.svc/bucket/team-a/app/abc.tar.gz", want: "its path does not contain /gitrepository/team-a/app/"},
		"OCIRepository":           {kind: v1.SourceKindOCIRepository, url: "http://source-controller.flux-system.svc/ocirepository/team-a/app/abc.tar.gz"},
		"Bucket":                  {kind: v1.SourceKindBucket, url: "http://source-controller.flux-system.svc/bucket/team-a/app/abc.tar.gz"},
		"leads out":               {url: "http://source-controller.flux-system.svc/gitrepository/team-a/app/../../team-b/app/abc.tar.gz", want: "its path is not in its plain form"},
		"leads out, encoded":      {url: "http://source-controller.flux-system.svc/gitrepository/team-a/app/%2e%2e/%2e%2e/team-b/app/a.tar.gz", want: "its path is not in its plain form"},
		"leads out, slash hidden": {url: "http://source-controller.flux-system.svc/gitrepository/team-a/app/..%2f..%2fteam-b/app/a.tar.gz", want: "its path is not in its plain form"},
		"doubled slash":           {url: "http://source-controller.flux-system.svc//gitrepository/team-a/app/abc.tar.gz", want: "its path is not in its plain form"},
		"metadata service":        {url: "http://169.254.169.254/gitrepository/team-a/app/x", want: notHost("169.254.169.254")},
		"tenant's host":           {url: "http://attacker.team-a.svc/gitrepository/team-a/app/abc.tar.gz", want: notHost("attacker.team-a.svc")},
		"host as user name":       {url: "http://x.flux-system.svc@attacker/gitrepository/team-a/app/abc.tar.gz", want: "it carries a user name"},
		"host as a suffix":        {url: "http://attacker.example/.flux-system.svc/gitrepository/team-a/app/a", want: notHost("attacker.example")},
		"host that only ends so":  {url: "http://flux-system.svc/gitrepository/team-a/app/a", want: notHost("flux-system.svc")},
		"file":                    {url: "file:///etc/passwd", want: `its scheme is "file", not http or https`},
		"no scheme":               {url: "source-controller.flux-system.svc/gitrepository/team-a/app/a", want: `its scheme is "", not http or https`},
		"empty":                   {url: "", want: `its scheme is "", not http or https`},
		"no URL":                  {url: "http://[::1", want: "it is not a URL"},
		"producer's path":         {kind: v1.SourceKindExternalArtifact, url: "http://producer.flux-system.svc/any/where.tar.gz"},
		"producer's directory":    {kind: v1.SourceKindExternalArtifact, url: "http://source-watcher.flux-system.svc/externalartifact/team-a/app/abc.tar.gz"},
		"other producer's":        {kind: v1.SourceKindExternalArtifact, url: "http://source-watcher.flux-system.svc/externalartifact/team-b/app/abc.tar.gz", want: "its path is in the directory of externalartifact team-b/app"},
		"a repository's":          {kind: v1.SourceKindExternalArtifact, url: "http://source-controller.flux-system.svc/gitrepository/team-b/app/latest.tar.gz", want: "its path is in the directory of gitrepository team-b/app"},
		"a repository's, hidden":  {kind: v1.SourceKindExternalArtifact, url: "http://source-controller.flux-system.svc/x/..%2f/%67itrepository/./team-b/app/a", want: "its path is in the directory of gitrepository team-b/app"},
		"producer's host":         {kind: v1.SourceKindExternalArtifact, url: "http://producer.team-a.svc/any/where.tar.gz", want: notHost("producer.team-a.svc")},
	}
	hosts, err := ParseHosts(DefaultHosts)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.kind == "" {
				c.kind = v1.SourceKindGitRepository
			}
			got := ""
			if err := hosts.checkArtifactURL(c.url, c.kind, "team-a", "app"); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("checkArtifactURL (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseHosts(t *testing.T) {
	for glob, valid := range map[string]bool{
		"*.flux-system.svc.": true, "source-controller": true, "127.0.0.1": true, "*": true, "::1": true,
		"": false, "[": false, "http://x": false, "a b": false, "u@h": false,
	} {
		if _, err := ParseHosts([]string{glob}); (err == nil) != valid {
			t.Errorf("ParseHosts(%q): %v, want valid = %t", glob, err, valid)
		}
	}
}

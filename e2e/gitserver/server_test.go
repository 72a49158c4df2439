package gitserver_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/e2e/gitserver"
)

func TestCommitsCanBeCloned(t *testing.T) {
	repository := gitserver.New(t, "fleet")
	first := repository.MustCommit(t, map[string]string{
		"apps/web.yaml":        "kind: Deployment\n",
		"apps/a name.yaml":     "without a newline at the end",
		"clusters/one/db.yaml": "",
	})
	second := repository.MustCommit(t, map[string]string{"apps/web.yaml": "kind: StatefulSet\n"}, "clusters/one/db.yaml")

	clone := t.TempDir()
	git(t, "clone", "--quiet", repository.URL(), clone)
	if diff := cmp.Diff(second+"\n"+first, git(t, "-C", clone, "log", "--format=%H", gitserver.Branch)); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	want := map[string]string{
		"apps/web.yaml":    "kind: StatefulSet\n",
		"apps/a name.yaml": "without a newline at the end",
	}
	if diff := cmp.Diff(want, files(t, clone)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestShallowFetchOfOneBranch(t *testing.T) {
	repository := gitserver.New(t, "fleet")
	repository.MustCommit(t, map[string]string{"a": "1"})
	last := repository.MustCommit(t, map[string]string{"a": "2"})
	clone := t.TempDir()
	git(t, "clone", "--quiet", "--depth=1", "--branch="+gitserver.Branch, repository.URL(), clone)
	if got := git(t, "-C", clone, "log", "--format=%H"); got != last {
		t.Errorf("got commits %q, want %q alone", got, last)
	}
}

func TestPushOverHTTPIsRefused(t *testing.T) {
	repository := gitserver.New(t, "fleet")
	want := repository.MustCommit(t, map[string]string{"a": "1"})
	clone := t.TempDir()
	git(t, "clone", "--quiet", repository.URL(), clone)
	author := []string{"-C", clone, "-c", "user.name=e2e", "-c", "user.email=e2e@localhost"}
	git(t, append(author, "commit", "--quiet", "--allow-empty", "-m", "mine")...)
	if output, err := command("-C", clone, "push", "origin", gitserver.Branch).CombinedOutput(); err == nil {
		t.Errorf("the push succeeds: %s", output)
	}
	if got, _, _ := strings.Cut(git(t, "ls-remote", repository.URL(), gitserver.Branch), "\t"); got != want {
		t.Errorf("the branch is at %s, want %s", got, want)
	}
}

func TestAnotherServerOfTheSameFolder(t *testing.T) {
	dir := t.TempDir()
	var want string
	for _, open := range []func(*gitserver.Server) (*gitserver.Repository, error){
		func(s *gitserver.Server) (*gitserver.Repository, error) {
			if _, err := s.Open("fleet"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("before there is one: %v", err)
			}
			return s.Create(t.Context(), "fleet")
		},
		func(s *gitserver.Server) (*gitserver.Repository, error) { return s.Open("fleet") },
	} {
		server, err := gitserver.Serve(dir)
		if err != nil {
			t.Fatal(err)
		}
		repository, err := open(server)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = repository.MustCommit(t, map[string]string{"a": "1"})
		}
		if got, _, _ := strings.Cut(git(t, "ls-remote", repository.URL(), gitserver.Branch), "\t"); got != want {
			t.Errorf("the branch is at %q, want %s", got, want)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	server, err := gitserver.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"", "..", "../up", "UPPER", "a/b", "-option"} {
		if _, err := server.Create(t.Context(), name); err == nil {
			t.Errorf("repository %q was made", name)
		}
	}
	repository, err := server.Create(t.Context(), "good")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "a\nb", `"quoted"`} {
		if _, err := repository.Commit(t.Context(), map[string]string{path: "x"}); err == nil {
			t.Errorf("path %q was committed", path)
		}
	}
}

func command(args ...string) *exec.Cmd {
	command := exec.Command("git", args...)
	command.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_TERMINAL_PROMPT=0")
	return command
}

func git(t *testing.T, args ...string) string {
	t.Helper()
	output, err := command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return strings.TrimSpace(string(output))
}

// files are the contents of a working tree.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	result := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == ".git" {
			return fs.SkipDir
		}
		if entry.IsDir() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		result[relative] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

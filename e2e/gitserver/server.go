// Package gitserver serves Git repositories over HTTP on loopback, with git's own server, so that a client that fetches
// is treated as any Git host treats it.
//
// It never reads the user's Git configuration, never listens on anything but loopback, and takes no push over HTTP.
package gitserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// Branch is the only branch that this package writes.
const Branch = "main"

// Server serves the repositories in one folder.
type Server struct {
	dir    string
	git    string // its path
	host   string
	server *http.Server
}

// isolated keeps the configuration of user and machine from every git that this package runs.
var isolated = []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "HOME=" + os.DevNull}

// Serve serves the bare repositories in the folder, at a free port, until Close. It needs git.
func Serve(dir string) (*Server, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("a Git server needs git: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, git: git, host: listener.Addr().String()}
	s.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: &cgi.Handler{
			Path:   git,
			Args:   []string{"http-backend"},
			Dir:    dir,
			Env:    append([]string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"}, isolated...),
			Stderr: io.Discard, // what went wrong is in the answer
		},
	}
	go func() { _ = s.server.Serve(listener) }() // ends with Close
	return s, nil
}

// Close ends the server and the requests that it serves. The repositories stay.
func (s *Server) Close() error {
	return s.server.Close()
}

// repositoryName keeps a name inside the folder and in an URL.
var repositoryName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// Open is a repository that is in the folder, perhaps from an earlier server. If it is not, the error is fs.ErrNotExist.
func (s *Server) Open(name string) (*Repository, error) {
	r, err := s.repository(name)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(r.dir); err != nil {
		return nil, err
	}
	return r, nil
}

// repository is one that may be there or not.
func (s *Server) repository(name string) (*Repository, error) {
	if !repositoryName.MatchString(name) {
		return nil, fmt.Errorf("repository name %q: want lower-case letters, digits and dashes", name)
	}
	return &Repository{
		git: s.git,
		dir: filepath.Join(s.dir, name+".git"),
		url: fmt.Sprintf("http://%s/%s.git", s.host, name),
	}, nil
}

// Create makes an empty repository.
func (s *Server) Create(ctx context.Context, name string) (*Repository, error) {
	r, err := s.repository(name)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, err
	}
	_, err = r.run(ctx, nil, "init", "--quiet", "--bare", "--initial-branch="+Branch)
	return r, err
}

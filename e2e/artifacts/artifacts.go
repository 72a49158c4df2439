// Package artifacts serves artifacts as source-controller does, without a source-controller: for tests that need an
// artifact which no real source would make, and for benchmarks that need many. It never checks what it serves.
package artifacts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Server serves artifacts on loopback. Its methods are safe for concurrent use.
type Server struct {
	http *httptest.Server

	mu       sync.Mutex
	content  map[string][]byte
	requests map[string]int
}

// Start serves until the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	server := &Server{content: map[string][]byte{}, requests: map[string]int{}}
	server.http = httptest.NewServer(server)
	t.Cleanup(server.http.Close)
	return server
}

// ServeHTTP answers with the artifact at the request's path.
func (s *Server) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	s.mu.Lock()
	content, found := s.content[request.URL.Path]
	s.requests[request.URL.Path]++
	s.mu.Unlock()
	if !found {
		http.NotFound(response, request)
		return
	}
	_, _ = response.Write(content)
}

// Close ends the server before the test does: what it served is gone.
func (s *Server) Close() { s.http.Close() }

// Host is the server's address with its port.
func (s *Server) Host() string { return strings.TrimPrefix(s.http.URL, "http://") }

// Artifact is what a source's status says of an artifact.
type Artifact struct {
	URL, Path, Digest, Revision string
	Size                        int
}

// Put serves content under the path of a source of the kind (lower case) and name.
func (s *Server) Put(kind, namespace, name string, content []byte) Artifact {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	path := kind + "/" + namespace + "/" + name + "/" + digest + ".tar.gz"
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content["/"+path] = content
	return Artifact{
		URL: s.http.URL + "/" + path, Path: path, Digest: "sha256:" + digest, Revision: "main@sha1:" + digest[:40],
		Size: len(content),
	}
}

// Requests is how often the artifact was asked for.
func (s *Server) Requests(artifact Artifact) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests["/"+artifact.Path]
}

// TarGz is an archive of the files, by path.
func TarGz(t testing.TB, files map[string]string) []byte {
	t.Helper()
	headers := make([]tar.Header, 0, len(files))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		headers = append(headers, tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(files[name]))})
	}
	return Archive(t, headers, files)
}

// Archive is an archive of entries as the headers say, with the content of those that files has.
func Archive(t testing.TB, headers []tar.Header, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for i := range headers {
		if err := archive.WriteHeader(&headers[i]); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(files[headers[i].Name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

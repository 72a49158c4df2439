package gitserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Repository is a bare repository. Its methods are safe for concurrent use.
type Repository struct {
	git string
	dir string
	url string

	mu sync.Mutex // one commit at a time
}

// URL is where the repository can be cloned from.
func (r *Repository) URL() string { return r.url }

// Dir is the folder of the repository. Git pushes to it as to any path.
func (r *Repository) Dir() string { return r.dir }

// Commit adds one commit to Branch that writes the given files (content by path) and deletes the given paths, and
// returns its hash. Paths are not checked: a commit that a client must refuse can be made.
func (r *Repository) Commit(ctx context.Context, files map[string]string, deleted ...string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const ref = "refs/heads/" + Branch
	parent, err := r.run(ctx, nil, "for-each-ref", "--format=%(objectname)", ref)
	if err != nil {
		return "", err
	}
	stream, err := importStream(ref, parent, files, deleted)
	if err != nil {
		return "", err
	}
	if _, err := r.run(ctx, stream, "fast-import", "--quiet", "--done"); err != nil {
		return "", err
	}
	return r.run(ctx, nil, "rev-parse", "--verify", ref)
}

// importStream is a commit in the language of git fast-import, which needs no working tree.
func importStream(ref, parent string, files map[string]string, deleted []string) (io.Reader, error) {
	paths := slices.Sorted(maps.Keys(files))
	for _, path := range slices.Concat(paths, deleted) {
		if path == "" || strings.HasPrefix(path, `"`) || strings.ContainsAny(path, "\n\x00") {
			return nil, fmt.Errorf("path %q cannot be committed", path)
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "commit %s\ncommitter e2e <e2e@localhost> %d +0000\n", ref, time.Now().Unix())
	writeData(&out, fmt.Sprintf("Change %d files and delete %d\n", len(paths), len(deleted)))
	if parent != "" {
		fmt.Fprintf(&out, "from %s\n", parent)
	}
	for _, path := range deleted {
		fmt.Fprintf(&out, "D %s\n", path)
	}
	for _, path := range paths {
		fmt.Fprintf(&out, "M 100644 inline %s\n", path)
		writeData(&out, files[path])
	}
	out.WriteString("done\n")
	return &out, nil
}

func writeData(out *bytes.Buffer, content string) {
	fmt.Fprintf(out, "data %d\n%s\n", len(content), content)
}

// run runs git in the repository and returns its trimmed output.
func (r *Repository) run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	command := exec.CommandContext(ctx, r.git, append([]string{"--git-dir=" + r.dir}, args...)...)
	command.Env = append(os.Environ(), isolated...)
	command.Stdin = stdin
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(bytes.TrimSpace(output)), nil
}

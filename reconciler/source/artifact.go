package source

import (
	"io/fs"
	"sync"
)

// Artifact is an unpacked artifact on disk. It stays readable until Close, also when the cache would rather drop it.
type Artifact struct {
	files   fs.FS
	release func()
}

func newArtifact(s *store, used *entry) *Artifact {
	return &Artifact{files: used.tree.FS(), release: sync.OnceFunc(func() { s.release(used) })}
}

// FS is the content. It holds regular files and directories only, and cannot be left through any path.
func (a *Artifact) FS() fs.FS { return a.files }

// Close gives the artifact back to the cache. It may be called more than once.
func (a *Artifact) Close() error {
	a.release()
	return nil
}

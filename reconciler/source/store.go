package source

import (
	"container/list"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
)

const (
	// workPrefix begins the names of directories that are being filled or removed.
	workPrefix = "work-"
	// treeName and sealName are what a finished directory holds: the files, and a record of what they must be.
	treeName = "tree"
	sealName = "seal"
	// archiveName is the download while it is being unpacked.
	archiveName = "archive"
)

var (
	uidPattern    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	digestPattern = regexp.MustCompile(`^(sha256|sha384|sha512|blake3)-[0-9a-f]{64,128}$`)
)

// store is the directory of the cache: <UID of the source>/<digest>/{tree,seal}, least recently used first out. Finished
// directories appear by rename, so that a crash leaves either all of one or a work directory, which the next start
// removes. What an earlier process left is compared with its seal before its first use: a power failure may leave empty
// files under a finished name.
type store struct {
	root  *os.Root
	limit int64

	mutex   sync.Mutex
	entries map[string]*entry
	// recent holds the entries, the most recently used first.
	recent *list.List
	total  int64
	// metrics is told of each change of total.
	metrics *Metrics
}

// entry is one artifact of the store; the mutex of the store guards its fields.
type entry struct {
	name    string // path in the root
	seal    seal
	element *list.Element
	// verified says that this process wrote the tree, or compared it with its seal.
	verified bool
	// users counts the open Artifacts; tree is open while there are any.
	users int
	tree  *os.Root
}

// openStore opens the store in dir and takes over what is there.
func openStore(dir string, limit int64) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("artifact cache: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("artifact cache: %w", err)
	}
	s := &store{root: root, limit: limit, entries: map[string]*entry{}, recent: list.New()}
	if err := s.load(); err != nil {
		root.Close()
		return nil, fmt.Errorf("artifact cache: %w", err)
	}
	return s, nil
}

// load takes over finished directories and removes the rest, but touches nothing whose name is not the store's own.
func (s *store) load() error {
	top, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, source := range top {
		switch name := source.Name(); {
		case !source.IsDir():
		case strings.HasPrefix(name, workPrefix):
			if err := s.root.RemoveAll(name); err != nil {
				return err
			}
		case uidPattern.MatchString(name):
			if err := s.loadSource(name); err != nil {
				return err
			}
		}
	}
	s.remove(s.evict())
	return nil
}

func (s *store) loadSource(uid string) error {
	digests, err := fs.ReadDir(s.root.FS(), uid)
	if err != nil {
		return err
	}
	for _, found := range digests {
		if !digestPattern.MatchString(found.Name()) {
			continue
		}
		name := path.Join(uid, found.Name())
		raw, err := s.root.ReadFile(path.Join(name, sealName))
		var sealed seal
		if err != nil || json.Unmarshal(raw, &sealed) != nil || sealed.Bytes < 0 {
			if err := s.root.RemoveAll(name); err != nil {
				return err
			}
			continue
		}
		s.insert(&entry{name: name, seal: sealed})
	}
	return nil
}

// insert adds e as the most recently used.
func (s *store) insert(e *entry) {
	e.element = s.recent.PushFront(e)
	s.entries[e.name] = e
	s.resize(e.seal.Bytes)
}

func (s *store) resize(by int64) {
	s.total += by
	s.metrics.keep(s.total)
}

// measure tells metrics how large the store is, now and whenever that changes.
func (s *store) measure(metrics *Metrics) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.metrics = metrics
	s.resize(0)
}

// acquire is the entry of that name with one more user, or nil if there is none that is verified.
func (s *store) acquire(name string) (*entry, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := s.entries[name]
	if found == nil || !found.verified {
		return nil, nil
	}
	if err := s.open(found); err != nil {
		return nil, err
	}
	return found, nil
}

// open adds a user to e.
func (s *store) open(e *entry) error {
	if e.tree == nil {
		tree, err := s.root.OpenRoot(path.Join(e.name, treeName))
		if err != nil {
			return &diskError{fmt.Errorf("artifact cache: %w", err)}
		}
		e.tree = tree
	}
	e.users++
	s.recent.MoveToFront(e.element)
	return nil
}

// release takes back one use of e.
func (s *store) release(e *entry) {
	s.mutex.Lock()
	if e.users--; e.users == 0 {
		e.tree.Close()
		e.tree = nil
		s.recent.MoveToFront(e.element)
	}
	dropped := s.evict()
	s.mutex.Unlock()
	s.remove(dropped)
}

// evict takes entries that nobody uses out of the store until it is within its limit, the least recently used first, but
// never the last: who has asked for it may be yet to come, however large it is. Their directories are only moved aside, for
// the caller to remove without the mutex.
func (s *store) evict() (dropped []string) {
	for element := s.recent.Back(); element != nil && element != s.recent.Front() && s.total > s.limit; {
		e := element.Value.(*entry)
		element = element.Prev()
		if e.users == 0 {
			dropped = append(dropped, s.drop(e))
		}
	}
	return dropped
}

// drop takes e out of the store and gives the name under which its directory waits to be removed.
func (s *store) drop(e *entry) string {
	s.recent.Remove(e.element)
	delete(s.entries, e.name)
	s.resize(-e.seal.Bytes)
	aside := workName()
	if err := s.root.Rename(e.name, aside); err != nil {
		return e.name
	}
	// The source's own directory goes with its last artifact; Remove fails while there are others.
	_ = s.root.Remove(path.Dir(e.name))
	return aside
}

// remove removes directories; what cannot be removed now is removed at the next start.
func (s *store) remove(names []string) {
	for _, name := range names {
		_ = s.root.RemoveAll(name)
	}
}

// newWork makes an empty work directory.
func (s *store) newWork() (string, error) {
	work := workName()
	if err := s.root.Mkdir(work, 0o700); err != nil {
		return "", &diskError{fmt.Errorf("artifact cache: %w", err)}
	}
	return work, nil
}

// publish makes the filled work directory the entry of that name, with one user.
func (s *store) publish(work, name string, sealed seal) (*entry, error) {
	if err := s.writeSeal(work, sealed); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	dropped, published, err := s.publishLocked(work, name, sealed)
	s.mutex.Unlock()
	s.remove(dropped)
	return published, err
}

func (s *store) publishLocked(work, name string, sealed seal) ([]string, *entry, error) {
	if err := s.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return nil, nil, &diskError{err}
	}
	if err := s.root.Rename(work, name); err != nil {
		return nil, nil, &diskError{err}
	}
	published := &entry{name: name, seal: sealed, verified: true}
	s.insert(published)
	err := s.open(published)
	if err != nil {
		published = nil
	}
	return s.evict(), published, err
}

// workName is a new name for a work directory.
func workName() string { return workPrefix + strings.ToLower(rand.Text()) }

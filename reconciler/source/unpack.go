package source

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/stageset/stageset/reconciler/failure"
)

// block is what a file or directory takes on disk at least, in bytes; the cache counts in it.
const block = 4096

// contents are the files of an unpacked archive.
type contents map[string]fileSum

// fileSum is the SHA-256 and the size of a file.
type fileSum struct {
	sum  [sha256.Size]byte
	size int64
}

// sum is the digest of names, sizes and content, whatever the order of the entries was. The cache compares it with what
// is on disk when it takes over a directory of an earlier process.
func (c contents) sum() string {
	digest := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c)) {
		file := c[name]
		writeNumber(digest, int64(len(name)))
		io.WriteString(digest, name)
		writeNumber(digest, file.size)
		digest.Write(file.sum[:])
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// sumFile is the fileSum of what reader has left.
func sumFile(reader io.Reader) (fileSum, error) {
	digest := sha256.New()
	size, err := io.Copy(digest, reader)
	sum := fileSum{size: size}
	digest.Sum(sum.sum[:0])
	return sum, err
}

func writeNumber(digest hash.Hash, number int64) {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], uint64(number))
	digest.Write(raw[:])
}

// diskError is a failure of this machine, not of the archive.
type diskError struct{ err error }

func (e *diskError) Error() string { return e.err.Error() }
func (e *diskError) Unwrap() error { return e.err }

// unpacker unpacks one archive into a directory.
type unpacker struct {
	tree   *os.Root
	limits limits
	files  contents
	// directories holds every directory that was made, also those that are only implied by the path of a file.
	directories map[string]bool
	// onDisk is what files and directories take, in bytes.
	onDisk int64
}

// unpack unpacks a gzipped tar archive into tree. Whatever is not a plain file or directory within tree, exceeds a limit,
// or appears twice is an error that names the entry; nothing is skipped in silence, since a file that is missing from the
// build is an object that is pruned. An error whose chain holds no *diskError and that is not ctx's is the archive's
// fault.
func unpack(ctx context.Context, archive io.Reader, tree *os.Root, bounds limits) (*unpacker, error) {
	compressed, err := gzip.NewReader(archive)
	if err != nil {
		return nil, fmt.Errorf("it is not a gzipped tar archive: %w", err)
	}
	inflated := bounded(ctx, compressed, bounds.inflated)
	u := &unpacker{tree: tree, limits: bounds, files: contents{}, directories: map[string]bool{".": true}}
	reader := tar.NewReader(inflated)
	for previous := "the start"; ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return u, drain(inflated)
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, fmt.Errorf("unreadable after %s: %w", previous, err)
		}
		previous = fmt.Sprintf("entry %q", shortened(header.Name))
		if err := u.entry(header, reader); err != nil {
			return nil, fmt.Errorf("%s %w", previous, err)
		}
	}
}

// entry unpacks one entry.
func (u *unpacker) entry(header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil // defaults for the headers that follow, as git archive writes; no entry
	}
	if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeDir {
		return fmt.Errorf("is a %s; only files and directories are accepted", typeName(header.Typeflag))
	}
	name, err := cleanName(header.Name)
	if err != nil {
		return err
	}
	if header.Typeflag == tar.TypeDir {
		return u.directory(name)
	}
	if name == "." {
		return errors.New("names no file")
	}
	if header.Size > u.limits.entry {
		return fmt.Errorf("has %d bytes; at most %d are accepted", header.Size, u.limits.entry)
	}
	if err := u.directory(path.Dir(name)); err != nil {
		return err
	}
	return u.file(name, header.Size, content)
}

// cleanName is name as fs.FS has it.
func cleanName(name string) (string, error) {
	switch {
	case len(name) > MaxPath:
		return "", fmt.Errorf("has a path of %d bytes; at most %d are accepted", len(name), MaxPath)
	case strings.HasPrefix(name, "/"):
		return "", errors.New("has an absolute path")
	case slices.Contains(strings.Split(name, "/"), ".."):
		return "", errors.New(`has ".." in its path`)
	}
	clean := path.Clean(name)
	if !fs.ValidPath(clean) || strings.ContainsRune(clean, 0) {
		return "", errors.New("has a path that is not valid UTF-8")
	}
	if strings.Count(clean, "/") > MaxDepth {
		return "", fmt.Errorf("is more than %d directories deep", MaxDepth)
	}
	return clean, nil
}

// directory makes a directory and those above it.
func (u *unpacker) directory(name string) error {
	if u.directories[name] {
		return nil
	}
	if err := u.directory(path.Dir(name)); err != nil {
		return err
	}
	if _, isFile := u.files[name]; isFile {
		return fmt.Errorf("needs a directory %q, which is also a file", shortened(name))
	}
	if err := u.count(); err != nil {
		return err
	}
	if err := u.tree.Mkdir(name, 0o700); err != nil {
		return &diskError{err}
	}
	u.directories[name] = true
	u.onDisk += block
	return nil
}

// file writes a file.
func (u *unpacker) file(name string, size int64, content io.Reader) error {
	if _, twice := u.files[name]; twice {
		return errors.New("appears twice")
	}
	if u.directories[name] {
		return errors.New("is a file and a directory")
	}
	if err := u.count(); err != nil {
		return err
	}
	out, err := u.tree.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return &diskError{err}
	}
	defer out.Close()
	digest := sha256.New()
	written, err := io.Copy(io.MultiWriter(diskWriter{out}, digest), content)
	if err != nil {
		return fmt.Errorf("is cut off: %w", err)
	}
	if err := out.Close(); err != nil {
		return &diskError{err}
	}
	if written != size {
		return fmt.Errorf("has %d bytes, its header says %d", written, size)
	}
	sum := fileSum{size: size}
	digest.Sum(sum.sum[:0])
	u.files[name] = sum
	u.onDisk += (size + block - 1) / block * block
	return nil
}

// count counts one more entry.
func (u *unpacker) count() error {
	if len(u.files)+len(u.directories) > u.limits.entries {
		return fmt.Errorf("is one too many; at most %d files and directories are accepted", u.limits.entries)
	}
	return nil
}

// drain reads what follows the archive: padding, and the checksum of gzip, which is only verified at the end.
func drain(reader io.Reader) error {
	var buffer [16 << 10]byte
	for {
		n, err := reader.Read(buffer[:])
		for _, b := range buffer[:n] {
			if b != 0 {
				return errors.New("data follows the end of the archive")
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unreadable after the last entry: %w", err)
		}
	}
}

// readerFunc is an io.Reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// bounded is reader until more than limit bytes are read, or ctx ends.
func bounded(ctx context.Context, reader io.Reader, limit int64) io.Reader {
	total := int64(0)
	return readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		n, err := reader.Read(p)
		if total += int64(n); total > limit {
			return 0, fmt.Errorf("it inflates to more than %d bytes", limit)
		}
		return n, err
	})
}

// diskWriter marks the errors of the disk.
type diskWriter struct{ writer io.Writer }

func (w diskWriter) Write(p []byte) (int, error) {
	n, err := w.writer.Write(p)
	if err != nil {
		err = &diskError{err}
	}
	return n, err
}

// typeName says in words what an entry is.
func typeName(flag byte) string {
	switch flag {
	case tar.TypeSymlink:
		return "symbolic link"
	case tar.TypeLink:
		return "hard link"
	case tar.TypeChar, tar.TypeBlock:
		return "device"
	case tar.TypeFifo:
		return "named pipe"
	default:
		return fmt.Sprintf("special entry of type %q", flag)
	}
}

// shortened keeps a hostile name from filling a message.
func shortened(name string) string {
	const limit = 256
	return failure.Shorten(name, limit)
}

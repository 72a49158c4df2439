package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math"
	"path"
	"strings"
	"testing"
)

// FuzzUnpack: an archive unpacks to exactly its regular files, or not at all. Seeds are the inputs of T-78, T-79 and T-81.
func FuzzUnpack(f *testing.F) {
	good := archive(f, file("app/a b.yaml", "1"), file("app/ü.yaml", "2"), file("app/x@2.yaml", "3"))
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(append(bytes.Clone(good), "garbage"...))
	f.Add(archive(f, file("../x", "1")))
	f.Add(archive(f, archiveEntry{Header: tar.Header{Name: "b", Linkname: "/etc", Typeflag: tar.TypeSymlink}}, file("b/hostname", "x")))
	f.Add(archive(f, directory("a/"), file("a", "1")))
	f.Add(archive(f, file("a", "1"), file("./a", "2")))
	f.Add(padded(f, header(f, "big", base256(math.MaxInt64))))
	f.Add(padded(f, header(f, "neg", base256(-1))))
	f.Add(padded(f, header(f, "a\xff", "00000000000")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		files, err := unpackedFiles(t, raw)
		if err != nil {
			return
		}
		for name, content := range listed(t, raw) {
			if got, ok := files[name]; !ok || got != content {
				t.Errorf("entry %q with %d bytes: unpacked is %t, with %d bytes", name, len(content), ok, len(got))
			}
			delete(files, name)
		}
		for name := range files {
			if !strings.HasSuffix(name, "/") {
				t.Errorf("file %q is no entry", name)
			}
		}
	})
}

// listed are the regular files of an archive that is known to be sound, read without any of the code under test.
func listed(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	inflated, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(inflated); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[path.Clean(header.Name)] = string(content)
	}
}

package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// file is a plain file of an archive.
func file(name, content string) archiveEntry {
	return archiveEntry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}, content: content}
}

func directory(name string) archiveEntry {
	return archiveEntry{Header: tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}}
}

type archiveEntry struct {
	tar.Header
	content string
}

// archive is a gzipped tar archive.
func archive(t testing.TB, entries ...archiveEntry) []byte {
	t.Helper()
	return zipped(t, tarred(t, entries...))
}

func tarred(t testing.TB, entries ...archiveEntry) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	for _, entry := range entries {
		if err := writer.WriteHeader(&entry.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(entry.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t testing.TB, raw []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	if _, err := writer.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// header is a tar block with name and size field as given, which tar.Writer would refuse or encode in another way.
func header(t testing.TB, name, size string) []byte {
	t.Helper()
	block := tarred(t, file("x", ""))[:512]
	copy(block[0:100], make([]byte, 100))
	copy(block[0:100], name)
	copy(block[124:136], make([]byte, 12))
	copy(block[124:136], size)
	copy(block[148:156], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return block
}

// base256 is the binary form of a tar number.
func base256(number int64) string {
	raw := make([]byte, 12)
	sign := byte(0)
	if number < 0 {
		sign = 0xff
	}
	raw[0], raw[1], raw[2], raw[3] = sign|0x80, sign, sign, sign
	binary.BigEndian.PutUint64(raw[4:], uint64(number))
	return string(raw)
}

// padded is a gzipped archive of one raw block.
func padded(t testing.TB, block []byte) []byte {
	t.Helper()
	return zipped(t, append(block, make([]byte, 1024)...))
}

// flipped is raw with one byte changed.
func flipped(raw []byte, at int) []byte {
	changed := bytes.Clone(raw)
	changed[at] ^= 0xff
	return changed
}

// smallLimits keep the tests fast; the limit on an entry is the real one.
var smallLimits = limits{inflated: 20 << 20, entry: MaxEntry, entries: 200}

// unpackedFiles is what unpack makes of an archive: path to content, directories with a slash at the end.
func unpackedFiles(t testing.TB, raw []byte) (map[string]string, error) {
	t.Helper()
	tree, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if _, err := unpack(context.Background(), bytes.NewReader(raw), tree, smallLimits); err != nil {
		return nil, err
	}
	files := map[string]string{}
	err = fs.WalkDir(tree.FS(), ".", func(name string, found fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if found.IsDir() {
			files[name+"/"] = ""
			return nil
		}
		content, err := fs.ReadFile(tree.FS(), name)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, nil
}

// T-79: whatever the name, a regular file is there after unpacking.
func TestUnpackKeepsEveryFile(t *testing.T) {
	long := strings.Repeat("n", 200) + ".yaml"
	cases := map[string]struct {
		entries []archiveEntry
		want    map[string]string
	}{
		"plain": {
			entries: []archiveEntry{directory("app/"), file("app/cm.yaml", "a: 1")},
			want:    map[string]string{"./": "", "app/": "", "app/cm.yaml": "a: 1"},
		},
		"odd names": {
			entries: []archiveEntry{file("app/a b.yaml", "1"), file("app/ü.yaml", "2"), file("app/x@2.yaml", "3"),
				file(`app/b\c.yaml`, "4"), file("app/.hidden.yaml", "5"), file("app/..yaml", "6"), file("app/日本.yaml", "7")},
			want: map[string]string{"./": "", "app/": "", "app/a b.yaml": "1", "app/ü.yaml": "2", "app/x@2.yaml": "3",
				`app/b\c.yaml`: "4", "app/.hidden.yaml": "5", "app/..yaml": "6", "app/日本.yaml": "7"},
		},
		"leading dot": {
			entries: []archiveEntry{directory("./"), file("./cm.yaml", "x"), file(".//sub//y.yaml", "y")},
			want:    map[string]string{"./": "", "cm.yaml": "x", "sub/": "", "sub/y.yaml": "y"},
		},
		"directory twice and late": {
			entries: []archiveEntry{file("a/b/c.yaml", "x"), directory("a/"), directory("a/b"), directory("a/b/")},
			want:    map[string]string{"./": "", "a/": "", "a/b/": "", "a/b/c.yaml": "x"},
		},
		"names longer than a tar header": {
			entries: []archiveEntry{file(strings.Repeat("d/", 40)+long, "x")},
			want: func() map[string]string {
				files := map[string]string{"./": "", strings.Repeat("d/", 40) + long: "x"}
				for depth := 1; depth <= 40; depth++ {
					files[strings.Repeat("d/", depth)] = ""
				}
				return files
			}(),
		},
		"empty file": {
			entries: []archiveEntry{file("empty.yaml", "")},
			want:    map[string]string{"./": "", "empty.yaml": ""},
		},
		"global header of git archive": {
			entries: []archiveEntry{
				{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "c0ffee"}}},
				file("cm.yaml", "x"),
			},
			want: map[string]string{"./": "", "cm.yaml": "x"},
		},
		"empty archive": {want: map[string]string{"./": ""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := unpackedFiles(t, archive(t, c.entries...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// T-78, T-79, T-81: what is refused is refused by name.
func TestUnpackRefuses(t *testing.T) {
	good := archive(t, file("a.yaml", strings.Repeat("x", 4000)), file("b.yaml", "y"))
	link := func(flag byte) archiveEntry {
		return archiveEntry{Header: tar.Header{Name: "app/l.yaml", Linkname: "/etc/passwd", Typeflag: flag}}
	}
	var many []archiveEntry
	for i := range smallLimits.entries/2 + 1 {
		many = append(many, file(strconv.Itoa(i)+"/x", "")) // a file and a directory that is only implied
	}
	cases := map[string]struct {
		raw  []byte
		want string
	}{
		"symbolic link":        {archive(t, link(tar.TypeSymlink)), `entry "app/l.yaml" is a symbolic link; only files and directories are accepted`},
		"hard link":            {archive(t, link(tar.TypeLink)), `entry "app/l.yaml" is a hard link`},
		"character device":     {archive(t, link(tar.TypeChar)), `entry "app/l.yaml" is a device`},
		"block device":         {archive(t, link(tar.TypeBlock)), `entry "app/l.yaml" is a device`},
		"named pipe":           {archive(t, link(tar.TypeFifo)), `entry "app/l.yaml" is a named pipe`},
		"dot dot":              {archive(t, file("app/../../etc/x", "x")), `entry "app/../../etc/x" has ".." in its path`},
		"dot dot inside":       {archive(t, file("app/../x", "x")), `entry "app/../x" has ".." in its path`},
		"absolute":             {archive(t, file("/etc/x", "x")), `entry "/etc/x" has an absolute path`},
		"not UTF-8":            {padded(t, header(t, "a\xff.yaml", "00000000000")), `entry "a\xff.yaml" has a path that is not valid UTF-8`},
		"no name":              {padded(t, header(t, ".", "00000000000")), `entry "." names no file`},
		"twice":                {archive(t, file("a.yaml", "1"), file("./a.yaml", "2")), `entry "./a.yaml" appears twice`},
		"file, then below it":  {archive(t, file("a", "1"), file("a/b.yaml", "2")), `entry "a/b.yaml" needs a directory "a", which is also a file`},
		"directory, then file": {archive(t, file("a/b.yaml", "2"), file("a", "1")), `entry "a" is a file and a directory`},
		"path too long":        {archive(t, file(strings.Repeat("n", MaxPath+1), "")), `has a path of 1025 bytes; at most 1024 are accepted`},
		"path too deep":        {archive(t, file(strings.Repeat("d/", MaxDepth+1)+"x", "")), `is more than 64 directories deep`},
		"size beyond limit":    {padded(t, header(t, "big.yaml", "00100000001")), `entry "big.yaml" has 16777217 bytes; at most 16777216 are accepted`},
		"size of MaxInt64":     {padded(t, header(t, "big.yaml", base256(math.MaxInt64))), `entry "big.yaml" has 9223372036854775807 bytes; at most 16777216 are accepted`},
		"negative size":        {padded(t, header(t, "neg.yaml", base256(-1))), `unreadable after the start: archive/tar: invalid tar header`},
		"size beyond content":  {padded(t, header(t, "lie.yaml", "00000010000")), `entry "lie.yaml" is cut off: unexpected EOF`},
		"too many entries":     {archive(t, many...), `is one too many; at most 200 files and directories are accepted`},
		"inflates too much": {archive(t, file("a", strings.Repeat("\x00", 11<<20)), file("b", strings.Repeat("\x00", 11<<20))),
			`entry "b" is cut off: it inflates to more than 20971520 bytes`},
		"not gzip":           {[]byte("<html>not found</html>"), `it is not a gzipped tar archive: gzip: invalid header`},
		"empty":              {nil, `it is not a gzipped tar archive: EOF`},
		"gzip of no tar":     {zipped(t, []byte(strings.Repeat("hello world ", 100))), `unreadable after the start: archive/tar: invalid tar header`},
		"truncated":          {good[:len(good)-20], `unexpected EOF`},
		"trailer cut off":    {good[:len(good)-4], `unreadable after the last entry: unexpected EOF`},
		"wrong checksum":     {flipped(good, len(good)-6), `unreadable after the last entry: gzip: invalid checksum`},
		"trailing garbage":   {append(bytes.Clone(good), "garbage, and more of it"...), `unreadable after the last entry: gzip: invalid header`},
		"data after the end": {zipped(t, append(tarred(t, file("a.yaml", "x")), tarred(t, file("b.yaml", "y"))...)), `data follows the end of the archive`},
		"second gzip member": {append(bytes.Clone(good), archive(t, file("c.yaml", "z"))...), `data follows the end of the archive`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			files, err := unpackedFiles(t, c.raw)
			if err == nil {
				t.Fatalf("unpacked to %v", files)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not say %q", err, c.want)
			}
			if errors.As(err, new(*diskError)) {
				t.Errorf("error %q blames the disk", err)
			}
		})
	}
}

// A message that quotes a name is text too, wherever that is cut.
func TestShortenedNameIsText(t *testing.T) {
	for padding := range 4 {
		if got := shortened(strings.Repeat("x", padding) + strings.Repeat("世", 256)); !utf8.ValidString(got) || len(got) > 256 {
			t.Errorf("%q", got)
		}
	}
}

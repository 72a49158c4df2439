package source

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// bomb is an archive of a few megabytes that inflates to gigabytes: entries of zeros, as members of one gzip stream, so
// that one compressed entry serves for all.
func bomb(t *testing.T, entries int, size int) []byte {
	t.Helper()
	zeros := zipped(t, make([]byte, size))
	var out bytes.Buffer
	for i := range entries {
		out.Write(zipped(t, header(t, fmt.Sprintf("zero%d.yaml", i), fmt.Sprintf("%011o", size))))
		out.Write(zeros)
	}
	return out.Bytes()
}

// T-78: 2 GiB of zeros are refused at the limits, and hardly anything of it is ever in memory.
func TestFetchBomb(t *testing.T) {
	const gigabytes = 2 << 30
	cases := map[string]struct {
		raw  []byte
		want string
	}{
		"one entry": {zipped(t, header(t, "zero.yaml", base256(gigabytes))),
			`entry "zero.yaml" has 2147483648 bytes; at most 16777216 are accepted`},
		"entries of the largest size": {bomb(t, gigabytes/MaxEntry, MaxEntry), "it inflates to more than 134217728 bytes"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := serveBytes(t, c.raw)
			f := fetcher(t, nil)
			f.limits.inflated /= 4 // to be done sooner
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := f.Fetch(context.Background(), shop, pinOf(server.URL, c.raw))
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not say %q", err, c.want)
			}
			// All that was allocated from start to end, an upper bound of what was in use at any moment.
			if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 32 {
				t.Errorf("%d MiB allocated", allocated)
			}
			if left := onDisk(t, f); len(left) != 0 {
				t.Errorf("the cache holds %v", left)
			}
		})
	}
}

// link is the header of a symbolic link out of the archive.
func link(name string) tar.Header {
	return tar.Header{Name: name, Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}
}

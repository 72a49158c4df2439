package certs

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write puts data into files of a directory.
func write(t *testing.T, directory string, data map[string][]byte) {
	t.Helper()
	if err := os.MkdirAll(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range data {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesMustBeThereAtTheStart(t *testing.T) {
	data := newAuthority(t, subject, noon.Add(time.Hour)).data(t, "one.svc")
	mixed := map[string][]byte{keyCertificate: data[keyCertificate], keyPrivate: encodeKey(t, newKey(t))}
	for name, test := range map[string]struct {
		data map[string][]byte
		want string
	}{
		"no certificate":     {map[string][]byte{keyPrivate: data[keyPrivate]}, keyCertificate},
		"no key":             {map[string][]byte{keyCertificate: data[keyCertificate]}, keyPrivate},
		"the key of another": {mixed, "private key"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			write(t, directory, test.data)
			if _, err := newFilesProvider(directory); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestFilesMayComeWithTheirCA(t *testing.T) {
	ca := newAuthority(t, subject, noon.Add(time.Hour))
	for name, test := range map[string]struct {
		authority []byte
		known     bool
	}{
		"with":    {ca.pem(), true},
		"without": {nil, false},
		"mangled": {[]byte("hello"), false},
	} {
		t.Run(name, func(t *testing.T) {
			data := ca.data(t, "one.svc")
			data[keyCA] = test.authority
			if test.authority == nil {
				delete(data, keyCA)
			}
			directory := t.TempDir()
			write(t, directory, data)
			p, err := newFilesProvider(directory)
			if err != nil {
				t.Fatal(err)
			}
			found, err := p.offered(t.Context())
			if err != nil || found.pair == nil {
				t.Fatalf("nothing is offered: %v", err)
			}
			if known := found.authority != nil && found.authority.Equal(ca.certificate); known != test.known {
				t.Errorf("the CA is known: %t, want %t", known, test.known)
			}
		})
	}
}

// Files change as those of a mounted Secret do: all at once, by a symbolic link to another directory.
func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	ca := newAuthority(t, subject, noon.Add(time.Hour))
	directory := t.TempDir()
	link := filepath.Join(directory, "..data")
	point := func(target string) {
		t.Helper()
		fresh := filepath.Join(directory, "..data_tmp")
		if err := os.Symlink(target, fresh); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, link); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(directory, "first"), ca.data(t, "one.svc"))
	point("first")
	for _, name := range []string{keyCA, keyCertificate, keyPrivate} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := newFilesProvider(directory)
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan *tls.Certificate, 1)
	p.watcher.RegisterCallback(func(pair tls.Certificate) { changed <- &pair })
	first := <-changed // what is there already
	ended := make(chan error, 1)
	go func() { ended <- p.watcher.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	data := ca.data(t, "one.svc")
	write(t, filepath.Join(directory, "second"), data)
	point("second")
	if err := os.RemoveAll(filepath.Join(directory, "first")); err != nil {
		t.Fatal(err)
	}
	select {
	case second := <-changed:
		found, err := p.offered(t.Context())
		if err != nil || !found.pair.Leaf.Equal(second.Leaf) || second.Leaf.Equal(first.Leaf) {
			t.Errorf("the changed certificate is not offered (%v)", err)
		}
	case <-time.After(time.Minute):
		t.Error("nobody noticed the change")
	}
}

package up

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// directory is the folder of one cluster, locked for as long as this process lives.
type directory struct {
	path string
	lock *os.File
}

// ports are the loopback ports of a cluster. They are kept, so that a kubeconfig that somebody copied stays good.
type ports struct {
	APIServer int `json:"apiserver"`
	Etcd      int `json:"etcd"`
}

// openDirectory makes the folder if it is missing and locks it. Only its owner can read it: it holds keys.
func openDirectory(path string) (*directory, error) {
	if err := os.MkdirAll(filepath.Join(path, "logs"), 0o700); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(path, "keys"), 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// The kernel releases the lock when the process ends, so a lock file that is left behind means nothing.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("--dir %s is in use by the control plane of process %s: stop it, or choose another directory",
				path, readHolder(lock.Name()))
		}
		return nil, fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	d := &directory{path: path, lock: lock}
	return d, d.write("lock", fmt.Appendf(nil, "%d\n", os.Getpid()))
}

func readHolder(path string) string {
	content, err := os.ReadFile(path)
	if err != nil || len(content) == 0 {
		return "unknown"
	}
	return strings.TrimSpace(string(content))
}

func (d *directory) close() {
	_ = d.lock.Close() // nothing was written through it
}

// file is the absolute path of a file of the directory.
func (d *directory) file(elements ...string) string {
	return filepath.Join(append([]string{d.path}, elements...)...)
}

func (d *directory) write(name string, content []byte) error {
	return os.WriteFile(d.file(name), content, 0o600)
}

// once returns the content of a file, which make produces the first time.
func (d *directory) once(name string, make func() ([]byte, error)) ([]byte, error) {
	content, err := os.ReadFile(d.file(name))
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return content, err
	}
	if content, err = make(); err != nil {
		return nil, err
	}
	return content, d.write(name, content)
}

// choosePorts takes the ports of the last start where they are free and others where not. Between the choice and its
// use another process may take a port; the component then fails to start and says so.
func (d *directory) choosePorts() (ports, error) {
	var kept ports
	content, err := os.ReadFile(d.file("ports.json"))
	if err == nil {
		err = json.Unmarshal(content, &kept)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return ports{}, fmt.Errorf("ports of the last start: %w", err)
	}
	var chosen ports
	if chosen.APIServer, err = freePort(kept.APIServer); err != nil {
		return ports{}, err
	}
	if chosen.Etcd, err = freePort(kept.Etcd); err != nil {
		return ports{}, err
	}
	content, err = json.Marshal(chosen)
	if err != nil {
		return ports{}, err
	}
	return chosen, d.write("ports.json", content)
}

// freePort returns the preferred port if nothing listens there, and any free one otherwise. 0 prefers none.
func freePort(preferred int) (int, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: preferred})
	if err != nil && preferred != 0 {
		return freePort(0)
	}
	if err != nil {
		return 0, fmt.Errorf("no free port on 127.0.0.1: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}

package certs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// filesProvider offers what the files hold. The watcher keeps the last pair that could be read: files that are changed one
// after the other, or mangled, are read again until they fit.
type filesProvider struct {
	authority string // path of ca.crt, which need not exist
	watcher   *certwatcher.CertWatcher
}

// newFilesProvider fails when there is no certificate in the directory.
func newFilesProvider(directory string) (*filesProvider, error) {
	watcher, err := certwatcher.New(filepath.Join(directory, keyCertificate), filepath.Join(directory, keyPrivate))
	if err != nil {
		return nil, fmt.Errorf("reading the serving certificate: %w", err)
	}
	return &filesProvider{authority: filepath.Join(directory, keyCA), watcher: watcher}, nil
}

func (p *filesProvider) offered(context.Context) (material, error) {
	pair, err := p.watcher.GetCertificate(nil)
	if err != nil {
		return material{}, err
	}
	found := material{pair: pair}
	// Only a metric shows it, so that no certificate waits for it.
	if content, err := os.ReadFile(p.authority); err == nil {
		if authorities := parseBundle(content); len(authorities) > 0 {
			found.authority = authorities[0]
		}
	}
	return found, nil
}

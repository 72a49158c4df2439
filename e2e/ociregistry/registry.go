// Package ociregistry is an OCI registry on loopback that lives in the test's process, and puts artifacts into it in
// the form that Flux's own command line gives them.
//
// It never stores anything on disk, never listens on anything but loopback, and asks nobody who they are.
package ociregistry

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The media types of Flux's artifacts: https://fluxcd.io/flux/cheatsheets/oci-artifacts/.
const (
	configType types.MediaType = "application/vnd.cncf.flux.config.v1+json"
	layerType  types.MediaType = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// Registry is an empty registry at first. Its methods are safe for concurrent use.
type Registry struct {
	host   string
	server *http.Server
}

// Serve serves a new registry at a free port until Close.
func Serve() (*Registry, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Registry{
		host: listener.Addr().String(),
		server: &http.Server{
			ReadHeaderTimeout: 10 * time.Second,
			Handler:           registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		},
	}
	go func() { _ = r.server.Serve(listener) }() // ends with Close
	return r, nil
}

// Close ends the registry and forgets what is in it.
func (r *Registry) Close() error {
	return r.server.Close()
}

// URL is the address of a repository as an OCIRepository names it. It is plain HTTP: spec.insecure is needed.
func (r *Registry) URL(repository string) string {
	return fmt.Sprintf("oci://%s/%s", r.host, repository)
}

// Push stores the files (content by path) as a Flux artifact under a tag, and returns the digest of its manifest
// ("sha256:…").
func (r *Registry) Push(ctx context.Context, repository, tag string, files map[string]string) (string, error) {
	layer, err := archive(files)
	if err != nil {
		return "", err
	}
	return r.PushLayer(ctx, repository, tag, layer)
}

// PushLayer is Push with the bytes of the layer as they are, which need not be an archive.
func (r *Registry) PushLayer(ctx context.Context, repository, tag string, layer []byte) (string, error) {
	reference, err := name.NewTag(fmt.Sprintf("%s/%s:%s", r.host, repository, tag), name.Insecure)
	if err != nil {
		return "", err
	}
	image, err := artifact(layer)
	if err != nil {
		return "", err
	}
	if err := remote.Write(reference, image, remote.WithContext(ctx)); err != nil {
		return "", fmt.Errorf("pushing %s: %w", reference, err)
	}
	digest, err := image.Digest()
	return digest.String(), err
}

func artifact(layer []byte) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, configType)
	return mutate.Append(image, mutate.Addendum{Layer: static.NewLayer(layer, layerType)})
}

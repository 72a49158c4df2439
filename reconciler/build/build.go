package build

import (
	"context"
	"errors"
	"io/fs"

	v1 "github.com/stageset/stageset/api/v1"
)

// Options are what of a stage decides how it renders.
type Options struct {
	// Path is the directory in the artifact; empty means its root.
	Path string
	// Patches, Images and CommonMetadata are those of the stage, applied in this order to what the directory renders.
	Patches        []v1.Patch
	Images         []v1.Image
	CommonMetadata *v1.CommonMetadata
}

// Build renders the directory opts.Path of artifact. A failure is a failure.Error with reason BuildFailed.
func Build(ctx context.Context, artifact fs.FS, opts Options) (Manifests, error) {
	return Manifests{}, errors.New("not implemented")
}

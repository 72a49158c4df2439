package ociregistry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"slices"
)

// archive packs files into a .tar.gz that is the same for the same files.
func archive(files map[string]string) ([]byte, error) {
	var out bytes.Buffer
	compressor := gzip.NewWriter(&out)
	writer := tar.NewWriter(compressor)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o644, Size: int64(len(files[path]))}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write([]byte(files[path])); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	err := compressor.Close()
	return out.Bytes(), err
}

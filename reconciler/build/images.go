package build

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/imagetag"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/kio"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"

	v1 "github.com/stageset/stageset/api/v1"
)

// imageFields are the fields that kustomize takes for images in addition to those of containers.
var imageFields = types.FsSlice{
	{Path: "spec/volumes[]/image/reference"},
	{Path: "spec/template/spec/volumes[]/image/reference"},
}

// replaceImages replaces images in the objects, where and how kustomize does, except that a name is no pattern.
func (b *builder) replaceImages(objects []Object, images []v1.Image) error {
	for i, object := range objects {
		replaced, err := b.replaceImagesIn(object, images)
		if err != nil {
			return fmt.Errorf("images: %s (%s): %w", object, object.Origin, err)
		}
		objects[i].Unstructured.Object = replaced
	}
	return nil
}

func (b *builder) replaceImagesIn(object Object, images []v1.Image) (map[string]any, error) {
	fields := object.Object
	for _, image := range images {
		if !mentions(fields, image.Name) {
			continue // the conversions below cost more than this look
		}
		node, err := toNode(fields)
		if err != nil {
			return nil, err
		}
		resource := kyaml.NewRNode(node)
		tag := types.Image{Name: regexp.QuoteMeta(image.Name), NewName: image.NewName, NewTag: image.NewTag, Digest: image.Digest}
		if tag.Digest != "" {
			tag.NewTag = "" // api/v1: newTag is then ignored
		}
		filters := []kio.Filter{imagetag.LegacyFilter{ImageTag: tag}, imagetag.Filter{ImageTag: tag, FsSlice: imageFields}}
		for _, filter := range filters {
			if _, err := filter.Filter([]*kyaml.RNode{resource}); err != nil {
				return nil, errors.New(withoutValues(err.Error()))
			}
		}
		if fields, err = b.fromNode(object.Origin, resource.YNode()); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// mentions says whether any text in value begins with name.
func mentions(value any, name string) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			if mentions(field, name) {
				return true
			}
		}
	case []any:
		for _, item := range value {
			if mentions(item, name) {
				return true
			}
		}
	case string:
		return strings.HasPrefix(value, name)
	}
	return false
}

package process

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// watchVariable names the environment variable that is the default of --watch-namespaces.
const watchVariable = "WATCH_NAMESPACES"

// Watch says which namespaces an installation is about. Several can share a cluster if no namespace is watched by two.
type Watch struct {
	// Namespaces are those that are watched; none is all of them.
	Namespaces []string
}

// AddFlags adds --watch-namespaces.
func (w *Watch) AddFlags(flags *pflag.FlagSet) {
	var namespaces []string
	if listed := os.Getenv(watchVariable); listed != "" {
		namespaces = strings.Split(listed, ",")
	}
	flags.StringSliceVar(&w.Namespaces, "watch-namespaces", namespaces,
		"Namespaces that this installation is about; none is all of them. Nothing of another one is read or written with the"+
			" program's own identity. Defaults to the environment variable "+watchVariable+". Both programs must have the same.")
}

// Validate refuses what cannot be the name of a namespace, and what is named twice.
func (w *Watch) Validate() error {
	for i, namespace := range w.Namespaces {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			return fmt.Errorf("--watch-namespaces: %q: %s", namespace, strings.Join(wrong, "; "))
		}
		if slices.Contains(w.Namespaces[:i], namespace) {
			return fmt.Errorf("--watch-namespaces: %q is named twice", namespace)
		}
	}
	return nil
}

// Within are needed, which are permissions on objects in namespaces, as a program needs them that is about w: in each of its
// namespaces, or in all of the cluster.
func (w *Watch) Within(needed []authorizationv1.ResourceAttributes) []authorizationv1.ResourceAttributes {
	if len(w.Namespaces) == 0 {
		return needed
	}
	all := make([]authorizationv1.ResourceAttributes, 0, len(needed)*len(w.Namespaces))
	for _, namespace := range w.Namespaces {
		for _, attributes := range needed {
			attributes.Namespace = namespace
			all = append(all, attributes)
		}
	}
	return all
}

// Cache are the namespaces that a cache of objects in namespaces has; nil is all.
func (w *Watch) Cache() map[string]cache.Config {
	if len(w.Namespaces) == 0 {
		return nil
	}
	namespaces := make(map[string]cache.Config, len(w.Namespaces))
	for _, namespace := range w.Namespaces {
		namespaces[namespace] = cache.Config{}
	}
	return namespaces
}

package store

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// selection is which objects are watched as parameters. It is comparable, and policies with an equal one share a watch.
type selection struct {
	kind schema.GroupVersionKind
	// namespace is empty for all: then the parameters are in the namespaces of the StageSets.
	namespace string
	// name is empty if there is a selector, which is its canonical text.
	name, selector string
}

// selections are what the policies have as parameters, about StageSets in the namespaces, or in all if there are none. One whose
// parameters are not in order is evaluated with none, so that nothing is watched for it: above all no kind that is not allowed.
func selections(
	list []v1alpha1.StageSetPolicy, problems policies.Problems, namespaces []string,
) map[selection]bool {
	broken := map[string]bool{}
	for _, problem := range problems {
		if strings.HasPrefix(problem.Field, "spec.param") {
			broken[problem.Policy] = true
		}
	}
	found := map[selection]bool{}
	for i := range list {
		spec := &list[i].Spec
		if spec.ParamKind == nil || spec.ParamRef == nil || broken[list[i].Name] {
			continue
		}
		s := selection{
			kind:      schema.FromAPIVersionAndKind(spec.ParamKind.APIVersion, spec.ParamKind.Kind),
			namespace: spec.ParamRef.Namespace,
			name:      spec.ParamRef.Name,
		}
		if spec.ParamRef.Selector != nil {
			selector, err := metav1.LabelSelectorAsSelector(spec.ParamRef.Selector)
			if err != nil {
				continue
			}
			s.selector = selector.String()
		}
		if s.namespace != "" || len(namespaces) == 0 {
			found[s] = true
			continue
		}
		for _, s.namespace = range namespaces {
			found[s] = true
		}
	}
	return found
}

// params finds the parameters of policies. It has a watch for each selection that a policy needs, for as long as it does.
type params struct {
	options Options
	changed func()

	mu sync.Mutex
	// watches is replaced and never changed, so that looking up takes no lock.
	watches atomic.Pointer[map[selection]*watch]
}

func newParams(options Options, changed func()) *params {
	p := &params{options: options, changed: changed}
	p.watches.Store(&map[selection]*watch{})
	return p
}

// Params implements policies.ParamLookup.
func (p *params) Params(ctx context.Context, query policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	wanted := selection{kind: query.Kind, namespace: query.Namespace, name: query.Name, selector: text(query.Selector)}
	watches := *p.watches.Load()
	found, ok := watches[wanted]
	if !ok {
		wanted.namespace = ""
		found, ok = watches[wanted]
	}
	if !ok {
		// A set that is being replaced asks for what is not watched any more.
		found = newWatch(wanted, p.options, func() {})
	}
	return found.find(ctx, query)
}

func text(selector labels.Selector) string {
	if selector == nil {
		return ""
	}
	return selector.String()
}

// add begins the watches among wanted that there are not yet.
func (p *params) add(ctx context.Context, wanted map[selection]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	watches := map[selection]*watch{}
	for s, w := range *p.watches.Load() {
		watches[s] = w
	}
	for s := range wanted {
		if watches[s] == nil {
			watches[s] = newWatch(s, p.options, p.changed)
			watches[s].start(ctx)
		}
	}
	p.watches.Store(&watches)
}

// retain ends the watches that are not among wanted.
func (p *params) retain(wanted map[selection]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	watches := map[selection]*watch{}
	for s, w := range *p.watches.Load() {
		if wanted[s] {
			watches[s] = w
		} else {
			w.stop()
		}
	}
	p.watches.Store(&watches)
}

// stop ends all watches, and waits until they have.
func (p *params) stop() { p.retain(nil) }

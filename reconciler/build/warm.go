package build

import (
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// maxPatchCopies bounds, in bytes, what the copy operations of a JSON 6902 patch add: each can double a document.
const maxPatchCopies = 16 << 20

// The limit is a variable of the library, which kustomize uses as well; nothing may change it while patches are applied.
func init() { jsonpatch.AccumulatedCopySizeLimit = maxPatchCopies }

// warmUp parses the OpenAPI schema that is built into kustomize, once for the process. kustomize would do so by itself,
// but reads what it parsed without a lock, so that builds could only run in parallel after the first. No build changes
// the schema afterwards: kustomizations that set openapi are refused.
var warmUp = sync.OnceFunc(func() { openapi.Schema() })

package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/stageset/stageset/policies"
)

const (
	// allowedFor is how long a yes is believed, as by API servers that delegate authorization: who loses a right loses it here
	// as late. Somebody who applies many StageSets is asked about once.
	allowedFor = 10 * time.Second
	// maxAllowed is how many are kept, of less than a kilobyte each.
	maxAllowed = 4096
)

// Remember is review, but asks again about the same only once a yes is 10 seconds old. A no is never kept: a right that is
// granted holds at once. Who asks for what is compared as a whole: name, groups and all else that the API server would see.
func Remember(review policies.Review, clock clock.PassiveClock) policies.Review {
	allowed := cache.NewLRUExpireCacheWithClock(maxAllowed, clock)
	return func(ctx context.Context, asked *authorizationv1.SubjectAccessReview) error {
		spec, err := json.Marshal(asked.Spec)
		if err != nil {
			return fmt.Errorf("encoding an access review: %w", err)
		}
		key := sha256.Sum256(spec)
		if status, ok := allowed.Get(key); ok {
			asked.Status = status.(authorizationv1.SubjectAccessReviewStatus)
			return nil
		}
		if err := review(ctx, asked); err != nil {
			return err
		}
		if asked.Status.Allowed && !asked.Status.Denied {
			allowed.Add(key, asked.Status, allowedFor)
		}
		return nil
	}
}

package tenant

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// What is remembered of clusters has a bound in bytes for them all, however their answers are spread, and is what was used
// last.
func TestKindsForgetWhatIsTooMuch(t *testing.T) {
	const most = 20 * answerSize
	a := newAnswers(most)
	of := func(i int) answerOf { return answerOf{endpoint: strconv.Itoa(i % 3), path: strconv.Itoa(i)} }
	for range 3 {
		for i := range 30 {
			a.add(of(i), &discovered{kinds: map[string]kind{strings.Repeat("k", i): {}}})
		}
	}
	if a.size > most || a.size < most-2*answerSize {
		t.Errorf("%d bytes are remembered, want as many as there is room for", a.size)
	}
	sum := 0
	for i := range 30 {
		if found := a.get(of(i)); found != nil {
			sum += found.size(of(i))
		} else if i >= 15 {
			t.Errorf("%d was forgotten, and elder ones were not", i)
		}
	}
	if sum != a.size {
		t.Errorf("%d bytes are remembered and %d counted", sum, a.size)
	}
}

// An answer of many short kinds is counted by what it takes, which is more than it was long.
func TestKindsAreCountedAsTheyAreKept(t *testing.T) {
	const many = 10000
	var resources []string
	for i := range many {
		resources = append(resources, fmt.Sprintf(`{"name":"n","kind":"%d"}`, i))
	}
	body := `{"resources":[` + strings.Join(resources, ",") + `]}`
	answer := &discovered{}
	if err := answer.read([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if size := answer.size(answerOf{}); size < many*kindSize || size < 3*len(body) {
		t.Errorf("%d bytes are counted for %d kinds, whose answer has %d", size, many, len(body))
	}
}

// All clusters but the one that StageSets are in share a bound, and nobody's answers are taken for another's.
func TestOtherClustersShareABound(t *testing.T) {
	r := newRemotes(Options{Config: &rest.Config{}})
	one, other := r.endpoint("one").kinds, r.endpoint("other").kinds
	if one.answers != r.answers || other.answers != r.answers {
		t.Error("a cluster has a bound of its own")
	}
	r.answers.add(answerOf{one.endpoint, "/api/v1"}, &discovered{})
	if one.known("/api/v1") == nil || other.known("/api/v1") != nil {
		t.Error("an answer is not that of the cluster that gave it alone")
	}
}

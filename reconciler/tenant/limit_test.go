package tenant_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/reconciler/tenant"
)

// A server may be a tenant's own. What it sends is cut off, also where it is small on the way.
func TestLongAnswersAreCutOff(t *testing.T) {
	var bomb bytes.Buffer
	compressed := gzip.NewWriter(&bomb)
	if _, err := io.CopyN(compressed, zeros{}, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]int{"an object": http.StatusOK, "an error": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
				w.Header().Set("Content-Encoding", "gzip")
				w.WriteHeader(code)
				_, _ = w.Write(bomb.Bytes())
			}
			client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
			err := get(t.Context(), client)
			if want := "the API server answers with more than 8 MiB"; err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

// Many small values take far more memory than bytes. What stands in texts takes none.
func TestManyValuesAreCutOff(t *testing.T) {
	const much = 1 << 20
	for name, test := range map[string]struct{ answer, want string }{
		"objects": {
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{},"items":[` + strings.Repeat("{},", much) + `{}]}`,
			"the API server answers with more than 524288 values",
		},
		"lists": {
			`{"apiVersion":"v1","kind":"ConfigMap","items":` + strings.Repeat("[", much) + strings.Repeat("]", much) + "}",
			"the API server answers with more than 524288 values",
		},
		"text": {
			`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"` + strings.Repeat(`\",{[`, much) + `"}}`,
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, http.StatusOK, test.answer) }
			client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
			err := get(t.Context(), client)
			if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
				t.Errorf("got %.200s, want %q", got, test.want)
			}
		})
	}
}

// A list of large objects comes in smaller pages.
func TestListOfLargeObjects(t *testing.T) {
	server := newFaulty(t)
	large := strings.Repeat("x", 1<<20)
	var limits []string
	server.serve = func(w http.ResponseWriter, r *http.Request, _ string) {
		limits = append(limits, r.URL.Query().Get("limit"))
		size, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil {
			t.Error(err)
		}
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		to := min(from+size, 12)
		var items []string
		for i := from; i < to; i++ {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"o%d"},"data":{"a":%q}}`, i, large))
		}
		more := ""
		if to < 12 {
			more = strconv.Itoa(to)
		}
		answer(w, http.StatusOK, fmt.Sprintf(`{"metadata":{"continue":%q},"items":[%s]}`, more, strings.Join(items, ",")))
	}
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
	visited := 0
	err := client.List(t.Context(), configMap, tenant.ListOptions{Namespace: "payments"},
		func(*unstructured.Unstructured) { visited++ })
	if err != nil || visited != 12 {
		t.Errorf("got %d objects and %v, want 12", visited, err)
	}
	if diff := cmp.Diff([]string{"500", "50", "5", "5", "5"}, limits); diff != "" {
		t.Errorf("sizes of pages (-want +got):\n%s", diff)
	}
}

// A list that never ends is ended.
func TestListWithoutEnd(t *testing.T) {
	server := newFaulty(t)
	server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
		answer(w, http.StatusOK, `{"metadata":{"continue":"again"},"items":[]}`)
	}
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
	err := client.List(t.Context(), configMap, tenant.ListOptions{Namespace: "payments"}, func(*unstructured.Unstructured) {})
	if want := "the API server answers with more than 2000 pages of a list"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Answers that are longer than those of any cluster are used, but not kept.
func TestLongAnswersAreNotRemembered(t *testing.T) {
	for name, test := range map[string]struct {
		more, requests int
	}{
		"as long as they are": {more: 10, requests: 2}, // the versions of the group, and the kinds of one
		"longer":              {more: 300 << 10, requests: 4},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
				answer(w, http.StatusOK, fmt.Sprintf(`{"versions":[{"version":"v1"}],"more":%q,
					"resources":[{"name":"widgets","kind":"Widget","namespaced":true}]}`, strings.Repeat("x", test.more)))
			}
			client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
			for range 2 {
				namespaced, known, err := client.Scope(t.Context(), schema.GroupKind{Group: "example.test", Kind: "Widget"})
				if !namespaced || !known || err != nil {
					t.Errorf("got namespaced %t, known %t, %v", namespaced, known, err)
				}
			}
			if got := len(server.seen()); got != test.requests {
				t.Errorf("%d requests, want %d", got, test.requests)
			}
		})
	}
}

package app

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// An API server, or a proxy in front of it, that takes requests and never answers holds no worker for long.
func TestRequestsOfOurOwnEnd(t *testing.T) {
	released := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-released }))
	defer server.Close()
	defer close(released)
	bounded, err := boundedClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if bounded.Timeout != requestTimeout {
		t.Errorf("a request may take %s, want %s", bounded.Timeout, requestTimeout)
	}
	bounded.Timeout = 10 * time.Millisecond
	if response, err := bounded.Get(server.URL); err == nil {
		response.Body.Close()
		t.Error("a server that never answers answered")
	}
}

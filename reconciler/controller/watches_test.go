package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestNewArtifact(t *testing.T) {
	source := func(artifact any) *unstructured.Unstructured {
		// Flux's schema admits the interval, and Flux's types cannot hold it.
		return &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"interval": "9999999999999h"}, "status": map[string]any{"artifact": artifact},
		}}
	}
	first := map[string]any{"url": "http://a", "digest": "sha256:1", "revision": "main@sha1:1", "lastUpdateTime": "1"}
	cases := map[string]struct {
		old, now any
		want     bool
	}{
		"none":          {},
		"the first":     {now: first, want: true},
		"gone":          {old: first, want: true},
		"the same":      {old: first, now: first},
		"another time":  {old: first, now: map[string]any{"url": "http://a", "digest": "sha256:1", "revision": "main@sha1:1"}},
		"other content": {old: first, now: map[string]any{"url": "http://a", "digest": "sha256:2", "revision": "main@sha1:1"}, want: true},
		"no artifact":   {old: first, now: "forged", want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := newArtifact(event.UpdateEvent{ObjectOld: source(tc.old), ObjectNew: source(tc.now)}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

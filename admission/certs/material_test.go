package certs

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"
)

func TestParseMaterialNeverRepeatsAValue(t *testing.T) {
	ours := newAuthority(t, subject, noon.Add(time.Hour))
	good := ours.data(t, "one.svc")
	for name, test := range map[string]struct {
		change map[string][]byte
		want   string // part of the error; empty for none
	}{
		"as the rotator writes it": {nil, ""},
		"empty":                    {map[string][]byte{keyCA: nil, keyCertificate: nil, keyPrivate: nil}, errNotIssued.Error()},
		"no CA":                    {map[string][]byte{keyCA: nil}, errNotIssued.Error()},
		"key of another":           {map[string][]byte{keyPrivate: encodeKey(t, newKey(t))}, "not a key pair"},
		"no PEM":                   {map[string][]byte{keyPrivate: []byte("hunter2-hunter2")}, "not a key pair"},
	} {
		t.Run(name, func(t *testing.T) {
			data := maps.Clone(good)
			maps.Copy(data, test.change)
			_, err := parseMaterial(data)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			for key, value := range test.change {
				if err != nil && len(value) > 0 && bytes.Contains([]byte(err.Error()), value) {
					t.Errorf("the error repeats %s: %v", key, err)
				}
			}
		})
	}
}

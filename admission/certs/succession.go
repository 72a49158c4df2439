package certs

import (
	"bytes"
	"crypto/x509"
	"time"
)

// Where the Secret keeps the CAs before the current one, and the time when the last of them was replaced (RFC 3339).
const (
	keyPrevious     = "ca-previous.crt"
	keyPreviousTime = "ca-previous.time"
)

// keepPrevious is how long a CA stays in the bundles after it was replaced: far longer than any replica takes to change
// over.
const keepPrevious = 24 * time.Hour

// maxPrevious bounds the bundles, for a Secret that is emptied again and again. A replica that has not changed over since
// the oldest of them would be cut off by one less.
const maxPrevious = 4

// succession is the CAs before the current one, newest first, and when the last change was. Without any, the time is zero.
type succession struct {
	previous []*x509.Certificate
	replaced time.Time
}

// readSuccession reads what the Secret has recorded. A time that makes no sense is now: the CAs are then kept longer, and
// not forever.
func readSuccession(data map[string][]byte, now time.Time) succession {
	s := succession{previous: parseBundle(data[keyPrevious])}
	if len(s.previous) == 0 {
		return succession{}
	}
	replaced, err := time.Parse(time.RFC3339, string(data[keyPreviousTime]))
	if err != nil || replaced.After(now) {
		replaced = now
	}
	s.replaced = replaced
	return s
}

// write records the succession in the data of the Secret and reports whether that changed it.
func (s succession) write(data map[string][]byte) (changed bool) {
	record := map[string][]byte{}
	if len(s.previous) > 0 {
		record[keyPrevious] = encodeBundle(s.previous...)
		record[keyPreviousTime] = []byte(s.replaced.UTC().Format(time.RFC3339))
	}
	for _, key := range []string{keyPrevious, keyPreviousTime} {
		value, recorded := record[key]
		if before, exists := data[key]; exists == recorded && bytes.Equal(before, value) {
			continue
		}
		changed = true
		if recorded {
			data[key] = value
		} else {
			delete(data, key)
		}
	}
	return changed
}

// next is the succession when current is the CA and existing are the bundles of the configurations. The record in the
// Secret counts, as long as it is fresh; but a Secret that was emptied has none. So where the bundles are still those of
// another CA, it was replaced just now, and whatever they hold is recorded.
func (s succession) next(current *x509.Certificate, existing [][]byte, now time.Time) succession {
	usable := func(authority *x509.Certificate) bool {
		return now.Before(authority.NotAfter) && !authority.Equal(current)
	}
	fresh := now.Before(s.end())
	var out succession
	for _, bundle := range existing {
		ours := ofOurs(parseBundle(bundle), current)
		if len(ours) == 0 || ours[0].Equal(current) {
			continue
		}
		for _, authority := range ours {
			if usable(authority) && !containsCertificate(out.previous, authority) {
				out.previous = append(out.previous, authority)
				if !fresh || !containsCertificate(s.previous, authority) {
					out.replaced = now
				}
			}
		}
	}
	if fresh {
		for _, authority := range s.previous {
			if usable(authority) && !containsCertificate(out.previous, authority) {
				out.previous = append(out.previous, authority)
			}
		}
	}
	if len(out.previous) > maxPrevious {
		out.previous = out.previous[:maxPrevious]
	}
	if len(out.previous) > 0 && out.replaced.IsZero() {
		out.replaced = s.replaced
	}
	return out
}

// end is when the CAs are forgotten.
func (s succession) end() time.Time { return s.replaced.Add(keepPrevious) }

// ofOurs are the CAs that were made as current was: those of somebody else are not ours to keep.
func ofOurs(authorities []*x509.Certificate, current *x509.Certificate) []*x509.Certificate {
	var ours []*x509.Certificate
	for _, authority := range authorities {
		if authority.IsCA && bytes.Equal(authority.RawSubject, current.RawSubject) {
			ours = append(ours, authority)
		}
	}
	return ours
}

package source

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"

	"github.com/zeebo/blake3"
)

// algorithms are the digests that Flux writes. Each is collision resistant; sha1 and md5 are not here for that reason.
var algorithms = map[string]func() hash.Hash{
	"sha256": sha256.New,
	"sha384": sha512.New384,
	"sha512": sha512.New,
	"blake3": func() hash.Hash { return blake3.New() },
}

// digest is the digest of an archive.
type digest struct {
	algorithm string
	hex       string // lower case
}

// String is the canonical form, algorithm:hex.
func (d digest) String() string { return d.algorithm + ":" + d.hex }

// hash is a new hash of the digest's algorithm.
func (d digest) hash() hash.Hash { return algorithms[d.algorithm]() }

// parseDigest reads algorithm:hex. Hex may be in either case; hex without an algorithm, which Flux took for sha256 before
// v1, is refused: that a digest was checked must not depend on a guess.
func parseDigest(text string) (digest, error) {
	if text == "" {
		return digest{}, errors.New("the artifact has no digest")
	}
	algorithm, sum, found := strings.Cut(text, ":")
	if !found {
		return digest{}, fmt.Errorf("digest %q names no algorithm", text)
	}
	algorithm = strings.ToLower(algorithm)
	newHash, known := algorithms[algorithm]
	if !known {
		return digest{}, fmt.Errorf("digest algorithm %q is none of sha256, sha384, sha512, blake3", algorithm)
	}
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != newHash().Size() {
		return digest{}, fmt.Errorf("digest %q is not %d hex digits", text, 2*newHash().Size())
	}
	return digest{algorithm: algorithm, hex: strings.ToLower(sum)}, nil
}

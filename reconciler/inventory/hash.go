package inventory

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// minKey is the shortest acceptable key: the size of the hash.
const minKey = sha256.Size

// Hasher makes the renderedHash of inventory entries: HMAC-SHA-256, so that who may read an inventory cannot test guesses
// of a Secret's value against it.
type Hasher struct {
	key []byte
}

// NewHasher reads the key, at least 32 bytes, from a file. Without a file the key is random: hashes then hold as long as
// the process lives, and the first pass after a restart takes every object for changed, which costs a dry-run each.
func NewHasher(file string) (Hasher, error) {
	if file == "" {
		key := make([]byte, minKey)
		rand.Read(key)
		return Hasher{key: key}, nil
	}
	key, err := os.ReadFile(file)
	if err != nil {
		return Hasher{}, fmt.Errorf("read the key of rendered hashes: %w", err)
	}
	if len(key) < minKey {
		return Hasher{}, fmt.Errorf("the key of rendered hashes in %s has %d bytes: it needs at least %d", file, len(key), minKey)
	}
	return Hasher{key: key}, nil
}

// Hash is the keyed hash of an object, hex-encoded. Objects with equal content have equal hashes, whatever the order of
// their fields. It fails for what cannot be written as JSON.
func (h Hasher) Hash(obj *unstructured.Unstructured) (string, error) {
	content, err := json.Marshal(obj.Object)
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", KeyOf(obj), err)
	}
	mac := hmac.New(sha256.New, h.key)
	mac.Write(content)
	return hex.EncodeToString(mac.Sum(nil)), nil
}

package process

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

// outputLimit bounds what is kept of a process's output, in bytes.
const outputLimit = 1 << 20

// output keeps the end of what is written to it.
type output struct {
	mu      sync.Mutex
	content []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.content = append(o.content, p...)
	if len(o.content) > 2*outputLimit {
		o.content = append([]byte(nil), o.content[len(o.content)-outputLimit:]...)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.content[max(0, len(o.content)-outputLimit):])
}

func (o *output) contains(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.content, []byte(text))
}

// readyClient asks whether a process is ready, on loopback, past any proxy.
var readyClient = &http.Client{
	Timeout:   5 * time.Second,
	Transport: &http.Transport{DisableKeepAlives: true},
}

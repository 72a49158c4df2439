package dial

import (
	"crypto/tls"
	"net/http"
	"time"
)

// Transport is an HTTP transport all of whose connections go through d, redirects included. It uses no proxy of the
// environment (the proxy, not the target, would be what the dialer checks), does not decompress, and gives up on a peer
// that does not answer. The caller closes its idle connections when done.
func (d *Dialer) Transport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            d.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  30 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        time.Minute,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    4,
		MaxConnsPerHost:        16,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
}

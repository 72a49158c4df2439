package tenant_test

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stageset/stageset/reconciler/tenant"
)

// BenchmarkTokens is what a thousand accounts cost that are used all the time: how often tokens are requested for them, and the
// memory of what is kept of each. An API server in the same process issues them.
func BenchmarkTokens(b *testing.B) {
	const accounts = 1000
	server := newFaulty(b)
	clients := newClients(b, tenant.Options{Config: server.config()})
	used := func() {
		for number := range accounts {
			clientFor(b, clients, tenant.Account{Namespace: "team-" + strconv.Itoa(number%100), Name: "deployer-" + strconv.Itoa(number)})
		}
	}
	before := live()
	used()
	kept := live() - before
	for b.Loop() {
		used()
	}
	b.ReportMetric(float64(server.minted())/accounts, "mints/account")
	b.ReportMetric(float64(kept)/accounts, "B/account")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*accounts), "ns/client")
	runtime.KeepAlive(clients)
}

// live is what the heap holds that is in use.
func live() int64 {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return int64(memory.HeapAlloc)
}

// Package source finds a Flux source as the tenant, pins its artifact, and fetches the artifact by digest into a cache on
// disk. It follows https://fluxcd.io/flux/components/source/ for what a source's status means.
//
// It never reads a source with an identity of the reconciler (the caller gives it a Reader), never trusts what a status
// says about an artifact (address, size and digest are checked), never holds an artifact in memory, and never decides
// what to do about a failure: that is in the failure.Error that it returns.
package source

// Package webhook answers the API server's admission reviews of StageSets: it decodes a request, lets the policies default
// or validate the object, and responds. Which updates need no verdict at all, so that nobody is locked out of what is
// already stored, is decided here too (updates.go). It answers those of StageSetPolicies as well: whether they can be
// evaluated.
//
// It never holds a rule about what a StageSet may say (those are policies), never writes to the cluster, and never tells a
// dry run from the real thing in its verdict.
package webhook

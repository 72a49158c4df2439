// Package tenant turns the name of a tenant's service account into a client that acts as that account. It is the only
// place of the reconciler that makes a client for objects which a tenant names.
//
// The reconciler's own identity is used for exactly one request here: create serviceaccounts/token. Everything else, also
// discovery, is sent to the cluster that StageSets are in with a token of the account, so that its authorizer and audit log
// see the tenant. The exception are StageSets that name no account, where the installation allows that: own.go. To another
// cluster goes what the tenant's own kubeConfig leads to, and that user impersonates the account: impersonation.go.
//
// What it never does: it does not impersonate where the reconciler is, cache objects, watch, throttle by itself, follow a
// redirect, sleep before a retry, or put an answer's body into an error other than the message of a valid Status.
package tenant

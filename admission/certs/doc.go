// Package certs gives the webhook server its certificate. cert-controller's rotator, running in every replica, keeps a CA
// and a serving certificate in one Secret; each replica serves from that Secret by watch, and the elected leader writes
// the CA into the caBundle of both webhook configurations.
//
// Two rules keep the webhooks reachable while certificates change. A bundle never loses a CA that a replica may still
// serve under, and a replica changes to a new certificate only once both configurations trust it. So a rotation is: new
// certificate in the Secret, new CA added to the bundles, then every replica changes over.
//
// The package never serves from a mounted volume (a kubelet takes up to a minute and a half to refresh one), never puts a
// private key on disk, never writes anything of a webhook configuration but the caBundle, and never creates the Secret:
// the chart ships it empty, and who deletes it is told how to restore it.
package certs

// Package certs gives the webhook server its certificate, from one of two providers.
//
// ProviderSecret: cert-controller's rotator, running in every replica, keeps a CA and a serving certificate in one Secret;
// each replica serves from that Secret by watch, and the elected leader writes the CA into the caBundle of both webhook
// configurations. ProviderFiles: somebody else, such as cert-manager, keeps the certificate in files and writes the
// caBundle; each replica serves what the files hold.
//
// Two rules keep the webhooks reachable while certificates change. A replica changes to a new certificate only once both
// configurations trust it; and where the bundle is ours, it keeps a CA that was replaced for a day, as replicas may still
// serve under it. So a rotation is: new certificate in the Secret, new CA added to the bundles, then every replica changes
// over, and a day later the old CA is forgotten.
//
// The package never serves the Secret from a mounted volume (a kubelet takes up to a minute and a half to refresh one),
// never puts a private key on disk, never writes anything of a webhook configuration but the caBundle, and never creates
// the Secret: the chart ships it empty, and who deletes it is told how to restore it.
package certs

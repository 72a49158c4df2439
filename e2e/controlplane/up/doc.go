// Package up runs the components of a control plane as child processes on free loopback ports, keeps what they need in
// one directory, and ends them all when it ends, however it ends.
//
// It never listens on anything but loopback, never touches a kubeconfig that it was not told to write, and contains no
// Kubernetes code: it starts the binary that it is part of.
package up

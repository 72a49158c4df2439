// Package process is what the two server binaries do alike before they do their own work: flags, logging, traces, the way to
// the API server, and the check of their own permissions. It never knows which of them it serves.
package process

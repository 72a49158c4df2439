// Package app makes the program out of its parts: options, logging, permissions, the manager, readiness and an orderly end.
// It never decides about a StageSet or a certificate.
package app

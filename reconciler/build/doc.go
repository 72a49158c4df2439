// Package build renders a directory of an artifact into objects: a plain directory of manifests, or a kustomization.
//
// It is pure: it reads an fs.FS and nothing else, never connects to anything, never runs a command, never writes, never
// asks a cluster, and gives the same objects for the same input. It never sets a namespace while building (Place does),
// and its errors never hold a value of a Secret.
package build

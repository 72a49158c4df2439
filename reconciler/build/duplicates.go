package build

// StageManifests are the manifests of a named stage.
type StageManifests struct {
	Stage string
	Manifests
}

// Duplicates looks for objects that the stages of a release render more than once: same group, kind, namespace and name,
// whatever the version. The result is nil or a failure.Error with reason DuplicateObject that names both stages. The
// manifests must have been placed.
func Duplicates(stages []StageManifests) error { return nil }

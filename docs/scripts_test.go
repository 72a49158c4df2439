package docs_test

import (
	"strings"
	"testing"

	"github.com/stageset/stageset/e2e/examples"
)

// runner is a test that runs scripts of a document that are not marked as needing something.
type runner struct {
	file, test string
	scripts    int // how many it runs; whoever adds one has the test run it, too
}

// runners are by document, all of which they run together. What policies.md shows is a session, all of which is run by
// TestDocument in e2e/admission.
var runners = map[string][]runner{
	"certificates.md":  {{"../e2e/admission/rotation_test.go", "TestNoRequestFailsWhateverHappensToTheSecret", 4}},
	"installing.md":    {{"../e2e/chart/document_test.go", "TestInstallingAsDocumented", 7}},
	"multi-cluster.md": {{"../e2e/documentedclusters_test.go", "TestRolesForTwoClustersAsTheDocumentSays", 1}},
	"operations.md":    {{"../e2e/chart/operations_test.go", "TestOperatingAsDocumented", 16}},
	"tenancy.md":       {{"../e2e/documentedrbac_test.go", "TestPrintedRolesAsTheDocumentSays", 1}},
	"migration.md": {
		{"../e2e/chart/started_test.go", "TestFromNothingAsDocumented", 7},
		{"../e2e/chart/existing_test.go", "TestFromTheExistingControllerAsDocumented", 6},
	},
	"README.md": {{"../e2e/chart/started_test.go", "TestFromNothingAsDocumented", 7}},
}

// Each block of commands in the documents is run by a test, or says what it needs that no test has.
func TestScripts(t *testing.T) {
	makefile := read(t, "../Makefile")
	for _, document := range documents(t) {
		if document == "policies.md" {
			continue
		}
		scripts, err := examples.Scripts(read(t, document))
		if err != nil {
			t.Errorf("%s: %v", document, err)
		}
		for _, script := range scripts {
			for _, target := range script.Targets() {
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s:%d: there is no target %s", document, script.Line, target)
				}
			}
		}
		known := 0
		by := runners[strings.TrimPrefix(document, "../")]
		for _, runner := range by {
			known += runner.scripts
			if !strings.Contains(read(t, runner.file), "\nfunc "+runner.test+"(") {
				t.Errorf("%s has no %s, which is to run scripts of %s", runner.file, runner.test, document)
			}
		}
		if run := len(examples.Runnable(scripts)); run != known {
			t.Errorf("%s has %d scripts, and tests (%v) run %d: run every one, or begin its block with "+
				"\"```sh needs SOMETHING\" if no test can", document, run, by, known)
		}
	}
}

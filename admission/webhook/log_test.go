package webhook

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// What is said about a request names it, although its logger does not before there is something to say.
func TestVerdictsAreLogged(t *testing.T) {
	for team, want := range map[string]string{"mine": `"msg"="allowed"`, "other": `"msg"="denied"`} {
		t.Run(team, func(t *testing.T) {
			var lines []string
			logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: 1})
			object := stageSet(t, "metadata: {labels: {team: "+team+"}}")
			newStageSets(t).Validate(log.IntoContext(t.Context(), logger), newRequest(t, "open", nil, object))
			if text := strings.Join(lines, "\n"); !strings.Contains(text, want) || !strings.Contains(text, `"name"="app"`) {
				t.Errorf("the log lacks %s of app: %s", want, text)
			}
		})
	}
}

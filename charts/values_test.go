package charts_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

var write = flag.String("write", "", "folder to write the generated README.md to, instead of comparing it")

// value is one of values.yaml, with what its comment says.
type value struct{ path, text, comment string }

// README.md is generated: "make generate". Its table is values.yaml.
func TestReadme(t *testing.T) {
	text := strings.Replace(read(t, "stageset/README.tmpl.md"), "VALUES\n", table(t), 1)
	if *write != "" {
		if err := os.WriteFile(filepath.Join(*write, "README.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(text, read(t, "stageset/README.md")); diff != "" {
		t.Errorf("README.md, run \"make generate\" (-want +got):\n%s", diff)
	}
}

// table has a row for each value; those of flags say what docs/flags.md says.
func table(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("| value | default | meaning |\n| --- | --- | --- |\n")
	for _, v := range values(t) {
		comment := v.comment
		if component, name, isFlag := strings.Cut(v.path, ".flags."); isFlag {
			comment = programFlags(t, component)[name].usage
		}
		if comment == "" {
			t.Errorf("%s has no comment", v.path)
		}
		fmt.Fprintf(&text, "| `%s` | `%s` | %s |\n", v.path, v.text, strings.ReplaceAll(comment, "|", `\|`))
	}
	return text.String()
}

// Each flag of the programs is a value with the same default, or it follows from other values; each value is of a flag.
func TestFlagsAreValues(t *testing.T) {
	// What is no value by itself, and what it follows from.
	follows := map[string]string{
		"name":                      "the release",
		"namespace":                 "the release",
		"kubeconfig":                "a Pod has an account",
		"watch-namespaces":          "controller.watchNamespaces",
		"policy-config":             "policies and tenancy, for both programs",
		"no-cross-namespace-refs":   "the policy config",
		"default-service-account":   "the policy config",
		"allow-controller-identity": "the policy config",
		"cert-dir":                  "admission.certificateSecret",
		"artifact-cache-dir":        "a volume",
		"hash-key-file":             "reconciler.hashKeySecret",
		"tracing":                   "tracing.endpoint",
	}
	want, got, unknown := map[string]string{}, map[string]string{}, maps.Clone(follows)
	for _, component := range []string{"admission", "reconciler"} {
		for name, f := range programFlags(t, component) {
			if follows[name] == "" {
				want[component+" "+name] = f.value
			}
			delete(unknown, name)
		}
	}
	for _, v := range values(t) {
		if component, name, isFlag := strings.Cut(v.path, ".flags."); isFlag {
			got[component+" "+name] = strings.NewReplacer(`"`, "", "[", "", "]", "", ", ", ",").Replace(v.text)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags (-programs +values.yaml):\n%s", diff)
	}
	if len(unknown) > 0 {
		t.Errorf("no program has the flags %v", slices.Sorted(maps.Keys(unknown)))
	}
}

// The schema knows exactly the values that there are.
func TestSchemaIsOfTheValues(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal([]byte(read(t, "stageset/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	definitions := schema["$defs"].(map[string]any)
	var known []string
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		if reference, ok := schema["$ref"].(string); ok {
			schema = definitions[strings.TrimPrefix(reference, "#/$defs/")].(map[string]any)
		}
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			known = append(known, path)
			return
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s takes more than its properties", path)
		}
		for name, property := range properties {
			walk(strings.TrimPrefix(path+"."+name, "."), property.(map[string]any))
		}
	}
	walk("", schema)
	known = slices.DeleteFunc(known, func(path string) bool { return path == "global" }) // helm's own
	slices.Sort(known)
	var want []string
	for _, v := range values(t) {
		want = append(want, v.path)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, known); diff != "" {
		t.Errorf("values (-values.yaml +values.schema.json):\n%s", diff)
	}
}

// values are those of values.yaml, in its order: everything that is not a map of other values.
func values(t *testing.T) []value {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(read(t, "stageset/values.yaml")), &document); err != nil {
		t.Fatal(err)
	}
	var found []value
	var walk func(path string, node *yaml.Node)
	walk = func(path string, node *yaml.Node) {
		for i := 0; i < len(node.Content); i += 2 {
			key, content := node.Content[i], node.Content[i+1]
			at := strings.TrimPrefix(path+"."+key.Value, ".")
			comment := strings.Join(strings.Fields(strings.ReplaceAll("\n"+key.HeadComment, "\n#", "\n")), " ")
			if content.Kind == yaml.MappingNode && content.Style&yaml.FlowStyle == 0 && key.Value != "resources" {
				walk(at, content)
				continue
			}
			found = append(found, value{path: at, text: inline(t, content), comment: comment})
		}
	}
	walk("", document.Content[0])
	return found
}

// inline is a value in one line.
func inline(t *testing.T, node *yaml.Node) string {
	t.Helper()
	flow := *node
	flow.HeadComment = ""
	if flow.Kind != yaml.ScalarNode {
		flow.Style = yaml.FlowStyle
	}
	content, err := yaml.Marshal(&flow)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(content)), " ")
}

// programFlag is a flag as docs/flags.md has it.
type programFlag struct{ value, usage string }

var flagRow = regexp.MustCompile("(?m)^\\| `--([a-z-]+)(?: [a-z0-9]+)?` \\| (?:`([^`]*)`)? \\| (.*) \\|$")

// programFlags are the flags of a program, by name. A test holds docs/flags.md against the programs.
func programFlags(t *testing.T, component string) map[string]programFlag {
	t.Helper()
	_, section, found := strings.Cut(read(t, "../docs/flags.md"), "\n## stageset-"+component+"\n")
	if !found {
		t.Fatalf("docs/flags.md has nothing of %s", component)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	flags := map[string]programFlag{}
	for _, match := range flagRow.FindAllStringSubmatch(section, -1) {
		flags[match[1]] = programFlag{value: match[2], usage: strings.ReplaceAll(match[3], `\|`, "|")}
	}
	return flags
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Package tilt_test shows what the Tiltfile does, both ways, without Tilt: stand-ins of Tilt's functions note what it asks
// for, and a stand-in of Tilt itself then runs what needs no cluster. It never needs a container engine, or Tilt.
package tilt_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"

	"github.com/stageset/stageset/e2e/cluster"
)

var root = filepath.Join("..", "..")

// signatures are the parameters of those functions of Tilt that the Tiltfile uses, as https://docs.tilt.dev/api.html has
// them; one with a question mark may be left out. What is not here does not exist: load neither, because an extension is code
// from elsewhere that nothing pins.
var signatures = map[string]string{
	"config.define_bool": "name args? usage?",
	"config.parse":       "",
	"local_resource": "name cmd? deps? trigger_mode? resource_deps? ignore? auto_init? serve_cmd? cmd_bat? serve_cmd_bat? " +
		"allow_parallel? links? labels? env? serve_env? readiness_probe? dir? serve_dir?",
	"probe": "initial_delay_secs? timeout_secs? period_secs? success_threshold? failure_threshold? exec? http_get? " +
		"tcp_socket?",
	"exec_action": "command",
	"docker_build": "ref context build_args? dockerfile? dockerfile_contents? cache? live_update? match_in_env_vars? ignore? " +
		"only? entrypoint? container_args? target? ssh? secret? network? extra_tag? cache_from? pull? platform? extra_hosts?",
	"sync":     "local_path remote_path",
	"run":      "cmd trigger? echo_off?",
	"k8s_yaml": "yaml allow_duplicates?",
	"k8s_resource": "workload? new_name? port_forwards? extra_pod_selectors? trigger_mode? resource_deps? objects? " +
		"auto_init? pod_readiness? links? labels? discovery_strategy?",
	"helm": "paths name? namespace? values? set? kube_version? skip_crds?",
	"blob": "input",
}

// resource is a call of local_resource.
type resource struct {
	name              string
	cmd, serve, ready []string
	deps, ignore      []string
	after             []string
}

// image is a call of docker_build.
type image struct {
	ref, context, dockerfile string
	synced, to               string
	run                      string
}

// tiltfile is what the Tiltfile asked for.
type tiltfile struct {
	t         *testing.T
	embedded  bool
	resources []resource
	images    []image
	workloads map[string][]string // what each comes after
	manifests []string
}

// load runs the Tiltfile, as "tilt up" or as "tilt up -- --embedded".
func load(t *testing.T, embedded bool) *tiltfile {
	t.Helper()
	f := &tiltfile{t: t, embedded: embedded, workloads: map[string][]string{}}
	functions, config := starlark.StringDict{}, starlark.StringDict{}
	for name, parameters := range signatures {
		function := f.function(name, strings.Fields(parameters))
		if member, ok := strings.CutPrefix(name, "config."); ok {
			config[member] = function
		} else {
			functions[name] = function
		}
	}
	functions["config"] = starlarkstruct.FromStringDict(starlark.String("config"), config)
	options := &syntax.FileOptions{TopLevelControl: true}
	_, err := starlark.ExecFileOptions(options, &starlark.Thread{}, filepath.Join(root, "Tiltfile"), nil, functions)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// call is how a function was called: the values of its parameters, None for what was left out.
type call map[string]starlark.Value

// function is the stand-in of a function of Tilt.
func (f *tiltfile) function(name string, parameters []string) *starlark.Builtin {
	return starlark.NewBuiltin(name, func(
		_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple,
	) (starlark.Value, error) {
		values := make([]starlark.Value, len(parameters))
		var pairs []any
		for i, parameter := range parameters {
			values[i] = starlark.None
			pairs = append(pairs, parameter, &values[i])
		}
		if err := starlark.UnpackArgs(name, args, kwargs, pairs...); err != nil {
			return nil, err
		}
		called := call{}
		for i, parameter := range parameters {
			called[strings.TrimSuffix(parameter, "?")] = values[i]
		}
		return f.answer(name, called)
	})
}

// answer notes a call, and returns what Tilt would.
func (f *tiltfile) answer(name string, c call) (starlark.Value, error) {
	switch name {
	case "config.parse":
		settings := starlark.NewDict(1)
		return settings, settings.SetKey(starlark.String("embedded"), starlark.Bool(f.embedded))
	case "local_resource":
		f.resources = append(f.resources, c.resource(f.t))
	case "docker_build":
		f.images = append(f.images, c.image(f.t))
	case "k8s_yaml":
		f.manifests = append(f.manifests, c.text(f.t, "yaml"))
	case "k8s_resource":
		f.workloads[c.text(f.t, "workload")] = c.texts(f.t, "resource_deps")
	case "blob":
		return c["input"], nil
	case "helm":
		return f.helm(c)
	default: // a value for another function
		return starlarkstruct.FromStringDict(starlark.String(name), starlark.StringDict(c)), nil
	}
	return starlark.None, nil
}

// helm renders the chart, as Tilt has the user's helm do.
func (f *tiltfile) helm(c call) (starlark.Value, error) {
	helm, err := cluster.Binary("helm")
	if err != nil {
		return nil, err
	}
	args := []string{"template", c.text(f.t, "name"), c.text(f.t, "paths"), "--namespace", c.text(f.t, "namespace")}
	for _, set := range c.texts(f.t, "set") {
		args = append(args, "--set", set)
	}
	command := exec.CommandContext(f.t.Context(), helm, args...)
	command.Dir = root
	output, err := command.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return starlark.String(output), nil
}

func (c call) resource(t *testing.T) resource {
	r := resource{
		name: c.text(t, "name"), cmd: c.texts(t, "cmd"), serve: c.texts(t, "serve_cmd"), after: c.texts(t, "resource_deps"),
		deps: c.texts(t, "deps"), ignore: c.texts(t, "ignore"),
	}
	if c["readiness_probe"] != starlark.None {
		probe := fields(t, "probe", c["readiness_probe"])
		r.ready = fields(t, "exec_action", probe["exec"]).texts(t, "command")
	}
	return r
}

func (c call) image(t *testing.T) image {
	live, ok := c["live_update"].(*starlark.List)
	if !ok || live.Len() != 2 {
		t.Fatalf("live_update is %v, want one sync and one run", c["live_update"])
	}
	synced, ran := fields(t, "sync", live.Index(0)), fields(t, "run", live.Index(1))
	return image{
		ref: c.text(t, "ref"), context: c.text(t, "context"), dockerfile: c.text(t, "dockerfile"),
		synced: synced.text(t, "local_path"), to: synced.text(t, "remote_path"), run: ran.text(t, "cmd"),
	}
}

// fields are the parameters that a function was called with whose value this is.
func fields(t *testing.T, function string, value starlark.Value) call {
	t.Helper()
	made, ok := value.(*starlarkstruct.Struct)
	if !ok || made.Constructor() != starlark.String(function) {
		t.Fatalf("%s is no value of %s", value, function)
	}
	c := starlark.StringDict{}
	made.ToStringDict(c)
	return call(c)
}

// text is the value of a parameter that is a string.
func (c call) text(t *testing.T, parameter string) string {
	t.Helper()
	text, ok := starlark.AsString(c[parameter])
	if !ok {
		t.Fatalf("%s is %v, want a string", parameter, c[parameter])
	}
	return text
}

// texts is the value of a parameter that is a list of strings, or left out.
func (c call) texts(t *testing.T, parameter string) []string {
	t.Helper()
	if c[parameter] == starlark.None {
		return nil
	}
	list, ok := c[parameter].(*starlark.List)
	if !ok {
		t.Fatalf("%s is %v, want a list: of a string a shell would be made, which signals may end first", parameter, c[parameter])
	}
	var texts []string
	for element := range list.Elements() {
		texts = append(texts, call{parameter: element}.text(t, parameter))
	}
	return texts
}

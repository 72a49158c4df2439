package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// demoVariable makes this test binary the program.
const demoVariable = "DEMO_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(demoVariable) != "" {
		os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
	}
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// launch runs the program, and waits until it has written a text, if there is one.
func launch(t *testing.T, until string, args ...string) *process.Process {
	t.Helper()
	return process.Start(t, process.Options{
		Path: os.Args[0], Args: args, Env: []string{demoVariable + "=yes"}, ReadyOutput: until,
	})
}

// TestInteractive is what somebody sees who calls "make run", follows what it proposes, and presses Ctrl-C.
func TestInteractive(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	p := launch(t, "this happens to StageSets", "--dir", dir)
	expect(t, p.Output(),
		`^ 1\. Build what is missing +\d+\.\ds$`,
		`^ 2\. Start a control plane +\d+\.\ds   Kubernetes v1\.\d+\.\d+ at https://127\.0\.0\.1:\d+$`,
		`^ 6\. Start stageset-reconciler +\d+\.\ds   as account stageset-system/stageset-reconciler$`,
		`^    \$ kubectl apply -f e2e/demo/tenant/webshop\.yaml$`,
		`^    stageset\.stages\.metio\.wtf/webshop created$`,
		`^ +\+\d+\.\ds  webshop/database +Verifying  `,
		`^ +\+\d+\.\ds  webshop/database +Ready +2 objects, as deployer$`,
		`^ +\+\d+\.\ds  webshop/shop +Ready +2 objects, as deployer$`,
		`^ +\+\d+\.\ds  webshop +Ready +`,
		`written as system:serviceaccount:team-a:deployer, says the API server's audit log`,
		`The StageSet "no-account" is invalid: spec\.serviceAccountName: service-account-required/`,
		`The StageSet "two-kubeconfigs" is invalid: spec\.kubeConfig: kubeconfig-one-reference/`,
		`The StageSet "foreign-source" is invalid: spec\.stages\[\*\]\.sourceRef\.namespace:$`,
		`no-cross-namespace-refs/`,
		`^    export KUBECONFIG=`+regexp.QuoteMeta(filepath.Join(dir, "kubeconfig"))+`$`,
	)

	shop := filepath.Join(dir, repositoryName, "shop")
	replace(t, filepath.Join(shop, "deployment.yaml"), "replicas: 1", "replicas: 3")
	push(t, dir)
	awaitOutput(t, p, `\d\d:\d\d:\d\d  webshop +Ready `)
	takeover, err := os.ReadFile("tenant/takeover.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shop, "takeover.yaml"), takeover, 0o600); err != nil {
		t.Fatal(err)
	}
	push(t, dir)
	awaitOutput(t, p, `\d\d:\d\d:\d\d  webshop +not Ready +PolicyViolation: `)
	absent(t, filepath.Join(dir, "kubeconfig"), kindClusterRole.GroupVersion().WithKind("ClusterRoleBinding"), "takeover")

	interrupt(t, p, 0)
	nothingListens(t, dir, p.Output())
}

// TestAnotherCluster is what is promised of "make run KUBECONFIG=...", with an API server that cannot ask for admission.
func TestAnotherCluster(t *testing.T) {
	t.Parallel()
	kubeconfig := otherCluster(t)
	p := launch(t, "", "--dir", filepath.Join(t.TempDir(), "run"), "--kubeconfig", kubeconfig, "--webhook=false", "--once")
	<-p.Done()
	if code := p.State().ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	expect(t, p.Output(),
		`^ 5\. Start stageset-admission, the webhooks .* left out`,
		`^ +\+\d+\.\ds  webshop +Ready +`,
		`^    stageset\.stages\.metio\.wtf/no-account created$`, `service-account-required/`,
		`^    stageset\.stages\.metio\.wtf/two-kubeconfigs created$`, `kubeconfig-one-reference/`,
		`^    stageset\.stages\.metio\.wtf/foreign-source created$`, `no-cross-namespace-refs/`,
		`^Stop everything, and leave no process and no port +\d+\.\ds   Logs stay in `,
	)
	for _, namespace := range []string{system, team, "flux-system"} {
		absent(t, kubeconfig, kindNamespace, namespace)
	}
	absent(t, kubeconfig, kindCRD, "stagesets.stages.metio.wtf")
	absent(t, kubeconfig, kindClusterRole, "stageset-reconciler")
}

func TestInterruptedAtTheStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	p := launch(t, "2. Start a control plane", "--dir", dir)
	eventually(t, func() error {
		_, err := os.Stat(filepath.Join(dir, "logs", "kube-apiserver.log"))
		return err
	})
	interrupt(t, p, exitInterrupted)
	expect(t, p.Output(), `^    Interrupted\.$`)
	nothingListens(t, dir, p.Output())
}

func TestAFailureNamesStepLogAndRemedy(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "nowhere")
	content := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}],
clusters: [{name: a, cluster: {server: "https://` + freeAddress(t) + `"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "", "--dir", filepath.Join(dir, "run"), "--kubeconfig", kubeconfig, "--once")
	<-p.Done()
	if code := p.State().ExitCode(); code != exitFailure {
		t.Errorf("exit code %d, want %d", code, exitFailure)
	}
	expect(t, p.Output(),
		`^ 2\. Look at the cluster of nowhere: failed after \d+\.\ds$`,
		`^    Problem     .*https://127\.0\.0\.1:`,
		`^    What to do  Check that the kubeconfig is an administrator's`,
	)
}

// otherCluster starts a cluster as if it were somebody's, and returns its kubeconfig.
func otherCluster(t *testing.T) string {
	t.Helper()
	up, err := cluster.Binary("controlplane")
	if err != nil {
		t.Fatal(err)
	}
	kwok, err := cluster.Binary("kwok")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	process.Start(t, process.Options{
		Path: up, Args: []string{"up", "--dir", dir, "--with-nodes", "--kwok", kwok, "--stop-on-eof"},
		ReadyOutput: "control plane ready",
	})
	return filepath.Join(dir, "kubeconfig")
}

// expect checks that lines match, in this order.
func expect(t *testing.T, output string, patterns ...string) {
	t.Helper()
	lines := strings.Split(output, "\n")
	for _, pattern := range patterns {
		expression := regexp.MustCompile(pattern)
		for len(lines) > 0 && !expression.MatchString(lines[0]) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			t.Fatalf("no line, or none at its place, matches %q in\n%s", pattern, output)
		}
	}
}

func awaitOutput(t *testing.T, p *process.Process, pattern string) {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	eventually(t, func() error {
		if !expression.MatchString(p.Output()) {
			return errors.New("nothing matches " + pattern + " in\n" + p.Output())
		}
		return nil
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatal(last)
	}
}

func replace(t *testing.T, path, old, replacement string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), old) {
		t.Fatalf("%s has no %q", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(content), old, replacement)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// push commits everything in the working copy of a run and pushes it.
func push(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{{"add", "--all"}, {"commit", "--quiet", "-m", "Change it"}, {"push", "--quiet"}} {
		command := exec.Command("git", args...)
		command.Dir = filepath.Join(dir, repositoryName)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
}

// absent checks that an object does not exist.
func absent(t *testing.T, kubeconfig string, kind schema.GroupVersionKind, name string) {
	t.Helper()
	a, err := newAdmin(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	object := reference(kind, "", name)
	if err := a.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
		t.Errorf("reading %s: %v, want that it does not exist", describe(object), err)
	}
}

// interrupt is Ctrl-C, and checks how the program ends.
func interrupt(t *testing.T, p *process.Process, code int) {
	t.Helper()
	if err := syscall.Kill(p.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(patience):
		t.Fatal("it is still there")
	}
	if got := p.State().ExitCode(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
}

var loopbackAddress = regexp.MustCompile(`(?:127\.0\.0\.1|localhost):(\d+)`)

// nothingListens checks every port that the run has used, and that the locks of its processes are free.
func nothingListens(t *testing.T, dir, output string) {
	t.Helper()
	var kept struct{ APIServer, Etcd int }
	content, err := os.ReadFile(filepath.Join(dir, "ports.json"))
	if err == nil {
		err = json.Unmarshal(content, &kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	ports := []string{strconv.Itoa(kept.APIServer), strconv.Itoa(kept.Etcd)}
	for _, match := range loopbackAddress.FindAllStringSubmatch(output, -1) {
		ports = append(ports, match[1])
	}
	for _, port := range ports {
		connection, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			t.Errorf("something listens on port %s", port)
			connection.Close()
		}
	}
	for _, name := range []string{lockFile, upLockFile} {
		held, err := lock(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		held.Close()
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	addresses, err := freeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return addresses[0]
}

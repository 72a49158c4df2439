package admission_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/e2e/cluster"
)

// benchPolicy is a policy with one rule, which looks at every stage and refuses one that has the name of the policy.
const benchPolicy = `apiVersion: stages.metio.wtf/v1alpha1
kind: StageSetPolicy
metadata: {name: %[1]s}
spec:
  validations:
  - name: stages
    expression: object.spec.stages.all(stage, stage.name != '%[1]s')
    message: a stage must not be called %[1]s
`

const (
	// benchStages is how many stages the StageSets have.
	benchStages = 20
	// rounds is how often the sides take turns, so that what else the machine does disturbs all of them; eachRequests is how
	// many creations are timed in a round for each number of clients, after some that are not.
	rounds, eachRequests, warmRequests = 3, 250, 50
	// constantRate is kept for constantTime, in requests a second.
	constantRate, constantTime = 200, 10 * time.Second
)

// BenchmarkPolicies measures what policies cost whoever creates a StageSet: the built program on one core, its two webhooks
// called by a real API server, with its built-in policies and stored ones; and, in turn with it, on the same API server
// without the webhooks, the same policies as ValidatingAdmissionPolicies. What is x-native is the ratio of the two, and
// comparable where times are not. All built-in policies that see such a StageSet can be exported, except for
// author-may-use-service-account, which the program alone evaluates. What is x-fewer-native is the ratio to the stored
// policies alone.
//
// The same client asks for everything, so that the program remembers that it may use its account, except for new-account,
// where each request is for another account that the API server has to be asked about.
func BenchmarkPolicies(b *testing.B) {
	for _, n := range []int{0, 10, 50} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				benchmarkPolicies(b, policyNames(n))
			}
			b.ReportMetric(0, "ns/op") // is mostly preparation
		})
	}
}

func benchmarkPolicies(b *testing.B, names []string) {
	i := install(b)
	manifests := make([]string, len(names))
	for n, name := range names {
		manifests[n] = fmt.Sprintf(benchPolicy, name)
	}
	stored := strings.Join(manifests, "---\n")

	i.env = []string{"GOMAXPROCS=1"}
	i.installWebhooks(b)
	i.failClosed(b)
	r := i.start(b, "--log-level=info")
	i.applyPolicies(b, stored)
	i.awaitRefusals(b, names)
	i.awaitBuiltins(b, true)
	i.constantLoad(b, r)

	policies, bindings := exportPolicies(b, stored, true)
	_, fewer := exportPolicies(b, stored, false)
	i.applyPolicies(b, policies)
	found := map[string]map[string]durations{}
	for range rounds {
		for _, side := range []struct {
			unit, bindings string
			builtIn        bool
		}{{ours, "", true}, {"x-native", bindings, true}, {"x-fewer-native", fewer, false}} {
			i.callWebhooks(b, side.unit == ours)
			remove := i.applyPolicies(b, side.bindings)
			i.awaitBuiltins(b, side.builtIn)
			i.awaitRefusals(b, names)
			i.timeClients(b, side.unit, found)
			i.callWebhooks(b, false)
			remove()
			i.awaitBuiltins(b, false)
		}
	}
	report(b, found)
}

// BenchmarkMemory measures the most that the program has in memory while it compiles stored policies, and evaluates them for
// eight clients at once.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{0, 50, 500} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				i := install(b)
				i.installWebhooks(b)
				i.failClosed(b)
				r := i.start(b, "--log-level=info")
				names := policyNames(n)
				for _, name := range names {
					i.applyPolicies(b, fmt.Sprintf(benchPolicy, name))
				}
				i.awaitRefusals(b, names)
				i.create(b, 8, eachRequests, false)
				b.ReportMetric(float64(r.PeakMemory(b))/(1<<20), "peak-MiB")
			}
			b.ReportMetric(0, "ns/op") // is mostly preparation
		})
	}
}

// ours is the side of the program.
const ours = "ms"

// callWebhooks has the API server call the webhooks about the StageSets of the tenant, or about nobody's.
func (i *installation) callWebhooks(b *testing.B, call bool) {
	b.Helper()
	namespace := i.tenant
	if !call {
		namespace = "nobody"
	}
	const path = "/webhooks/0/namespaceSelector/matchLabels/kubernetes.io~1metadata.name"
	content := fmt.Appendf(nil, `[{"op": "replace", "path": %q, "value": %q}]`, path, namespace)
	patch := client.RawPatch(types.JSONPatchType, content)
	for _, kind := range []string{mutating, validating} {
		if err := i.client.Patch(b.Context(), i.configuration(kind), patch); err != nil {
			b.Fatal(err)
		}
	}
}

// report reports what was found of us, and the ratios to the others.
func report(b *testing.B, found map[string]map[string]durations) {
	b.Helper()
	for who, times := range found[ours] {
		slices.Sort(times)
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", 0.5}, {"p99", 0.99}} {
			mine := times.quantile(q.at)
			b.ReportMetric(milliseconds(mine), fmt.Sprintf("%s-%s-%s", who, q.name, ours))
			for unit, others := range found {
				if unit != ours {
					slices.Sort(others[who])
					b.ReportMetric(mine.Seconds()/others[who].quantile(q.at).Seconds(), fmt.Sprintf("%s-%s-%s", who, q.name, unit))
				}
			}
		}
	}
}

func policyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("bench-%02d", i)
	}
	return names
}

// exportPolicies is what a user gets who turns the policies into native ones, and the built-in ones that do something, apart
// from the bindings that put them in force.
func exportPolicies(b *testing.B, stored string, builtIn bool) (policies, bindings string) {
	b.Helper()
	path, err := cluster.Binary("stagesetctl")
	if err != nil {
		b.Fatal(err)
	}
	arguments, dir := []string{"policy", "export"}, b.TempDir()
	for file, content := range map[string]string{
		"policies.yaml": stored, "config.yaml": "rules: {default-service-account: Off}",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	if builtIn {
		arguments = append(arguments, "--builtin", "--policy-config", filepath.Join(dir, "config.yaml"))
	}
	if stored != "" {
		arguments = append(arguments, filepath.Join(dir, "policies.yaml"))
	} else if !builtIn {
		return "", ""
	}
	output, err := exec.CommandContext(b.Context(), path, arguments...).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		b.Fatalf("%v: %s", err, exit.Stderr)
	} else if err != nil {
		b.Fatal(err)
	}
	for manifest := range strings.SplitSeq(string(output), "---\n") {
		if strings.Contains(manifest, "kind: ValidatingAdmissionPolicyBinding\n") {
			bindings += "---\n" + manifest
		} else {
			policies += "---\n" + manifest
		}
	}
	return policies, bindings
}

// applyPolicies applies cluster-scoped objects and says how to delete them, which happens at the end in any case.
func (i *installation) applyPolicies(b *testing.B, manifests string) (remove func()) {
	b.Helper()
	remove = func() {
		for manifest := range strings.SplitSeq(manifests, "---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
				b.Error(err)
			} else if len(object.Object) > 0 {
				if err := client.IgnoreNotFound(i.client.Delete(context.Background(), object)); err != nil {
					b.Errorf("deleting %s %s: %v", object.GetKind(), object.GetName(), err)
				}
			}
		}
	}
	b.Cleanup(remove)
	i.Apply(b, manifests)
	return remove
}

// benchStageSet is one that nothing is wrong with, apart from what the last stage may be called.
func (i *installation) benchStageSet(b *testing.B, name, lastStage string) *unstructured.Unstructured {
	b.Helper()
	spec := "serviceAccountName: deployer\nstages:\n"
	for n := range benchStages - 1 {
		spec += fmt.Sprintf("- {name: stage-%d, sourceRef: {kind: GitRepository, name: app}}\n", n)
	}
	return i.stageSet(b, name, spec+"- {name: "+lastStage+", sourceRef: {kind: GitRepository, name: app}}\n")
}

// awaitRefusals waits until every single policy refuses what it is against.
func (i *installation) awaitRefusals(b *testing.B, names []string) {
	b.Helper()
	for _, name := range names {
		object := i.benchStageSet(b, "refused", name)
		cluster.Eventually(b, func(ctx context.Context) error {
			err := i.client.Create(ctx, object.DeepCopy(), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "must not be called "+name) {
				return fmt.Errorf("policy %s is not in force: %v", name, err)
			}
			return nil
		})
	}
}

// awaitBuiltins waits until what breaks built-in policies is refused, or is not any more.
func (i *installation) awaitBuiltins(b *testing.B, refused bool) {
	b.Helper()
	object := i.stageSet(b, "invalid", invalidSpec)
	cluster.Eventually(b, func(ctx context.Context) error {
		err := i.client.Create(ctx, object.DeepCopy(), client.DryRunAll)
		if apierrors.IsInvalid(err) != refused || err != nil && !refused {
			return fmt.Errorf("what is invalid should be refused: %t, but got: %v", refused, err)
		}
		return nil
	})
}

// durations are how long requests took.
type durations []time.Duration

// quantile is the time that a fraction q of the requests did not exceed. The durations are sorted.
func (d durations) quantile(q float64) time.Duration {
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// timeClients times creations, as dry runs, by one client and by eight at once, each of which waits for its answers.
func (i *installation) timeClients(b *testing.B, side string, found map[string]map[string]durations) {
	b.Helper()
	if found[side] == nil {
		found[side] = map[string]durations{}
	}
	i.create(b, 8, warmRequests, false)
	for who, times := range map[string]durations{
		"1-client":    i.create(b, 1, eachRequests, false),
		"8-client":    i.create(b, 8, eachRequests, false),
		"new-account": i.create(b, 1, eachRequests, true),
	} {
		found[side][who] = append(found[side][who], times...)
	}
}

func (i *installation) create(b *testing.B, clients, requests int, newAccounts bool) durations {
	b.Helper()
	times := make(durations, requests)
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(clients)
	object := i.benchStageSet(b, "created", "last")
	for n := range requests {
		group.Go(func() error {
			mine := object.DeepCopy()
			if newAccounts {
				mine.Object["spec"].(map[string]any)["serviceAccountName"] = fmt.Sprintf("account-%d", time.Now().UnixNano())
			}
			began := time.Now()
			err := i.client.Create(ctx, mine, client.DryRunAll)
			times[n] = time.Since(began)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return times
}

// constantLoad asks the webhooks directly, at a constant rate however long the answers take, what the API server would ask
// for creations: first the defaults, then the verdict. It is no dry run, which would not be measured, but nothing is stored.
// What is called server is the histogram of the program, the rest is what the caller sees.
func (i *installation) constantLoad(b *testing.B, r *replica) {
	b.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(i.bundle(b, validating)) {
		b.Fatal("there is no CA in the webhook configuration")
	}
	web := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: 2 * constantRate,
	}}
	defer web.CloseIdleConnections()
	content := i.review(b)
	ask := func() error {
		for _, path := range []string{"/stagesets/default", "/stagesets/validate"} {
			got := post(b.Context(), web, fmt.Sprintf("https://localhost:%d%s", i.port, path), content)
			if got.code != http.StatusOK || !strings.Contains(string(got.body), `"allowed":true`) {
				return fmt.Errorf("answer %d: %.300s", got.code, got.body)
			}
		}
		return nil
	}
	for range warmRequests {
		if err := ask(); err != nil {
			b.Fatal(err)
		}
	}

	const cpu = "process_cpu_seconds_total"
	before, used := r.validated(b), r.measure(b)[cpu]
	const requests = constantRate * int(constantTime/time.Second)
	times, failed := make(durations, requests), make([]error, requests)
	tick := time.NewTicker(time.Second / constantRate)
	defer tick.Stop()
	var wait sync.WaitGroup
	began := time.Now()
	for n := range requests {
		<-tick.C
		wait.Go(func() {
			asked := time.Now()
			failed[n] = ask()
			times[n] = time.Since(asked)
		})
	}
	sent := time.Since(began)
	wait.Wait()
	after, used := r.validated(b), r.measure(b)[cpu]-used
	failed = slices.DeleteFunc(failed, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		b.Logf("%d of %d requests failed, one of them with: %v", len(failed), requests, failed[0])
	}
	slices.Sort(times)
	b.ReportMetric(float64(requests)/sent.Seconds(), "constant-requests/s")
	b.ReportMetric(float64(len(failed)), "constant-failed")
	b.ReportMetric(used*1000/float64(requests), "constant-cpu-ms/request")
	b.ReportMetric(milliseconds(times.quantile(0.99)), "constant-both-p99-ms")
	b.ReportMetric(after.since(before).quantile(0.5)*1000, "server-p50-ms")
	b.ReportMetric(after.since(before).quantile(0.99)*1000, "server-p99-ms")
}

// review is the request of the API server about the creation of a StageSet by an administrator, with everything that the API
// server adds before it asks, such as managed fields.
func (i *installation) review(b *testing.B) []byte {
	b.Helper()
	created := i.benchStageSet(b, "constant", "last")
	if err := i.client.Create(b.Context(), created, client.DryRunAll); err != nil {
		b.Fatal(err)
	}
	object, err := created.MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	kind := metav1.GroupVersionKind{Group: "stages.metio.wtf", Version: "v1", Kind: "StageSet"}
	resource := metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: "stagesets"}
	content, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID("constant"), Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
			Namespace: i.tenant, Name: "constant", Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters", "system:authenticated"}},
			Object:   runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return content
}

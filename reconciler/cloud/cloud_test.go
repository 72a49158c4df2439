package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/clouds"
	"github.com/stageset/stageset/reconciler/cloud"
	"github.com/stageset/stageset/reconciler/failure"
)

// account is a ServiceAccount whose tokens name their audiences.
type account struct {
	annotations map[string]string
	err         error
}

func (a account) Annotations(context.Context) (map[string]string, error) { return a.annotations, a.err }

func (a account) Token(_ context.Context, audiences []string) (string, error) {
	return "for " + strings.Join(audiences, " and "), nil
}

const ca = "some CA"

// The environment of a process counts once, so all of it is one test.
func TestExchange(t *testing.T) {
	there := clouds.Start(t, "https://api.example.com", []byte(ca))
	for _, variable := range there.Environment {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	forAWS := cloud.Cluster{Provider: "aws", Resource: clouds.AWSCluster}
	aws := account{annotations: map[string]string{"eks.amazonaws.com/role-arn": clouds.AWSRole}}

	// What a cluster of GKE is called is asked for by one exchange at a time, until it is known once: while nobody answers, the
	// others wait, and none of them longer than it has itself.
	t.Run("a metadata service that says nothing", func(t *testing.T) {
		there.Stall(true)
		defer there.Stall(false)
		const each, exchanges = time.Second, 10
		of := cloud.Cluster{Provider: "gcp", Resource: clouds.GCPCluster}
		ctx, cancel := context.WithTimeout(t.Context(), each)
		defer cancel()
		began := time.Now()
		var all sync.WaitGroup
		for range exchanges {
			all.Go(func() {
				_, err := cloud.Exchange(ctx, of, "team-a", "deployer", account{})
				check(t, err, v1.ReasonTargetUnreachable, failure.Transient, "gcp: its servers do not answer")
			})
		}
		all.Wait()
		if took := time.Since(began); took > exchanges*each/2 {
			t.Errorf("%d exchanges took %s, want them to end together after %s", exchanges, took, each)
		}
	})
	tested := map[string]bool{}
	for name, tc := range map[string]struct {
		cluster   string
		account   account
		audiences string // of the token that the provider is shown
		server    string // as the provider has it
		life      time.Duration
		denied    string
	}{
		"aws": {
			clouds.AWSCluster, aws, "sts.amazonaws.com", "https://api.example.com", 15 * time.Minute,
			"aws: AccessDenied: not authorized to assume the role",
		},
		"azure": {
			clouds.AzureCluster, account{annotations: map[string]string{
				"azure.workload.identity/tenant-id": clouds.AzureTenant, "azure.workload.identity/client-id": clouds.AzureClient,
			}},
			"api://AzureADTokenExchange", "https://api.example.com", time.Hour,
			"azure: the identity that the ServiceAccount is annotated with: 401 Unauthorized",
		},
		"gcp from a cluster of its own": {
			clouds.GCPCluster,
			account{annotations: map[string]string{"iam.gke.io/gcp-service-account": clouds.GCPIdentity}},
			clouds.GCPPool, "api.example.com", time.Hour,
			"gcp: ",
		},
		"gcp": {
			clouds.GCPCluster, account{annotations: map[string]string{
				"gcp.auth.fluxcd.io/workload-identity-provider": clouds.GCPProvider,
				"iam.gke.io/gcp-service-account":                clouds.GCPIdentity,
			}},
			"//iam.googleapis.com/" + clouds.GCPProvider, "api.example.com", time.Hour,
			"gcp: ",
		},
	} {
		t.Run("what is said of the cluster by "+name, func(t *testing.T) {
			provider, _, _ := strings.Cut(name, " ")
			tested[provider] = true
			there.Forget()
			cluster := cloud.Cluster{Provider: provider, Resource: tc.cluster}
			got, err := cloud.Exchange(t.Context(), cluster, "team-a", "deployer", tc.account)
			if err != nil {
				t.Fatal(err)
			}
			if !there.LetsIn(got.Token) {
				t.Errorf("the cluster does not take the token %q", got.Token)
			}
			if got.Life > tc.life || got.Life < tc.life-time.Minute {
				t.Errorf("the token is good for %s, want %s", got.Life, tc.life)
			}
			got.Token, got.Life = "", 0
			if diff := cmp.Diff(cloud.Access{Server: tc.server, CA: ca}, got); diff != "" {
				t.Errorf("access (-want +got):\n%s", diff)
			}
			for _, shown := range there.Identities() {
				if shown != "for "+tc.audiences {
					t.Errorf("it was shown a token %s, want one for %s", shown, tc.audiences)
				}
			}
			if len(there.Identities()) == 0 {
				t.Error("no token was shown")
			}
			there.Deny(true)
			defer there.Deny(false)
			for range 2 { // in the same words each time
				_, err := cloud.Exchange(t.Context(), cluster, "team-a", "deployer", tc.account)
				check(t, err, v1.ReasonAccessDenied, failure.Stalled, tc.denied)
			}
		})
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(tested)), cloud.Providers()); diff != "" {
		t.Errorf("providers (-tested +all):\n%s", diff)
	}
	t.Run("an account without a role", func(t *testing.T) {
		_, err := cloud.Exchange(t.Context(), forAWS, "team-a", "deployer", account{})
		check(t, err, v1.ReasonAccessDenied, failure.Stalled, "invalid eks.amazonaws.com/role-arn annotation")
	})
	t.Run("an account that cannot be read", func(t *testing.T) {
		own := failure.NewStalled(v1.ReasonAccessDenied, "may not get it")
		_, err := cloud.Exchange(t.Context(), forAWS, "team-a", "deployer", account{err: own})
		if !errors.Is(err, own) {
			t.Errorf("got %v, want what is wrong with the account", err)
		}
	})
	t.Run("no account is never the reconciler", func(t *testing.T) {
		_, err := cloud.Exchange(t.Context(), forAWS, "team-a", "", aws)
		check(t, err, v1.ReasonInvalidSpec, failure.Stalled, "nobody's token")
	})
	t.Run("a cluster that is being made", func(t *testing.T) {
		soon := forAWS
		soon.Resource = clouds.AWSCreating
		_, err := cloud.Exchange(t.Context(), soon, "team-a", "deployer", aws)
		check(t, err, v1.ReasonTargetUnreachable, failure.Transient, "aws: what it says of the cluster is incomplete")
	})
	t.Run("a region without servers", func(t *testing.T) {
		elsewhere := forAWS
		elsewhere.Resource = strings.Replace(clouds.AWSCluster, "eu-central-1", "us-east-1", 1)
		_, err := cloud.Exchange(t.Context(), elsewhere, "team-a", "deployer", aws)
		check(t, err, v1.ReasonTargetUnreachable, failure.Transient, "aws: its servers do not answer")
	})
}

func check(t *testing.T, err error, reason string, kind failure.Kind, text string) {
	t.Helper()
	failed := failure.From(err)
	if failed.Reason != reason || failed.Kind != kind || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%s %s: %v, want %s %s: %q", failed.Reason, failed.Kind, err, reason, kind, text)
	}
}

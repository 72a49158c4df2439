package clouds

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"
)

// What a tenant of GCP writes down.
const (
	GCPCluster  = "projects/shop/locations/europe-west3/clusters/production"
	GCPIdentity = "deployer@shop.iam.gserviceaccount.com"
	GCPProvider = "projects/1234567890/locations/global/workloadIdentityPools/clusters/providers/hub"
	// GCPPool is the audience of tokens of a cluster that is itself of GKE.
	GCPPool = "shop.svc.id.goog"
)

// gcpMetadata are what a machine of such a cluster is told.
var gcpMetadata = map[string]string{
	"/computeMetadata/v1/project/project-id":                   "shop",
	"/computeMetadata/v1/instance/attributes/cluster-location": "europe-west3",
	"/computeMetadata/v1/instance/attributes/cluster-name":     "hub",
}

// gcpAudiences are who takes tokens of a cluster that is not of GKE, and of one that is.
var gcpAudiences = []string{
	"//iam.googleapis.com/" + GCPProvider,
	"identitynamespace:" + GCPPool + ":https://container.googleapis.com/v1/projects/shop/locations/europe-west3/clusters/hub",
}

const (
	// gcpFederated is what everybody gets who shows the token of a ServiceAccount, and gcpToken what that is good for.
	gcpFederated = "ya29.federated"
	gcpToken     = "ya29.standin"
)

func (c *Clouds) gcp() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"sts.googleapis.com": c.exchangeToken, "iamcredentials.googleapis.com": c.generateAccessToken,
		"container.googleapis.com": c.getCluster,
	}
}

// exchangeToken is the exchange of tokens of RFC 8693.
func (c *Clouds) exchangeToken(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(gcpAudiences, r.FormValue("audience")) || !c.shown(r.FormValue("subject_token")) {
		answer(w, http.StatusForbidden, map[string]any{
			"error": "unauthorized_client", "error_description": "the provider does not take it",
		})
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"access_token": gcpFederated, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
		"token_type": "Bearer", "expires_in": 3600,
	})
}

// generateAccessToken makes of it a token of a service account of GCP.
func (c *Clouds) generateAccessToken(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/serviceAccounts/"+GCPIdentity+":generateAccessToken") || !bears(r, gcpFederated) {
		answer(w, http.StatusForbidden, map[string]any{})
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"accessToken": gcpToken, "expireTime": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	})
}

// getCluster is the answer of GKE, whose endpoint has no scheme.
func (c *Clouds) getCluster(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/"+GCPCluster || !bears(r, gcpToken) {
		answer(w, http.StatusNotFound, map[string]any{})
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"endpoint":   strings.TrimPrefix(c.cluster, "https://"),
		"masterAuth": map[string]any{"clusterCaCertificate": base64.StdEncoding.EncodeToString([]byte(c.ca))},
	})
}

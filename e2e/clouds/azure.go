package clouds

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// What a tenant of Azure writes down.
const (
	AzureCluster = "/subscriptions/" + azureSubscription +
		"/resourceGroups/shop/providers/Microsoft.ContainerService/managedClusters/production"
	AzureTenant = "22222222-2222-2222-2222-222222222222"
	AzureClient = "33333333-3333-3333-3333-333333333333"

	azureSubscription = "11111111-1111-1111-1111-111111111111"
)

const (
	// azureToken is what a cluster takes, and azureManagement what ARM does.
	azureToken      = "azure-standin"
	azureManagement = "azure-management"
	// azureClusters is the scope of tokens for clusters.
	azureClusters = "6dae42f8-4368-4678-94ff-3960e28e3630/.default"
)

func (c *Clouds) azure() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"login.microsoft.com": c.entra, "login.microsoftonline.com": c.entra, "management.azure.com": c.resources,
	}
}

// entra is the identity provider.
func (c *Clouds) entra(w http.ResponseWriter, r *http.Request) {
	login := "https://login.microsoftonline.com/" + AzureTenant
	switch {
	case r.URL.Path == "/common/discovery/instance":
		answer(w, http.StatusOK, map[string]any{
			"tenant_discovery_endpoint": login + "/v2.0/.well-known/openid-configuration",
			"metadata": []any{map[string]any{
				"preferred_network": "login.microsoftonline.com", "preferred_cache": "login.windows.net",
				"aliases": []string{"login.microsoftonline.com", "login.windows.net", "login.microsoft.com"},
			}},
		})
	case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		answer(w, http.StatusOK, map[string]any{
			"issuer": login + "/v2.0", "authorization_endpoint": login + "/oauth2/v2.0/authorize",
			"token_endpoint": login + "/oauth2/v2.0/token",
		})
	case r.URL.Path == "/"+AzureTenant+"/oauth2/v2.0/token" && r.FormValue("client_id") == AzureClient &&
		c.shown(r.FormValue("client_assertion")):
		token := azureManagement
		if strings.Contains(r.FormValue("scope"), azureClusters) {
			token = azureToken
		}
		answer(w, http.StatusOK, map[string]any{"token_type": "Bearer", "expires_in": 3600, "access_token": token})
	default:
		answer(w, http.StatusUnauthorized, map[string]any{"error": "unauthorized_client", "error_description": "not known"})
	}
}

// resources is ARM, of which an AKS cluster and its kubeconfig are asked.
func (c *Clouds) resources(w http.ResponseWriter, r *http.Request) {
	path, credentials := strings.CutSuffix(r.URL.Path, "/listClusterUserCredential")
	switch {
	case !strings.EqualFold(path, AzureCluster) || !bears(r, azureManagement):
		answer(w, http.StatusNotFound, map[string]any{})
	case credentials:
		kubeconfig, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Config", "current-context": "a",
			"contexts": []any{map[string]any{"name": "a", "context": map[string]any{"cluster": "a", "user": "a"}}},
			"users":    []any{map[string]any{"name": "a", "user": map[string]any{}}},
			"clusters": []any{map[string]any{"name": "a", "cluster": map[string]any{
				"server": c.cluster, "certificate-authority-data": base64.StdEncoding.EncodeToString([]byte(c.ca)),
			}}},
		})
		if err != nil {
			answer(w, http.StatusInternalServerError, map[string]any{})
			return
		}
		answer(w, http.StatusOK, map[string]any{"kubeconfigs": []any{map[string]any{"name": "a", "value": kubeconfig}}})
	default:
		answer(w, http.StatusOK, map[string]any{"properties": map[string]any{"aadProfile": map[string]any{"managed": true}}})
	}
}

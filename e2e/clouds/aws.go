package clouds

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// What a tenant of AWS writes down.
const (
	AWSCluster = "arn:aws:eks:eu-central-1:123456789012:cluster/production"
	AWSRole    = "arn:aws:iam::123456789012:role/deployer"
	// AWSCreating is a cluster that is being made: nothing is known yet of how to reach it.
	AWSCreating = "arn:aws:eks:eu-central-1:123456789012:cluster/creating"
)

// awsKey is the access key that everybody gets who shows the token of a ServiceAccount.
const awsKey = "ASIASTANDIN"

// aws are the servers of one region.
func (c *Clouds) aws() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"sts.eu-central-1.amazonaws.com": c.assumeRole, "eks.eu-central-1.amazonaws.com": c.describeCluster,
	}
}

// assumeRole is AssumeRoleWithWebIdentity.
func (c *Clouds) assumeRole(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("RoleArn") != AWSRole ||
		!c.shown(r.FormValue("WebIdentityToken")) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized to assume the role</Message>`+
			`</Error><RequestId>`+time.Now().String()+`</RequestId></ErrorResponse>`)
		return
	}
	fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>`+
		`<AccessKeyId>%s</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>session</SessionToken>`+
		`<Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
		awsKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// describeCluster is the answer of EKS.
func (c *Clouds) describeCluster(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	known := path.Dir(r.URL.Path) == "/clusters" && (name == "production" || name == "creating")
	if !known || !strings.Contains(r.Header.Get("Authorization"), "Credential="+awsKey+"/") {
		answer(w, http.StatusNotFound, map[string]any{"message": "no such cluster"})
		return
	}
	if name == "creating" {
		answer(w, http.StatusOK, map[string]any{"cluster": map[string]any{"name": name, "status": "CREATING"}})
		return
	}
	answer(w, http.StatusOK, map[string]any{"cluster": map[string]any{
		"name": name, "endpoint": c.cluster,
		"certificateAuthority": map[string]any{"data": base64.StdEncoding.EncodeToString([]byte(c.ca))},
	}})
}

// letsInAWS tells whether a token is a question to STS, about this cluster, that is signed with the key.
func letsInAWS(token string) bool {
	encoded, aws := strings.CutPrefix(token, "k8s-aws-v1.")
	if !aws {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return false
	}
	signed, err := url.Parse(string(text))
	return err == nil && signed.Host == "sts.eu-central-1.amazonaws.com" &&
		strings.HasPrefix(signed.Query().Get("X-Amz-Credential"), awsKey+"/") &&
		strings.Contains(signed.Query().Get("X-Amz-SignedHeaders"), "x-k8s-aws-id")
}

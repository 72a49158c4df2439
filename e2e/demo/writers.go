package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// released are the kinds of what the example releases.
var released = []string{"configmaps", "deployments", "services"}

// readWriters returns who has written objects of the release in the tenant's namespace, according to the API server's
// audit log. Controllers of the cluster itself, which fill in every Deployment's status, are left out, and so are dry
// runs.
func readWriters(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	writers := map[string]bool{}
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return slices.Sorted(maps.Keys(writers)), nil // what is left is half a line, or nothing
		}
		if err != nil {
			return nil, err
		}
		var request auditEvent
		if err := json.Unmarshal(line, &request); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if request.releases() {
			writers[request.User.Username] = true
		}
	}
}

// auditEvent is what is used of a line of the log, in the format of audit.k8s.io/v1.
type auditEvent struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// releases says whether the request has changed an object of the release.
func (e auditEvent) releases() bool {
	return e.ObjectRef.Namespace == team && slices.Contains(released, e.ObjectRef.Resource) && e.ObjectRef.Subresource == "" &&
		slices.Contains([]string{"create", "update", "patch", "delete"}, e.Verb) && e.ResponseStatus.Code < 300 &&
		!strings.Contains(e.RequestURI, "dryRun=") &&
		!strings.HasPrefix(e.User.Username, "system:serviceaccount:kube-system:")
}

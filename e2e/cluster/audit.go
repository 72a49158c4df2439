package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AuditEvent is one request that the apiserver answered, or a watch that it began.
type AuditEvent struct {
	// User who asked, and whom that user impersonated (empty for nobody).
	User, Impersonated string
	// Verb is the one of RBAC: get, list, watch, create, update, patch, delete, deletecollection. A server-side apply
	// is a patch.
	Verb string
	// What was asked for. Empty for requests that are about no object (discovery), except URI.
	Group, Resource, Subresource, Namespace, Name string
	// Code is the HTTP status.
	Code int
	// FieldManager is what the request says, empty if it says nothing.
	FieldManager string
	// DryRun is true when the request says that nothing shall be stored.
	DryRun bool
	// URI is path and query.
	URI string
}

// Write says whether the request may have changed something that is stored: reviews and tokens are created, yet never
// stored.
func (e AuditEvent) Write() bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return false
	}
	stored := e.Group != "authorization.k8s.io" && e.Group != "authentication.k8s.io" && e.Subresource != "token"
	return stored && !e.DryRun && e.Code < 300
}

// String is one line for a test's log.
func (e AuditEvent) String() string {
	return fmt.Sprintf("%d %s %s %s", e.Code, e.User, e.Verb, e.URI)
}

// AuditMark is a place in the audit log.
type AuditMark struct {
	cluster *Cluster
	offset  int64
}

// Audit marks the present end of the audit log. The test fails if the cluster has none.
func (c *Cluster) Audit(t testing.TB) AuditMark {
	t.Helper()
	if c.AuditLog == "" {
		t.Fatal("this test reads the apiserver's audit log, which is not known for the cluster of KUBECONFIG: unset it")
	}
	info, err := os.Stat(c.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	return AuditMark{cluster: c, offset: info.Size()}
}

// Since is everything that was answered between the mark and this call and that all filters want, in the order of the
// log. It contains every request whose answer the test has seen.
func (m AuditMark) Since(t testing.TB, filters ...func(AuditEvent) bool) []AuditEvent {
	t.Helper()
	probe := m.probe(t)
	var events []AuditEvent
	err := poll(t.Context(), func(context.Context) error {
		all, err := readAudit(m.cluster.AuditLog, m.offset)
		if err != nil {
			return err
		}
		events = nil
		for _, event := range all {
			if event.Resource == "namespaces" && event.Name == probe {
				return nil
			}
			if wanted(event, filters) {
				events = append(events, event)
			}
		}
		return errors.New("the audit log does not have the last request yet")
	})
	if err != nil {
		t.Fatalf("reading %s: %v", m.cluster.AuditLog, err)
	}
	return events
}

// ByUser wants the requests of one user, whoever was impersonated.
func ByUser(user string) func(AuditEvent) bool {
	return func(e AuditEvent) bool { return e.User == user }
}

// ByAccount wants the requests of one service account.
func ByAccount(namespace, account string) func(AuditEvent) bool {
	return ByUser("system:serviceaccount:" + namespace + ":" + account)
}

// InNamespace wants the requests about objects in one namespace.
func InNamespace(namespace string) func(AuditEvent) bool {
	return func(e AuditEvent) bool { return e.Namespace == namespace }
}

// Writes wants what may have changed something that is stored.
func Writes(e AuditEvent) bool { return e.Write() }

func wanted(event AuditEvent, filters []func(AuditEvent) bool) bool {
	for _, filter := range filters {
		if !filter(event) {
			return false
		}
	}
	return true
}

// probe makes a request that is found in the log again. An event is written while its request ends, which may be just
// after the client has the answer; one that began later is written later.
func (m AuditMark) probe(t testing.TB) string {
	t.Helper()
	name := "audit-" + strings.ToLower(rand.Text())
	absent := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := m.cluster.client.Get(t.Context(), client.ObjectKeyFromObject(absent), absent)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return name
}

// auditLine is what is used of a line of the log, in the format of audit.k8s.io/v1.
type auditLine struct {
	AuditID    string `json:"auditID"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ImpersonatedUser struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// readAudit reads the complete lines after the offset. A watch is in the log twice, when it begins and when it ends:
// the first counts.
func readAudit(path string, offset int64) ([]AuditEvent, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	var events []AuditEvent
	seen := map[string]bool{}
	reader := bufio.NewReader(file)
	for {
		content, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil // what is left is half a line, or nothing
		}
		if err != nil {
			return nil, err
		}
		var line auditLine
		if err := json.Unmarshal(bytes.TrimSpace(content), &line); err != nil {
			return nil, fmt.Errorf("%w in %s", err, content)
		}
		if !seen[line.AuditID] {
			seen[line.AuditID] = true
			events = append(events, line.event())
		}
	}
}

func (l auditLine) event() AuditEvent {
	event := AuditEvent{
		User:         l.User.Username,
		Impersonated: l.ImpersonatedUser.Username,
		Verb:         l.Verb,
		Group:        l.ObjectRef.APIGroup,
		Resource:     l.ObjectRef.Resource,
		Subresource:  l.ObjectRef.Subresource,
		Namespace:    l.ObjectRef.Namespace,
		Name:         l.ObjectRef.Name,
		Code:         l.ResponseStatus.Code,
		URI:          l.RequestURI,
	}
	if uri, err := url.ParseRequestURI(l.RequestURI); err == nil {
		event.DryRun = uri.Query().Has("dryRun")
		event.FieldManager = uri.Query().Get("fieldManager")
	}
	return event
}

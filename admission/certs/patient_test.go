package certs

import (
	"context"
	"errors"
	"testing"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// recording keeps what was added to it.
type recording struct {
	manager.Manager
	added []manager.Runnable
}

func (r *recording) Add(runnable manager.Runnable) error {
	r.added = append(r.added, runnable)
	return nil
}

func TestOnlyTheRotatorIsGivenPatience(t *testing.T) {
	below := &recording{}
	patient := patientManager{below}
	other := manager.RunnableFunc(func(context.Context) error { return nil })
	if err := errors.Join(patient.Add(&rotator.CertRotator{}), patient.Add(other)); err != nil {
		t.Fatal(err)
	}
	if _, ok := below.added[0].(patientRotator); !ok {
		t.Errorf("the rotator was added as %T", below.added[0])
	}
	if _, ok := below.added[1].(manager.RunnableFunc); !ok {
		t.Errorf("another runnable was added as %T", below.added[1])
	}
}

// A fault that is none of the Secret's is the rotator's own to report.
func TestPatienceEndsWithAnotherError(t *testing.T) {
	if err := (patientRotator{&rotator.CertRotator{}}).Start(t.Context()); err == nil {
		t.Error("a rotator that cannot read anything started")
	}
}

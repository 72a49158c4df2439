package main

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
)

// change is something that happened to a StageSet.
type change struct {
	subject, state, text string
}

// history is what was told of StageSets (state and text, by subject), so that the same is not told twice.
type history map[string]string

// add returns what is new in the status of a StageSet.
func (h history) add(set *v1.StageSet) []change {
	var changes []change
	tell := func(key string, c change) {
		if said := c.state + "\n" + c.text; h[key] != said {
			h[key] = said
			changes = append(changes, c)
		}
	}
	key := client.ObjectKeyFromObject(set).String()
	for _, stage := range set.Status.Stages {
		c := change{subject: set.Name + "/" + stage.Name, state: string(stage.Phase), text: stage.Message}
		switch stage.Phase {
		case v1.StagePending:
			continue // it is told of when it begins
		case v1.StageReady:
			c.text = fmt.Sprintf("%s, as %s", count(stage.Objects, "object"), stage.ServiceAccountName)
		}
		tell(key+"/"+stage.Name, c)
	}
	ready := meta.FindStatusCondition(set.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionUnknown {
		h[key] = "" // so that what it becomes is told, though it was that before
		return changes
	}
	c := change{subject: set.Name, state: "Ready", text: ready.Message}
	if ready.Status != metav1.ConditionTrue {
		c.state, c.text = "not Ready", ready.Reason+": "+ready.Message
	}
	tell(key, c)
	return changes
}

// gone returns the end of a StageSet, and forgets it.
func (h history) gone(set *v1.StageSet) []change {
	key := client.ObjectKeyFromObject(set).String()
	maps.DeleteFunc(h, func(subject, _ string) bool { return subject == key || strings.HasPrefix(subject, key+"/") })
	return []change{{subject: set.Name, state: "deleted", text: "with everything that it had applied"}}
}

func count(n int32, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func isTrue(set *v1.StageSet, kind string) bool {
	found := meta.FindStatusCondition(set.Status.Conditions, kind)
	return found != nil && found.Status == metav1.ConditionTrue && found.ObservedGeneration == set.Generation
}

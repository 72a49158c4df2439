package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	v1 "github.com/stageset/stageset/api/v1"
)

// rewatch is the pause after a watch has ended: the API server ends each after some minutes.
const rewatch = time.Second

// event is a StageSet as it is now, or as it was last.
type event struct {
	set  *v1.StageSet
	gone bool
}

// watch sends every StageSet of the cluster as it is and whenever it changes, until the context ends.
func (d *demo) watch(ctx context.Context) <-chan event {
	events := make(chan event)
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		// It begins with all StageSets, so that nothing is missed between two.
		watched, err := d.admin.Watch(ctx, &v1.StageSetList{})
		if err != nil {
			return
		}
		defer watched.Stop()
		for received := range watched.ResultChan() {
			set, ok := received.Object.(*v1.StageSet)
			if !ok {
				return // it is the reason why the watch ends
			}
			select {
			case events <- event{set: set, gone: received.Type == watch.Deleted}:
			case <-ctx.Done():
				return
			}
		}
	}, rewatch)
	return events
}

// follow tells what happens to StageSets until the run is interrupted or a program ends.
func (d *demo) follow(ctx context.Context) error {
	events := d.watch(ctx)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-events:
			changes := d.told.add(e.set)
			if e.gone {
				changes = d.told.gone(e.set)
			}
			for _, change := range changes {
				d.screen.event(d.screen.clock.Now().Format(time.TimeOnly), change)
			}
		}
	}
}

// explain says how to look around.
func (d *demo) explain() {
	kubeconfig, s := d.kubeconfig, d.screen
	if kubeconfig == "" {
		kubeconfig = d.file("kubeconfig")
	}
	s.heading("Look around, in another terminal:")
	s.line("cd %s", d.root)
	s.line("export KUBECONFIG=%s", kubeconfig)
	s.line("alias kubectl='%s kubectl'   # unless you have your own", d.binary("controlplane"))
	s.line("kubectl get stagesets --all-namespaces")
	s.line("kubectl describe stageset %s -n %s", repositoryName, team)
	s.line("kubectl get stageinventories,deployments,services,configmaps,events -n %s", team)
	s.text("The tenant's own kubeconfig, with edit in %s and nothing else, is %s.", team, d.short(d.kubeconfigOf(team, deployer)))

	s.heading("Release something: within ten seconds it is fetched, and told of below.")
	s.line("cd %s", d.short(d.file(repositoryName)))
	s.line("sed -i.old 's/replicas: 1/replicas: 3/' shop/deployment.yaml")
	s.line("git commit -am 'Three shops' && git push")

	s.heading("Or let a commit grant itself the cluster: nothing of it is applied, and the release runs on.")
	s.line("cp %s shop/", d.tenantFile("takeover.yaml"))
	s.line("git add shop/takeover.yaml && git commit -m 'Take over' && git push")

	ending := "Ctrl-C ends it all. The next run starts from scratch."
	if d.kubeconfig != "" {
		ending = "Ctrl-C ends it all, and takes it out of the cluster again."
	}
	s.heading(ending + " Until then, this happens to StageSets:")
}

package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// cluster is one start of a control plane.
type cluster struct {
	options     options
	directory   *directory
	ports       ports
	credentials credentials
	client      kubernetes.Interface
	group       *group
}

// errInputEnded is why a control plane stops when its parent is gone.
var errInputEnded = errors.New("standard input ended")

// run brings a control plane up, says so, and stops it when the context ends, the input ends (if asked for) or a
// component does. Only the last is an error.
func run(ctx context.Context, opts options, stdin io.Reader, stdout io.Writer) error {
	d, err := openDirectory(opts.dir)
	if err != nil {
		return err
	}
	defer d.close()
	ctx, cancel := context.WithCancelCause(ctx)
	c := &cluster{options: opts, directory: d, group: &group{d: d, end: cancel}}
	defer c.group.stop()
	if opts.stopOnEOF {
		go func() {
			_, _ = io.Copy(io.Discard, stdin) // however it ends, it ended
			cancel(errInputEnded)
		}()
	}
	err = c.bringUp(ctx)
	if err == nil {
		c.group.restart.Store(opts.restart)
		fmt.Fprintf(stdout, "control plane ready: KUBECONFIG=%s (%s)\n", opts.kubeconfig, server(c.ports.APIServer))
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, errInputEnded) {
		return nil
	}
	c.group.kill()
	return err
}

func (c *cluster) bringUp(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.startAPI(ctx); err != nil {
		return err
	}
	if err := c.startSelf(controllerManagerCommand(c.directory)); err != nil {
		return err
	}
	if c.options.withNodes {
		if err := c.startNodes(ctx); err != nil {
			return err
		}
	}
	return c.group.await(ctx, "the controller-manager to make the default service account", func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// prepare makes everything that the components read.
func (c *cluster) prepare() error {
	var err error
	if c.credentials, err = loadCredentials(c.directory); err != nil {
		return err
	}
	if c.ports, err = c.directory.choosePorts(); err != nil {
		return err
	}
	if err := c.directory.write("audit-policy.yaml", auditPolicy); err != nil {
		return err
	}
	for path, user := range map[string]string{
		c.options.kubeconfig:                              userAdmin,
		c.directory.file("controller-manager.kubeconfig"): userControllerManager,
		c.directory.file("scheduler.kubeconfig"):          userScheduler,
		c.directory.file("kwok.kubeconfig"):               userKWOK,
	} {
		if err := c.credentials.writeKubeconfig(path, user, c.ports.APIServer); err != nil {
			return err
		}
	}
	c.client, err = kubernetes.NewForConfig(c.credentials.admin(c.ports.APIServer))
	return err
}

func (c *cluster) startAPI(ctx context.Context) error {
	if err := c.startSelf(etcdCommand(c.directory, c.ports)); err != nil {
		return err
	}
	if err := c.startSelf(apiserverCommand(c.directory, c.ports, c.options)); err != nil {
		return err
	}
	return c.group.await(ctx, "the apiserver to be ready", func(ctx context.Context) error {
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// startSelf starts a component of this binary.
func (c *cluster) startSelf(command []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return c.group.start(self, command)
}

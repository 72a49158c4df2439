package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stageset/stageset/e2e/gitserver"
)

// repositoryName is the name of the Git repository, of the GitRepository and of the StageSet.
const repositoryName = "webshop"

// example is what the repository begins with.
//
//go:embed example
var example embed.FS

// makeTenant makes the namespace and the account of the tenant.
func (d *demo) makeTenant(ctx context.Context) (string, error) {
	content, err := manifests.ReadFile("manifests/tenant.yaml")
	if err != nil {
		return "", err
	}
	if err := d.admin.apply(ctx, content); err != nil {
		return "", err
	}
	// Pods are refused until it exists.
	account := reference(kindAccount, team, "default")
	if err := d.admin.waitFor(ctx, account, func() error { return nil }); err != nil {
		return "", err
	}
	_, err = d.accountKubeconfig(ctx, team, deployer)
	return "", err
}

// makeRepository serves a repository and has source-controller fetch it.
func (d *demo) makeRepository(ctx context.Context) (string, error) {
	var err error
	if d.git, err = gitserver.Serve(d.file("git")); err != nil {
		return "", err
	}
	repository, err := d.git.Open(repositoryName)
	if errors.Is(err, fs.ErrNotExist) {
		repository, err = d.fillRepository(ctx)
	}
	if err != nil {
		return "", err
	}
	if err := d.noteAddress(repository.URL() + "/info/refs?service=git-upload-pack"); err != nil {
		return "", err
	}
	content, err := manifests.ReadFile("manifests/source.yaml")
	if err != nil {
		return "", err
	}
	if err := d.admin.apply(ctx, bytes.ReplaceAll(content, []byte("URL"), []byte(repository.URL()))); err != nil {
		return "", err
	}
	source := reference(kindGitRepository, team, repositoryName)
	return "working copy in " + d.short(d.file(repositoryName)), d.admin.hasCondition(ctx, source, "Ready")
}

// fillRepository makes the repository with the example in it, and clones it where the reader can commit.
func (d *demo) fillRepository(ctx context.Context) (*gitserver.Repository, error) {
	repository, err := d.git.Create(ctx, repositoryName)
	if err != nil {
		return nil, err
	}
	files, err := exampleFiles()
	if err != nil {
		return nil, err
	}
	if _, err := repository.Commit(ctx, files); err != nil {
		return nil, err
	}
	return repository, d.clone(ctx, repository.Dir())
}

// exampleFiles are the files of the example, by their path in the repository.
func exampleFiles() (map[string]string, error) {
	files := map[string]string{}
	err := fs.WalkDir(example, "example", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := example.ReadFile(path)
		files[strings.TrimPrefix(path, "example/")] = string(content)
		return err
	})
	return files, err
}

// clone makes a working copy that commits under a name of its own and pushes to the folder of the repository.
func (d *demo) clone(ctx context.Context, repository string) error {
	copied := d.file(repositoryName)
	for _, args := range [][]string{
		{"clone", "--quiet", repository, copied},
		{"-C", copied, "config", "user.name", team},
		{"-C", copied, "config", "user.email", team + "@localhost"},
		{"-C", copied, "config", "commit.gpgsign", "false"},
	} {
		if output, err := exec.CommandContext(ctx, "git", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(output))
		}
	}
	return nil
}

// tenantFile is a file of the folder tenant.
func (d *demo) tenantFile(elements ...string) string {
	return filepath.Join(append([]string{d.root, "e2e", "demo", "tenant"}, elements...)...)
}

// kubectl runs kubectl as the tenant, writes what it would look like in a terminal, and returns what it printed, with
// whether it succeeded.
func (d *demo) kubectl(ctx context.Context, args ...string) (string, bool, error) {
	command := exec.CommandContext(ctx, d.binary("controlplane"), append([]string{"kubectl"}, args...)...)
	if !d.needsControlPlane() {
		command = exec.CommandContext(ctx, "kubectl", args...)
	}
	command.Dir = d.root
	command.Env = append(os.Environ(), "KUBECONFIG="+d.kubeconfigOf(team, deployer), "KUBECACHEDIR="+d.file("kubectl-cache"), "KUBERC=off")
	output, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return "", false, context.Cause(ctx)
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return "", false, err
	}
	d.screen.transcript("kubectl "+strings.Join(args, " "), string(output))
	return string(output), err == nil, nil
}

package tilt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// What Tilt does to a container: it has tar replace the program, and then runs a command.
func TestALiveUpdateRunsTheNewProgram(t *testing.T) {
	// What is ignored, as by nohup, a shell could not trap; what is caught here is not ignored there.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	dir := t.TempDir()
	program := filepath.Join(dir, "stageset-test")
	replace := func(name string) {
		// As tar does: the file that runs stays, and another has its name.
		script := "#!/bin/sh\ntrap 'echo " + name + " says goodbye; exit 3' TERM\necho " + name + " \"$@\"\n" +
			"while :; do sleep 0.01; done\n"
		if err := os.WriteFile(program+".new", []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(program+".new", program); err != nil {
			t.Fatal(err)
		}
	}
	replace("first")
	p := process.Start(t, process.Options{
		Path: "/bin/sh", Args: []string{"-c", firstProcess(t), "run-again", "--flag", "of two words"}, Dir: dir,
		ReadyOutput: "first --flag of two words\n",
	})
	replace("second")
	command := strings.ReplaceAll(load(t, false).images[0].run, " 1", fmt.Sprint(" ", p.PID())) // which is 1 in a container
	if output, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	awaitOutput(t, p, "first says goodbye\nsecond --flag of two words\n")

	if err := syscall.Kill(p.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitOutput(t, p, "second says goodbye\n")
	<-p.Done()
	if code := p.State().ExitCode(); code != 3 {
		t.Errorf("exit code %d, want the program's, 3", code)
	}
}

// A program that crashes is a container that crashes: Kubernetes and Tilt are to see it.
func TestACrashIsOne(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stageset-test"), []byte("#!/bin/sh\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "/bin/sh", "-c", firstProcess(t))
	command.Dir = dir
	var exit *exec.ExitError
	if err := command.Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("it ends with %v, want exit code 7", err)
	}
}

// firstProcess is the script in the image.
func firstProcess(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(content), "#!/busybox/sh\n")
	script, _, ended := strings.Cut(script, "\nEOF\n")
	if !found || !ended {
		t.Fatal("the Dockerfile has no script")
	}
	return script
}

func awaitOutput(t *testing.T, p *process.Process, text string) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		if !strings.Contains(p.Output(), text) {
			return fmt.Errorf("it has not written %q, but\n%s", text, p.Output())
		}
		return nil
	})
}

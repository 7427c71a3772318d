// SPDX-License-Identifier: Apache-2.0

// The same as ../conformance for containerd 1.6, whose suite Debian 12 packages
// (golang-github-containerd-containerd-dev): used where Go is older than 1.26.
// Built in GOPATH mode by tests/conformance/run.sh.
package conformance

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/snapshots"
	"github.com/containerd/containerd/snapshots/proxy"
	"github.com/containerd/containerd/snapshots/testsuite"
	"google.golang.org/grpc"
)

func start(command, root, sock string) (*exec.Cmd, error) {
	words := strings.Fields(strings.NewReplacer(
		"{root}", filepath.Join(root, "state"),
		"{run}", filepath.Join(root, "run"),
		"{sock}", sock).Replace(command))
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for i := 0; i < 4000; i++ {
		if _, err := os.Stat(sock); err == nil {
			return cmd, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	cmd.Process.Kill()
	cmd.Wait()
	return nil, errors.New("the daemon does not listen")
}

func TestConformance(t *testing.T) {
	command := os.Getenv("DAEMON")
	if command == "" {
		t.Fatal("DAEMON is not set")
	}
	testsuite.SnapshotterSuite(t, "overlayfs", func(ctx context.Context, root string) (snapshots.Snapshotter, func() error, error) {
		sock := filepath.Join(root, "s.sock")
		cmd, err := start(command, root, sock)
		if err != nil {
			return nil, nil, err
		}
		stop := func() error {
			cmd.Process.Signal(syscall.SIGTERM)
			return cmd.Wait()
		}
		conn, err := grpc.Dial("unix://"+sock, grpc.WithInsecure())
		if err != nil {
			stop()
			return nil, nil, err
		}
		return proxy.NewSnapshotter(snapshotsapi.NewSnapshotsClient(conn), "overlayfs"),
			func() error { conn.Close(); return stop() }, nil
	})
}

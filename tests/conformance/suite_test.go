// SPDX-License-Identifier: Apache-2.0

// Package conformance runs containerd's own snapshotter suite against a daemon.
// The suite runs its sub-tests side by side and with the same keys, so each of
// them gets a daemon of its own.
//
//	DAEMON="build/verity-snapshotter --root {root} --run {run} --address {sock}"
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
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/proxy"
	"github.com/containerd/containerd/v2/core/snapshots/testsuite"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const patience = 20 * time.Second

// daemon is one running snapshotter.
type daemon struct {
	cmd  *exec.Cmd
	gone chan struct{}
	sock string
}

func startDaemon(command, root string) (*daemon, error) {
	sock := filepath.Join(root, "s.sock")
	words := strings.Fields(strings.NewReplacer(
		"{root}", filepath.Join(root, "state"),
		"{run}", filepath.Join(root, "run"),
		"{sock}", sock).Replace(command))
	d := &daemon{cmd: exec.Command(words[0], words[1:]...), gone: make(chan struct{}), sock: sock}
	d.cmd.Stdout, d.cmd.Stderr = os.Stderr, os.Stderr
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		d.cmd.Wait()
		close(d.gone)
	}()
	return d, d.awaitSocket()
}

func (d *daemon) awaitSocket() error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(d.sock); err == nil {
			return nil
		}
		select {
		case <-d.gone:
			return errors.New("the daemon ended before it listened")
		default:
		}
	}
	d.stop()
	return errors.New("the daemon does not listen")
}

func (d *daemon) stop() error {
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.gone:
		return nil
	case <-time.After(patience):
		d.cmd.Process.Kill()
		return errors.New("the daemon does not stop")
	}
}

func TestConformance(t *testing.T) {
	command := os.Getenv("DAEMON")
	if command == "" {
		t.Fatal("DAEMON is not set")
	}
	// Under another name the suite wants redirect_dir, a kernel setting.
	testsuite.SnapshotterSuite(t, "overlayfs", func(ctx context.Context, root string) (snapshots.Snapshotter, func() error, error) {
		d, err := startDaemon(command, root)
		if err != nil {
			return nil, nil, err
		}
		conn, err := grpc.NewClient("unix://"+d.sock, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			d.stop()
			return nil, nil, err
		}
		stop := func() error {
			conn.Close()
			return d.stop()
		}
		return proxy.NewSnapshotter(snapshotsapi.NewSnapshotsClient(conn), "overlayfs"), stop, nil
	})
}

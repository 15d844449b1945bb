package members

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// releasedEnv names a released etcd, which runs instead of internal/member.
const releasedEnv = "LOCKER_ETCD_SERVER"

// lifeline is the standard input of the shell that sweep starts: it ends with this process.
var lifeline io.WriteCloser //nolint:unused // kept open

// sweep has a shell end the members and remove base when this process has ended, however it ends:
// a released etcd does not do so by itself.
func sweep(base string) error {
	shell := exec.Command("sh", "-c", `read -r _; for f in "$0"/*/*.pid; do [ -f "$f" ] && kill -9 "$(cat "$f")"; done 2>/dev/null; rm -rf "$0"`, base)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if lifeline, err = shell.StdinPipe(); err != nil {
		return err
	}
	return shell.Start()
}

// released returns the command of a released etcd for the member.
func (s *Server) released(program string) *exec.Cmd {
	state := "new"
	if s.Existing {
		state = "existing"
	}
	clients, peers := "unix://"+s.Name+":1", "unix://"+s.Name+":2"
	return exec.Command(program, "--name", s.Name, "--data-dir", s.Data(), "--initial-cluster", s.cluster, "--initial-cluster-state", state,
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--unsafe-no-fsync", "--strict-reconfig-check=false", "--log-level", "error",
		"--enable-grpc-gateway=false") // the gateway of 3.4 cannot dial these sockets
}

// note writes down the process of a released etcd for the shell of sweep.
func (s *Server) note() error {
	return os.WriteFile(filepath.Join(s.dir, s.Name+".pid"), []byte(strconv.Itoa(s.PID())), 0o600)
}

// serves returns when a released etcd answers.
func (s *Server) serves() error {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, s.stdout) // it prints nothing: this ends with the process
		close(ended)
	}()
	client, err := Dial(s)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		if _, err := client.Get(ctx, "ready"); err == nil { // linearizable: a leader is there
			return nil
		} else if ctx.Err() != nil {
			return fmt.Errorf("the member %s does not serve: %w: %s", s.Name, err, s.words)
		}
		select {
		case <-ended:
			return fmt.Errorf("the member %s ended: %s", s.Name, s.words)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ErrReleased is returned by Tell for a released etcd, which takes no commands.
var ErrReleased = errors.New(releasedEnv + " names a released etcd: it takes no commands")

// Released reports whether members are of a released etcd.
func Released() bool { return os.Getenv(releasedEnv) != "" }

package redistest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Ports lie below the range the kernel gives to outgoing connections, as does
// the cluster bus at port+10000. A port from that range could be taken while
// its server is down, even by a client dialling it: connecting to itself.
const minPort, maxPort = 10000, 22000

// freePort returns a port that no process listened on a moment ago. The port's UDP namesake keeps it from the servers of other
// tests and processes until the returned Closer is closed, also while its own server is down: a client of that would find
// theirs.
func freePort() (int, io.Closer, error) {
	var err error
	for range 100 {
		port := minPort + rand.IntN(maxPort-minPort)
		addr := "127.0.0.1:" + strconv.Itoa(port)
		var reserved net.PacketConn
		if reserved, err = net.ListenPacket("udp", addr); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return port, reserved, l.Close()
		}
		_ = reserved.Close()
	}
	return 0, nil, fmt.Errorf("no free port: %w", err)
}

const dirPrefix = "locker-redis-"

// makeRunDir returns a new directory with a short path, unlike tb.TempDir: the
// path of a unix socket has room for some hundred bytes.
func makeRunDir() (string, error) {
	return os.MkdirTemp("", dirPrefix+strconv.Itoa(os.Getpid())+"-")
}

// sweepOnce removes directories left by test processes that had no chance to,
// among them everyone who used Shared.
var sweepOnce = sync.OnceFunc(func() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*-*"))
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		n, err := strconv.Atoi(pid)
		if err != nil || running(n) {
			continue
		}
		// The age spares processes of a container that shares the directory
		// but not the process ids.
		if info, err := os.Lstat(dir); err == nil && time.Since(info.ModTime()) > 15*time.Minute {
			_ = os.RemoveAll(dir)
		}
	}
})

// RemoveFilesOf removes what the servers of another process have left, which has ended
// without a chance to.
func RemoveFilesOf(pid int) {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+strconv.Itoa(pid)+"-*"))
	for _, dir := range dirs {
		_ = os.RemoveAll(dir)
	}
}

// running reports whether there is a process pid, be it another user's.
func running(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}

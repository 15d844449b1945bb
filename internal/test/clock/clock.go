// Package clock makes servers whose clock a test can set. It works on Linux, and needs a C compiler as the race detector
// does.
package clock

import (
	"cmp"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed source/clock.c
var source []byte

// Environment returns variables with which a server reads its clock with an offset, which [Set] changes. It uses three
// files in dir. On another system than Linux the error matches [errors.ErrUnsupported].
func Environment(dir string) ([]string, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("the clock of a server can be set on Linux, and not on %s: %w", runtime.GOOS, errors.ErrUnsupported)
	}
	c, lib := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(c, source, 0o600); err != nil {
		return nil, err
	}
	cc := cmp.Or(os.Getenv("CC"), "cc")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", lib, c).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("a server whose clock can be set needs Linux and a C compiler (on Debian: apt-get install gcc libc6-dev): %s: %w\n%s", cc, err, out)
	}
	return []string{"LD_PRELOAD=" + lib, "LOCKER_CLOCK=" + file(dir)}, Set(dir, 0)
}

func file(dir string) string { return filepath.Join(dir, "clock") }

// Set makes the server's clock go ahead of the true one, in whole seconds, or behind it if ahead is negative. It writes in
// place: the server has the file mapped. A server that runs as another user has to be able to read it.
func Set(dir string, ahead time.Duration) error {
	f, err := os.OpenFile(file(dir), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0)
	return err
}

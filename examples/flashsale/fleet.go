package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// fleet is the shop processes of one sale.
type fleet []*shopProcess

type shopProcess struct {
	url    string
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout io.Reader
}

// openShops starts n shops and waits until all are open.
func openShops(ctx context.Context, n int, cfg shopConfig, stderr *os.File) (f fleet, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
			f = nil
		}
	}()
	for range n {
		p, err := startShop(cfg, stderr)
		if err != nil {
			return f, err
		}
		f = append(f, p)
	}
	defer context.AfterFunc(ctx, f.hangUp)()
	for _, p := range f {
		line, err := bufio.NewReader(p.stdout).ReadString('\n')
		if err != nil {
			return f, fmt.Errorf("a shop did not open: %w", err)
		}
		p.url = strings.TrimSpace(line)
	}
	return f, nil
}

// startShop runs this program once more, as a shop.
func startShop(cfg shopConfig, stderr *os.File) (*shopProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cfgJSON, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), shopEnv+"="+string(cfgJSON))
	cmd.Stderr = stderr
	p := &shopProcess{cmd: cmd}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, cmd.Start()
}

// hangUp makes the shops close.
func (f fleet) hangUp() {
	for _, p := range f {
		p.stdin.Close()
	}
}

// close closes the shops, the hard way those that do not within a while.
func (f fleet) close() (err error) {
	f.hangUp()
	late := time.AfterFunc(15*time.Second, func() {
		for _, p := range f {
			_ = p.cmd.Process.Kill()
		}
	})
	defer late.Stop()
	for i, p := range f {
		if werr := p.cmd.Wait(); werr != nil {
			err = errors.Join(err, fmt.Errorf("shop %d: %w", i+1, werr))
		}
	}
	return err
}

func (f fleet) urls() []string {
	urls := make([]string, len(f))
	for i, p := range f {
		urls[i] = p.url
	}
	return urls
}

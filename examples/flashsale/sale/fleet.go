package sale

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/internal/child"
)

// fleet is the shop processes of one sale.
type fleet []*shopProcess

type shopProcess struct {
	*child.Child
	url string
}

// openShops starts n shops and waits until all are open.
func openShops(ctx context.Context, n int, cfg shopConfig, stderr io.Writer) (f fleet, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
			f = nil
		}
	}()
	for range n {
		p, err := child.Start(shopKind, cfg, func(cmd *exec.Cmd) error {
			cmd.Stderr = stderr
			return cmd.Start()
		})
		if err != nil {
			return f, err
		}
		f = append(f, &shopProcess{Child: p})
	}
	defer context.AfterFunc(ctx, func() {
		for _, p := range f {
			_ = p.Close()
		}
	})()
	for _, p := range f {
		line, err := bufio.NewReader(p).ReadString('\n')
		if err != nil {
			return f, fmt.Errorf("a shop did not open: %w", err)
		}
		p.url = strings.TrimSpace(line)
	}
	return f, nil
}

// close closes the shops, the hard way those that do not within a while.
func (f fleet) close() error {
	errs := make([]error, len(f))
	var wg sync.WaitGroup
	for i, p := range f {
		wg.Go(func() {
			if err := p.Stop(15 * time.Second); err != nil {
				errs[i] = fmt.Errorf("shop %d: %w", i+1, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (f fleet) urls() []string {
	urls := make([]string, len(f))
	for i, p := range f {
		urls[i] = p.url
	}
	return urls
}

package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/distlock/locker/cmd/locker/internal/compare"
)

// page is the file of the report. A file that was there stays until there is another.
type page struct {
	name string
	tmp  *os.File // beside it; nil where it is no regular file
}

func newPage(name string) (*page, error) {
	if name == "-" {
		return nil, nil
	}
	p := &page{name: name}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return p, f.Close()
	}
	var err error
	p.tmp, err = os.CreateTemp(filepath.Dir(name), ".locker-report-*")
	return p, err
}

func (p *page) write(r *compare.Result) error {
	if p == nil {
		return nil
	}
	if p.tmp == nil {
		f, err := os.OpenFile(p.name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(r.HTML(f), f.Close())
	}
	if err := errors.Join(r.HTML(p.tmp), p.tmp.Chmod(0o644), p.tmp.Close()); err != nil {
		return err
	}
	return os.Rename(p.tmp.Name(), p.name)
}

// discard removes what was not written to the end.
func (p *page) discard() {
	if p != nil && p.tmp != nil {
		_ = p.tmp.Close()
		_ = os.Remove(p.tmp.Name())
	}
}

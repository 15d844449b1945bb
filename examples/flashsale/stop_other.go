//go:build !unix

package main

import "errors"

func stopMyself() error { return errors.ErrUnsupported }

func goOn(int) error { return errors.ErrUnsupported }

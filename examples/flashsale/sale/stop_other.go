//go:build !unix

package sale

import "errors"

func stopMyself() error { return errors.ErrUnsupported }

func goOn(int) error { return errors.ErrUnsupported }

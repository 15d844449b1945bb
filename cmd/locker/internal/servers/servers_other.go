//go:build !unix

package servers

import (
	"context"
	"fmt"
)

// Postgres returns an error: here no server is started.
func Postgres(context.Context) (*Server, error) {
	return nil, fmt.Errorf("PostgreSQL: %w", ErrNotInstalled)
}

// MySQL returns an error: here no server is started.
func MySQL(context.Context) (*Server, error) { return nil, fmt.Errorf("MariaDB: %w", ErrNotInstalled) }

// Etcd returns an error: here no server is started.
func Etcd(context.Context) (*Server, error) { return nil, fmt.Errorf("etcd: %w", ErrNotInstalled) }

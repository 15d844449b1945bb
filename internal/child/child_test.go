package child_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/internal/child"
)

type spec struct{ Name, End string }

func TestMain(m *testing.M) {
	child.Serve("other", func(child.Parent, spec) error { return errors.New("the wrong kind") })
	child.Serve("echo", func(p child.Parent, s spec) error {
		ctx, stop := p.Context()
		defer stop()
		fmt.Fprintln(p, s.Name)
		<-ctx.Done()
		switch s.End {
		case "error":
			return errors.New("I fail")
		case "never":
			<-context.Background().Done()
		}
		return nil
	})
	m.Run()
}

func start(t *testing.T, s spec) (c *child.Child, stderr *strings.Builder) {
	t.Helper()
	stderr = new(strings.Builder)
	c, err := child.Start("echo", s, func(cmd *exec.Cmd) error {
		cmd.Stderr = stderr
		return cmd.Start()
	})
	require.NoError(t, err)
	line, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, s.Name+"\n", line)
	return c, stderr
}

func TestChild(t *testing.T) {
	c, _ := start(t, spec{Name: "ann"})
	require.NoError(t, c.Stop(time.Minute))

	c, stderr := start(t, spec{Name: "bob", End: "error"})
	require.Error(t, c.Stop(time.Minute))
	require.Equal(t, "echo: I fail\n", stderr.String())

	c, _ = start(t, spec{Name: "cat", End: "never"})
	require.Error(t, c.Stop(10*time.Millisecond))
}

func TestStartFails(t *testing.T) {
	_, err := child.Start("echo", make(chan int), nil)
	require.Error(t, err) // no JSON
	_, err = child.Start("echo", spec{}, func(*exec.Cmd) error { return exec.ErrNotFound })
	require.ErrorIs(t, err, exec.ErrNotFound)
}

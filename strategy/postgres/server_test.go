package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// base has a cluster that the servers' are copies of. All of it is removed, and whatever
// runs there ended, by a shell that reads from a pipe which ends with this process,
// however that ends.
var base = sync.OnceValues(func() (b struct{ dir, bin string }, err error) {
	if b.bin, err = findBinaries(); err != nil {
		return b, err
	}
	if b.dir, err = os.MkdirTemp("", "lockerpg"); err != nil {
		return b, err
	}
	sweeper := exec.Command("sh", "-c", `read -r _; for f in "$0"/*/postmaster.pid "$0"/*/pgbouncer.pid; do
		[ -f "$f" ] && pid=$(head -1 "$f") && kill -CONT "$pid"; kill -QUIT "$pid"; done 2>/dev/null; sleep 1; rm -rf "$0"`, b.dir)
	sweeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if lifeline, err = sweeper.StdinPipe(); err != nil {
		return b, err
	}
	if err = sweeper.Start(); err != nil {
		return b, err
	}
	if err = giveAway(b.dir); err != nil {
		return b, err
	}
	initdb := asServer(exec.Command(filepath.Join(b.bin, "initdb"), "-D", filepath.Join(b.dir, "template"),
		"-U", "postgres", "--wal-segsize=1", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"))
	if out, err := initdb.CombinedOutput(); err != nil {
		return b, fmt.Errorf("initdb: %w: %s", err, out)
	}
	single := asServer(exec.Command(filepath.Join(b.bin, "postgres"), "--single", "-F", "-D", filepath.Join(b.dir, "template"), "postgres"))
	single.Stdin = strings.NewReader("CREATE ROLE app LOGIN\nCREATE DATABASE app OWNER app\n")
	if out, err := single.CombinedOutput(); err != nil {
		return b, fmt.Errorf("making the database: %w: %s", err, out)
	}
	return b, nil
})

// lifeline is the shell's standard input: it ends with this process.
var lifeline io.WriteCloser

func findBinaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		path, err = filepath.EvalSymlinks(path) // the other programs are where it really is
		return filepath.Dir(path), err
	}
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(dirs) == 0 {
		return "", errors.New("PostgreSQL is not installed: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin")
	}
	return slices.Max(dirs), nil
}

// serverUser is who the server runs as where this process is root, which it refuses.
var serverUser = sync.OnceValue(func() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
})

func asServer(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: serverUser()}
	return cmd
}

func giveAway(path string) error {
	if c := serverUser(); c != nil {
		return os.Chown(path, int(c.Uid), int(c.Gid))
	}
	return nil
}

// server is a PostgreSQL of its own, reached by a socket in dir.
type server struct {
	dir, bin string
	settings []string // besides those of all
	cmd      *exec.Cmd
	ended    chan struct{} // closed when cmd has
}

var launched atomic.Int64

// startServer starts one with a database and role app, which may create tables.
func startServer(tb testing.TB, settings ...string) *server {
	tb.Helper()
	s, err := launch(settings...)
	require.NoError(tb, err)
	tb.Cleanup(s.stop)
	return s
}

func launch(settings ...string) (*server, error) {
	b, err := base()
	if err != nil {
		return nil, err
	}
	s := &server{dir: filepath.Join(b.dir, strconv.FormatInt(launched.Add(1), 10)), bin: b.bin, settings: settings}
	if err := s.fresh(); err != nil {
		return nil, err
	}
	return s, s.start()
}

func (s *server) stop() {
	s.thaw()
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	<-s.ended
	_ = os.RemoveAll(s.dir)
}

// fresh makes the data directory anew.
func (s *server) fresh() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return err
	}
	out, err := asServer(exec.Command("cp", "-a", filepath.Join(filepath.Dir(s.dir), "template"), s.dir)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

func (s *server) start() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"-D", s.dir, "-k", s.dir}
	for _, set := range append([]string{"listen_addresses=", "fsync=off", "shared_buffers=16MB", "max_connections=1000",
		"max_wal_size=64MB", "min_wal_size=2MB", "wal_level=minimal", "max_wal_senders=0"}, s.settings...) {
		args = append(args, "-c", set)
	}
	s.cmd, s.ended = asServer(exec.Command(filepath.Join(s.bin, "postgres"), args...)), make(chan struct{})
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait()
	}(s.cmd, s.ended)
	return s.wait()
}

// wait returns when the server takes connections, which it does not tell by itself.
func (s *server) wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		conn, err := s.connect(ctx, "postgres", "postgres")
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.ended:
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("the server ended: %s", log)
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *server) url(role, database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&sslmode=disable", role, database, s.dir)
}

func (s *server) connect(ctx context.Context, role, database string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, s.url(role, database))
}

// admin runs SQL as the superuser.
func (s *server) admin(ctx context.Context, sql string, args ...any) error {
	conn, err := s.connect(ctx, "postgres", "app")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

// ask gets a value as the superuser.
func (s *server) ask(ctx context.Context, value any, sql string) error {
	conn, err := s.connect(ctx, "postgres", "app")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql).Scan(value)
}

// pool is one as role app.
func (s *server) pool(tb testing.TB, params string) *pgxpool.Pool {
	tb.Helper()
	return newPool(tb, s.url("app", "app")+params)
}

func newPool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

// processes are those of the server that run, and those among them that are stopped.
func (s *server) processes() (all []int, stopped int) {
	main := strconv.Itoa(s.cmd.Process.Pid)
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		pid := filepath.Base(filepath.Dir(name))
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])) // state, parent, ...
		if pid != main && fields[1] != main || fields[0] == "Z" {
			continue
		}
		n, _ := strconv.Atoi(pid)
		all = append(all, n)
		if fields[0] == "T" {
			stopped++
		}
	}
	return all, stopped
}

// kill signals all processes of the server, the one that starts others first.
func (s *server) kill(sig syscall.Signal) {
	_ = s.cmd.Process.Signal(sig)
	all, _ := s.processes()
	for _, pid := range all {
		_ = syscall.Kill(pid, sig)
	}
}

// freeze returns when all of them stand still.
func (s *server) freeze() {
	for {
		s.kill(syscall.SIGSTOP)
		if all, stopped := s.processes(); stopped == len(all) {
			return
		}
		runtime.Gosched()
	}
}

func (s *server) thaw() { s.kill(syscall.SIGCONT) }

// crash kills the server. What it has of the system's shared memory goes with it.
func (s *server) crash() {
	pidFile, _ := os.ReadFile(filepath.Join(s.dir, "postmaster.pid"))
	s.kill(syscall.SIGKILL)
	<-s.ended
	if lines := strings.Split(string(pidFile), "\n"); len(lines) > 6 {
		if ids := strings.Fields(lines[6]); len(ids) == 2 {
			_ = exec.Command("ipcrm", "-m", ids[1]).Run()
		}
	}
}

package mysql_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// base has a data directory that the servers' are copies of, with a database app and a user app, who
// may do anything there. All of it is removed, and whatever
// runs there ended, by a shell that reads from a pipe which ends with this process,
// however that ends.
var base = sync.OnceValues(func() (b struct{ dir, server string }, err error) {
	if b.server, err = findServer(); err != nil {
		return b, err
	}
	if b.dir, err = os.MkdirTemp("", "lockermy"); err != nil {
		return b, err
	}
	sweeper := exec.Command("sh", "-c", `read -r _; for f in "$0"/*/pid; do
		[ -f "$f" ] && pid=$(head -1 "$f") && kill -KILL "$pid"; done 2>/dev/null; sleep 1; rm -rf "$0"`, b.dir)
	sweeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if lifeline, err = sweeper.StdinPipe(); err != nil {
		return b, err
	}
	if err = sweeper.Start(); err != nil {
		return b, err
	}
	first := filepath.Join(b.dir, "first.sql") // before FLUSH PRIVILEGES there are no users
	if err = os.WriteFile(first, []byte("FLUSH PRIVILEGES;\nCREATE DATABASE app;\nCREATE USER app;\nGRANT ALL ON app.* TO app;\n"), 0o644); err != nil {
		return b, err
	}
	out, err := initialize(b.server, filepath.Join(b.dir, "template"), first).CombinedOutput()
	if err != nil {
		return b, fmt.Errorf("making a data directory: %w: %s", err, out)
	}
	return b, nil
})

// lifeline is the shell's standard input: it ends with this process.
var lifeline io.WriteCloser

// findServer returns the program that LOCKER_MYSQL_SERVER names, or else MariaDB's or MySQL's.
func findServer() (string, error) {
	if name := os.Getenv("LOCKER_MYSQL_SERVER"); name != "" {
		return exec.LookPath(name)
	}
	for _, name := range []string{"mariadbd", "mysqld", "/usr/sbin/mariadbd", "/usr/sbin/mysqld"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("neither mariadbd nor mysqld is installed: make mysql installs it; LOCKER_MYSQL_SERVER names another binary, and LOCKER_MYSQL=off leaves these tests out of make test")
}

// small are settings of all servers; those that one does not know are no error.
var small = []string{"--loose-innodb-log-file-size=4M", "--loose-innodb-redo-log-capacity=8M", "--innodb-buffer-pool-size=16M",
	"--loose-innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=2", "--loose-innodb-temp-data-file-path=ibtmp1:2M:autoextend",
	"--skip-log-bin", "--loose-mysqlx=OFF", "--loose-performance-schema=OFF"}

func initialize(server, dir, first string) *exec.Cmd {
	args := slices.Concat([]string{"--no-defaults", "--datadir=" + dir}, small, asRoot())
	if out, _ := exec.Command(server, "--no-defaults", "--version").Output(); strings.Contains(string(out), "MariaDB") {
		return exec.Command("mariadb-install-db", append(args, "--auth-root-authentication-method=normal", "--skip-test-db", "--extra-file="+first)...)
	}
	return exec.Command(server, append(args, "--initialize-insecure", "--init-file="+first)...)
}

// asRoot says that the server runs as root, where it does: it refuses unless that is said.
func asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// server is a MariaDB or MySQL of its own, on a port of this host and by a socket in dir.
type server struct {
	dir, binary string
	port        int
	settings    []string // besides those of all
	env         []string
	cmd         *exec.Cmd
	ended       chan struct{} // closed when cmd has
	root        *sql.DB
}

var launched atomic.Int64

// startServer starts one.
func startServer(tb testing.TB, settings ...string) *server {
	tb.Helper()
	s, err := newServer(settings...)
	require.NoError(tb, err)
	require.NoError(tb, s.start())
	tb.Cleanup(s.stop)
	return s
}

func newServer(settings ...string) (*server, error) {
	b, err := base()
	if err != nil {
		return nil, err
	}
	s := &server{dir: filepath.Join(b.dir, strconv.FormatInt(launched.Add(1), 10)), binary: b.server, settings: settings}
	return s, s.fresh()
}

// fresh makes the data directory anew.
func (s *server) fresh() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return err
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	out, err := exec.Command("cp", "-a", filepath.Join(filepath.Dir(s.dir), "template"), filepath.Join(s.dir, "data")).CombinedOutput()
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
	for try := 1; ; try++ {
		if s.port == 0 {
			if s.port, err = freePort(); err != nil {
				return err
			}
		}
		if err = s.startAt(log); err == nil {
			return nil
		}
		if text, _ := os.ReadFile(log.Name()); try == 5 || !strings.Contains(string(text), "in use") {
			return fmt.Errorf("%w: %s", err, text)
		}
		s.port = 0 // somebody else has it by now
		_ = log.Truncate(0)
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *server) startAt(log *os.File) error {
	args := slices.Concat([]string{"--no-defaults", "--datadir=" + filepath.Join(s.dir, "data"), "--socket=" + s.socket(), "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--tmpdir=" + s.dir, // a server that starts deletes temporary tables of others
		"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(s.port), "--skip-networking=0", "--max-connections=1000", "--back-log=500",
		"--skip-name-resolve"}, small, asRoot(), s.settings)
	s.cmd, s.ended = exec.Command(s.binary, args...), make(chan struct{})
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Env = append(os.Environ(), s.env...)
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

func (s *server) socket() string { return filepath.Join(s.dir, "sock") }

// wait returns when the server takes connections, which it does not report by itself.
func (s *server) wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if s.root == nil {
		cfg := config("root", "")
		cfg.Net, cfg.Addr, cfg.MultiStatements, cfg.InterpolateParams = "unix", s.socket(), true, true
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			return err
		}
		s.root = sql.OpenDB(connector)
		s.root.SetMaxOpenConns(1)
	}
	for {
		err := s.admin(ctx, `DO 0`)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the server ended: %w", err)
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *server) stop() {
	_ = s.root.Close()
	_ = s.cmd.Process.Kill()
	<-s.ended
	_ = os.RemoveAll(s.dir)
}

// crash kills the server.
func (s *server) crash() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// freeze returns when the server stands still.
func (s *server) freeze() {
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		if err != nil || strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " T") {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *server) thaw() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// admin runs SQL as the superuser.
func (s *server) admin(ctx context.Context, sql string, args ...any) error {
	_, err := s.root.ExecContext(ctx, sql, args...)
	return err
}

// ask gets a value as the superuser.
func (s *server) ask(ctx context.Context, value any, sql string, args ...any) error {
	return s.root.QueryRowContext(ctx, sql, args...).Scan(value)
}

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

func config(user, database string) *mysql.Config {
	cfg := mysql.NewConfig()
	cfg.User, cfg.DBName, cfg.Logger = user, database, &mysql.NopLogger{}
	return cfg
}

// dsn is one for the user app.
func (s *server) dsn(params string) string {
	cfg := config("app", "app")
	cfg.Net, cfg.Addr = "tcp", s.addr()
	return cfg.FormatDSN() + params
}

// pool is one of the user app, with at most n connections, if that is not 0.
func (s *server) pool(tb testing.TB, n int, params string) *sql.DB {
	tb.Helper()
	db, err := openPool(s.dsn(params), n)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func openPool(dsn string, n int) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(max(n, 8))
	return db, nil
}

// withClock makes the server read a clock that setClock moves.
func (s *server) withClock(tb testing.TB) {
	tb.Helper()
	source, err := filepath.Abs("../../internal/test/redistest/clock/clock.c")
	require.NoError(tb, err)
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	lib := filepath.Join(s.dir, "clock.so")
	out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", lib, source).CombinedOutput()
	require.NoError(tb, err, "a server whose clock can be set needs Linux and a C compiler: %s", out)
	s.env = []string{"LD_PRELOAD=" + lib, "LOCKER_CLOCK=" + filepath.Join(s.dir, "clock")}
	s.setClock(tb, 0)
}

// setClock makes the server's clock go ahead of the true one. It writes in place: the server has the file mapped.
func (s *server) setClock(tb testing.TB, ahead time.Duration) {
	tb.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, "clock"), os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(tb, err)
	defer f.Close()
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0)
	require.NoError(tb, err)
}

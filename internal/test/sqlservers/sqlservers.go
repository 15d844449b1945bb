//go:build unix

// Package sqlservers starts PostgreSQL and MariaDB for tests. Who uses it imports the drivers: pgx's stdlib, as
// "pgx", and go-sql-driver's, as "mysql".
package sqlservers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// ErrMissing is that of a server that is not installed.
var ErrMissing = errors.New("the server is not installed")

// Server is a database server of its own, reached by a socket.
type Server struct {
	Driver, DSN string // for sql.Open

	dir      string
	shell    *exec.Cmd
	lifeline io.WriteCloser
	ended    chan struct{} // closed when shell has
}

// Installed returns nil, or an error that matches ErrMissing and names what is not installed.
func Installed() error {
	_, err := postgresPrograms()
	_, _, err2 := mariadbPrograms()
	return errors.Join(err, err2)
}

// postgresPrograms returns the directory of PostgreSQL's programs.
func postgresPrograms() (string, error) {
	initdb := program("initdb", "/usr/lib/postgresql/*/bin")
	switch {
	case os.Getenv("LOCKER_POSTGRES") == "off":
		return "", fmt.Errorf("PostgreSQL: %w: LOCKER_POSTGRES=off", ErrMissing)
	case initdb == "":
		return "", fmt.Errorf("PostgreSQL: %w: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin", ErrMissing)
	}
	initdb, err := filepath.EvalSymlinks(initdb) // the other programs are where it really is
	return filepath.Dir(initdb), err
}

func mariadbPrograms() (install, daemon string, err error) {
	install, daemon = program("mariadb-install-db", "/usr/bin"), program("mariadbd", "/usr/sbin")
	if os.Getenv("LOCKER_MYSQL") == "off" {
		err = fmt.Errorf("MariaDB: %w: LOCKER_MYSQL=off", ErrMissing)
	} else if install == "" || daemon == "" {
		err = fmt.Errorf("MariaDB: %w: mariadb-install-db and mariadbd are not in PATH", ErrMissing)
	}
	return install, daemon, err
}

// Postgres starts a PostgreSQL.
func Postgres() (*Server, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	s, err := newServer("pgx", "postgres")
	if err != nil {
		return nil, err
	}
	s.DSN = fmt.Sprintf("postgres://postgres@/postgres?host=%s&sslmode=disable", s.dir)
	data := filepath.Join(s.dir, "data")
	err = s.start("QUIT",
		[]string{filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"},
		[]string{filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off",
			"-c", "shared_buffers=16MB", "-c", "max_connections=300"})
	return s, err
}

// MariaDB starts a MariaDB.
func MariaDB() (*Server, error) {
	install, daemon, err := mariadbPrograms()
	if err != nil {
		return nil, err
	}
	s, err := newServer("mysql", "mysql")
	if err != nil {
		return nil, err
	}
	data, socket := "--datadir="+filepath.Join(s.dir, "data"), filepath.Join(s.dir, "socket")
	s.DSN = "root@unix(" + socket + ")/mysql"
	err = s.start("TERM",
		[]string{install, "--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db"},
		[]string{daemon, "--no-defaults", data, "--socket=" + socket, "--skip-networking", "--max-connections=300",
			"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M", "--pid-file=" + filepath.Join(s.dir, "pid")})
	return s, err
}

// program returns the path of a program in PATH or in one of the directories, or "".
func program(name, dirs string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, _ := filepath.Glob(filepath.Join(dirs, name))
	if len(found) == 0 {
		return ""
	}
	return slices.Max(found)
}

// newServer makes the directory of a server, which runs as another user where this process is
// root: servers refuse to run as root.
func newServer(driver, as string) (*Server, error) {
	dir, err := os.MkdirTemp("", "lockersql")
	if err != nil {
		return nil, err
	}
	s := &Server{Driver: driver, dir: dir, ended: make(chan struct{})}
	s.shell = exec.Command("sh")
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() != 0 {
		return s, nil
	}
	u, err := user.Lookup(as)
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	s.shell.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return s, os.Chown(dir, int(uid), int(gid))
}

// script runs a server in "$1", and ends it when standard input ends, as it does with the
// process that started it, however that ends.
const script = `dir=$1 signal=$2; shift 2
"$@" & pid=$!
read -r _
kill -"$signal" $pid; wait $pid
rm -rf "$dir"`

func (s *Server) start(signal string, install, run []string) error {
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	installer := exec.Command(install[0], install[1:]...)
	installer.SysProcAttr, installer.Dir = s.shell.SysProcAttr, "/"
	if out, err := installer.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w: %s", install[0], err, out), os.RemoveAll(s.dir))
	}
	s.shell.Args = append([]string{"sh", "-c", script, "sh", s.dir, signal}, run...)
	s.shell.Dir, s.shell.Stdout, s.shell.Stderr = "/", log, log
	if s.lifeline, err = s.shell.StdinPipe(); err != nil {
		return err
	}
	if err := s.shell.Start(); err != nil {
		return err
	}
	go func() {
		defer close(s.ended)
		_ = s.shell.Wait()
	}()
	if err := s.wait(); err != nil {
		text, _ := os.ReadFile(log.Name())
		s.Stop()
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}

// wait returns when the server takes connections, which it does not tell by itself.
func (s *Server) wait() error {
	db, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := db.PingContext(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Stop ends the server and removes its files.
func (s *Server) Stop() {
	_ = s.lifeline.Close()
	<-s.ended
}

//go:build unix

package servers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Postgres starts a PostgreSQL, which is reached by a socket.
func Postgres(ctx context.Context) (*Server, error) {
	bin, err := postgresBinaries()
	if err != nil {
		return nil, err
	}
	as := unprivileged()
	dir, err := newDir(as)
	if err != nil {
		return nil, err
	}
	password, address := withPassword("postgres", "postgres", url.Values{"host": {dir}, "sslmode": {"disable"}})
	secret := filepath.Join(dir, "secret")
	data := filepath.Join(dir, "data")
	err = os.WriteFile(secret, []byte(password), 0o644) // dir is its user's only
	if err == nil {
		err = output(owned(exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "app", "--pwfile="+secret,
			"--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C", "--wal-segsize=1"), as))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Server{URL: address, About: version(filepath.Join(bin, "postgres")), dir: dir}
	// QUIT ends it at once, and the processes that it has started.
	err = s.start(as, "QUIT", filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "max_connections=300",
		"-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "max_wal_size=64MB", "-c", "min_wal_size=2MB")
	return s, s.orStop(ctx, err)
}

func postgresBinaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		path, err = filepath.EvalSymlinks(path) // the other programs are where it really is
		return filepath.Dir(path), err
	}
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(dirs) == 0 {
		return "", fmt.Errorf("PostgreSQL: %w: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin", ErrNotInstalled)
	}
	return slices.Max(dirs), nil
}

// MySQL starts a MariaDB or MySQL, which is reached by a socket.
func MySQL(ctx context.Context) (*Server, error) {
	program := ""
	for _, name := range []string{os.Getenv("LOCKER_MYSQL_SERVER"), "mariadbd", "/usr/sbin/mariadbd", "mysqld", "/usr/sbin/mysqld"} {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		return nil, fmt.Errorf("MariaDB: %w: neither mariadbd nor mysqld is in PATH or /usr/sbin", ErrNotInstalled)
	}
	as := unprivileged()
	dir, err := newDir(as)
	if err != nil {
		return nil, err
	}
	socket, data, first := filepath.Join(dir, "sock"), filepath.Join(dir, "data"), filepath.Join(dir, "first.sql")
	password, address := withPassword("mysql", "app", url.Values{"socket": {socket}})
	s := &Server{URL: address, About: version(program), dir: dir}
	settings := []string{"--datadir=" + data, "--loose-innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M", "--skip-log-bin", "--loose-performance-schema=OFF"}
	prepare := []string{program, "--no-defaults", "--initialize-insecure", "--init-file=" + first}
	if strings.Contains(s.About, "MariaDB") {
		prepare = []string{"mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--extra-file=" + first}
	}
	// Before FLUSH PRIVILEGES there are no users.
	err = os.WriteFile(first, fmt.Appendf(nil, "FLUSH PRIVILEGES;\nCREATE DATABASE app;\nCREATE USER app IDENTIFIED BY '%s';\nGRANT ALL ON app.* TO app;\n", password), 0o644)
	if err == nil {
		err = output(owned(exec.CommandContext(ctx, prepare[0], slices.Concat(prepare[1:], settings)...), as))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	err = s.start(as, "KILL", program, append([]string{"--no-defaults", "--socket=" + socket, "--pid-file=" + filepath.Join(dir, "pid"),
		"--tmpdir=" + dir, "--skip-networking", "--max-connections=300"}, settings...)...)
	return s, s.orStop(ctx, err)
}

// Etcd starts a single member of etcd, on ports of this host: the program that LOCKER_ETCD_SERVER
// names, or else etcd. Locks of other members of a cluster would cost more.
func Etcd(ctx context.Context) (*Server, error) {
	program, err := exec.LookPath(cmp.Or(os.Getenv("LOCKER_ETCD_SERVER"), "etcd"))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w: it is not in PATH, and LOCKER_ETCD_SERVER names none", ErrNotInstalled)
	}
	as := unprivileged()
	dir, err := newDir(as)
	if err != nil {
		return nil, err
	}
	clients, err := freeAddress()
	peers, err2 := freeAddress()
	if err := errors.Join(err, err2); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Server{URL: "etcd://" + clients, About: version(program) + ", one member", dir: dir}
	err = s.start(as, "KILL", program, "--name=one", "--data-dir="+filepath.Join(dir, "data"), "--log-level=error",
		"--listen-client-urls=http://"+clients, "--advertise-client-urls=http://"+clients,
		"--listen-peer-urls=http://"+peers, "--initial-advertise-peer-urls=http://"+peers, "--initial-cluster=one=http://"+peers)
	return s, s.orStop(ctx, err)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// start starts the server below a shell that waits for the end of a pipe from this process. It
// ends the server by a signal then, and removes the files.
func (s *Server) start(as *syscall.Credential, signal, program string, args ...string) error {
	const shell = `"$@" </dev/null >>"$DIR/log" 2>&1 & pid=$!; echo $pid; read -r _; kill -$SIGNAL $pid; wait $pid; rm -rf "$DIR"`
	cmd := owned(exec.Command("/bin/sh", append([]string{"-c", shell, "server", program}, args...)...), as)
	cmd.Env = append(os.Environ(), "DIR="+s.dir, "SIGNAL="+signal)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.lifeline, s.ended = in, make(chan struct{})
	if err := cmd.Start(); err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		defer close(s.ended)
		_ = cmd.Wait()
	}()
	if err == nil {
		s.PID, err = strconv.Atoi(strings.TrimSpace(line))
	}
	return err
}

// orStop waits until the server is ready, unless err says that it was not started.
func (s *Server) orStop(ctx context.Context, err error) error {
	if err == nil {
		err = s.ready(ctx)
	}
	if err != nil && s.PID != 0 {
		s.Stop()
	}
	return err
}

// unprivileged is the user of the servers where this process is root, as whom they refuse to run.
func unprivileged() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "mysql", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
}

// newDir makes a directory that only the server's user sees. Its name is short: the path of a
// socket has room for some hundred bytes.
func newDir(as *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp("", "locker")
	if err == nil && as != nil {
		err = os.Chown(dir, int(as.Uid), int(as.Gid))
	}
	return dir, err
}

// owned makes cmd run as the server's user, in a group of its own: Ctrl-C does not reach it.
func owned(cmd *exec.Cmd, as *syscall.Credential) *exec.Cmd {
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setpgid: true, Credential: as}
	return cmd
}

func output(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}

// version is what a program prints for --version.
func version(program string) string {
	out, _ := exec.Command(program, "--version").Output()
	line, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), program+"  "), "\n")
	return line
}

package servers

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Postgres makes a PostgreSQL with a database app and a role app that owns it. Start starts it. It
// is reached by a socket in its directory, without passwords. A setting is "name=value".
func Postgres(settings ...string) (*Server, error) {
	bin, err := PostgresPrograms()
	if err != nil {
		return nil, err
	}
	template, err := postgresTemplate()
	if err != nil {
		return nil, err
	}
	k := kind{program: filepath.Join(bin, "postgres"), template: template, quit: syscall.SIGQUIT}
	k.args = func(s *Server) []string {
		return []string{"-D", s.Data(), "-k", s.Dir, "-c", "listen_addresses=", "-c", "max_connections=1000",
			"-c", "max_wal_size=64MB", "-c", "min_wal_size=2MB", "-c", "wal_level=minimal", "-c", "max_wal_senders=0"}
	}
	return k.new(0, named(settings))
}

func named(settings []string) (args []string) {
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

// PostgresPrograms returns the directory of PostgreSQL's programs.
func PostgresPrograms() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		path, err = filepath.EvalSymlinks(path) // the other programs are where it really is
		return filepath.Dir(path), err
	}
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(dirs) == 0 {
		return "", fmt.Errorf("PostgreSQL: %w: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin", ErrNotInstalled)
	}
	return slices.MaxFunc(dirs, func(a, b string) int { return cmp.Compare(major(a), major(b)) }), nil
}

// major returns the version in /usr/lib/postgresql/15/bin.
func major(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

var postgresTemplate = sync.OnceValues(func() (string, error) {
	bin, err := PostgresPrograms()
	if err != nil {
		return "", err
	}
	dir, err := newDir()
	if err != nil {
		return "", err
	}
	err = output(Command(filepath.Join(bin, "initdb"), "-D", dir, "-U", "postgres", "--wal-segsize=1", "--auth=trust",
		"--no-sync", "--encoding=UTF8", "--locale=C"))
	if err != nil {
		return "", err
	}
	single := Command(filepath.Join(bin, "postgres"), "--single", "-F", "-D", dir, "postgres")
	single.Stdin = strings.NewReader("CREATE ROLE app LOGIN\nCREATE DATABASE app OWNER app\n")
	return dir, output(single)
})

// MySQL makes a MariaDB or MySQL with a database app and a user app that may do anything there:
// the program that LOCKER_MYSQL_SERVER names, or else the one that is installed. Start starts it. It is
// reached by a socket in its directory and, if network is set, by a port, without passwords.
func MySQL(network bool, settings ...string) (*Server, error) {
	program, err := mysqlProgram()
	if err != nil {
		return nil, err
	}
	template, err := mysqlTemplate()
	if err != nil {
		return nil, err
	}
	ports := 0
	if network {
		ports = 1
	}
	k := kind{program: program, template: template, quit: syscall.SIGKILL, args: mysqlArgs}
	return k.new(ports, settings)
}

// Socket returns the path of a MariaDB's or MySQL's socket.
func (s *Server) Socket() string { return filepath.Join(s.Dir, "sock") }

// small are settings of all of them. An unknown one is no error.
var small = []string{"--loose-innodb-log-file-size=4M", "--loose-innodb-redo-log-capacity=8M", "--innodb-buffer-pool-size=16M",
	"--loose-innodb-temp-data-file-path=ibtmp1:12M:autoextend", "--skip-log-bin", "--loose-mysqlx=OFF", "--loose-performance-schema=OFF",
	"--loose-innodb-use-native-aio=OFF"} // the system has a limit for all servers, beyond which MySQL does not start

func mysqlArgs(s *Server) []string {
	args := append([]string{"--no-defaults", "--datadir=" + s.Data(), "--socket=" + s.Socket(), "--pid-file=" + filepath.Join(s.Dir, "own-pid"),
		"--tmpdir=" + s.Dir,           // a server that starts deletes temporary tables of others
		"--secure-file-priv=" + s.Dir, // MySQL does not start without the directory, and a package's default may be missing
		"--max-connections=1000", "--back-log=500", "--skip-name-resolve"}, small...)
	if len(s.Ports) == 0 {
		return append(args, "--skip-networking")
	}
	return append(args, "--skip-networking=0", "--bind-address=127.0.0.1", "--port="+strconv.Itoa(s.Ports[0]))
}

func mysqlProgram() (string, error) {
	if name := os.Getenv("LOCKER_MYSQL_SERVER"); name != "" {
		return exec.LookPath(name)
	}
	for _, name := range []string{"mariadbd", "mysqld", "/usr/sbin/mariadbd", "/usr/sbin/mysqld"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("MariaDB: %w: neither mariadbd nor mysqld is in PATH or /usr/sbin", ErrNotInstalled)
}

var mysqlTemplate = sync.OnceValues(func() (string, error) {
	program, err := mysqlProgram()
	if err != nil {
		return "", err
	}
	dir, err := newDir()
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	// Before FLUSH PRIVILEGES there are no users.
	const sql = "FLUSH PRIVILEGES;\nCREATE DATABASE app;\nCREATE USER app;\nGRANT ALL ON app.* TO app;\n"
	args := append([]string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + dir, "--loose-innodb-flush-method=nosync", "--secure-file-priv=" + dir}, small...)
	if !strings.Contains(version(program), "MariaDB") {
		first := filepath.Join(dir, "first.sql")
		if err := os.WriteFile(first, []byte(sql), 0o644); err != nil {
			return "", err
		}
		err := output(Command(program, append(args, "--initialize-insecure", "--init-file="+first)...))
		_ = os.Remove(filepath.Join(data, "auto.cnf")) // MySQL's UUID: each server makes its own
		return data, err
	}
	install := Command(besides(program, "mariadb-install-db"), append(slices.Clip(args), "--auth-root-authentication-method=normal", "--skip-test-db")...)
	if err := output(install); err != nil {
		return "", err
	}
	begin := Command(program, append(args, "--bootstrap")...) // the mariadb-install-db of older releases takes no SQL
	begin.Stdin = strings.NewReader(sql)
	return data, output(begin)
})

// besides returns the program of that name in the directory of another program, or else in PATH.
func besides(program, name string) string {
	if path, err := exec.LookPath(filepath.Join(filepath.Dir(program), name)); err == nil {
		return path
	}
	return name
}

// Etcd makes a single member of etcd, on ports of this host: the program that LOCKER_ETCD_SERVER
// names, or else etcd. Start starts it. Locks of a cluster of several members would cost more.
func Etcd() (*Server, error) {
	program, err := exec.LookPath(cmp.Or(os.Getenv("LOCKER_ETCD_SERVER"), "etcd"))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w: it is not in PATH, and LOCKER_ETCD_SERVER names none", ErrNotInstalled)
	}
	k := kind{program: program, quit: syscall.SIGKILL}
	k.args = func(s *Server) []string {
		clients, peers := fmt.Sprintf("http://127.0.0.1:%d", s.Ports[0]), fmt.Sprintf("http://127.0.0.1:%d", s.Ports[1])
		return []string{"--name=one", "--data-dir=" + s.Data(), "--log-level=error", "--listen-client-urls=" + clients,
			"--advertise-client-urls=" + clients, "--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=one=" + peers}
	}
	return k.new(2, nil)
}

// Command member is one member of an etcd cluster, for the tests of strategy/etcd. It is a module of its
// own so that those who take locks do not download etcd's server.
//
// It listens at sockets in its working directory, and prints "ready" once it serves. It reads
// commands: "cut" drops all messages from and to the other members, "mend" ends that; each is
// answered by "done". At the end of its input it removes all that the tests have made, and exits: they have ended
// without doing so.
//
// With flags instead of its own argument it is a server as etcd is with these flags.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"strings"

	apiversion "go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/embed"
)

// config is the argument, in JSON.
type config struct {
	Name     string // its sockets are name:1 for clients and name:2 for peers
	Dir      string // for its data
	Base     string // has all directories of these tests
	Cluster  string // name=unix://name:2,...
	Existing bool   // it joins a cluster that there is
}

func main() {
	if strings.HasPrefix(os.Args[1], "-") {
		plain()
		return
	}
	var c config
	if err := json.Unmarshal([]byte(os.Args[1]), &c); err != nil {
		log.Fatal(err)
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster = c.Name, c.Dir, c.Cluster
	cfg.UnsafeNoFsync, cfg.LogLevel, cfg.LogOutputs = true, "error", []string{"stderr"}
	cfg.StrictReconfigCheck = false // which refuses changes for the first seconds
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Host: c.Name + ":1"}}
	cfg.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: c.Name + ":2"}}
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = cfg.ListenClientUrls, cfg.ListenPeerUrls
	if c.Existing {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		log.Fatal(err)
	}
	select {
	case <-e.Server.ReadyNotify():
		fmt.Println("ready")
	case err := <-e.Err():
		log.Fatal(err)
	}
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); fmt.Println("done") {
		for _, m := range e.Server.Cluster().Members() {
			switch {
			case m.ID == e.Server.MemberID():
			case commands.Text() == "cut":
				e.Server.CutPeer(m.ID)
			case commands.Text() == "mend":
				e.Server.MendPeer(m.ID)
			}
		}
	}
	_ = os.RemoveAll(c.Base)
}

// plain is etcd's own program, as far as its flags are known here.
func plain() {
	cfg := embed.NewConfig()
	flag.StringVar(&cfg.Name, "name", cfg.Name, "")
	flag.StringVar(&cfg.Dir, "data-dir", "", "")
	flag.StringVar(&cfg.LogLevel, "log-level", cfg.LogLevel, "")
	flag.StringVar(&cfg.InitialCluster, "initial-cluster", "", "")
	for name, to := range map[string]*[]url.URL{
		"listen-client-urls": &cfg.ListenClientUrls, "advertise-client-urls": &cfg.AdvertiseClientUrls,
		"listen-peer-urls": &cfg.ListenPeerUrls, "initial-advertise-peer-urls": &cfg.AdvertisePeerUrls,
	} {
		flag.Func(name, "", func(value string) error {
			u, err := url.Parse(value)
			if err == nil {
				*to = []url.URL{*u}
			}
			return err
		})
	}
	version := flag.Bool("version", false, "")
	flag.Parse()
	if *version {
		fmt.Println("etcd Version:", apiversion.Version)
		return
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(<-e.Err())
}

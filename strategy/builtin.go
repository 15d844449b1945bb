package strategy

import (
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
)

// builtin are the strategies of this module, a line for each.
func builtin() map[string]Opener {
	return map[string]Opener{
		"blpop":         {Redis: blpop.New, ReplicaAcks: blpop.WithReplicaAcks},
		"hashreentrant": {Redis: hashreentrant.New, ReplicaAcks: hashreentrant.WithReplicaAcks},
		"memory":        {Other: openMemory},
		"redlock":       {Nodes: redlock.New},
		"setnx":         {Redis: setnx.New, ReplicaAcks: setnx.WithReplicaAcks},
	}
}

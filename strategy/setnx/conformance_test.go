package setnx_test

import (
	"testing"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/setnx"
)

func TestMain(m *testing.M) { redisconformance.Main(m, setnx.New) }

func TestConformance(t *testing.T) {
	conformance.Run(t, redisconformance.Strategy{
		Name: "setnx",
		New:  setnx.New,
	}.Harness)
}

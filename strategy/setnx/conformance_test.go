package setnx_test

import (
	"testing"

	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/setnx"
)

func TestMain(m *testing.M) { redisconformance.Main(m, setnx.New) }

func TestConformance(t *testing.T) { redisconformance.Run(t, on(redisconformance.Single)) }

package blpop_test

import (
	"testing"

	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/blpop"
)

func TestMain(m *testing.M) { redisconformance.Main(m, blpop.New) }

func TestConformance(t *testing.T) { redisconformance.Run(t, on(redisconformance.Single)) }

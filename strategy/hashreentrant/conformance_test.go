package hashreentrant_test

import (
	"testing"

	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/hashreentrant"
)

func TestMain(m *testing.M) {
	serveContender()
	redisconformance.Main(m, hashreentrant.New)
}

func TestConformance(t *testing.T) { redisconformance.Run(t, on(redisconformance.Single)) }

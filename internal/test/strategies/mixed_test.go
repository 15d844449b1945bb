package strategies

import (
	"testing"

	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
)

func TestStrategiesMix(t *testing.T) {
	redisconformance.RunMixed(t,
		redisconformance.Strategy{Name: "setnx", New: setnx.New},
		redisconformance.Strategy{Name: "hashreentrant", New: hashreentrant.New},
		redisconformance.Strategy{Name: "blpop", New: blpop.New},
	)
}

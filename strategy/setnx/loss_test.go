package setnx_test

import (
	"errors"
	"testing"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The database of a cluster client that has its own way to its servers is not known, so its keys cannot be watched.
func TestLossDetectionNeedsTheDatabase(t *testing.T) {
	rdb := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, DB: 5})
	defer rdb.Close()
	d, err := setnx.NewDriver(rdb)
	require.NoError(t, err)
	defer d.Close()
	_, err = d.(driver.LossDetector).DetectLoss(t.Context(), func(driver.Signal) {})
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

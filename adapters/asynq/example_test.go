package asynqlocker_test

import (
	"context"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	asynqlocker "github.com/distlock/locker/adapters/asynq"
	"github.com/distlock/locker/strategy/hashreentrant"
)

// schedule is the first program of README.md. TestReadme runs it.
func schedule(ctx context.Context, rdb *redis.Client) error {
	l, err := hashreentrant.New(rdb)
	if err != nil {
		return err
	}
	defer l.Close()
	return asynqlocker.RunScheduler(ctx, l, "scheduler", func() (asynqlocker.Scheduler, error) {
		s := asynq.NewSchedulerFromRedisClient(rdb, nil)
		_, err := s.Register("@every 1s", asynq.NewTask("report", nil), asynq.Queue("mail"))
		return s, err
	})
}

// work is the second program of README.md. TestReadme runs it.
func work(ctx context.Context, rdb *redis.Client, report asynq.HandlerFunc) error {
	l, err := hashreentrant.New(rdb)
	if err != nil {
		return err
	}
	defer l.Close()
	limit, err := asynqlocker.NewLimit(l, map[string]int{"mail": 20}) // of all servers together
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.Use(limit.Middleware)
	mux.HandleFunc("report", report)
	srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Queues: map[string]int{"mail": 1}, IsFailure: limit.IsFailure, RetryDelayFunc: limit.RetryDelay,
	})
	if err := srv.Start(mux); err != nil {
		return err
	}
	defer srv.Shutdown()
	<-ctx.Done()
	return nil
}

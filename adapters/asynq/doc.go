// Package asynqlocker coordinates the instances of a program that uses github.com/hibiken/asynq. One instance runs the
// scheduler of periodic tasks, and the limit of a queue counts for all servers together.
//
//	err := asynqlocker.RunScheduler(ctx, l, "scheduler", func() (asynqlocker.Scheduler, error) {
//		s := asynq.NewScheduler(redis, nil)
//		_, err := s.Register("@every 1m", asynq.NewTask("report", nil))
//		return s, err
//	})
//
//	limit, err := asynqlocker.NewLimit(l, map[string]int{"mail": 20})
//	...
//	mux.Use(limit.Middleware)
//
// [RunScheduler] guarantees that no two instances schedule at the same time, as far as locks can. A periodic task that
// is due while no instance leads is not enqueued: for the TTL after a leader has died, and for a round trip
// after one has stopped. A leader that is paused past its lease may enqueue one round of tasks before it notices: where
// that matters, give the tasks asynq.Unique, or asynq.TaskID.
//
// [Limit] guarantees that at most so many tasks of a queue run at a time, over all servers that share the store of
// locks. It needs a strategy that keeps permits, see [locker.NewSemaphore]. A task whose permit is lost has its context
// ended.
package asynqlocker

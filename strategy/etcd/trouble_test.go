package etcd_test

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The ServerFaults.

func (h *harness) Persist() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.persist = true
	return nil
}

// Crash: etcd loses nothing that it acknowledged, unless it is made to.
func (h *harness) Crash() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hurt = true
	h.s.Kill()
	h.undo = append(h.undo, func(context.Context) error {
		if !h.persist {
			if err := h.s.Wipe(); err != nil {
				return err
			}
		}
		return h.s.Start()
	})
	return nil
}

func (h *harness) CutConnections() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		_ = c.Close()
	}
	h.conns = nil
	return nil
}

func (h *harness) Cause(trouble string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hurt = true
	ctx := context.Background()
	switch trouble {
	case "NoPermission":
		h.undo = append(h.undo, h.authDisable)
		return h.authEnable(ctx)
	case "NoSpace":
		h.undo = append(h.undo, func(ctx context.Context) error { return h.alarm(ctx, pb.AlarmRequest_DEACTIVATE) })
		return h.alarm(ctx, pb.AlarmRequest_ACTIVATE)
	case "Frozen":
		h.undo = append(h.undo, func(context.Context) error { h.s.Thaw(); return nil })
		h.s.Freeze()
		return nil
	}
	return fmt.Errorf("no such trouble: %s", trouble)
}

func (h *harness) alarm(ctx context.Context, action pb.AlarmRequest_AlarmAction) error {
	status, err := h.admin.Status(ctx, h.s.Endpoint())
	if err != nil {
		return err
	}
	_, err = pb.NewMaintenanceClient(h.admin.ActiveConnection()).Alarm(ctx,
		&pb.AlarmRequest{Action: action, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE})
	return err
}

func (h *harness) authEnable(ctx context.Context) error {
	if _, err := h.admin.UserAdd(ctx, "root", "root"); err != nil {
		return err
	}
	if _, err := h.admin.UserGrantRole(ctx, "root", "root"); err != nil {
		return err
	}
	_, err := h.admin.AuthEnable(ctx)
	return err
}

func (h *harness) authDisable(ctx context.Context) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{h.s.Endpoint()}, Username: "root", Password: "root", Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.AuthDisable(ctx)
	return err
}

func (h *harness) Recover() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, undo := range h.undo {
		if err := undo(context.Background()); err != nil {
			return err
		}
	}
	h.undo = nil
	return nil
}

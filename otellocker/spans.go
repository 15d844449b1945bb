package otellocker

import (
	"context"
	"sync"

	"github.com/distlock/locker"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

const (
	acquireSpan = "locker.acquire"
	lossEvent   = "locker.lost" // a span event; a span where the caller's span has ended
)

// spans makes spans of events. An event comes with the values of the caller's context, its time
// and how long the call took: a span can be made of it afterwards, and no Locker is wrapped.
//
// Whether the caller's span was sampled is asked, not whether it records: it may have ended
// before the event was delivered.
type spans struct {
	tracer trace.Tracer

	mu      sync.Mutex
	holders map[grant]trace.Span // the callers' spans, sampled ones only
}

// grant distinguishes one hold of a lock from another of the same Locker.
type grant struct {
	strategy, key string
	token         int64
}

func newSpans(tracer trace.Tracer) *spans {
	return &spans{tracer: tracer, holders: make(map[grant]trace.Span)}
}

func grantOf(e locker.Event) grant { return grant{e.Strategy, e.Key, e.Token} }

// acquisition makes the span of a Lock or TryLock, from its call to its end.
func (s *spans) acquisition(ctx context.Context, e locker.Event, name string, out outcome) {
	caller := trace.SpanFromContext(ctx)
	if !caller.SpanContext().IsSampled() {
		return
	}
	attrs := append(spanAttributes(e, name), outcomeKey.String(outcomeNames[out]))
	if e.HandOver {
		attrs = append(attrs, handOverKey.Bool(true))
	}
	if out.failed() {
		attrs = append(attrs, errorTypeKey.String(outcomeNames[out]))
	}
	_, span := s.tracer.Start(ctx, acquireSpan, trace.WithTimestamp(e.Time.Add(-e.Duration)), trace.WithAttributes(attrs...))
	if out.failed() {
		span.SetStatus(codes.Error, outcomeNames[out]) // the error itself names the key
	}
	span.End(trace.WithTimestamp(e.Time))
	if out == acquired {
		s.mu.Lock()
		s.holders[grantOf(e)] = caller
		s.mu.Unlock()
	}
}

// lost records a loss on the span of the caller who acquired; if that has ended, on a span beside it.
func (s *spans) lost(e locker.Event, name string, c cause) {
	caller := s.ended(e)
	if caller == nil {
		return
	}
	at := trace.WithTimestamp(e.Time)
	attrs := trace.WithAttributes(append(spanAttributes(e, name), causeKey.String(causeNames[c]))...)
	if caller.IsRecording() {
		caller.AddEvent(lossEvent, at, attrs)
		return
	}
	ctx := trace.ContextWithSpan(context.Background(), caller)
	_, span := s.tracer.Start(ctx, lossEvent, at, attrs)
	span.SetStatus(codes.Error, causeNames[c])
	span.End(at)
}

// ended forgets a grant, and returns the span of the caller who was given it, if any.
func (s *spans) ended(e locker.Event) trace.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	caller := s.holders[grantOf(e)]
	delete(s.holders, grantOf(e))
	return caller
}

// forget forgets all grants: the ends of some may have been dropped.
func (s *spans) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.holders)
}

func spanAttributes(e locker.Event, name string) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 6), strategyKey.String(e.Strategy))
	if name != "" {
		attrs = append(attrs, keyKey.String(name))
	}
	if e.Token != 0 {
		attrs = append(attrs, tokenKey.Int64(e.Token))
	}
	return attrs
}

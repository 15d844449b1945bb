package otellocker_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/otellocker"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// named are the ended spans of that name, once all events are delivered.
func (b *bench) named(name string) []sdktrace.ReadOnlySpan {
	synctest.Wait()
	var found []sdktrace.ReadOnlySpan
	for _, s := range b.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	return found
}

func (b *bench) caller(opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	return b.tracers.Tracer("the caller's").Start(b.t.Context(), "request", opts...)
}

func wantAttributes(t *testing.T, got []attribute.KeyValue, pairs ...string) {
	t.Helper()
	want := attrs(pairs...)
	set := attribute.NewSet(got...)
	require.Equal(t, want.ToSlice(), set.ToSlice())
}

// A Lock is a span below the caller's, as long as the call took.
func TestSpanOfALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		first := b.lock(t.Context(), "k")
		time.AfterFunc(2*time.Second, func() { _ = first.Unlock(context.Background()) })
		ctx, caller := b.caller()
		began := time.Now()
		b.lock(ctx, "k")
		spans := b.named("locker.acquire")
		require.Len(t, spans, 1, "the first Lock was under no span")
		s := spans[0]
		require.Equal(t, caller.SpanContext().SpanID(), s.Parent().SpanID())
		require.Equal(t, caller.SpanContext().TraceID(), s.SpanContext().TraceID())
		require.Equal(t, trace.SpanKindInternal, s.SpanKind())
		require.True(t, s.StartTime().Equal(began), "from the call on")
		require.Equal(t, 2*time.Second, s.EndTime().Sub(s.StartTime()))
		require.Equal(t, codes.Unset, s.Status().Code)
		wantAttributes(t, s.Attributes(), "locker.outcome", "acquired")
	})
}

// A span has the name given to the key, the token, and a hand-over.
func TestAttributesOfASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, otellocker.WithKeys(strings.ToUpper))
		obs, err := otellocker.NewObserver(otellocker.WithTracerProvider(b.tracers), otellocker.WithKeys(strings.ToUpper))
		require.NoError(t, err)
		fenced, err := b.store.New(locker.WithObserver(obs))
		require.NoError(t, err)
		defer fenced.Close()
		ctx, _ := b.caller()
		lease, err := fenced.Lock(ctx, "k")
		require.NoError(t, err)
		spans := b.named("locker.acquire")
		require.Len(t, spans, 1)
		require.Contains(t, spans[0].Attributes(), attribute.Int64("locker.token", lease.Token()))
		require.Contains(t, spans[0].Attributes(), attribute.String("locker.key", "K"))

		first := b.lock(t.Context(), "other")
		go func() { _, _ = b.Lock(ctx, "other") }()
		synctest.Wait()
		require.NoError(t, first.Unlock(t.Context()))
		spans = b.named("locker.acquire")
		require.Len(t, spans, 2)
		require.Contains(t, spans[1].Attributes(), attribute.Bool("locker.hand_over", true))
	})
}

// A failure is an error of the span; that another owner holds the key is none.
func TestSpanOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lock(t.Context(), "k")
		ctx, _ := b.caller()
		_, err := b.TryLock(ctx, "k")
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		b.driver.set(func() { b.driver.acquire = errRefused })
		_, err = b.TryLock(ctx, "free")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		spans := b.named("locker.acquire")
		require.Len(t, spans, 2)
		require.Equal(t, sdktrace.Status{}, spans[0].Status())
		wantAttributes(t, spans[0].Attributes(), "locker.outcome", "not_acquired")
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "unavailable"}, spans[1].Status())
		wantAttributes(t, spans[1].Attributes(), "locker.outcome", "unavailable", "error.type", "unavailable")
	})
}

// A caller whose span is not sampled has no others.
func TestUnsampledCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var id trace.SpanContextConfig
		id.TraceID[0], id.SpanID[0] = 1, 1
		b.lock(trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(id)), "k", locker.WithMaxHold(time.Second))
		time.Sleep(2 * time.Second) // on the bubble's clock: past the limit
		synctest.Wait()
		require.Empty(t, b.spans.Started())
	})
}

// A caller's span that has ended before the event is delivered gets a span beside it.
func TestSpanOfACallerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		b := newBenchOn(t, func(o locker.Observer) locker.Observer {
			return locker.ObserverFunc(func(ctx context.Context, e locker.Event) {
				<-proceed
				o.Observe(ctx, e)
			})
		})
		ctx, caller := b.caller()
		b.lock(ctx, "k")
		caller.End()
		time.Sleep(time.Hour) // on the bubble's clock: the observer is late
		close(proceed)
		spans := b.named("locker.acquire")
		require.Len(t, spans, 1)
		require.True(t, spans[0].EndTime().Equal(time.Now().Add(-time.Hour)), "when it happened, not when it was told")
	})
}

// A loss is recorded on the span of the caller that holds.
func TestLossOnTheCallersSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, otellocker.WithKeys(strings.ToUpper))
		ctx, caller := b.caller()
		_, other := b.caller()
		b.lock(ctx, "k", locker.WithMaxHold(2*time.Second))
		time.Sleep(2 * time.Second) // on the bubble's clock
		lost := time.Now()
		time.Sleep(time.Second) // on the bubble's clock
		synctest.Wait()
		caller.End()
		other.End()
		requests := b.named("request")
		require.Len(t, requests, 2)
		require.Empty(t, requests[1].Events())
		events := requests[0].Events()
		require.Len(t, events, 1)
		require.Equal(t, "locker.lost", events[0].Name)
		require.True(t, events[0].Time.Equal(lost))
		wantAttributes(t, events[0].Attributes, "locker.loss.cause", "max_hold", "locker.key", "K")
		require.Empty(t, b.named("locker.lost"), "told once")
	})
}

// A loss after the caller's span has ended is a span of the same trace.
func TestLossAfterTheCallersSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, caller := b.caller()
		b.lock(ctx, "k", locker.WithMaxHold(2*time.Second))
		synctest.Wait()
		caller.End()
		time.Sleep(2 * time.Second) // on the bubble's clock
		spans := b.named("locker.lost")
		require.Len(t, spans, 1)
		s := spans[0]
		require.Equal(t, caller.SpanContext().SpanID(), s.Parent().SpanID())
		require.Equal(t, caller.SpanContext().TraceID(), s.SpanContext().TraceID())
		require.True(t, s.StartTime().Equal(time.Now()) && s.EndTime().Equal(time.Now()))
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "max_hold"}, s.Status())
		wantAttributes(t, s.Attributes(), "locker.loss.cause", "max_hold")
	})
}

// No key is shown unless the user names it: not by an attribute, and not in an error's words.
func TestKeysAreNotTold(t *testing.T) {
	const key = "private"
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, caller := b.caller()
		everything(t, ctx, b, key)
		synctest.Wait()
		caller.End()
		spans := b.spans.Ended()
		require.Greater(t, len(spans), 5)
		for _, s := range spans {
			told := s.Attributes()
			for _, e := range s.Events() {
				told = append(told, e.Attributes...)
			}
			for _, a := range told {
				require.NotContains(t, a.Value.String(), key, "%s of %s", a.Key, s.Name())
			}
			require.NotContains(t, s.Status().Description+s.Name(), key)
		}
		for name, m := range collect(t, b.metrics) {
			for _, set := range setsOf(m.Data) {
				for _, a := range set.ToSlice() {
					require.NotContains(t, a.Value.String(), key, "%s of %s", a.Key, name)
				}
			}
		}
	})
}

// A grant whose end was told, or may have been dropped, is forgotten.
func TestEndedGrantsAreForgotten(t *testing.T) {
	for name, between := range map[string]locker.Event{
		"released":       {Kind: locker.EventReleased},
		"release failed": {Kind: locker.EventReleaseFailed},
		"lost":           {Kind: locker.EventLost},
		"let expire":     {Kind: locker.EventLetExpire},
		"dropped":        {Kind: locker.EventRenewed, Dropped: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			obs, err := otellocker.NewObserver(otellocker.WithTracerProvider(b.tracers))
			require.NoError(t, err)
			ctx, caller := b.caller()
			obs.Observe(ctx, locker.Event{Kind: locker.EventAcquired, Key: "k", Token: 1})
			caller.End()
			between.Key, between.Token = "k", 1
			obs.Observe(t.Context(), between)
			before := len(b.named("locker.lost"))
			obs.Observe(t.Context(), locker.Event{Kind: locker.EventLost, Key: "k", Token: 1})
			require.Len(t, b.named("locker.lost"), before, name)
		})
	}
}

// Without options the providers are otel's.
func TestGlobalProviders(t *testing.T) {
	meters, tracers := otel.GetMeterProvider(), otel.GetTracerProvider()
	defer func() {
		otel.SetMeterProvider(meters)
		otel.SetTracerProvider(tracers)
	}()
	reader, spans, provider := telemetry()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	otel.SetTracerProvider(provider)
	obs, err := otellocker.NewObserver()
	require.NoError(t, err)
	ctx, _ := provider.Tracer("caller").Start(t.Context(), "request")
	obs.Observe(ctx, locker.Event{Kind: locker.EventAcquired, Strategy: "memory"})
	require.Contains(t, collect(t, reader), "locker.acquisitions")
	require.Len(t, spans.Ended(), 1)
	require.Equal(t, "github.com/distlock/locker/otellocker", spans.Ended()[0].InstrumentationScope().Name)
}

// Wrong options are errors.
func TestMisuse(t *testing.T) {
	for name, opt := range map[string]otellocker.Option{
		"a nil option":      nil,
		"no meter provider": otellocker.WithMeterProvider(nil), "no tracer provider": otellocker.WithTracerProvider(nil),
		"no names": otellocker.WithKeys(nil),
	} {
		obs, err := otellocker.NewObserver(otellocker.WithMeterProvider(sdkmetric.NewMeterProvider()), opt)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
		require.Nil(t, obs, name)
	}
}

package driver

import "context"

// LossDetector is implemented by a driver whose store shows at once that a key was deleted, has
// expired or was replaced, whoever did it: with locker.WithLossDetection the Locker then asks the store
// about the claim, as for [SignalBroken]. What the store shows is a hint: it may be missing, late, repeated or
// forged, and it may be about what the holder has done itself. The answer to the Locker's question decides.
type LossDetector interface {
	// DetectLoss opens a LossWatch, which calls changed with a [SignalBroken] for each claim
	// whose key may have been deleted or replaced. changed does not block; it must not be called while Watch of
	// the LossWatch runs in the same goroutine. The Locker has at most one, while claims are held, and opens it again at
	// most once a second. ctx is for this call only. A driver that cannot detect losses in this set-up
	// returns an error that matches [errors.ErrUnsupported]; it is not asked again.
	DetectLoss(ctx context.Context, changed func(Signal)) (LossWatch, error)
}

// LossWatch watches the keys of claims.
type LossWatch interface {
	// Watch begins to watch the keys of the claims in more, and stops watching those of the claims in less; both before it
	// returns. If both have a claim of one key, the claim in more is the later one. One goroutine calls Watch, some milliseconds
	// after a grant, so that claims which are given back at once cost nothing. If Watch fails, the Locker closes the LossWatch.
	Watch(ctx context.Context, more, less []Claim) error
	// Done is closed when the LossWatch sees no more. The Locker then opens another one.
	Done() <-chan struct{}
	// Close ends it within tens of milliseconds.
	Close()
}

package driver

import (
	"context"
	"strings"
)

// Signaller is implemented by a driver that can reach the Locker that holds a claim: an
// operator, or another process, then asks a holder to release ([SignalRequest]), and a holder
// whose lock was taken away learns of it at once ([SignalBroken]). Signals are hints: they may
// be lost, come late, twice, or from anybody who may write to the store. No lock depends on them.
type Signaller interface {
	// Listen returns once it is certain that each Signal about a claim of the Locker that is sent
	// from then on arrives, as long as the connection lasts. locker is the UUID that the claim's id
	// begins with; see [LockerOf]. The Locker keeps at most one Listener, while a lease waits for
	// signals, and opens it again at most once a second. ctx is for this call only: the Listener
	// lasts until it is closed, which the Locker does before it closes the driver. A driver that
	// cannot listen in this set-up returns an error that matches [errors.ErrUnsupported]; it is not
	// asked again.
	Listen(ctx context.Context, locker string) (Listener, error)
	// Signal sends s to the Locker of s.Claim. It is no error if nobody listens.
	Signal(ctx context.Context, s Signal) error
}

// Asker is implemented by an [Inspector] and [Signaller] that can look at the holder and send it a signal in one
// command: a request then arrives a round trip earlier.
type Asker interface {
	// Ask returns what Inspect returns, and sends a [SignalRequest] to the Locker of the claim that Holder.ID names.
	// asked is false if it was not sent, for whatever reason: then the Locker sends it by Signal.
	Ask(ctx context.Context, key string) (h Holder, asked bool, err error)
}

// Listener is a subscription to the signals for one Locker.
type Listener interface {
	// C receives the signals. The driver chooses its buffer. A signal that finds the buffer full is
	// dropped. After trouble with the connection some may be missing. It is closed when no more can
	// come; the Locker closes the Listener then and asks for another one.
	C() <-chan Signal
	// Close ends the subscription. It returns within tens of milliseconds.
	Close()
}

// Signal is a message about a claim to the Locker that has it.
type Signal struct {
	Kind  SignalKind
	Key   string // the name in the store, prefix included
	Claim string // the claim's id
}

// String returns the Signal as a message, for drivers that send it as text: its kind, the
// claim's id and the key, with spaces between. Ids have no spaces.
func (s Signal) String() string { return string(rune(s.Kind)) + " " + s.Claim + " " + s.Key }

// maxSignalLen is more than a Locker sends: a prefix and a key of 16 KiB each, and a claim's id with its metadata.
const maxSignalLen = 36 << 10

// ParseSignal returns the Signal whose String is message; false if there is none, as anybody may
// send anything, or if message is longer than any that a Locker sends. So what a Listener keeps is
// bounded in bytes, too.
func ParseSignal(message string) (s Signal, ok bool) {
	if len(message) > maxSignalLen {
		return s, false
	}
	kind, rest, _ := strings.Cut(message, " ")
	claim, key, ok := strings.Cut(rest, " ")
	if !ok || len(kind) != 1 {
		return s, false
	}
	return Signal{Kind: SignalKind(kind[0]), Key: key, Claim: claim}, true
}

// SignalKind says what a Signal is about. A Locker ignores kinds that it does not know.
type SignalKind byte

const (
	// SignalRequest asks for the release of the claim.
	SignalRequest SignalKind = 'r'
	// SignalBroken says that the claim was taken away. The Locker asks the store before it believes that.
	SignalBroken SignalKind = 'b'
	// SignalWaiting says that another process was refused the key because of the claim. A Locker
	// that keeps it without a lease (locker.WithSticky) gives it up.
	SignalWaiting SignalKind = 'w'
)

// StickyMark follows [MetadataMark] in the ids of a Locker that may keep claims without a lease:
// whoever is refused by such a claim sends a [SignalWaiting].
const StickyMark = "sticky"

// MayBeUnused reports whether the claim of that id may be kept without a lease. It is cheap.
func MayBeUnused(id string) bool {
	_, metadata, _ := strings.Cut(id, MetadataMark)
	rest, marked := strings.CutPrefix(metadata, StickyMark)
	return marked && (rest == "" || rest[0] == '&')
}

// LockerOf returns the UUID of the Locker whose claim has that id; false if id is no claim's.
func LockerOf(id string) (locker string, ok bool) {
	claim, _, _ := strings.Cut(id, MetadataMark)
	if !isClaim.MatchString(claim) {
		return "", false
	}
	locker, _, _ = strings.Cut(claim, ":")
	return locker, true
}

// SignalBuffer is how many signals a Listener of this module keeps for its Locker.
const SignalBuffer = 64

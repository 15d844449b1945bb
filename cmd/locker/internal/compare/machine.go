package compare

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"time"
)

// Load describes the other work of the machine.
type Load struct {
	// Before and After are the load averages of the last minute; -1 where the system does not have them.
	Before float64 `json:"before"`
	After  float64 `json:"after"` // with the comparison itself
	// Calibration has the times of a constant piece of work between the runs, in ms.
	Calibration *Figure `json:"calibration_ms"`
	// Busy says why the figures are those of a busy machine; "" if they are not.
	Busy string `json:"busy,omitempty"`
}

func loadAverage() float64 {
	load := -1.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load)
	}
	return load
}

// averages shows the load averages.
func (l *Load) averages() string {
	if l.Before < 0 || l.After < 0 {
		return "The load is not known here."
	}
	return fmt.Sprintf("Load before: %.1f, after: %.1f.", l.Before, l.After)
}

// calibrate returns how long a constant piece of work takes, in ms. It is some milliseconds of
// one processor, while nothing is measured.
func calibrate() float64 {
	start := time.Now()
	var sum [sha256.Size]byte
	for range 20_000 {
		sum = sha256.Sum256(sum[:])
	}
	runtime.KeepAlive(sum)
	return float64(time.Since(start)) / float64(time.Millisecond)
}

// A machine is called busy above these.
const (
	busyLoad        = 0.5 // for each processor, before the comparison
	busyCalibration = 1.5 // the median of the constant work by its least
)

// judge sets Busy.
func (l *Load) judge() {
	switch c := l.Calibration; {
	case l.Before > busyLoad*float64(runtime.NumCPU()):
		l.Busy = fmt.Sprintf("its load was %.1f on %d processors before the comparison began", l.Before, runtime.NumCPU())
	case c != nil && c.Median > busyCalibration*c.Least:
		l.Busy = fmt.Sprintf("a constant piece of work took %s ms at least and %s ms in the median", figure(c.Least), figure(c.Median))
	}
}

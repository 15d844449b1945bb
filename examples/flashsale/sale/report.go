package sale

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result has the figures of one sale.
type result struct {
	Strategy string        `json:"strategy"`
	Shops    int           `json:"shops"`
	Sold     int           `json:"sold"`
	Oversold int           `json:"oversold"` // sold beyond the stock
	Refused  int           `json:"refused"`  // as it is sold out
	Failed   int           `json:"failed"`   // neither
	WaitP50  time.Duration `json:"wait_p50_ns"`
	WaitP99  time.Duration `json:"wait_p99_ns"`
	Duration time.Duration `json:"duration_ns"`
	OK       bool          `json:"ok"` // as good as it can be expected of the strategy
	Verdict  string        `json:"verdict"`
	Note     string        `json:"note,omitempty"`
}

func newResult(m method, cfg config, c *crowd, took time.Duration) result {
	r := result{
		Strategy: m.name,
		Shops:    len(c.shops),
		Sold:     int(c.sold.Load()),
		Refused:  int(c.refused.Load()),
		Failed:   int(c.failed.Load()),
		Duration: took,
	}
	r.Oversold = max(0, r.Sold-cfg.stock)
	unsold := min(cfg.stock, cfg.buyers) - r.Sold
	slices.Sort(c.waits)
	r.WaitP50, r.WaitP99 = percentile(c.waits, 50), percentile(c.waits, 99)
	if m.oneShop != "" {
		r.Note = fmt.Sprintf("%s: one shop only, because %s", m.name, m.oneShop)
	}

	switch {
	case r.Failed > 0:
		r.Verdict = fmt.Sprintf("FAILED: %s, first: %v", plural(r.Failed, "request"), c.failure)
	case m.careless != nil && r.Oversold > 0:
		r.OK, r.Verdict = true, "oversold, as expected"
	case m.careless != nil:
		r.OK, r.Verdict = true, "got away with it"
	case r.Oversold > 0:
		r.Verdict = "OVERSOLD"
	case unsold > 0:
		r.Verdict = fmt.Sprintf("LEFT %d UNSOLD", unsold)
	default:
		r.OK, r.Verdict = true, "ok"
	}
	return r
}

// percentile returns the p-th of sorted, by nearest rank.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

func report(w io.Writer, results []result, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(results)
	}
	_, err := io.WriteString(w, table(results))
	return err
}

// table lays the results out: words to the left, numbers to the right.
func table(results []result) string {
	rows := [][]string{{"STRATEGY", "SHOPS", "SOLD", "OVERSOLD", "REFUSED", "WAIT P50", "WAIT P99", "DURATION", "VERDICT"}}
	for _, r := range results {
		rows = append(rows, []string{
			r.Strategy, strconv.Itoa(r.Shops), strconv.Itoa(r.Sold), strconv.Itoa(r.Oversold), strconv.Itoa(r.Refused),
			millis(r.WaitP50), millis(r.WaitP99), fmt.Sprintf("%.1f s", r.Duration.Seconds()), r.Verdict,
		})
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	var b strings.Builder
	b.WriteByte('\n')
	last := len(width) - 1
	for _, row := range rows {
		fmt.Fprintf(&b, "%-*s", width[0], row[0])
		for i, cell := range row[1:last] {
			fmt.Fprintf(&b, "  %*s", width[i+1], cell)
		}
		fmt.Fprintf(&b, "  %s\n", row[last])
	}
	for _, r := range results {
		if r.Note != "" {
			fmt.Fprintf(&b, "\n%s.\n", r.Note)
		}
	}
	return b.String()
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

package main

import (
	"slices"
	"strings"
	"testing"
)

const stream = `
{"Action":"run","Package":"x/strategy/setnx","Test":"TestConformance/parallel/faults/CommandLost"}
{"Action":"output","Package":"x/strategy/setnx","Test":"TestConformance/parallel/faults/CommandLost","Output":"    no word of this\n"}
{"Action":"pass","Package":"x/strategy/setnx","Test":"TestConformance/parallel/faults/CommandLost","Elapsed":1.23}
{"Action":"pass","Package":"x/strategy/setnx","Test":"TestConformance"}
{"Action":"pass","Package":"x/strategy/blpop","Test":"TestConformance/parallel/failure/AcquireTwice"}
{"Action":"pass","Package":"x/strategy/blpop","Test":"TestConformanceOneDead/faults/serial/failure/AcquireTwice"}
`

// passed is what is said of the stream's cases as they end.
var passed = []string{
	"pass setnx single faults/CommandLost (1.2s)",
	"pass blpop single failure/AcquireTwice (0.0s)",
	"pass blpop one dead failure/AcquireTwice (0.0s)",
}

func TestCases(t *testing.T) {
	var out strings.Builder
	if ok, err := run(strings.NewReader(strings.TrimSpace(stream)), &out, true); !ok || err != nil {
		t.Errorf("%t, %v\n%s", ok, err, &out)
	}
	want := slices.Concat(passed, []string{
		"", "setnx blpop",
		"failure", "AcquireTwice n/a ok",
		"faults", "CommandLost ok n/a",
	})
	checkLines(t, out.String(), want)
}

func TestGroups(t *testing.T) {
	var out strings.Builder
	more := strings.TrimSpace(stream) + `
{"Action":"pass","Package":"x/conformance","Test":"TestConformance/parallel/failure/AcquireTwice"}
{"Action":"fail","Package":"x/strategy/setnx","Test":"TestConformance/parallel/faults/ConnectionsCut"}`
	if ok, err := run(strings.NewReader(more), &out, false); ok || err != nil {
		t.Errorf("%t, %v\n%s", ok, err, &out)
	}
	checkLines(t, out.String(), slices.Concat(passed, []string{
		"pass memory single failure/AcquireTwice (0.0s)",
		"fail setnx single faults/ConnectionsCut (0.0s)",
		"", "single setnx blpop memory",
		"failure n/a 1 1",
		"faults 1 of 2 n/a n/a",
		"all 1 of 2 1 1",
		"", "one dead blpop",
		"failure 1",
		"all 1",
	}))
}

func TestFailures(t *testing.T) {
	failed := strings.TrimSpace(stream) + `
{"Action":"output","Package":"x/strategy/blpop","Test":"TestConformanceOnSentinel/parallel/failure/AcquireTwice","Output":"why it failed\n"}
{"Action":"fail","Package":"x/strategy/blpop","Test":"TestConformanceOnSentinel/parallel/failure/AcquireTwice"}
{"Action":"build-output","ImportPath":"x","Output":"does not compile\n"}
make: what the go command says itself`
	var out strings.Builder
	if ok, err := run(strings.NewReader(failed), &out, true); ok || err != nil {
		t.Errorf("%t, %v\n%s", ok, err, &out)
	}
	checkLines(t, out.String(), append(slices.Clone(passed),
		"why it failed", "fail blpop sentinel failure/AcquireTwice (0.0s)",
		"does not compile", "make: what the go command says itself",
		"", "setnx blpop",
		"failure", "AcquireTwice n/a FAILED",
		"faults", "CommandLost ok n/a",
	))
}

func checkLines(t *testing.T, got string, want []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), got)
	}
	for i, line := range lines {
		if strings.Join(strings.Fields(line), " ") != want[i] {
			t.Errorf("line %d is %q, want %q", i, line, want[i])
		}
	}
}

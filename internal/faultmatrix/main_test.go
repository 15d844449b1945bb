package main

import (
	"strings"
	"testing"
)

const stream = `
{"Action":"run","Package":"x/strategy/setnx","Test":"TestConformance/parallel/faults/CommandLost"}
{"Action":"output","Package":"x/strategy/setnx","Test":"TestConformance/parallel/faults/CommandLost","Output":"    no word of this\n"}
{"Action":"pass","Package":"x/strategy/setnx","Test":"TestConformance/parallel/faults/CommandLost"}
{"Action":"pass","Package":"x/strategy/setnx","Test":"TestConformance"}
{"Action":"pass","Package":"x/strategy/blpop","Test":"TestConformance/parallel/failure/AcquireTwice"}
{"Action":"pass","Package":"x/strategy/blpop","Test":"TestConformance/faults/serial/failure/AcquireTwice"}
`

func TestMatrix(t *testing.T) {
	var out strings.Builder
	if ok, err := run(strings.NewReader(strings.TrimSpace(stream)), &out); !ok || err != nil {
		t.Errorf("%t, %v\n%s", ok, err, &out)
	}
	want := []string{
		"", "setnx blpop",
		"failure", "AcquireTwice n/a ok",
		"faults", "CommandLost ok n/a",
	}
	checkLines(t, out.String(), want)
}

func TestFailures(t *testing.T) {
	failed := strings.TrimSpace(stream) + `
{"Action":"output","Package":"x/strategy/blpop","Test":"TestConformanceOnSentinel/parallel/failure/AcquireTwice","Output":"why it failed\n"}
{"Action":"fail","Package":"x/strategy/blpop","Test":"TestConformanceOnSentinel/parallel/failure/AcquireTwice"}
{"Action":"build-output","ImportPath":"x","Output":"does not compile\n"}
make: what the go command says itself`
	var out strings.Builder
	if ok, err := run(strings.NewReader(failed), &out); ok || err != nil {
		t.Errorf("%t, %v\n%s", ok, err, &out)
	}
	checkLines(t, out.String(), []string{
		"why it failed", "does not compile", "make: what the go command says itself",
		"", "setnx blpop",
		"failure", "AcquireTwice n/a FAILED",
		"faults", "CommandLost ok n/a",
	})
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

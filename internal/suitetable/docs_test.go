package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/faults.md names every case of these groups, and none that is not there.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, c := range cases() {
		at := c.Group + "/" + c.Name
		known = append(known, at)
		about := slices.Contains([]string{"failure", "outage", "faults", "minority", "failover", "slots"}, c.Group)
		if about && !strings.Contains(string(doc), "`"+at+"`") {
			t.Errorf("docs/faults.md does not name %s", at)
		}
	}
	for _, m := range regexp.MustCompile("`([a-z-]+/[A-Z][A-Za-z]+)`").FindAllStringSubmatch(string(doc), -1) {
		if !slices.Contains(known, m[1]) {
			t.Errorf("docs/faults.md names %s, which is no case", m[1])
		}
	}
}

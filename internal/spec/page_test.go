package spec

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// wantOnPage wants a page in docs to have a number that a model has reported: in words up to ten, and with commas.
func wantOnPage(t *testing.T, name, format string, n int) {
	t.Helper()
	page, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	number := strconv.Itoa(n)
	if n <= 10 {
		number = strings.Fields("no one two three four five six seven eight nine ten")[n]
	}
	for at := len(number) - 3; at > 0 && n > 10; at -= 3 {
		number = number[:at] + "," + number[at:]
	}
	if want := fmt.Sprintf(format, number); !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("docs/%s does not have %q, which the model reports: bring the page up to date", name, want)
	}
}

package proof

import (
	"bufio"
	"regexp"
	"strings"
)

// Counts holds how many tests without subtests passed, failed and were skipped, and a line of the simulation's.
type Counts struct {
	Passed, Failed, Skipped int
	Shows                   string `json:",omitempty"` // how many histories were played, with their calls
}

var (
	testEnds    = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+) \(`)
	packageEnds = regexp.MustCompile(`^(ok  |FAIL)\t\S`)
	histories   = regexp.MustCompile(`\d+ histories: \d.*`)
)

// count reads what go test -v prints. A test that failed counts if no subtest of it did.
func count(lines *bufio.Reader) (c Counts) {
	ended := map[string]string{} // by test of the present package
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\n")
		if m := testEnds.FindStringSubmatch(line); m != nil {
			ended[m[2]] = m[1]
		}
		if m := histories.FindString(line); m != "" {
			c.Shows = m
		}
		if err != nil || packageEnds.MatchString(line) { // packages have tests of one name
			c.add(ended)
			clear(ended)
		}
		if err != nil {
			return c
		}
	}
}

// add adds the tests of a package.
func (c *Counts) add(ended map[string]string) {
	has := map[string]bool{} // subtests, by test; with " FAIL" those that failed
	for name, how := range ended {
		for i := range name {
			if name[i] == '/' {
				has[name[:i]], has[name[:i]+" "+how] = true, true
			}
		}
	}
	for name, how := range ended {
		switch {
		case how == "FAIL" && !has[name+" FAIL"]:
			c.Failed++
		case has[name] || how == "FAIL":
		case how == "PASS":
			c.Passed++
		default:
			c.Skipped++
		}
	}
}

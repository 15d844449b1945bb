package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	serveParent()
	serveMix()
	servePermits()
	os.Exit(m.Run())
}

// Every contender is measured for some milliseconds in every setup: each figure is there
// and plausible, no call fails and no two sections overlap; and the page can be written.
func TestScenarios(t *testing.T) {
	b := &bench{}
	t.Cleanup(b.stage.End)
	page := newPage(config{}, "0")
	for _, s := range scenarios {
		for _, set := range s.setups {
			for _, c := range s.who {
				t.Run(s.name+set.label+"/"+c, func(t *testing.T) {
					got, err := b.measure(context.Background(), small(set), c, 100*time.Millisecond+15*set.rtt)
					if err != nil {
						t.Fatal(err)
					}
					if trouble := got.trouble(); trouble != "" {
						t.Error(trouble)
					}
					if endless := set.job.Hold > time.Minute; got.sum(Result.sections) == 0 && set.job.Workers > 0 && !endless {
						t.Error("no section in all the time")
					}
					page.add(s, set.label, c, &got)
					for _, m := range s.metrics {
						if v := m.of(&got); !finite(v) || v < 0 || v == 0 && strings.Contains(m.name, "CPU") {
							t.Errorf("%s is %v", m.name, v)
						}
					}
				})
			}
		}
	}
	t.Run("page", func(t *testing.T) {
		root := t.TempDir()
		dir, readme := filepath.Join(root, "docs"), filepath.Join(root, "README.md")
		const before, after = "before\n<!-- by make bench-peers -->\n", "<!-- end -->\nafter\n"
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(readme, []byte(before+"of old\n"+after), 0o644),
			os.WriteFile(filepath.Join(dir, "choosing.md"), []byte(before+"of old\n"+after), 0o644), page.write(dir)); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{readme: "times per second", filepath.Join(dir, "choosing.md"): "\n| a held lock: memory of Redis | "} {
			text, err := os.ReadFile(name)
			if s := string(text); err != nil || !strings.HasPrefix(s, before) || !strings.HasSuffix(s, after) ||
				strings.Contains(s, "of old") || !strings.Contains(s, want) {
				t.Errorf("%s: %v\n%s", name, err, s)
			}
		}
		if plots, _ := filepath.Glob(filepath.Join(dir, "*.svg")); len(plots) != 4 {
			t.Errorf("there are plots %v", plots)
		}
		doc, err := os.ReadFile(filepath.Join(dir, "performance.md"))
		if err != nil || strings.Contains(string(doc), "NaN") {
			t.Errorf("performance.md: %v\n%s", err, doc)
		}
	})
}

// Sections of one key must follow one another; those of two keys need not.
func TestFindGaps(t *testing.T) {
	section := func(key int, granted, released int64) Result {
		return Result{Sections: []Section{{Key: key, Granted: granted, Released: released}}}
	}
	apart := sample{results: []Result{section(0, 30, 40), section(0, 10, 20), section(1, 15, 35)}}
	apart.findGaps()
	if apart.overlaps != 0 || len(apart.gaps) != 1 || apart.gaps[0] != 10e-9 {
		t.Errorf("%d overlaps, gaps %v", apart.overlaps, apart.gaps)
	}
	overlapping := sample{results: []Result{section(0, 10, 20), section(0, 19, 30)}}
	overlapping.findGaps()
	if overlapping.overlaps != 1 || overlapping.trouble() == "" {
		t.Error("an overlap was not found")
	}
}

// small is a setup with fewer of everything.
func small(s setup) setup {
	s.least, s.settle = 0, 10*time.Millisecond
	s.job.Workers, s.job.Keys = min(s.job.Workers, 20), min(s.job.Keys, 20)
	s.job.Clients, s.job.Held = min(s.job.Clients, 20), min(s.job.Held, 2000)
	return s
}

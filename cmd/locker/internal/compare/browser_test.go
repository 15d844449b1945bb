//go:build browser

package compare

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var (
	shots  = flag.String("screenshots", "", "a directory for screenshots")
	opened = flag.String("report", "", "the report to open, by default one of made-up figures")
	inJSON = flag.String("printed", "", "what --json printed beside that report")
)

// look has the measurements of a page.
type look struct {
	Plots    []plotLook
	Lanes    []float64         // widths of the pictures
	Numbers  map[string]string // the text of what names its place in the JSON
	Loose    []string          // cells of tables that have a digit, and name no place
	Overflow float64           // pixels that the page is too wide
	Text     string
	Ink      string
	Ground   string
}

type plotLook struct {
	Name          string
	Width, Height float64
	Marks         int     // shapes with an extent
	SmallestText  float64 // in pixels
	Texts         []string
	Ink           string
}

const looking = `(() => {
  const style = e => getComputedStyle(e)
  const unfold = open => document.querySelectorAll('details').forEach(e => e.open = open)
  unfold(true)
  const seen = {
    Plots: [...document.querySelectorAll('figure.plot')].map(f => {
      const box = f.querySelector('svg').getBoundingClientRect()
      const texts = [...f.querySelectorAll('svg text')]
      return {
        Name: f.id, Width: box.width, Height: box.height,
        Marks: [...f.querySelectorAll('svg path')].filter(p => { const b = p.getBoundingClientRect(); return b.width + b.height > 0 }).length,
        SmallestText: Math.min(...texts.map(t => { const b = t.getBoundingClientRect(); return Math.min(b.width, b.height) })),
        Texts: texts.map(t => t.textContent.trim()),
        Ink: style(texts[0]).fill,
      }
    }),
    Lanes: [...document.querySelectorAll('.lane svg')].map(s => s.getBoundingClientRect().width),
    Numbers: Object.fromEntries([...document.querySelectorAll('[data-at]')].map(e => [e.dataset.at, e.innerText.trim()])),
    Loose: [...document.querySelectorAll('td')].filter(e => !e.dataset.at && /[0-9]/.test(e.innerText)).map(e => e.innerText),
    Overflow: document.documentElement.scrollWidth - window.innerWidth,
    Text: document.body.innerText,
    Ink: style(document.body).color,
    Ground: style(document.body).backgroundColor,
  }
  unfold(false)
  return seen
})()`

// wanted returns the text of a number, by its place in the JSON.
func wanted(t *testing.T, r *Result, at string) string {
	t.Helper()
	part := strings.Split(at, "/")
	by := func(name string) *Strategy {
		for _, s := range r.Strategies {
			if s.Name == name {
				return s
			}
		}
		t.Fatalf("%s: there is no such strategy", at)
		return nil
	}
	switch part[0] {
	case "figures":
		return by(part[2]).text(part[1])
	case "suite":
		return outcome(by(part[2]), part[1]).Text
	case "answer":
		for _, a := range r.Advice {
			if string(a.Need) != part[1] {
				continue
			}
			switch {
			case slices.Contains(a.Best, part[2]) && len(a.Meet) > 1:
				return strings.TrimSpace("best\n" + a.reason(by(part[2])))
			case slices.Contains(a.Meet, part[2]):
				return strings.TrimSpace("met\n" + a.reason(by(part[2])))
			case by(part[2]).Properties[needs[a.Need].demands] != "":
				return by(part[2]).trouble()
			}
			return "no"
		}
	case "price":
		for _, a := range r.Advice {
			for _, p := range a.Prices {
				if string(a.Need) == part[1] && p.Strategy == part[2] {
					return p.Line()
				}
			}
		}
	case "second":
		s := by(part[1]).Second
		var grants []string
		for _, p := range s.Processes {
			grants = append(grants, count(p.Grants))
		}
		return map[string]string{"span": s.Span(), "changes": count(s.Changes), "grants": strings.Join(grants, ", ")}[part[2]]
	case "faults":
		for _, f := range by(part[2]).Faults {
			if f.Kind == part[1] {
				ms := func(v float64) string { return fmt.Sprintf("%.0f ms", v) }
				all := map[string]string{"back": ms(f.BackMS), "told": ms(f.ToldMS), "grant": ms(f.GrantMS), "overlap": ms(f.OverlapMS)}
				if len(part) == 4 {
					return all[part[3]]
				}
				return all["told"] + "; " + all["grant"] + "; " + all["overlap"]
			}
		}
	}
	t.Fatalf("the JSON has nothing at %s", at)
	return ""
}

// numbers wants each number of the page to be that of the JSON, and each figure of the JSON to be on
// the page.
func numbers(t *testing.T, l look, r *Result) {
	t.Helper()
	for at, text := range l.Numbers {
		require.Equal(t, wanted(t, r, at), strings.ReplaceAll(strings.ReplaceAll(text, "\n\n", "\n"), "✓ ", ""), at)
	}
	require.Empty(t, l.Loose, "a number without a place in the JSON")
	for _, s := range r.Strategies {
		for id, f := range s.Figures {
			require.Contains(t, l.Numbers, "figures/"+id+"/"+s.Name)
			for _, p := range l.Plots {
				if p.Name == id && !f.Few {
					require.Contains(t, p.Texts, f.median(), "the bar of %s for %s", s.Name, id)
				}
			}
		}
	}
}

// reported returns the report to look at, and what --json has of it.
func reported(t *testing.T) (file string, r *Result) {
	t.Helper()
	text, file := []byte{}, *opened
	var err error
	if file == "" {
		file = filepath.Join(t.TempDir(), "report.html")
		f, err := os.Create(file)
		require.NoError(t, err)
		require.NoError(t, sample(t).HTML(f))
		require.NoError(t, f.Close())
		text, err = json.Marshal(sample(t))
		require.NoError(t, err)
	} else {
		text, err = os.ReadFile(*inJSON)
		require.NoError(t, err)
	}
	r = &Result{}
	require.NoError(t, json.Unmarshal(text, r))
	file, err = filepath.Abs(file)
	require.NoError(t, err)
	return file, r
}

// TestReportInABrowser opens the report as people do: on a telephone and on a large screen,
// light and dark.
func TestReportInABrowser(t *testing.T) {
	file, result := reported(t)
	ctx, said, asked := openBrowser(t)
	inks := make(map[string]bool)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{400, 1400} {
			var l look
			var shot, top []byte
			require.NoError(t, chromedp.Run(ctx,
				network.Enable(), log.Enable(), runtime.Enable(),
				chromedp.EmulateViewport(width, 900),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				chromedp.Navigate("file://"+file),
				chromedp.Evaluate(looking, &l),
				chromedp.FullScreenshot(&shot, 100),
				chromedp.EmulateViewport(width, 1190),
				chromedp.CaptureScreenshot(&top),
			))
			if *shots != "" {
				require.NoError(t, os.WriteFile(filepath.Join(*shots, "report-"+scheme+map[int64]string{400: "-narrow", 1400: ""}[width]+".png"), shot, 0o600))
				require.NoError(t, os.WriteFile(filepath.Join(*shots, "top-"+scheme+map[int64]string{400: "-narrow", 1400: ""}[width]+".png"), top, 0o600))
			}
			require.GreaterOrEqual(t, len(l.Plots), 8)
			for _, p := range l.Plots {
				require.Greater(t, p.Width, 300.0, p.Name)
				require.Greater(t, p.Height, 180.0, p.Name)
				require.Greater(t, p.Marks, 8, p.Name)
				require.Greater(t, p.SmallestText, 6.0, p.Name)
				require.Equal(t, l.Ink, p.Ink, "a plot has the ink of the page")
			}
			require.LessOrEqual(t, l.Overflow, 0.0, "%d pixels wide", width)
			require.NotEqual(t, l.Ink, l.Ground)
			inks[l.Ink] = true
			for _, want := range []string{"Which strategy for which need", result.allPass(), "blpop", "pairs/s", "both held it for 0 ms"} {
				require.Contains(t, l.Text, want)
			}
			require.Less(t, strings.Index(l.Text, "Which strategy for which need"), 250, "the answer is first")
			for _, w := range l.Lanes {
				require.Greater(t, w, 300.0, "a picture at %d", width)
			}
			require.GreaterOrEqual(t, len(l.Lanes), 3)
			numbers(t, l, result)
		}
	}
	require.Len(t, inks, 2, "light and dark differ")
	require.Empty(t, *said, "nothing is on the console")
	require.Empty(t, *asked, "nothing comes by the network")
}

// openBrowser starts a browser. said is what it puts on its console, asked what it fetches by the network.
func openBrowser(t *testing.T) (ctx context.Context, said, asked *[]string) {
	t.Helper()
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	said, asked = new([]string), new([]string)
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			*said = append(*said, string(e.Type))
		case *runtime.EventExceptionThrown:
			*said = append(*said, e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			*said = append(*said, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "file://") && !strings.HasPrefix(e.Request.URL, "data:") {
				*asked = append(*asked, e.Request.URL)
			}
		}
	})
	return ctx, said, asked
}

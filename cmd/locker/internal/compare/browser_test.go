//go:build browser

package compare

import (
	"context"
	"flag"
	"os"
	"path/filepath"
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
)

// look has the measurements of a page.
type look struct {
	Plots    []plotLook
	Overflow float64 // pixels that the page is too wide
	Text     string
	Ink      string
	Ground   string
}

type plotLook struct {
	Name          string
	Width, Height float64
	Marks         int     // shapes with an extent
	SmallestText  float64 // in pixels
	Ink           string
}

const looking = `(() => {
  const style = e => getComputedStyle(e)
  return {
    Plots: [...document.querySelectorAll('figure')].map(f => {
      const box = f.querySelector('svg').getBoundingClientRect()
      const texts = [...f.querySelectorAll('svg text')]
      return {
        Name: f.id, Width: box.width, Height: box.height,
        Marks: [...f.querySelectorAll('svg path')].filter(p => { const b = p.getBoundingClientRect(); return b.width + b.height > 0 }).length,
        SmallestText: Math.min(...texts.map(t => { const b = t.getBoundingClientRect(); return Math.min(b.width, b.height) })),
        Ink: style(texts[0]).fill,
      }
    }),
    Overflow: document.documentElement.scrollWidth - window.innerWidth,
    Text: document.body.innerText,
    Ink: style(document.body).color,
    Ground: style(document.body).backgroundColor,
  }
})()`

// TestReportInABrowser opens the report as people do: on a telephone and on a large screen,
// light and dark.
func TestReportInABrowser(t *testing.T) {
	file := *opened
	if file == "" {
		file = filepath.Join(t.TempDir(), "report.html")
		f, err := os.Create(file)
		require.NoError(t, err)
		require.NoError(t, sample(t).HTML(f))
		require.NoError(t, f.Close())
	}
	file, err := filepath.Abs(file)
	require.NoError(t, err)
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)...)
	defer cancel()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var said, asked []string
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			said = append(said, string(e.Type))
		case *runtime.EventExceptionThrown:
			said = append(said, e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			said = append(said, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "file://") && !strings.HasPrefix(e.Request.URL, "data:") {
				asked = append(asked, e.Request.URL)
			}
		}
	})
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
			for _, want := range []string{"Which strategy for which need", "mutual exclusion", "blpop", "pairs/s"} {
				require.Contains(t, l.Text, want)
			}
		}
	}
	require.Len(t, inks, 2, "light and dark differ")
	require.Empty(t, said, "nothing is on the console")
	require.Empty(t, asked, "nothing comes by the network")
}

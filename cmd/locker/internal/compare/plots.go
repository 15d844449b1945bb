package compare

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// colours are seen on white and on black.
var colours = []color.RGBA{{66, 113, 214, 255}, {214, 110, 40, 255}, {40, 150, 90, 255}, {170, 80, 190, 255}}

// Small enough to be read on a telephone.
const width, height = 10 * vg.Centimeter, 6.5 * vg.Centimeter

// figurePlot is a plot of the report.
type figurePlot struct {
	Name, About string
	SVG         template.HTML
}

// plots are those for which there are figures.
func (r *Result) plots() (all []figurePlot, err error) {
	add := func(name, about string, p *plot.Plot, perr error) {
		if err = perr; err != nil || p == nil {
			return
		}
		var svg template.HTML
		if svg, err = inSVG(p); err == nil {
			all = append(all, figurePlot{name, about, svg})
		}
	}
	for _, f := range []struct {
		name, title, y, about string
		of                    func(b *Bench) *float64
	}{
		{"solo", "A free key, one goroutine", "Lock + Unlock, pairs/s", "More is better. How fast a lock is when there is no contention.", func(b *Bench) *float64 { return &b.Solo.PerS }},
		{"wide", fmt.Sprintf("Free keys, %d goroutines", wideGoroutines), "Lock + Unlock, pairs/s", "More is better. What a busy process gets through.", func(b *Bench) *float64 { return &b.Wide.PerS }},
		{"contended", fmt.Sprintf("One key, %d processes", contenders), "grants/s", "More is better. How often a contended lock changes hands.", func(b *Bench) *float64 { return &b.Contended.GrantsPerS }},
		{"fairness", "Fairness between the processes", "smallest ÷ largest share", "1 is equal shares, of the processes that contend for one key.", func(b *Bench) *float64 { return &b.Contended.Fairness }},
		{"commands", "Redis' work for a contended grant", "commands per grant", "Less is better. Between processes; within one most grants are handed over and cost none.", func(b *Bench) *float64 { return b.Contended.CommandsPerGrant }},
		{"waiting", "A process that waits for a held key", "commands/s", "Less is better. What waiting costs Redis, for each process that waits.", func(b *Bench) *float64 { return b.WaitingCommandsPerS }},
	} {
		if err == nil {
			p, perr := r.bars(f.title, f.y, f.of)
			add(f.name, f.about, p, perr)
		}
	}
	for _, f := range []struct {
		name, title, x, about string
		of                    func(b *Bench) []float64
	}{
		{"waits", "How long a caller waits for the contended key", "wait, ms (logarithmic)", "Further to the left is better; a steep line is fair.", func(b *Bench) []float64 { return b.Contended.WaitsMS }},
		{"hand-overs", "From Unlock to the next grant", "idle, µs (logarithmic)", "For so long the key has no holder though others wait. Further to the left is better.", func(b *Bench) []float64 { return b.Contended.HandOversUS }},
	} {
		if err == nil {
			p, perr := r.distribution(f.title, f.x, f.of)
			add(f.name, f.about, p, perr)
		}
	}
	return all, err
}

func newPlot(title, x, y string) *plot.Plot {
	plot.DefaultFont.Variant = "Sans" // by whose widths texts are placed
	p := plot.New()
	p.Title.TextStyle.Font.Size, p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 11, 8.5, 8.5
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size, p.Legend.TextStyle.Font.Size = 9.5, 9.5, 9
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.BackgroundColor = nil
	p.Title.Padding = vg.Points(6)
	p.Legend.Padding = vg.Points(2)
	return p
}

// ticks are labelled as bars are.
type ticks struct{ plot.DefaultTicks }

func (t ticks) Ticks(least, most float64) []plot.Tick {
	all := t.DefaultTicks.Ticks(least, most)
	for i := range all {
		if !all[i].IsMinor() {
			all[i].Label = figure(all[i].Value)
		}
	}
	return all
}

// bars has a bar for each strategy; nil without figures.
func (r *Result) bars(title, y string, of func(b *Bench) *float64) (*plot.Plot, error) {
	p := newPlot(title, "", y)
	p.Y.Min, p.Y.Tick.Marker = 0, ticks{}
	var names []string
	for i, s := range r.Strategies {
		if s.Bench == nil || of(s.Bench) == nil {
			continue
		}
		chart, err := plotter.NewBarChart(plotter.Values{*of(s.Bench)}, vg.Points(34))
		if err != nil {
			return nil, err
		}
		chart.XMin, chart.Color, chart.LineStyle.Width = float64(len(names)), colours[i%len(colours)], 0
		labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: float64(len(names)), Y: *of(s.Bench)}}, Labels: []string{figure(*of(s.Bench))}})
		if err != nil {
			return nil, err
		}
		labels.TextStyle[0].XAlign = -0.5
		labels.Offset.Y = vg.Points(2)
		p.Add(chart, labels)
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return nil, nil
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
	p.Y.Max *= 1.15
	if p.Y.Max == 0 {
		p.Y.Max = 1
	}
	return p, nil
}

// distribution has a line for each strategy: the share of the values that are at most x.
func (r *Result) distribution(title, x string, of func(b *Bench) []float64) (*plot.Plot, error) {
	p := newPlot(title, x, "that long at most, %")
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 0, 100
	least, most := math.Inf(1), 0.0
	for i, s := range r.Strategies {
		if s.Bench == nil || len(of(s.Bench)) == 0 {
			continue
		}
		var line plotter.XYs
		for q := 0.0; q <= 1; q += 0.005 {
			v := max(quantile(of(s.Bench), q), 1e-3)
			least, most = min(least, v), max(most, v)
			line = append(line, plotter.XY{X: v, Y: 100 * q})
		}
		l, err := plotter.NewLine(line)
		if err != nil {
			return nil, err
		}
		l.Color, l.Width = colours[i%len(colours)], vg.Points(1.8)
		p.Add(l)
		p.Legend.Add(s.Name, l)
	}
	if most == 0 {
		return nil, nil
	}
	p.X.Min, p.X.Max = math.Pow(10, math.Floor(math.Log10(least))), math.Pow(10, math.Ceil(math.Log10(most*1.01)))
	return p, nil
}

// inSVG makes SVG that takes its ink from the page around it.
func inSVG(p *plot.Plot) (template.HTML, error) {
	c := vgsvg.New(width, height)
	var b bytes.Buffer
	p.Draw(draw.Crop(draw.New(c), 0, -vg.Points(10), 0, 0)) // the last label of an axis stands out
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	svg := b.String()
	if i := strings.Index(svg, "<svg"); i >= 0 {
		svg = svg[i:]
	}
	for _, of := range []string{"fill", "stroke"} {
		svg = strings.ReplaceAll(svg, of+":#000000", of+":currentColor")
	}
	return template.HTML(svg), nil // ours from end to end: its texts are figures and the titles above
}

package compare

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// colours are seen on white and on black.
var colours = []color.RGBA{{66, 113, 214, 255}, {214, 110, 40, 255}, {40, 150, 90, 255}, {170, 80, 190, 255}, {120, 120, 120, 255}, {200, 60, 90, 255}, {30, 150, 170, 255}, {150, 130, 30, 255}}

// Small enough to be read on a telephone.
const width, height = 10 * vg.Centimeter, 6.5 * vg.Centimeter

// figurePlot is a plot of the report.
type figurePlot struct {
	Name, About string
	SVG         template.HTML
	Legend      []legend // of lines: beside the plot no line goes through it
}

// legend is the name of a line.
type legend struct {
	Name   string
	Colour template.CSS
}

// plots makes the plots for which there are figures.
func (r *Result) plots() (all []figurePlot, err error) {
	add := func(name, about string, p *plot.Plot, perr error) {
		if err = perr; err != nil || p == nil {
			return
		}
		var svg template.HTML
		if svg, err = inSVG(p); err == nil {
			all = append(all, figurePlot{Name: name, About: about, SVG: svg})
		}
	}
	for _, m := range metrics {
		if err == nil {
			p, perr := r.bars(m)
			add(m.id, m.about, p, perr)
		}
	}
	for _, f := range []struct {
		name, title, x, about string
		of                    func(s *Strategy) []float64
	}{
		{"waits", "How long a process waits for the contended key", "wait, ms (logarithmic)", "Further to the left is better; a steep line is fair. A curve ends at the last wait; those that the end of a run cut off count with what they had lasted.", func(s *Strategy) []float64 { return s.waits }},
		{"gaps", "From Unlock to the grant in another process", "idle, µs (logarithmic)", "For so long the key has no holder though others wait. Further to the left is better.", func(s *Strategy) []float64 { return s.gaps }},
	} {
		if err == nil {
			p, perr := r.distribution(f.title, f.x, f.of)
			if add(f.name, f.about, p, perr); p != nil && err == nil {
				all[len(all)-1].Legend = r.legend(f.of)
			}
		}
	}
	return all, err
}

// useSans makes plot place texts by the widths of this font.
var useSans = sync.OnceFunc(func() { plot.DefaultFont.Variant = "Sans" })

func newPlot(title, x, y string) *plot.Plot {
	useSans()
	p := plot.New()
	p.Title.TextStyle.Font.Size, p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 11, 8.5, 8.5
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = 9.5, 9.5
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.BackgroundColor = nil
	p.Title.Padding = vg.Points(6)
	return p
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// ticks are labelled as bars are.
type ticks struct{ plot.DefaultTicks }

func (t ticks) Ticks(least, most float64) []plot.Tick {
	all := t.DefaultTicks.Ticks(least, most)
	for i := range all {
		if !all[i].IsMinor() {
			all[i].Label = onAxis(all[i].Value)
		}
	}
	return all
}

// logTicks have labels as bars have.
type logTicks struct{ plot.LogTicks }

func (t logTicks) Ticks(least, most float64) []plot.Tick {
	all := t.LogTicks.Ticks(least, most)
	for i := range all {
		if !all[i].IsMinor() {
			if all[i].Label = onAxis(all[i].Value); all[i].Value < 0.01 {
				all[i].Label = strconv.FormatFloat(all[i].Value, 'g', -1, 64)
			}
		}
	}
	return all
}

// bars has a bar for each strategy, with a line from the least run to the greatest one; nil
// without figures. The scale ends at twice the greatest median: one run of a busy machine would make all bars too
// short to be seen. A line that goes on ends in an arrow.
func (r *Result) bars(m metric) (*plot.Plot, error) {
	p := newPlot(strings.TrimPrefix(m.title, "… "), "", m.unit)
	p.Y.Min, p.Y.Tick.Marker = 0, ticks{}
	top, greatest := 0.0, 0.0
	for _, s := range r.Strategies {
		if f := s.Figures[m.id]; f != nil && !f.Few {
			top, greatest = max(top, 2*f.Median), max(greatest, f.Greatest)
		}
	}
	if top == 0 {
		top = greatest
	}
	var names []string
	for i, s := range r.Strategies {
		f := s.Figures[m.id]
		if f == nil || f.Few {
			continue
		}
		if err := addBar(p, f, float64(len(names)), top, colours[i%len(colours)]); err != nil {
			return nil, err
		}
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return nil, nil
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
	if crowded(p, names) {
		p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = 0.5, -0.9, -0.5
	}
	p.Y.Max *= 1.15
	if p.Y.Max == 0 {
		p.Y.Max = 1
	}
	return p, nil
}

// crowded reports whether a name below a bar would touch the next one.
func crowded(p *plot.Plot, names []string) bool {
	area := p.DataCanvas(draw.New(vgsvg.New(width, height)))
	apart := (area.Max.X - area.Min.X) / vg.Length(p.X.Max-p.X.Min)
	for i := 1; i < len(names); i++ {
		if style := p.X.Tick.Label; style.Width(names[i-1])/2+style.Width(names[i])/2+vg.Points(4) > apart {
			return true
		}
	}
	return false
}

// addBar adds the bar of a figure at x.
func addBar(p *plot.Plot, f *Figure, x, top float64, colour color.RGBA) error {
	bar, err := plotter.NewBarChart(plotter.Values{f.Median}, vg.Points(18))
	if err != nil {
		return err
	}
	bar.XMin, bar.Color, bar.LineStyle.Width = x, colour, 0
	end := plotter.XY{X: x, Y: min(f.Greatest, top)}
	spread, err := plotter.NewLine(plotter.XYs{{X: x, Y: f.Least}, end})
	if err != nil {
		return err
	}
	spread.Width = vg.Points(1.2)
	label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{end}, Labels: []string{f.median()}})
	if err != nil {
		return err
	}
	label.TextStyle[0].XAlign = -0.5
	label.Offset.Y = vg.Points(2)
	p.Add(bar, spread, label)
	if f.Greatest <= top {
		return nil
	}
	arrow, err := plotter.NewScatter(plotter.XYs{end})
	if err != nil {
		return err
	}
	arrow.Shape, arrow.Radius, label.Offset.Y = draw.TriangleGlyph{}, vg.Points(2.5), vg.Points(4)
	p.Add(arrow)
	return nil
}

// distribution has a line for each strategy: the share of the values that are at most x.
func (r *Result) distribution(title, x string, of func(s *Strategy) []float64) (*plot.Plot, error) {
	p := newPlot(title, x, "that long at most, %")
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, logTicks{plot.LogTicks{Prec: -1}}
	p.Y.Min, p.Y.Max = 0, 100
	least, most := math.Inf(1), 0.0
	for i, s := range r.Strategies {
		values := slices.Sorted(slices.Values(of(s)))
		if len(values) == 0 {
			continue
		}
		var line plotter.XYs
		for step := range 201 { // to the last one, which is the longest
			q := float64(step) / 200
			v := max(quantile(values, q), 1e-3)
			least, most = min(least, v), max(most, v)
			line = append(line, plotter.XY{X: v, Y: 100 * q})
		}
		l, err := plotter.NewLine(line)
		if err != nil {
			return nil, err
		}
		l.Color, l.Width = colours[i%len(colours)], vg.Points(1.8)
		p.Add(l)
	}
	if most == 0 {
		return nil, nil
	}
	p.X.Min, p.X.Max = math.Pow(10, math.Floor(math.Log10(least))), math.Pow(10, math.Ceil(math.Log10(most*1.01)))
	return p, nil
}

// legend names the lines of a distribution.
func (r *Result) legend(of func(s *Strategy) []float64) (all []legend) {
	for i, s := range r.Strategies {
		if len(of(s)) > 0 {
			all = append(all, legend{s.Name, template.CSS(hex(colours[i%len(colours)]))})
		}
	}
	return all
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

package main

import (
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	_ "gonum.org/v1/plot/vg/vgsvg"
)

// colours are of the contenders, in the order of all: grey the floors, red to yellow
// the peers, blue to green ours.
var colours = []color.RGBA{
	{110, 110, 110, 255}, {180, 180, 180, 255},
	{190, 50, 40, 255}, {235, 120, 40, 255}, {240, 190, 60, 255},
	{60, 90, 170, 255}, {70, 160, 200, 255}, {50, 150, 90, 255},
}

const (
	plotWidth  = 18 * vg.Centimeter
	plotHeight = 9 * vg.Centimeter
)

func newPlot(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, y
	p.Legend.Top = true
	p.Legend.TextStyle.Font.Size = vg.Points(9)
	p.BackgroundColor = color.White
	return p
}

// plots writes all plots into dir.
func (p *page) plots(dir string) error {
	values := func(of scenario, m metric, c string) float64 { return p.value(of, "", c, m) }
	for file, draw := range map[string]func() (*plot.Plot, error){
		"performance-pairs.svg": func() (*plot.Plot, error) {
			return p.bars("Lock + Unlock of free keys", "pairs/s ÷ floor", all, []scenario{solo, wide}, func(s scenario, c string) float64 {
				return values(s, pairsPerSecond, c) / values(s, pairsPerSecond, "floor")
			})
		},
		"performance-gaps.svg": func() (*plot.Plot, error) {
			return p.bars("From Unlock to the next grant, between processes", "idle gap p50, µs", waiting, []scenario{procs, turns}, func(s scenario, c string) float64 {
				return values(s, idleGap, c) * 1e6
			})
		},
		"performance-crowd.svg": func() (*plot.Plot, error) {
			return p.lines("One key, many waiting processes", "waiting", "Redis CPU per hand-over, µs", crowd, redisCPUHop, 1e6)
		},
		"performance-far.svg": func() (*plot.Plot, error) {
			return p.lines("256 goroutines, a key each", "added round trip, ms", "pairs/s", far, pairsPerSecond, 1)
		},
	} {
		plot, err := draw()
		if err != nil {
			return err
		}
		if err := plot.Save(plotWidth, plotHeight, filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	return nil
}

// bars has a group for each scenario, and in it a bar for each contender.
func (p *page) bars(title, y string, who []string, ss []scenario, value func(scenario, string) float64) (*plot.Plot, error) {
	out := newPlot(title, y)
	width := plotWidth * 0.75 / vg.Length(len(ss)*(len(who)+1))
	for i, c := range who {
		values := make(plotter.Values, len(ss))
		for j, s := range ss {
			if v := value(s, c); finite(v) {
				values[j] = v
			}
		}
		chart, err := plotter.NewBarChart(values, width)
		if err != nil {
			return nil, err
		}
		chart.Offset = width * (vg.Length(i) - vg.Length(len(who)-1)/2)
		chart.Color, chart.LineStyle.Width = colourOf(c), 0
		out.Add(chart)
		out.Legend.Add(c, chart)
	}
	var labels []string
	for _, s := range ss {
		labels = append(labels, s.name)
	}
	out.NominalX(labels...)
	out.X.Max += 0.4 // for the legend
	return out, nil
}

// lines has a line for each contender over the setups of a scenario; both axes are
// logarithmic.
func (p *page) lines(title, x, y string, s scenario, m metric, factor float64) (*plot.Plot, error) {
	out := newPlot(title, y)
	out.X.Label.Text = x
	out.X.Scale, out.Y.Scale = plot.LogScale{}, plot.LogScale{}
	out.X.Tick.Marker, out.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	for _, c := range s.who {
		var points plotter.XYs
		for _, set := range s.setups {
			if v := p.value(s, set.label, c, m); finite(v) {
				points = append(points, plotter.XY{X: set.x, Y: v * factor})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width, dots.Color = colourOf(c), vg.Points(1.5), colourOf(c)
		out.Add(line, dots)
		out.Legend.Add(c, line)
	}
	out.Legend.Left = true
	return out, nil
}

func colourOf(contender string) color.Color {
	for i, c := range all {
		if c == contender {
			return colours[i]
		}
	}
	return color.Black
}

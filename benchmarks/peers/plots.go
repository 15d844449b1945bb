package main

import (
	"errors"
	"fmt"
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	_ "gonum.org/v1/plot/vg/vgsvg"
)

// colours: grey the floors, red to yellow the peers, blue to green ours.
var colours = map[string]color.RGBA{
	"floor": {110, 110, 110, 255}, "autopipeline": {180, 180, 180, 255},
	"redsync": {190, 50, 40, 255}, "redislock": {235, 120, 40, 255}, "rueidislock": {240, 190, 60, 255},
	"setnx": {60, 90, 170, 255}, "hashreentrant": {70, 160, 200, 255}, "blpop": {50, 150, 90, 255},
}

const width = 18 * vg.Centimeter

// plots writes all plots into dir.
func (p *page) plots(dir string) error {
	at := func(name string) string { return filepath.Join(dir, "performance-"+name+".svg") }
	pairs, gaps := []scenario{solo, wide}, []scenario{procs, turns}
	return errors.Join(
		bars(at("pairs"), "Lock + Unlock of free keys", "pairs/s ÷ floor", all, []string{"solo, one core", "wide"}, func(i int, c string) float64 {
			return p.relative(pairs[i], pairs[i].setups[len(pairs[i].setups)-1].label, c, pairsPerSecond, "floor")
		}),
		bars(at("gaps"), "From Unlock to the next grant, between processes", "idle gap p50, µs", waiting, []string{"procs", "turns"}, func(i int, c string) float64 {
			return p.value(gaps[i], "", c, idleGap) * 1e6
		}),
		bars(at("far"), "256 goroutines, a key each, far from Redis", "pairs/s", all, []string{"5 ms", "20 ms"}, func(i int, c string) float64 {
			return p.value(far, far.setups[i].label, c, pairsPerSecond)
		}),
		p.crowd(at("crowd")),
	)
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top = true
	return p
}

// bars has two groups, and in each a bar for each contender.
func bars(file, title, y string, who, groups []string, value func(group int, contender string) float64) error {
	out := newPlot(title, "", y)
	bar := width * 0.7 / vg.Length(len(groups)*(len(who)+2))
	for i, c := range who {
		values := make(plotter.Values, len(groups))
		for j := range values {
			if v := value(j, c); finite(v) {
				values[j] = v
			}
		}
		chart, err := plotter.NewBarChart(values, bar)
		if err != nil {
			return err
		}
		chart.Offset = bar * (vg.Length(i) - vg.Length(len(who)-1)/2)
		chart.Color, chart.LineStyle.Width = colours[c], 0
		out.Add(chart)
		out.Legend.Add(c, chart)
	}
	out.NominalX(groups...)
	out.X.Max += 0.8 // for the legend
	return out.Save(width, width/2, file)
}

// crowd has a line for each contender; both axes are logarithmic.
func (p *page) crowd(file string) error {
	out := newPlot("One key, many waiting processes", "processes that wait", "Redis CPU per hand-over, µs")
	out.X.Scale, out.Y.Scale = plot.LogScale{}, plot.LogScale{}
	out.X.Tick.Marker, out.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	for _, c := range waiting {
		var points plotter.XYs
		for _, set := range crowd.setups {
			if v := p.value(crowd, set.label, c, redisCPUHop); finite(v) && v > 0 {
				points = append(points, plotter.XY{X: float64(set.job.Workers - 1), Y: v * 1e6})
			}
		}
		if len(points) == 0 { // of which an axis could not be made
			return fmt.Errorf("crowd: there are no figures of %s", c)
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("crowd: %s: %w", c, err)
		}
		line.Color, line.Width, dots.Color = colours[c], vg.Points(1.5), colours[c]
		out.Add(line, dots)
		out.Legend.Add(c, line)
	}
	out.Legend.Left = true
	return out.Save(width, width/2, file)
}

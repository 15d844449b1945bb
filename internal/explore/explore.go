// Package explore goes through the states of a model, and shows how a promise is broken.
//
// A model is a Go struct for its state, a function that lists the steps from a state, and
// promises that each state keeps. [Model.Explore] visits the states breadth first: the
// history that it shows for a broken promise is among the shortest.
package explore

import (
	"fmt"
	"slices"
	"strings"
)

// Model is a system whose states are values of S.
type Model[S comparable] struct {
	Begin    S
	Steps    func(s S, take func(name string, next S)) // calls take for each step from s
	Promises []Promise[S]
	States   int // the most states to visit; 0: 2,000,000
}

// Promise is what each state keeps.
type Promise[S comparable] struct {
	Name string
	Kept func(s S) bool
}

// Result is what an exploration has found.
type Result[S comparable] struct {
	Broken   string    // the name of the promise that is broken; "": none is
	History  []Step[S] // to the state that breaks it
	States   int       // visited
	Depth    int       // steps from the beginning
	Complete bool      // all states were visited
}

// Step is a step, and the state that it leads to.
type Step[S comparable] struct {
	Name  string
	State S
}

// origin is how a state was reached first.
type origin[S comparable] struct {
	from  int32 // -1: it is the beginning
	name  string
	state S
}

// Explore visits the states of m until a promise is broken, or there are no more.
func (m Model[S]) Explore() (r Result[S]) {
	most := m.States
	if most == 0 {
		most = 2_000_000
	}
	reached := []origin[S]{{from: -1, state: m.Begin}}
	seen := map[S]struct{}{m.Begin: {}}
	if r.Broken = m.broken(m.Begin); r.Broken != "" {
		return r
	}
	for at, end := 0, 1; at < len(reached) && r.Broken == ""; at++ {
		if at == end {
			r.Depth++
			end = len(reached)
		}
		if len(reached) >= most {
			r.States = len(reached)
			return r
		}
		m.Steps(reached[at].state, func(name string, next S) {
			if _, ok := seen[next]; ok || r.Broken != "" {
				return
			}
			seen[next] = struct{}{}
			reached = append(reached, origin[S]{int32(at), name, next})
			if r.Broken = m.broken(next); r.Broken != "" {
				r.History = history(reached)
			}
		})
	}
	r.States, r.Complete = len(reached), r.Broken == ""
	return r
}

// broken returns the name of a promise that s breaks, or "".
func (m Model[S]) broken(s S) string {
	for _, p := range m.Promises {
		if !p.Kept(s) {
			return p.Name
		}
	}
	return ""
}

// history returns the steps to the last state.
func history[S comparable](reached []origin[S]) (steps []Step[S]) {
	for at := len(reached) - 1; reached[at].from >= 0; at = int(reached[at].from) {
		steps = append(steps, Step[S]{reached[at].name, reached[at].state})
	}
	slices.Reverse(steps)
	return steps
}

// String shows the history step by step, with the state after each.
func (r Result[S]) String() string {
	var b strings.Builder
	if r.Broken == "" {
		fmt.Fprintf(&b, "%d states, all promises kept\n", r.States)
		return b.String()
	}
	fmt.Fprintf(&b, "broken: %s\n", r.Broken)
	for i, s := range r.History {
		fmt.Fprintf(&b, "%3d  %-60s %v\n", i+1, s.Name, s.State)
	}
	return b.String()
}

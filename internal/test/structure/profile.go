package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// block is a sequence of statements of one file.
type block struct {
	file                             string // below the module's path
	line, column, endLine, endColumn int
}

// profile counts how often each block has run.
type profile map[block]int

// readProfile reads the coverage of a process, without that of this program.
func readProfile(ctx context.Context, data string) (profile, error) {
	text := filepath.Join(data, "profile")
	if _, err := output(exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i="+data, "-o="+text)); err != nil {
		return nil, err
	}
	return parseProfile(text)
}

func (p profile) less(q profile) profile {
	d := make(profile)
	for b, n := range p {
		d[b] = n - q[b]
	}
	return d
}

// function is a function or function literal that every pair runs.
type function struct {
	file  string
	line  int
	name  string
	calls int // a pair
	locks int // calls of Lock a pair
}

// perPair finds the functions that run in each of the pairs which d counts.
func perPair(root string, d profile) (all []function, err error) {
	files := make(map[string]profile)
	for b, n := range d {
		if files[b.file] == nil {
			files[b.file] = make(profile)
		}
		files[b.file][b] = n
	}
	for name, p := range files {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(root, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			calls := p.at(fset.Position(f.Body.Lbrace))
			for _, n := range p.within(fset, f) { // a function may begin with a literal
				calls = max(calls, n)
			}
			if calls < more/2 {
				continue
			}
			all = append(all, function{
				file: name, line: fset.Position(f.Pos()).Line, name: funcName(f),
				calls: (p.at(fset.Position(f.Body.Lbrace)) + more/2) / more, locks: (p.locks(fset, f) + more/2) / more,
			})
		}
	}
	return all, nil
}

// at returns how often the block at a position has run.
func (p profile) at(at token.Position) int {
	for b, n := range p {
		if !before(at.Line, at.Column, b.line, b.column) && before(at.Line, at.Column, b.endLine, b.endColumn) {
			return n
		}
	}
	return 0
}

// within returns the counts of a function's blocks.
func (p profile) within(fset *token.FileSet, f *ast.FuncDecl) (counts []int) {
	from, to := fset.Position(f.Pos()), fset.Position(f.End())
	for b, n := range p {
		if !before(b.line, b.column, from.Line, from.Column) && before(b.line, b.column, to.Line, to.Column) {
			counts = append(counts, n)
		}
	}
	return counts
}

// locks returns how often a function has locked a mutex: calls of Lock, RLock and TryLock
// without arguments.
func (p profile) locks(fset *token.FileSet, f *ast.FuncDecl) (n int) {
	ast.Inspect(f, func(x ast.Node) bool {
		call, ok := x.(*ast.CallExpr)
		if !ok || len(call.Args) > 0 {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Lock" || sel.Sel.Name == "RLock" || sel.Sel.Name == "TryLock") {
			n += p.at(fset.Position(call.Pos()))
		}
		return true
	})
	return n
}

func before(line, column, otherLine, otherColumn int) bool {
	return line < otherLine || line == otherLine && column < otherColumn
}

// funcName returns a function's name with that of its receiver's type.
func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// scan reads a line of a profile: file:line.column,line.column statements count.
func scan(line string) (b block, n int, err error) {
	name, rest, ok := strings.Cut(line, ":")
	if !ok {
		return b, 0, fmt.Errorf("no profile: %q", line)
	}
	var statements int
	b.file = strings.TrimPrefix(name, module+"/")
	_, err = fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.line, &b.column, &b.endLine, &b.endColumn, &statements, &n)
	return b, n, err
}

// parseProfile reads a profile in Go's text format.
func parseProfile(text string) (profile, error) {
	data, err := os.ReadFile(text)
	if err != nil {
		return nil, err
	}
	p := make(profile)
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "mode:") || strings.HasPrefix(line, itself) {
			continue
		}
		b, n, err := scan(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		p[b] += n
	}
	return p, nil
}

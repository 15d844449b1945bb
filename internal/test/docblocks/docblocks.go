// Package docblocks lets tests run the code of the pages: README.md, docs/*.md and the decisions.
//
// Every fenced block is a [Block]. Those of Go become a module ([Module]), which one go test
// builds, vets and runs.
package docblocks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Block is the text between two fences.
type Block struct {
	Page    string // from the root of the repository, with slashes
	Section string // the heading above it
	Lang    string // "" where the fence names none
	N       int    // 1 for the first one of its language in the section
	Line    int    // of the first line of Text in the page
	Text    string
	Why     string // of <!-- not compiled: why --> above it
}

// Name stays the same when other sections change: "docs/fencing.md, SQL, go 2".
func (b Block) Name() string {
	return fmt.Sprintf("%s, %s, %s %d", b.Page, b.Section, b.Lang, b.N)
}

// NeedsPostgres reports whether the block is for PostgreSQL: its tests are in strategy/postgres.
func (b Block) NeedsPostgres() bool {
	switch b.Lang {
	case "sql":
		return true
	case "go":
		return regexp.MustCompile(`\bdb\.\w|strategy/postgres"`).MatchString(b.Text)
	default:
		return strings.Contains(b.Text, "psql ")
	}
}

// Pages returns the texts of the pages by their names.
func Pages(root string) (map[string]string, error) {
	all := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			page, err := filepath.Rel(root, name)
			if err != nil {
				return nil, err
			}
			all[filepath.ToSlash(page)] = string(text)
		}
	}
	for _, page := range []string{"README.md", "docs/fencing.md", "docs/decisions/README.md"} {
		if all[page] == "" {
			return nil, fmt.Errorf("there is no %s below %s", page, root)
		}
	}
	return all, nil
}

// Fence matches a block; its groups are the comment above it, the language and the text.
var Fence = regexp.MustCompile("(?ms)^(?:<!-- not compiled: *([^\n]*?) *-->\n+)?[ ]*```(\\w*)\n(.*?)^[ ]*```$")

var heading = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)

// Read returns the blocks of all pages in the order of the pages' names.
func Read(root string) ([]Block, error) {
	pages, err := Pages(root)
	if err != nil {
		return nil, err
	}
	var all []Block
	for page, text := range pages {
		all = append(all, Of(page, text)...)
	}
	slices.SortFunc(all, func(a, b Block) int {
		if c := strings.Compare(a.Page, b.Page); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return all, nil
}

// Of returns the blocks of one page.
func Of(page, text string) (all []Block) {
	count, section, from := make(map[string]int), "", 0
	for _, at := range Fence.FindAllStringSubmatchIndex(text, -1) {
		for _, m := range heading.FindAllStringSubmatch(text[from:at[0]], -1) {
			section = m[1]
		}
		from = at[1]
		b := Block{Page: page, Section: section, Lang: text[at[4]:at[5]], Text: text[at[6]:at[7]], Line: 1 + strings.Count(text[:at[6]], "\n")}
		if at[2] >= 0 {
			b.Why = text[at[2]:at[3]]
		}
		count[section+"\n"+b.Lang]++
		b.N = count[section+"\n"+b.Lang]
		all = append(all, b)
	}
	return all
}

// Script returns the commands of a block: of one with output the lines that begin with "$ ".
func Script(b Block) string {
	if b.Lang != "console" {
		return b.Text
	}
	var script strings.Builder
	for line := range strings.Lines(b.Text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			script.WriteString(command)
		}
	}
	return script.String()
}

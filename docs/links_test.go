package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/stretchr/testify/require"
)

// withoutCode is text without blocks and spans of code.
func withoutCode(text string) string {
	text = docblocks.Fence.ReplaceAllString(text, "")
	text = regexp.MustCompile("(?m)^    .*$").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllStringFunc(text, func(code string) string { return strings.Trim(code, "`[]()") })
}

// anchors are those of the headings, as GitHub makes them, and those that a page names.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	link := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.*?) *$`).FindAllStringSubmatch(docblocks.Fence.ReplaceAllString(text, ""), -1) {
		slug := strings.ToLower(link.ReplaceAllString(m[1], "$1"))
		slug = strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(slug, ""), " ", "-")
		for n, name := 1, slug; ; n++ {
			if !all[name] {
				all[name] = true
				break
			}
			name = fmt.Sprintf("%s-%d", slug, n)
		}
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	all, links := pages(t), 0
	for page, text := range all {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(withoutCode(text), -1) {
			if regexp.MustCompile(`^[a-z]+:`).MatchString(m[1]) {
				continue
			}
			links++
			to, anchor, _ := strings.Cut(m[1], "#")
			file := filepath.ToSlash(filepath.Join(filepath.Dir(page), to))
			if to == "" {
				file = page
			}
			if _, err := os.Stat(filepath.Join("..", file)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			} else if anchor != "" && !anchors(all[file])[anchor] {
				t.Errorf("%s links to %s: there is no such anchor", page, m[1])
			}
		}
	}
	require.Greater(t, links, 20)
}

// commands are the subcommands of locker, each with its flags, and the targets of make with its
// variables.
func commands(t *testing.T) (locker map[string][]string, targets []string) {
	t.Helper()
	flags := func(text string) (all []string) {
		for _, m := range regexp.MustCompile(`VarP?\(&[\w.]+, "([\w-]+)"(?:, "(\w)")?`).FindAllStringSubmatch(text, -1) {
			all = append(all, "--"+m[1], "-"+m[2])
		}
		return all
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		return string(text)
	}
	locker = map[string][]string{"--help": nil, "completion": {"--help"}} // the second is cobra's
	store := flags(read("cmd/locker/store.go"))
	require.Contains(t, store, "--url")
	lock := flags(read("cmd/locker/lockflags.go"))
	require.Contains(t, lock, "--wait")
	files, err := filepath.Glob("../cmd/locker/*.go")
	require.NoError(t, err)
	for _, name := range files {
		text := read(strings.TrimPrefix(name, "../"))
		use := regexp.MustCompile(`Use: +"(\w+)[ "]`).FindStringSubmatch(text)
		if use == nil || strings.HasSuffix(name, "_test.go") {
			continue
		}
		locker[use[1]] = append(flags(text), "--help")
		if strings.Contains(text, "f.add(c)") {
			locker[use[1]] = append(locker[use[1]], store...)
		}
		if strings.Contains(text, "lock.add(c)") {
			locker[use[1]] = append(locker[use[1]], lock...)
		}
	}
	require.Contains(t, locker, "run")
	for _, m := range regexp.MustCompile(`(?m)^(?:([a-z-]+):|([A-Z_]+) \?=)`).FindAllStringSubmatch(read("Makefile"), -1) {
		targets = append(targets, m[1]+m[2])
	}
	return locker, targets
}

func TestCommandsExist(t *testing.T) {
	locker, targets := commands(t)
	command := regexp.MustCompile(`(?:^|[;&|] *)(?:\$ )?(?:[A-Z_]+=\S* )*(locker|make) +([^;&|]*)`)
	all, found := pages(t), 0
	for page, text := range all {
		for _, acl := range regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindAllString(text, -1) {
			if !strings.Contains(all["docs/strategies.md"], acl+"\n") { // whose lines are tested
				t.Errorf("%s: docs/strategies.md has another line than %q", page, acl)
			}
		}
		var code []string
		for _, b := range docblocks.Of(page, text) {
			if b.Lang == "sh" || b.Lang == "console" {
				code = append(code, strings.Split(strings.ReplaceAll(b.Text, "\\\n", " "), "\n")...)
			}
		}
		rest := docblocks.Fence.ReplaceAllString(text, "")
		for _, m := range regexp.MustCompile("(?m)^    (.*)$|`([^`\n]+)`").FindAllStringSubmatch(rest, -1) {
			code = append(code, m[1]+m[2])
		}
		for _, line := range code {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			line = regexp.MustCompile(`'[^']*'|"[^"]*"`).ReplaceAllString(line, "quoted")
			for _, m := range regexp.MustCompile(`\bgo (?:run|test|install|build)\b.* (\./(?:cmd|examples|strategy|benchmarks)/[\w/]*)`).FindAllStringSubmatch(line, -1) {
				if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
					t.Errorf("%s: %q: there is no %s", page, line, m[1])
				}
			}
			for _, m := range command.FindAllStringSubmatch(line, -1) {
				found++
				args, _, _ := strings.Cut(m[2], " -- ")
				words := strings.Fields(args)
				for i, word := range words {
					name, _, _ := strings.Cut(word, "=")
					switch {
					case m[1] == "make" && !slices.Contains(targets, name):
						t.Errorf("%s: %q: make has no %s", page, line, name)
					case m[1] == "locker" && i == 0 && locker[name] == nil && name != "--help":
						t.Errorf("%s: %q: locker has no %s", page, line, name)
					case m[1] == "locker" && i > 0 && strings.HasPrefix(name, "-") && !slices.Contains(locker[words[0]], name):
						t.Errorf("%s: %q: locker %s has no %s", page, line, words[0], name)
					}
				}
			}
		}
	}
	require.Greater(t, found, 10)
}

package docblocks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// packages are the imports by name.
var packages = func() map[string]string {
	all := map[string]string{
		"goredis": "github.com/go-redsync/redsync/v4/redis/goredis/v9",
		"redis":   "github.com/redis/go-redis/v9",
		"redsync": "github.com/go-redsync/redsync/v4",
	}
	const rest = `bytes context database/sql errors fmt log log/slog net/http os strconv strings testing time
		github.com/bsm/redislock github.com/redis/rueidis github.com/redis/rueidis/rueidislock
		github.com/distlock/locker github.com/distlock/locker/fence github.com/distlock/locker/fence/httpfence
		github.com/distlock/locker/fence/redisfence github.com/distlock/locker/fence/sqlfence github.com/distlock/locker/strategy github.com/distlock/locker/strategy/blpop
		github.com/distlock/locker/strategy/hashreentrant github.com/distlock/locker/strategy/memory
		github.com/distlock/locker/strategy/redlock github.com/distlock/locker/strategy/setnx`
	for _, p := range strings.Fields(rest) {
		all[path.Base(p)] = p
	}
	return all
}()

// given are the parameters that a block may use.
var given = map[string]string{
	"ctx":   "context.Context",
	"db":    "*sql.DB",
	"l":     "*locker.Client",
	"lease": "*locker.Lease",
	"n":     "int",
	"rdb":   "*redis.Client",
	"ship":  "func(context.Context) error",
}

var (
	isProgram = regexp.MustCompile(`(?m)^package main$`)
	isRest    = regexp.MustCompile(`^(?:\s*//.*\n|\s)*(import|func|type)\b`)
	noLetters = regexp.MustCompile(`[^A-Za-z0-9]+`)
)

// goFile is the file that a Go block becomes.
type goFile struct {
	pkg, source string
	call        string // of the block with given's fields, or "" for the rest of a file
	program     bool
}

func (b Block) ident() string { return "B_" + noLetters.ReplaceAllString(b.Name(), "_") }

// file makes a file of a Go block. One with a package clause is a program: main becomes Main.
// One that begins with import, func or type is the rest of a file. Any other is the body of a
// function that has the parameters of given; what it declares need not be used, and may be
// declared again. It returns the block's err if the block does not end with a return.
func (b Block) file(root string) (goFile, error) {
	pos := fmt.Sprintf("%s:%d", filepath.Join(root, b.Page), b.Line)
	at := "//line " + pos + "\n"
	pkg := strings.ToLower(b.ident()) // its own
	if isProgram.MatchString(b.Text) {
		text := isProgram.ReplaceAllString(b.Text, "package "+pkg)
		text = strings.Replace(text, "func main() {", "func Main() {", 1)
		return goFile{pkg: pkg, source: at + text, call: pkg + ".Main", program: true}, nil
	}
	before, after := "package p\n", "" // what goes around the block
	if !isRest.MatchString(b.Text) {
		pkg = "page_" + strings.ToLower(noLetters.ReplaceAllString(b.Page, "_")) // all functions of a page, for one build
		before, after = before+"func _() error { for {\n", "}}\n"
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, pos, before+b.Text+after, 0)
	if err != nil {
		return goFile{}, fmt.Errorf("the block at %s: %w", pos, err)
	}
	imports, params := needs(file, after != "")
	if after == "" {
		return goFile{pkg: pkg, source: "package " + pkg + "\n" + imports + at + b.Text}, nil
	}
	loop := file.Decls[0].(*ast.FuncDecl).Body.List[0].(*ast.ForStmt).Body.List
	body, end := redeclare(loop, b.Text, func(p token.Pos) int { return set.Position(p).Offset - len(before) })
	var declared, args []string
	for _, name := range params {
		declared, args = append(declared, name+" "+given[name]), append(args, "g."+name)
	}
	return goFile{
		pkg: pkg,
		// A loop that runs once: what stands behind it can be reached, and err may be declared in it.
		source: "package " + pkg + "\n" + imports + "func " + b.ident() + "(" + strings.Join(declared, ", ") + ") error {\nfor range 1 {\n" +
			at + body + end + "}\nreturn nil\n}\n",
		call: "func(g given) error { return " + pkg + "." + b.ident() + "(" + strings.Join(args, ", ") + ") }",
	}, nil
}

// needs returns the imports of a file, and the parameters of a body that it is.
func needs(file *ast.File, isBody bool) (imports string, params []string) {
	names := make(map[string]bool)
	for _, ident := range file.Unresolved {
		names[ident.Name] = true
		if kind := given[ident.Name]; kind != "" && isBody {
			if !slices.Contains(params, ident.Name) {
				params = append(params, ident.Name)
			}
			for _, m := range regexp.MustCompile(`(\w+)\.`).FindAllStringSubmatch(kind, -1) {
				names[m[1]] = true
			}
		}
	}
	slices.Sort(params)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if from := packages[name]; from != "" {
			imports += fmt.Sprintf("import %s %q\n", name, from)
		}
	}
	return imports, params
}

// redeclare makes of the statements of a body some that may declare a name again and leave it
// unused, and of its end a return of err, if it has one and does not return.
func redeclare(stmts []ast.Stmt, text string, offset func(token.Pos) int) (body, end string) {
	var out strings.Builder
	seen, from := make(map[string]bool), 0
	for _, stmt := range stmts {
		s, ok := stmt.(*ast.AssignStmt)
		if !ok || s.Tok != token.DEFINE {
			continue
		}
		operator, uses := "=", ""
		for _, left := range s.Lhs {
			if name := left.(*ast.Ident).Name; name != "_" {
				if !seen[name] {
					seen[name], operator = true, ":="
				}
				uses += "; _ = " + name
			}
		}
		at, upTo := offset(s.TokPos), offset(s.End())
		out.WriteString(text[from:at] + operator + text[at+len(":="):upTo] + uses)
		from = upTo
	}
	if _, returns := stmts[len(stmts)-1].(*ast.ReturnStmt); seen["err"] && !returns {
		end = "\nif err != nil { return err }\n"
	}
	return out.String() + text[from:], end
}

package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listed is what we read of the output of go list.
type listed struct {
	ImportPath     string
	Dir            string
	GoFiles        []string
	CgoFiles       []string
	IgnoredGoFiles []string // for other systems, and tests for them
	TestGoFiles    []string
	XTestGoFiles   []string
}

// Load reads the tree at root by one call of go list. Files for other operating
// systems are read too.
func Load(root string) ([]Package, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return nil, fmt.Errorf("go list: %w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []Package
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("output of go list: %w", err)
		}
		p, err := parse(l)
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

func parse(l listed) (Package, error) {
	p := Package{Path: strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, Module), "/")}
	if p.Path == "" {
		p.Path = "."
	}
	for _, name := range slices.Concat(l.GoFiles, l.CgoFiles, l.IgnoredGoFiles) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parseFile(filepath.Join(l.Dir, name))
		if err != nil {
			return Package{}, err
		}
		p.Files = append(p.Files, f)
	}
	for _, name := range slices.Concat(l.TestGoFiles, l.XTestGoFiles) {
		f, err := parseFile(filepath.Join(l.Dir, name))
		if err != nil {
			return Package{}, err
		}
		p.Tested = true
		p.Tight = p.Tight || slices.Contains(f.Imports, "go.uber.org/goleak")
	}
	return p, nil
}

func parseFile(file string) (File, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return File{}, fmt.Errorf("read %s: %w", file, err)
	}
	f := File{Name: filepath.Base(file), Doc: syntax.Doc != nil}
	clock := "" // the name under which package time is known here
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return File{}, fmt.Errorf("read %s: import %s: %w", file, spec.Path.Value, err)
		}
		f.Imports = append(f.Imports, imported)
		if imported == "time" {
			clock = "time"
			if spec.Name != nil {
				clock = spec.Name.Name
			}
		}
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		if what := use(n, clock); what != "" {
			f.Uses = append(f.Uses, Use{What: what, Line: fset.Position(n.Pos()).Line})
		}
		return true
	})
	return f, nil
}

// use names what a node does that only some packages may do.
func use(n ast.Node, clock string) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "go"
	case *ast.SelectorExpr:
		pkg, ok := n.X.(*ast.Ident)
		if ok && clock != "" && pkg.Name == clock && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}, n.Sel.Name) {
			return "time." + n.Sel.Name
		}
	}
	return ""
}

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	directive = "//fault:" // in Go
	remark    = "# fault:" // in scripts
)

// collect reads all directives of the tree at root, sorted by test. A directive that belongs to no test
// is an error.
func collect(root string) (all []fault, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		var got []fault
		switch {
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir():
		case strings.HasSuffix(name, "_test.go"):
			got, err = inGo(path, filepath.ToSlash(name))
		case strings.HasSuffix(name, ".txtar"):
			got, err = inScript(path, filepath.ToSlash(name))
		}
		all = append(all, got...)
		return err
	})
	slices.SortStableFunc(all, func(a, b fault) int { return cmp.Compare(a.where, b.where) })
	return all, err
}

// inGo reads the directives of one file of tests.
func inGo(path, name string) (all []fault, err error) {
	src, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(src), "\n"+directive) {
		return nil, err
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	tests := map[*ast.CommentGroup]string{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Doc != nil && isTest(fn.Name.Name) {
			tests[fn.Doc] = fn.Name.Name
		}
	}
	dir, _, _ := strings.Cut(name, "/"+filepath.Base(path))
	for _, group := range f.Comments {
		for _, c := range group.List {
			text, ok := strings.CutPrefix(c.Text, directive)
			if !ok {
				continue
			}
			test := tests[group]
			if test == "" {
				return nil, fmt.Errorf("%v: a fault that stands in the comment of no test", files.Position(c.Pos()))
			}
			one, err := parse(text, dir+" "+test)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}

func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz")
}

// inScript reads the remarks of one script.
func inScript(path, name string) (all []fault, err error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(src)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), remark); ok {
			one, err := parse(text, name)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}

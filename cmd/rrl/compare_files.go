package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A file is one to be written.
type file struct {
	name string
	data []byte
}

// directoryOf says why the directory of a file is none.
func directoryOf(name string) error {
	dir := filepath.Dir(name)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory", dir)
	}
	return err
}

// replaceFiles writes all of them beside their names, and gives them their names when all are written: who
// reads one sees it as it was or as it is. When one cannot be written all stay as they were; when one cannot
// be given its name, the ones before it are new.
func replaceFiles(files []file) error {
	type move struct{ from, to string }
	var moves []move
	defer func() {
		for _, m := range moves {
			_ = os.Remove(m.from) // which is there only after an error
		}
	}()
	for _, f := range files {
		m := move{to: f.name}
		if target, err := filepath.EvalSymlinks(f.name); err == nil {
			m.to = target // a link stays one
		}
		m.from = filepath.Join(filepath.Dir(m.to), "."+filepath.Base(m.to)+"."+rand.Text()[:8])
		moves = append(moves, m)
		if err := writeNew(m.from, f.data); err != nil {
			return err
		}
		info, err := os.Stat(m.to)
		if err == nil {
			err = os.Chmod(m.from, info.Mode().Perm())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for len(moves) > 0 {
		if err := os.Rename(moves[0].from, moves[0].to); err != nil {
			return err
		}
		moves = moves[1:]
	}
	return nil
}

func writeNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A file is a file to be written.
type file struct {
	name string
	data []byte
}

// directoryOf returns an error if the directory of the file does not exist or is none.
func directoryOf(name string) error {
	dir := filepath.Dir(name)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory", dir)
	}
	return err
}

// replaceFiles writes all files under temporary names and renames them when all are written, so that a
// reader sees either the old or the new content. If a file cannot be written, all files stay as they were;
// if one cannot be renamed, those before it are new.
func replaceFiles(files []file) error {
	type move struct{ from, to string }
	var moves []move
	defer func() {
		for _, m := range moves {
			_ = os.Remove(m.from) // it exists only after an error
		}
	}()
	for _, f := range files {
		m := move{to: f.name}
		if target, err := filepath.EvalSymlinks(f.name); err == nil {
			m.to = target // a symbolic link stays one
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

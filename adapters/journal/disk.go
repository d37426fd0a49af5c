package journal

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// A file is what the journal appends to.
type file interface {
	io.WriterAt
	io.Closer
	Sync() error
	Truncate(size int64) error
}

// create makes the file at path, and its name durable.
func create(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

// createFolder makes the folder at path unless it is there, and its name durable.
func createFolder(path string) error {
	var missing []string
	for p := path; ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); !errors.Is(err, os.ErrNotExist) {
			break
		}
		missing = append(missing, p)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	for _, p := range missing {
		if err := syncFolder(filepath.Dir(p)); err != nil {
			return err
		}
	}
	return nil
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

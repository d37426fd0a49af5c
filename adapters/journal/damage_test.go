package journal_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/admitone/admitone/adapters/journal"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

func openLogged(t *testing.T, dir string, maxBytes int64) (*journal.Journal, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	j, err := journal.Open(journal.Config{Path: dir, MaxBytes: maxBytes, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatalf("Open = %v; want nil", err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j, &log
}

// spoil changes the only file of a journal.
func spoil(t *testing.T, dir string, change func([]byte) []byte) {
	t.Helper()
	names := journalFiles(t, dir, "*.v1.journal")
	if len(names) != 1 {
		t.Fatalf("the journal has files %v; want one", names)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(names[0], change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func spoilPayloadOfB(b []byte) []byte {
	return bytes.Replace(b, []byte("payload of b"), []byte("payload 0f b"), 1)
}

func TestDamageCostsWhatItHitsAndIsToldAndKept(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func([]byte) []byte{
		"payload": spoilPayloadOfB,
		"cut out": func(b []byte) []byte {
			i := bytes.Index(b, []byte("payload of b"))
			return append(b[:i:i], b[i+12:]...)
		},
		"zeros": func(b []byte) []byte { i := bytes.Index(b, []byte("payload of b")); clear(b[i-30 : i+12]); return b },
		"inserted": func(b []byte) []byte {
			return bytes.Replace(b, []byte("payload of b"), bytes.Repeat([]byte("p"), 999), 1)
		},
		"of length": func(b []byte) []byte { i := len(b) / 4; b[i+8] ^= 0x80; return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := openIn(t, dir)
			add(t, j, "a", "b", "c", "d")
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			spoil(t, dir, change)
			j, log := openLogged(t, dir, bound)
			if !strings.Contains(log.String(), "level=ERROR") || strings.Contains(log.String(), "payload of") {
				t.Errorf("the log says %q; want an error without content", log)
			}
			add(t, j, "e")
			remove(t, j, want(t, j, "a", "c", "d", "e")...)
			if kept := journalFiles(t, dir, "*.damaged"); len(kept) != 1 {
				t.Errorf("kept %v of the damaged file; want it set aside", kept)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			want(t, openIn(t, dir))
		})
	}
}

func TestTornEndIsToldAndGoesWithItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	add(t, j, "a", "b")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	spoil(t, dir, func(b []byte) []byte { return b[:len(b)-1] })
	j, log := openLogged(t, dir, bound)
	if !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("the log says %q; want a warning", log)
	}
	remove(t, j, want(t, j, "a")...)
	if names := journalFiles(t, dir, "*journal*"); len(names) > 0 {
		t.Errorf("files %v are left; want none", names)
	}
}

// The mark is written over the file without a checksum, so what is not exactly it counts as none.
func TestTornMarkRemovesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	add(t, j, "a", "b", "c")
	remove(t, j, want(t, j, "a", "b", "c")[:2]...)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	spoil(t, dir, func(b []byte) []byte { return bytes.Replace(b, []byte("GONE"), []byte("GOVE"), 1) })
	j, log := openLogged(t, dir, bound)
	want(t, j, "a", "c")
	if log.Len() > 0 {
		t.Errorf("the log says %q; want nothing", log)
	}
}

func TestEntryThatRotsWhileOpenIsPassedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, log := openLogged(t, dir, bound)
	add(t, j, "a", "b", "c")
	spoil(t, dir, spoilPayloadOfB)
	if entries, err := j.Oldest(t.Context(), 3); err != nil || len(entries) != 2 {
		t.Errorf("Oldest = %d entries, %v; want the two that are whole", len(entries), err)
	}
	if !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the log says %q; want an error", log)
	}
	remove(t, j, want(t, j, "a", "c")...)
	if kept := journalFiles(t, dir, "*.damaged"); len(kept) != 1 {
		t.Errorf("kept %v of the damaged file; want it set aside", kept)
	}
	add(t, j, "d")
	want(t, j, "d")
}

func TestFileOfAnotherVersionIsNotPassedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0000000000000001-00000001.v2.journal")
	if err := os.WriteFile(path, []byte("of another version"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := journal.Config{Path: dir, MaxBytes: bound}
	for range 2 { // and the folder is not held after the error
		if _, err := journal.Open(c); err == nil || errors.Is(err, journal.ErrInUse) || !strings.Contains(err.Error(), path) {
			t.Errorf("Open = %v; want an error that names the file", err)
		}
	}
	if err := os.Rename(path, path+".aside"); err != nil {
		t.Fatal(err)
	}
	want(t, openIn(t, dir)) // whatever else is in the folder is none of its business
}

func TestOpenTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := journal.Open(journal.Config{Path: dir}); err == nil {
		t.Error("Open without a bound = nil; want an error")
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(journal.Config{Path: file, MaxBytes: bound}); err == nil {
		t.Error("Open of a file = nil; want an error")
	}
	deep := filepath.Join(dir, "a", "b", "c")
	add(t, openIn(t, deep), "a")
	if _, err := journal.Open(journal.Config{Path: deep, MaxBytes: bound}); !errors.Is(err, journal.ErrInUse) {
		t.Errorf("second Open = %v; want ErrInUse", err)
	}
}

func TestBoundMayBeLoweredBelowWhatIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	add(t, j, "a", "b", "c")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, _ = openLogged(t, dir, 100)
	if err := j.Append(t.Context(), receipts("d")); !errors.Is(err, ports.ErrFull) {
		t.Errorf("Append = %v; want ErrFull", err)
	}
	remove(t, j, want(t, j, "a", "b", "c")...)
	add(t, j, "d")
	want(t, j, "d")
}

func TestEveryFieldOfAReceiptIsKept(t *testing.T) {
	t.Parallel()
	var r domain.Receipt
	fill(t, reflect.ValueOf(&r).Elem(), new(int64))
	b := journal.AppendReceipt(nil, &r)
	got, err := journal.ParseReceipt(b)
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("kept %+v as %+v, %v", r, got, err)
	}
	r.ClaimedAt = time.Unix(0, 0).UTC()
	got, err = journal.ParseReceipt(journal.AppendReceipt(nil, &r))
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("kept %+v as %+v, %v", r, got, err)
	}
	b = journal.AppendReceipt(nil, &r)
	// A later version may write what this one does not know.
	for _, more := range [][]byte{
		protowire.AppendString(protowire.AppendTag(nil, 29, protowire.BytesType), "new"),
		protowire.AppendVarint(protowire.AppendTag(nil, 5000, protowire.VarintType), 7),
		protowire.AppendFixed64(protowire.AppendTag(nil, 28, protowire.Fixed64Type), 7),
	} {
		got, err := journal.ParseReceipt(append(more, b...))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("with an unknown field, kept %+v as %+v, %v", r, got, err)
		}
	}
}

// fill gives each field of v a value of its own.
func fill(t *testing.T, v reflect.Value, n *int64) {
	t.Helper()
	*n++
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		*at = time.Unix(*n, *n).UTC()
		return
	case *[]byte:
		*at = []byte{0, 0xff, byte(*n)}
		return
	case *domain.Digest:
		*at = domain.Digest{0: byte(*n), 15: byte(*n)}
		return
	}
	switch v.Kind() { //nolint:exhaustive // the others are errors
	case reflect.Struct:
		for _, f := range v.Fields() {
			fill(t, f, n)
		}
	case reflect.String:
		v.SetString("text \xff " + string(rune('a'+*n)))
	case reflect.Int, reflect.Int64:
		v.SetInt(-*n << 40)
	default:
		t.Fatalf("a receipt has a field of type %s: keep it", v.Type())
	}
}

// FuzzOpen opens a journal whose file holds anything.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x00\x01LIVE\x00\x00\x00\x01\x00\x00\x00\x00\x0a"))
	f.Add(bytes.Repeat([]byte("\x00\x00\x00\x01LIVE\xff\xff\xff\xff"), 9))
	f.Fuzz(func(t *testing.T, file []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "0000000000000001-00000001.v1.journal"), file, 0o600); err != nil {
			t.Fatal(err)
		}
		j := openIn(t, dir)
		entries, err := j.Oldest(t.Context(), 10)
		if err != nil {
			t.Fatalf("Oldest = %v; want nil", err)
		}
		remove(t, j, entries...)
		add(t, j, "a")
		want(t, j, "a")
	})
}

// FuzzReceipt reads anything as a receipt.
func FuzzReceipt(f *testing.F) {
	f.Add(journal.AppendReceipt(nil, &receipts("a")[0]))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := journal.ParseReceipt(b)
		if err != nil {
			return
		}
		kept := journal.AppendReceipt(nil, &r)
		again, err := journal.ParseReceipt(kept)
		if err != nil || !bytes.Equal(journal.AppendReceipt(nil, &again), kept) {
			t.Errorf("read %+v, and from what that is kept as %+v, %v", r, again, err)
		}
	})
}

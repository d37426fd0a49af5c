package journal_test

import (
	"testing"

	"github.com/admitone/admitone/adapters/journal"
	"github.com/admitone/admitone/ports"
	"github.com/admitone/admitone/ports/storetest"
)

func TestJournalKeepsThePromisesOfAJournal(t *testing.T) {
	t.Parallel()
	storetest.Journal(t, func(_ *testing.T, dir string) (ports.Journal, error) {
		return journal.Open(journal.Config{Path: dir, MaxBytes: storetest.JournalBound})
	})
}

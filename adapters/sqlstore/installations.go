package sqlstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

var (
	_ ports.Installations = (*Store)(nil)
	_ ports.Quarantine    = (*Store)(nil)
)

const (
	// watchEvery is how often changes of installations are asked for, notified or not.
	watchEvery = 400 * time.Millisecond
	// keptChanges is how many changes an instance may have missed and still learn them one by one.
	keptChanges = 10_000
	// installationChannel is what Postgres notifies on.
	installationChannel = "admitone_installations"
)

// An installationRow is a row of installations.
type installationRow struct {
	Tenant    string
	ID        string
	Channel   string
	Account   string
	Paused    bool
	Settings  string
	Policy    string
	KeyID     string
	Sealed    []byte
	CreatedAt time.Time
	ChangedAt time.Time
}

const installationColumns = `i.tenant, i.id, i.channel, i.account, i.paused, i.settings, i.policy, i.key_id, i.sealed, i.created_at, i.changed_at`

// What of an installation is sealed.
type confidential struct {
	Secrets     map[string][]string `json:"secrets,omitempty"`
	DispatchURL string              `json:"dispatch_url,omitempty"`
}

func (r installationRow) key() string { return r.ID }

func (r installationRow) place() []string {
	return []string{"installation", r.Tenant, r.ID, r.Channel, r.Account}
}

// installation returns what r holds. If it can't be decrypted the rest is returned with the error.
func (s *Store) installation(r installationRow) (ports.Installation, error) {
	in := ports.Installation{
		ID: r.ID, Tenant: r.Tenant, Channel: r.Channel, Account: r.Account, Paused: r.Paused,
		CreatedAt: r.CreatedAt.UTC(), ChangedAt: r.ChangedAt.UTC(),
	}
	if r.Policy != "" {
		in.Policy = json.RawMessage(r.Policy)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(r.Settings)))
	d.UseNumber()
	if err := d.Decode(&in.Settings); err != nil {
		return in, fmt.Errorf("sqlstore: settings of installation %s: %w", r.ID, err)
	}
	if r.KeyID == "" {
		return in, nil
	}
	plain, err := s.keys.open(r.KeyID, r.Sealed, r.place()...)
	var c confidential
	if err == nil {
		err = json.Unmarshal(plain, &c)
	}
	if err != nil {
		return in, fmt.Errorf("installation %s: %w", r.ID, err)
	}
	in.Secrets, in.DispatchURL = c.Secrets, c.DispatchURL
	return in, nil
}

// row returns the row that keeps in.
func (s *Store) row(in ports.Installation) (installationRow, error) {
	r := installationRow{
		Tenant: in.Tenant, ID: in.ID, Channel: in.Channel, Account: in.Account, Paused: in.Paused,
		Policy: string(in.Policy), Sealed: []byte{},
	}
	if in.Settings == nil {
		in.Settings = map[string]any{}
	}
	settings, err := json.Marshal(in.Settings)
	if err != nil {
		return r, fmt.Errorf("sqlstore: settings: %w", err)
	}
	r.Settings = string(settings)
	if len(in.Secrets) == 0 && in.DispatchURL == "" {
		return r, nil
	}
	plain, err := json.Marshal(confidential{Secrets: in.Secrets, DispatchURL: in.DispatchURL})
	if err != nil {
		return r, errors.New("sqlstore: secrets can't be encoded") // the library's error might show one
	}
	r.KeyID, r.Sealed, err = s.keys.seal(plain, r.place()...)
	return r, err
}

// lookUp reads the row that ref names. It is the one query that is made before the tenant is known.
func (s *Store) lookUp(ctx context.Context, ref ports.InstallationRef) (installationRow, error) {
	cond, args := "i.id = ?", []any{ref.ID}
	if ref.ID == "" {
		cond, args = "i.channel = ? AND i.account = ?", []any{ref.Channel, ref.Account}
	}
	var rows []installationRow
	err := s.looksUp(ctx, ref, func(tx *gorm.DB) error {
		return tx.Raw(`SELECT `+installationColumns+` FROM installations i WHERE `+cond, args...).Scan(&rows).Error
	})
	if err != nil {
		return installationRow{}, classify(err)
	}
	if len(rows) == 0 {
		return installationRow{}, domain.ErrNotInstalled
	}
	return rows[0], nil
}

// FindInstallation implements ports.Installations.
func (s *Store) FindInstallation(ctx context.Context, ref ports.InstallationRef) (ports.Installation, error) {
	row, err := s.lookUp(ctx, ref)
	if err != nil {
		return ports.Installation{}, err
	}
	return s.installation(row)
}

// Installations implements ports.Installations.
func (s *Store) Installations(ctx context.Context, f ports.InstallationFilter) (ports.InstallationPage, error) {
	limit := pageLimit(f.Limit)
	theirs := everyone
	cond, args := "i.id > ?", []any{f.Cursor}
	if f.ID != "" {
		cond, args = cond+" AND i.id = ?", append(args, f.ID)
	}
	if f.Tenant != "" {
		theirs = of(f.Tenant)
		cond, args = cond+" AND i.tenant = ?", append(args, f.Tenant)
	}
	if f.Channel != "" {
		cond, args = cond+" AND i.channel = ?", append(args, f.Channel)
	}
	if f.OwnPolicy {
		cond += " AND i.policy <> ''"
	}
	var rows []installationRow
	err := s.reads(ctx, theirs, func(tx *gorm.DB) error {
		return tx.Raw(`SELECT `+installationColumns+` FROM installations i WHERE `+cond+` ORDER BY i.id LIMIT ?`,
			append(args, limit+1)...).Scan(&rows).Error
	})
	if err != nil {
		return ports.InstallationPage{}, classify(err)
	}
	var p ports.InstallationPage
	rows, p.Next = cutPage(rows, limit)
	for _, r := range rows {
		in, err := s.installation(r)
		in.Unreadable = err != nil
		p.Installations = append(p.Installations, in)
	}
	return p, nil
}

// AddInstallation implements ports.Installations.
func (s *Store) AddInstallation(ctx context.Context, in ports.Installation) (ports.Installation, error) {
	r, err := s.row(in)
	if err != nil {
		return ports.Installation{}, err
	}
	if err := s.enter(ctx, r.Tenant); err != nil {
		return ports.Installation{}, classify(err)
	}
	return s.changed(ctx, r.Tenant, r.ID, func(tx *gorm.DB) error {
		res := tx.Exec(`
			INSERT INTO installations (tenant, id, channel, account, paused, settings, policy, key_id, sealed, created_at, changed_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			r.Tenant, r.ID, r.Channel, r.Account, r.Paused, r.Settings, r.Policy, r.KeyID, r.Sealed, s.now(), s.now())
		if res.Error == nil && res.RowsAffected == 0 {
			return domain.ErrTaken
		}
		return res.Error
	})
}

// ChangeInstallation implements ports.Installations.
func (s *Store) ChangeInstallation(ctx context.Context, id string, change func(*ports.Installation) error) (ports.Installation, error) {
	known, err := s.lookUp(ctx, ports.InstallationRef{ID: id})
	if err != nil {
		return ports.Installation{}, err
	}
	var refused error // of change or of what it made; the store's own are told apart by classify
	in, err := s.changed(ctx, known.Tenant, id, func(tx *gorm.DB) error {
		var rows []installationRow
		err := tx.Raw(`SELECT `+installationColumns+` FROM installations i WHERE i.tenant = ? AND i.id = ? ?`,
			known.Tenant, id, s.forUpdate()).Scan(&rows).Error
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return domain.ErrNotInstalled
		}
		in, err := s.installation(rows[0])
		if err == nil {
			err = change(&in)
		}
		in.ID, in.Tenant, in.Channel, in.Account = id, known.Tenant, known.Channel, known.Account
		var r installationRow
		if err == nil {
			r, err = s.row(in)
		}
		if err != nil {
			refused = err
			return err
		}
		return tx.Exec(`
			UPDATE installations SET paused = ?, settings = ?, policy = ?, key_id = ?, sealed = ?, changed_at = ?
			WHERE tenant = ? AND id = ?`, r.Paused, r.Settings, r.Policy, r.KeyID, r.Sealed, s.now(), r.Tenant, r.ID).Error
	})
	if refused != nil {
		return ports.Installation{}, refused
	}
	return in, err
}

// RemoveInstallation implements ports.Installations.
func (s *Store) RemoveInstallation(ctx context.Context, id string) error {
	known, err := s.lookUp(ctx, ports.InstallationRef{ID: id})
	if err != nil {
		return err
	}
	return s.transact(ctx, known.Tenant, func(tx *gorm.DB) error {
		res := tx.Exec(`DELETE FROM installations WHERE tenant = ? AND id = ?`, known.Tenant, id)
		if res.Error != nil {
			return res.Error
		}
		if res.RowsAffected == 0 {
			return domain.ErrNotInstalled
		}
		if err := tx.Exec(`DELETE FROM quarantine WHERE tenant = ? AND installation = ?`, known.Tenant, id).Error; err != nil {
			return err
		}
		return s.noteChange(tx, id)
	})
}

// changed carries out change, which concerns the tenant's installation called id, notes it for
// all instances, and returns the installation as it stands then.
func (s *Store) changed(ctx context.Context, tenant, id string, change func(tx *gorm.DB) error) (in ports.Installation, err error) {
	err = s.transact(ctx, tenant, func(tx *gorm.DB) error {
		if err := change(tx); err != nil {
			return err
		}
		var rows []installationRow
		if err := tx.Raw(`SELECT `+installationColumns+` FROM installations i WHERE i.tenant = ? AND i.id = ?`, tenant, id).Scan(&rows).Error; err != nil {
			return err
		}
		if len(rows) == 0 {
			return domain.ErrNotInstalled
		}
		if in, err = s.installation(rows[0]); err != nil {
			return err
		}
		return s.noteChange(tx, id)
	})
	return in, err
}

// transact carries out change in one transaction that speaks for the tenant. What the domain says
// against it stays as it is.
func (s *Store) transact(ctx context.Context, tenant string, change func(tx *gorm.DB) error) error {
	err := s.writes(ctx, of(tenant), change)
	for _, known := range []error{domain.ErrNotInstalled, domain.ErrTaken} {
		if errors.Is(err, known) {
			return known
		}
	}
	return classify(err)
}

// noteChange numbers a change, so that numbers are committed in their order: who has seen one
// has seen all before it.
func (s *Store) noteChange(tx *gorm.DB, id string) error {
	if s.dialect == migrations.Postgres {
		if err := tx.Exec(`SELECT pg_advisory_xact_lock(hashtext(?))`, installationChannel).Error; err != nil {
			return err
		}
	}
	err := tx.Exec(`
		INSERT INTO installation_changes (revision, id)
		SELECT coalesce(max(c.revision), 0) + 1, ? FROM installation_changes c`, id).Error
	if err != nil {
		return err
	}
	err = tx.Exec(`
		DELETE FROM installation_changes
		WHERE revision <= (SELECT max(c.revision) FROM installation_changes c) - ?`, keptChanges).Error
	if err != nil || s.dialect != migrations.Postgres {
		return err
	}
	return tx.Exec(`SELECT pg_notify(?, '')`, installationChannel).Error
}

// forUpdate ends a query for a row that is to be changed in the same transaction.
func (s *Store) forUpdate() any {
	if s.dialect == migrations.Postgres {
		return gorm.Expr("FOR UPDATE")
	}
	return gorm.Expr("")
}

// WatchInstallations implements ports.Installations. Notifications only hurry it: behind a proxy
// that keeps no session, and when one is lost, the table tells all the same.
func (s *Store) WatchInstallations(ctx context.Context, changed func(id string)) {
	l := &listener{dsn: s.listenDSN}
	defer l.close()
	known := int64(-1)
	for ctx.Err() == nil {
		l.listen(ctx) // before asking, so that nothing slips through in between
		if next, err := s.tellChanges(ctx, known, changed); err == nil {
			known = next
		}
		l.wait(ctx, watchEvery)
	}
}

// tellChanges tells what has changed since known, and returns the number of the last change.
func (s *Store) tellChanges(ctx context.Context, known int64, changed func(id string)) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var rows []struct {
		Revision int64
		ID       string
	}
	err := s.read.WithContext(ctx).Raw(`
		SELECT c.revision, c.id FROM installation_changes c WHERE c.revision > ? ORDER BY c.revision`, max(known, 0)).Scan(&rows).Error
	if err != nil {
		return known, classify(err)
	}
	last := max(known, 0)
	if len(rows) > 0 {
		last = rows[len(rows)-1].Revision
	}
	if known < 0 || len(rows) > 0 && rows[0].Revision != known+1 {
		changed("")
		return last, nil
	}
	for _, r := range rows {
		changed(r.ID)
	}
	return last, nil
}

// A listener waits for notifications on a connection of its own, if it can have one.
type listener struct {
	dsn  string // empty: there is nothing to listen to
	conn *pgx.Conn
}

func (l *listener) listen(ctx context.Context) {
	if l.dsn == "" || l.conn != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, l.dsn)
	if err != nil {
		return // the table is asked all the same
	}
	l.conn = conn
	if _, err := conn.Exec(ctx, "LISTEN "+installationChannel); err != nil {
		l.close()
	}
}

// wait blocks until there is a notification, for at most d.
func (l *listener) wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if l.conn != nil {
		_, err := l.conn.WaitForNotification(ctx)
		if err == nil || ctx.Err() != nil && !l.conn.IsClosed() {
			return
		}
		l.close()
	}
	<-ctx.Done()
}

func (l *listener) close() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // the watcher's own has ended
	defer cancel()
	_ = l.conn.Close(ctx) // nothing was written on it
	l.conn = nil
}

// ResealInstallations implements ports.Installations.
func (s *Store) ResealInstallations(ctx context.Context, limit int) (int, error) {
	if s.keys.first == "" {
		return 0, nil
	}
	var rows []installationRow
	err := s.reads(ctx, everyone, func(tx *gorm.DB) error {
		return tx.Raw(`
			SELECT i.tenant, i.id, i.key_id FROM installations i
			WHERE i.key_id <> '' AND (i.key_id < ? OR i.key_id > ?) LIMIT ?`, s.keys.first, s.keys.first, limit).Scan(&rows).Error
	})
	if err != nil {
		return 0, classify(err)
	}
	n := 0
	var failed error
	for _, r := range rows {
		_, err := s.ChangeInstallation(ctx, r.ID, func(*ports.Installation) error { return nil })
		switch {
		case errors.Is(err, domain.ErrNotInstalled): // removed meanwhile
		case err != nil:
			failed = err // one whose key is gone must not hold up the others
		default:
			n++
		}
	}
	return n, failed
}

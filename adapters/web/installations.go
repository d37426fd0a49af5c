package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// An Installation is one that the database keeps, as the admin API shows it: without its
// secrets, of which only the names are told.
type Installation struct {
	ID          string          `json:"id"`
	Tenant      string          `json:"tenant"`
	Channel     string          `json:"channel"`
	Account     string          `json:"account"`
	State       string          `json:"state" enum:"active,paused"`
	Secrets     map[string]int  `json:"secrets" nullable:"false" doc:"How many values each secret has; more than one while it is being rotated."`
	Settings    json.RawMessage `json:"settings"`
	Policy      json.RawMessage `json:"policy"`
	Dispatch    DispatchTo      `json:"dispatch"`
	Unreadable  bool            `json:"unreadable" doc:"It is encrypted with a key that this instance does not have; nothing is received for it."`
	Quarantined *int            `json:"quarantined,omitempty" doc:"Requests with a wrong signature that wait to be checked again. Told of one alone."`
	CreatedAt   *time.Time      `json:"created_at"`
	ChangedAt   *time.Time      `json:"changed_at"`
}

// DispatchTo is where the events of one installation go.
type DispatchTo struct {
	URL string `json:"url,omitempty" doc:"In answers without user, password and query. Empty: dispatch.http.url."`
}

func installationOf(in ports.Installation) Installation {
	out := Installation{
		ID: in.ID, Tenant: in.Tenant, Channel: in.Channel, Account: in.Account, State: "active",
		Secrets: make(map[string]int, len(in.Secrets)), Settings: json.RawMessage("{}"), Policy: json.RawMessage("{}"),
		Dispatch: DispatchTo{URL: withoutSecrets(in.DispatchURL)}, Unreadable: in.Unreadable,
		CreatedAt: instant(in.CreatedAt), ChangedAt: instant(in.ChangedAt),
	}
	if in.Paused {
		out.State = "paused"
	}
	for name, values := range in.Secrets {
		out.Secrets[name] = len(values)
	}
	if settings, err := json.Marshal(in.Settings); err == nil && len(in.Settings) > 0 {
		out.Settings = settings
	}
	if len(in.Policy) > 0 {
		out.Policy = in.Policy
	}
	return out
}

// withoutSecrets returns where a URL leads, without what may be a password.
func withoutSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// secretValues are those of one secret: one text, or a list of which the first signs.
type secretValues []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *secretValues) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*s = secretValues{one}
		return nil
	}
	var many []string
	if json.Unmarshal(b, &many) != nil {
		return errors.New("a secret is a text or a list of texts") // the library's error would show it
	}
	*s = many
	return nil
}

var _ huma.SchemaProvider = secretValues{}

// Schema implements huma.SchemaProvider.
func (secretValues) Schema(huma.Registry) *huma.Schema {
	text := &huma.Schema{Type: huma.TypeString}
	return &huma.Schema{OneOf: []*huma.Schema{text, {Type: huma.TypeArray, Items: text}}}
}

type secretsByName map[string]secretValues

func (s secretsByName) plain() map[string][]string {
	out := make(map[string][]string, len(s))
	for name, values := range s {
		out[name] = values
	}
	return out
}

type installationInput struct {
	ID string `path:"id"`
}

type installationsInput struct {
	Tenant  string `query:"tenant"`
	Channel string `query:"channel"`
	Limit   int    `query:"limit" minimum:"0" maximum:"1000" default:"100"`
	Cursor  string `query:"cursor" doc:"next of the page before."`
}

type installationsOutput struct {
	Body struct {
		Installations []Installation `json:"installations" nullable:"false"`
		Next          string         `json:"next" doc:"The cursor of the next page; empty on the last one."`
	}
}

type installationOutput struct{ Body Installation }

type addInstallationInput struct {
	Body struct {
		ID       string          `json:"id" doc:"[a-z0-9][a-z0-9_-]{0,62}, unique in the deployment. The path that the vendor calls ends in it."`
		Tenant   string          `json:"tenant"`
		Channel  string          `json:"channel"`
		Account  string          `json:"account" doc:"The vendor's own name of it. One account belongs to one installation of a channel."`
		State    string          `json:"state,omitempty" enum:"active,paused" default:"active"`
		Secrets  secretsByName   `json:"secrets,omitempty" doc:"By the channel's own names. Never shown again."`
		Settings json.RawMessage `json:"settings,omitempty" doc:"An object, by the channel's own names, and public_url."`
		Policy   json.RawMessage `json:"policy,omitempty" doc:"An object of keys of policy, as in the configuration."`
		Dispatch DispatchTo      `json:"dispatch,omitzero"`
	}
}

type changeInstallationInput struct {
	ID   string `path:"id"`
	Body struct {
		State    string          `json:"state,omitempty" enum:"active,paused"`
		Secrets  secretsByName   `json:"secrets,omitempty" doc:"Those named are replaced; an empty list takes one away."`
		Settings json.RawMessage `json:"settings,omitempty" doc:"Replace all settings."`
		Policy   json.RawMessage `json:"policy,omitempty" doc:"Replaces the whole policy; an empty object takes it away."`
		Dispatch *DispatchTo     `json:"dispatch,omitempty"`
	}
}

type rotateInput struct {
	ID   string `path:"id"`
	Body struct {
		Secrets secretsByName `json:"secrets,omitempty" doc:"New values. Each becomes the first; the one that was the first is accepted as well, older ones no more."`
		DropOld bool          `json:"drop_old,omitempty" doc:"Accept the first value of each secret alone, from now on."`
	}
}

type removeOutput struct {
	Body struct {
		Removed int `json:"removed"`
	}
}

type recheckOutput struct {
	Body struct {
		Requests int `json:"requests" doc:"That were in quarantine."`
		Accepted int `json:"accepted" doc:"Authentic by the present secrets: their events have gone through the ordinary claim."`
		Refused  int `json:"refused" doc:"Not authentic, or not to be stored now; they stay until their time is over."`
	}
}

func (a *admin) registerInstallations() {
	const all, one = "/api/v1/installations", "/api/v1/installations/{id}"
	op := func(id, method, path, summary, description string, errs ...int) huma.Operation {
		return huma.Operation{
			OperationID: id, Method: method, Path: path, Tags: []string{"installations"},
			Summary: summary, Description: description, Errors: errs,
		}
	}
	const missing, conflict, unfit = http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity
	register(a, op("list-installations", http.MethodGet, all, "A page of the installations that the database keeps, by id",
		"Those of the configuration file are not among them.", unfit), a.listInstallations)
	register(a, op("get-installation", http.MethodGet, one, "One installation", "", missing), a.getInstallation)
	add := op("add-installation", http.MethodPost, all, "Keep a new installation",
		"It is received for on every instance within a second. Its secrets are encrypted by store.durable.secret_key.",
		http.StatusBadRequest, conflict, unfit)
	add.DefaultStatus = http.StatusCreated
	register(a, add, a.addInstallation)
	register(a, op("change-installation", http.MethodPatch, one, "Pause, resume or change an installation",
		"What is left out stays. While it is paused, deliveries get 503 and nothing is stored.",
		http.StatusBadRequest, missing, conflict, unfit), a.changeInstallation)
	register(a, op("rotate-installation", http.MethodPost, one+"/rotate", "Give secrets new values and accept the last ones, too",
		"", http.StatusBadRequest, missing, conflict, unfit), a.rotateInstallation)
	register(a, op("recheck-installation", http.MethodPost, one+"/recheck", "Check quarantined requests again, by the present secrets",
		"", missing, conflict), a.recheckInstallation)
	register(a, op("remove-installation", http.MethodDelete, one, "Forget an installation and its secrets",
		"Its receipts stay, and what is open is worked on by the default policy.", missing), a.removeInstallation)
}

func (a *admin) listInstallations(ctx context.Context, in *installationsInput) (*installationsOutput, error) {
	if err := texts("query", field{"tenant", in.Tenant}, field{"channel", in.Channel}, field{"cursor", in.Cursor}); err != nil {
		return nil, err
	}
	page, err := a.Installations.Installations(ctx, ports.InstallationFilter{
		Tenant: in.Tenant, Channel: in.Channel, Limit: in.Limit, Cursor: in.Cursor,
	})
	if err != nil {
		return nil, fmt.Errorf("list installations: %w", err)
	}
	out := new(installationsOutput)
	out.Body.Installations, out.Body.Next = each(page.Installations, installationOf), page.Next
	return out, nil
}

func (a *admin) getInstallation(ctx context.Context, in *installationInput) (*installationOutput, error) {
	kept, err := a.findInstallation(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	n, err := a.Quarantine.CountConfined(ctx, kept.Tenant, kept.ID)
	if err != nil {
		return nil, fmt.Errorf("count quarantined requests: %w", err)
	}
	out := &installationOutput{Body: installationOf(kept)}
	out.Body.Quarantined = &n
	return out, nil
}

// findInstallation reads one, by the list: that shows one whose secrets can't be decrypted, too.
func (a *admin) findInstallation(ctx context.Context, id string) (ports.Installation, error) {
	if !domain.IsID(id) {
		return ports.Installation{}, domain.ErrNotInstalled
	}
	page, err := a.Installations.Installations(ctx, ports.InstallationFilter{ID: id, Limit: 1})
	if err != nil {
		return ports.Installation{}, fmt.Errorf("read installation: %w", err)
	}
	if len(page.Installations) == 0 {
		return ports.Installation{}, domain.ErrNotInstalled
	}
	return page.Installations[0], nil
}

func (a *admin) addInstallation(ctx context.Context, in *addInstallationInput) (*installationOutput, error) {
	b := in.Body
	settings, policy, err := configurationOf(b.Settings, b.Policy)
	if err != nil {
		return nil, err
	}
	kept := ports.Installation{
		ID: b.ID, Tenant: b.Tenant, Channel: b.Channel, Account: b.Account, Paused: b.State == "paused",
		Secrets: b.Secrets.plain(), Settings: settings, Policy: policy, DispatchURL: b.Dispatch.URL,
	}
	if err := a.fits(kept); err != nil {
		return nil, err
	}
	kept, err = a.Installations.AddInstallation(ctx, kept)
	return a.changed("add", kept, err)
}

func (a *admin) changeInstallation(ctx context.Context, in *changeInstallationInput) (*installationOutput, error) {
	b := in.Body
	settings, policy, err := configurationOf(b.Settings, b.Policy)
	if err != nil {
		return nil, err
	}
	return a.change(ctx, in.ID, "change", func(kept *ports.Installation) {
		if b.State != "" {
			kept.Paused = b.State == "paused"
		}
		if b.Settings != nil {
			kept.Settings = settings
		}
		if b.Policy != nil {
			kept.Policy = policy
		}
		if b.Dispatch != nil {
			kept.DispatchURL = b.Dispatch.URL
		}
		for name, values := range b.Secrets {
			if len(values) == 0 {
				delete(kept.Secrets, name)
				continue
			}
			kept.Secrets = with(kept.Secrets, name, values)
		}
	})
}

func (a *admin) rotateInstallation(ctx context.Context, in *rotateInput) (*installationOutput, error) {
	if len(in.Body.Secrets) == 0 && !in.Body.DropOld {
		return nil, invalid("body.secrets", "needed, unless drop_old is true")
	}
	for name, values := range in.Body.Secrets {
		if len(values) != 1 {
			return nil, invalid("body.secrets."+name, "must be one new value")
		}
	}
	return a.change(ctx, in.ID, "rotate", func(kept *ports.Installation) {
		for name, values := range in.Body.Secrets {
			live := kept.Secrets[name]
			if len(live) > 0 && live[0] == values[0] {
				continue // asked for twice: the one before it must stay
			}
			kept.Secrets = with(kept.Secrets, name, append([]string{values[0]}, live[:min(1, len(live))]...))
		}
		if in.Body.DropOld {
			for name, values := range kept.Secrets {
				kept.Secrets[name] = values[:1]
			}
		}
	})
}

func with(secrets map[string][]string, name string, values []string) map[string][]string {
	if secrets == nil {
		secrets = map[string][]string{}
	}
	secrets[name] = values
	return secrets
}

// change commits what edit makes of an installation, if that fits.
func (a *admin) change(ctx context.Context, id, verb string, edit func(*ports.Installation)) (*installationOutput, error) {
	if !domain.IsID(id) {
		return nil, domain.ErrNotInstalled
	}
	kept, err := a.Installations.ChangeInstallation(ctx, id, func(kept *ports.Installation) error {
		edit(kept)
		return a.fits(*kept)
	})
	return a.changed(verb, kept, err)
}

// changed makes the answer to a change, and lets this instance know of it at once.
func (a *admin) changed(verb string, kept ports.Installation, err error) (*installationOutput, error) {
	if p, ok := errors.AsType[*huma.ErrorModel](err); ok {
		return nil, p
	}
	if err != nil {
		return nil, fmt.Errorf("%s installation: %w", verb, err)
	}
	a.InstallationChanged(kept.ID)
	return &installationOutput{Body: installationOf(kept)}, nil
}

// fits returns an answer that says what is wrong with an installation, if anything is.
func (a *admin) fits(in ports.Installation) error {
	err := a.CheckInstallation(in)
	if err == nil || errors.Is(err, domain.ErrTaken) {
		return err
	}
	p := problem(http.StatusUnprocessableEntity, "validation failed")
	causes := []error{err}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		causes = joined.Unwrap()
	}
	for _, cause := range causes {
		p.Errors = append(p.Errors, &huma.ErrorDetail{Location: "body", Message: cause.Error()})
	}
	return p
}

func (a *admin) removeInstallation(ctx context.Context, in *installationInput) (*removeOutput, error) {
	if !domain.IsID(in.ID) {
		return nil, domain.ErrNotInstalled
	}
	if err := a.Installations.RemoveInstallation(ctx, in.ID); err != nil {
		return nil, fmt.Errorf("remove installation: %w", err)
	}
	a.InstallationChanged(in.ID)
	out := new(removeOutput)
	out.Body.Removed = 1
	return out, nil
}

func (a *admin) recheckInstallation(ctx context.Context, in *installationInput) (*recheckOutput, error) {
	r, err := a.Recheck(ctx, in.ID)
	if err != nil {
		return nil, fmt.Errorf("recheck quarantined requests: %w", err)
	}
	out := new(recheckOutput)
	out.Body.Requests, out.Body.Accepted, out.Body.Refused = r.Requests, r.Accepted, r.Refused
	return out, nil
}

// object reads a JSON object, in which numbers stay as they were written.
func object(name string, raw json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil //nolint:nilnil // it was left out
	}
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return nil, invalid("body."+name, "must be an object")
	}
	return m, nil
}

// configurationOf returns settings and policy as they are kept.
func configurationOf(rawSettings, rawPolicy json.RawMessage) (settings map[string]any, policy json.RawMessage, err error) {
	if settings, err = object("settings", rawSettings); err == nil {
		policy, err = policyOf(rawPolicy)
	}
	return settings, policy, err
}

// policyOf returns a policy as it is kept; nil if it says nothing.
func policyOf(raw json.RawMessage) (json.RawMessage, error) {
	m, err := object("policy", raw)
	if err != nil || len(m) == 0 {
		return nil, err
	}
	return json.Marshal(m)
}

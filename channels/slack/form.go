package slack

import (
	"fmt"
	"net/url"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

// noOptions answers a menu that asks the app what to offer. The options would have to be
// computed while the user waits, which a receipt and a dispatch can't do.
var noOptions = []byte(`{"options":[]}`)

func extractForm(body []byte) (channels.Batch, error) {
	form, err := parseForm(body)
	if err != nil {
		return channels.Batch{}, err
	}
	event := domain.Event{
		Digest:  domain.DigestOf(string(body)),
		Payload: domain.Payload{MediaType: mediaForm, Body: body},
	}
	switch {
	case form.Has("command"):
		event.Kind = domain.Command
		event.Account = account(form.Get("team_id"), form.Get("enterprise_id"), form.Get("is_enterprise_install") == "true")
		event.Conversation = domain.StorableID(form.Get("channel_id"))
		return one(event), nil
	case form.Has("payload"):
		act, err := parse(form.Get("payload"))
		if err != nil {
			return channels.Batch{}, err
		}
		event.Kind = domain.Interaction
		event.Account = interactionAccount(act)
		event.Conversation = domain.StorableID(interactionPlace(act))
		batch := one(event)
		switch payload.TextAt(act, "type") {
		case "block_suggestion", "dialog_suggestion":
			batch.Reply = &channels.Reply{ContentType: mediaJSON, Body: noOptions}
		}
		return batch, nil
	case sslCheck(form):
		return channels.Batch{}, nil
	}
	return channels.Batch{}, fmt.Errorf("%w: neither a command nor an interaction", domain.ErrUnreadable)
}

// parseForm returns body as a form. The error of net/url shows what it could not read, so
// it is left out.
func parseForm(body []byte) (url.Values, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fmt.Errorf("%w: neither JSON nor a form", domain.ErrUnreadable)
	}
	return form, nil
}

// interactionAccount returns the account of the installation that the interaction was sent
// to. In a shared channel a view may be open in another workspace than the app's, and then
// only the view tells the app's.
func interactionAccount(act gjson.Result) string {
	team := payload.TextAt(act, "view", "app_installed_team_id")
	if team == "" {
		team = payload.TextAt(act, "team", "id")
	}
	enterprise := payload.TextAt(act, "enterprise", "id")
	return account(team, enterprise, payload.Member(act, "is_enterprise_install").String() == "true")
}

// interactionPlace returns the channel in which the user acted; of an act in a modal or on
// the app's home the view; of a global shortcut, which has no place, the user.
func interactionPlace(act gjson.Result) string {
	for _, at := range [][2]string{
		{"channel", "id"}, {"container", "channel_id"}, {"view", "root_view_id"}, {"view", "id"}, {"user", "id"},
	} {
		if id := payload.TextAt(act, at[0], at[1]); id != "" {
			return id
		}
	}
	return ""
}

package slack

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

// maxDepth is how deep JSON may be nested: more than any message of Slack is, and far
// less than what the stack of a parser or the application's can bear.
const maxDepth = 500

func (e endpoint) Extract(r *channels.Request) (channels.Batch, error) {
	var batch channels.Batch
	var err error
	if isJSON(r.Body) {
		batch, err = extractJSON(r.Body)
	} else {
		batch, err = extractForm(r.Body)
	}
	for i := range batch.Events {
		batch.Events[i].VendorAttempt = vendorAttempt(r.Header)
	}
	return batch, err
}

// An envelope holds the values of a JSON request that tell which event it brings.
type envelope struct {
	kind, challenge, eventID, app gjson.Result
	at                            installation
	authorizations                gjson.Result
	auth                          gjson.Result // the first of them
	authorized                    installation // what that says
	event                         gjson.Result
	time, limitedAt               gjson.Result
}

// An installation holds those that tell where the app is installed, and as whom.
type installation struct {
	team, enterprise, orgWide, isBot, user gjson.Result
}

// An inner holds those of the event in an envelope, or of a message within the event.
type inner struct {
	kind, subtype, channel, channelID, item, assistant gjson.Result
	ts, eventTS, threadTS, message, previous           gjson.Result
	user, userID, profile, username, edited            gjson.Result
	app, bot, botProfile                               gjson.Result
	text, files                                        gjson.Result
}

func extractJSON(body []byte) (channels.Batch, error) {
	root, err := parse(string(body))
	if err != nil {
		return channels.Batch{}, err
	}
	var env envelope
	env.read(root)
	received := domain.Payload{MediaType: mediaJSON, Body: body}
	switch kind := env.kind; {
	case kind.Type != gjson.String || kind.Str == "":
		return channels.Batch{}, fmt.Errorf("%w: JSON without a type", domain.ErrUnreadable)
	case kind.Str == "url_verification":
		if env.challenge.Type != gjson.String || env.challenge.Str == "" {
			return channels.Batch{}, fmt.Errorf("%w: url_verification without a challenge", domain.ErrUnreadable)
		}
		// Slack takes the bare text; so no quoting can spoil it.
		return channels.Batch{Reply: &channels.Reply{ContentType: "text/plain", Body: []byte(env.challenge.Str)}}, nil
	case kind.Str == "app_rate_limited":
		return one(domain.Event{Account: env.account(), Kind: domain.Other, Digest: domain.DigestOf(root.Raw), Payload: received}), nil
	case kind.Str == "event_callback" && !env.event.IsObject() && payload.Text(env.eventID) == "":
		return channels.Batch{}, fmt.Errorf("%w: event_callback with neither an event nor an id", domain.ErrUnreadable)
	}
	event := domain.Event{Account: env.account(), Kind: domain.Other, Payload: received}
	var in inner
	if !env.event.IsObject() {
		event.ID = env.id(&in, root.Raw)
		event.Digest = domain.DigestOf(root.Raw)
		return one(event), nil
	}
	in.read(env.event)
	event.ID = env.id(&in, root.Raw)
	event.Kind = env.kindOf(&in)
	channel := in.conversation()
	event.Conversation = strings.Clone(domain.StorableID(channel))
	if ts := payload.Text(in.ts); event.Kind == domain.MessageCreated && channel != "" && ts != "" {
		event.MessageKey = domain.StorableID("message:" + channel + ":" + ts)
	}
	// The event without its envelope: copies of one message that Slack sends under several
	// event ids are equal here.
	event.Digest = domain.DigestOf(env.event.Raw)
	return one(event), nil
}

func one(e domain.Event) channels.Batch { return channels.Batch{Events: []domain.Event{e}} }

// parse returns s as a JSON object.
func parse(s string) (gjson.Result, error) {
	if deeper(s, maxDepth) {
		return gjson.Result{}, fmt.Errorf("%w: JSON nested deeper than %d", domain.ErrUnreadable, maxDepth)
	}
	if !gjson.Valid(s) {
		return gjson.Result{}, fmt.Errorf("%w: not JSON", domain.ErrUnreadable)
	}
	root := gjson.Parse(s)
	if !root.IsObject() {
		return gjson.Result{}, fmt.Errorf("%w: JSON, but no object", domain.ErrUnreadable)
	}
	return root, nil
}

// deeper reports whether s, if it is JSON, is nested deeper than limit. The parser
// descends by recursion, and a stack that overflows can't be recovered.
func deeper(s string, limit int) bool {
	if strings.Count(s, "{")+strings.Count(s, "[") <= limit {
		return false
	}
	depth, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// keep sets at, where a value is kept, to v; unless there is no such place, or its name stood
// earlier in the object.
func keep(at *gjson.Result, v gjson.Result) {
	if at != nil && !at.Exists() {
		*at = v
	}
}

// read fills e from root. To ask for the values one by one would go through the whole of it for
// each. The three reads are alike to the letter but call their place directly: through a function
// value all that they fill would be allocated.
func (e *envelope) read(root gjson.Result) {
	root.ForEach(func(name, v gjson.Result) bool {
		keep(e.place(name.Str), v)
		return true
	})
	e.auth = element(e.authorizations)
	e.authorized.read(e.auth)
}

func (i *installation) read(authorization gjson.Result) {
	if !authorization.IsObject() {
		return
	}
	authorization.ForEach(func(name, v gjson.Result) bool {
		keep(i.place(name.Str), v)
		return true
	})
}

// read fills in from event, unless that is no object.
func (in *inner) read(event gjson.Result) {
	if !event.IsObject() {
		return
	}
	event.ForEach(func(name, v gjson.Result) bool {
		keep(in.place(name.Str), v)
		return true
	})
}

// place returns where the value called name is kept, nil if it is not.
func (e *envelope) place(name string) *gjson.Result {
	switch name {
	case "type":
		return &e.kind
	case "challenge":
		return &e.challenge
	case "event_id":
		return &e.eventID
	case "event_time":
		return &e.time
	case "minute_rate_limited":
		return &e.limitedAt
	case "api_app_id":
		return &e.app
	case "authorizations":
		return &e.authorizations
	case "event":
		return &e.event
	}
	return e.at.place(name)
}

func (i *installation) place(name string) *gjson.Result {
	switch name {
	case "team_id":
		return &i.team
	case "enterprise_id":
		return &i.enterprise
	case "is_enterprise_install":
		return &i.orgWide
	case "is_bot":
		return &i.isBot
	case "user_id":
		return &i.user
	}
	return nil
}

func (in *inner) place(name string) *gjson.Result {
	switch name {
	case "type":
		return &in.kind
	case "subtype":
		return &in.subtype
	case "channel":
		return &in.channel
	case "channel_id":
		return &in.channelID
	case "item":
		return &in.item
	case "assistant_thread":
		return &in.assistant
	case "ts":
		return &in.ts
	case "event_ts":
		return &in.eventTS
	case "thread_ts":
		return &in.threadTS
	case "message":
		return &in.message
	case "previous_message":
		return &in.previous
	case "user":
		return &in.user
	case "user_id":
		return &in.userID
	case "user_profile":
		return &in.profile
	case "username":
		return &in.username
	case "edited":
		return &in.edited
	case "app_id":
		return &in.app
	case "bot_id":
		return &in.bot
	case "bot_profile":
		return &in.botProfile
	case "text":
		return &in.text
	case "files":
		return &in.files
	}
	return nil
}

// account returns the workspace or organisation whose installation the event was sent to.
// Only the authorization tells it: team_id of the envelope, and the more so that of the
// event, may be the other workspace of a shared channel.
func (e *envelope) account() string {
	at := &e.at
	if e.auth.Exists() {
		at = &e.authorized
	}
	return account(payload.Text(at.team), payload.Text(at.enterprise), at.orgWide.String() == "true")
}

// account returns what an installation is called: an organisation's by the enterprise, any other by the team.
func account(team, enterprise string, orgWide bool) string {
	if orgWide && enterprise != "" || team == "" {
		team = enterprise
	}
	return domain.StorableID(strings.Clone(team))
}

// id returns the event id. Slack's are unique within the app: two apps of one workspace
// have been sent one id for the message that mentions both.
func (e *envelope) id(in *inner, body string) string {
	if id := payload.Text(e.eventID); id != "" {
		return domain.StorableID(payload.Text(e.app) + "/" + id)
	}
	at := payload.Text(in.eventTS)
	if at == "" {
		at = payload.Text(in.ts)
	}
	// No app's id holds a colon, so that no fallback equals an id of Slack's.
	if at == "" {
		return "fallback:" + domain.DigestOf("body", body).String()
	}
	return "fallback:" + domain.DigestOf("event", payload.Text(e.app), payload.Text(e.at.team), payload.Text(in.kind), payload.Text(in.subtype),
		in.channel.Raw, in.user.Raw, in.item.Raw, at).String()
}

func (e *envelope) kindOf(in *inner) domain.Kind {
	switch payload.Text(in.kind) {
	case "message":
		return e.messageKind(in)
	case "app_mention":
		return domain.Mention
	case "reaction_added", "reaction_removed":
		return domain.Reaction
	case "member_joined_channel", "member_left_channel", "channel_left", "group_left", "team_join":
		return domain.Membership
	}
	return domain.Other
}

func (e *envelope) messageKind(in *inner) domain.Kind {
	switch payload.Text(in.subtype) {
	case "", "bot_message", "file_comment", "file_share", "me_message", "thread_broadcast":
		// An inner message without a subtype is message_replied, which Slack sends so by
		// mistake: news of the thread, whose reply comes as a message of its own.
		if in.message.IsObject() || e.own(in) {
			return domain.Other
		}
		return domain.MessageCreated
	case "message_changed":
		var edited inner
		if edited.read(in.message); e.own(&edited) {
			return domain.Other
		}
		return domain.MessageEdited
	case "message_deleted":
		return domain.MessageDeleted
	case "bot_add", "bot_remove", "channel_join", "channel_leave", "group_join", "group_leave":
		return domain.Membership
	}
	return domain.Other
}

// own reports whether the message was written by the very app that the event is sent to.
// To an application that answers messages its own would be one more to answer.
func (e *envelope) own(in *inner) bool {
	if app := payload.Text(e.app); app != "" && (payload.Text(in.app) == app || payload.TextAt(in.botProfile, "app_id") == app) {
		return true
	}
	user := payload.Text(in.user)
	return user != "" && e.authorized.isBot.Type == gjson.True && payload.Text(e.authorized.user) == user
}

// conversation returns the channel in which the event took place, empty if in none.
func (in *inner) conversation() string {
	switch {
	case in.channel.IsObject():
		return payload.TextAt(in.channel, "id")
	case payload.Text(in.channel) != "":
		return payload.Text(in.channel)
	case payload.Text(in.channelID) != "":
		return payload.Text(in.channelID)
	case in.item.IsObject():
		return payload.TextAt(in.item, "channel")
	}
	return payload.TextAt(in.assistant, "channel_id")
}

// element returns the first element of the array a.
func element(a gjson.Result) gjson.Result {
	if !a.IsArray() {
		return gjson.Result{}
	}
	return a.Get("0")
}

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"testing"
)

// BR-01, BR-05, BR-06: a retry is acknowledged as the first delivery was, whether the event
// is handled by then or still worked on.
func TestRetryOfAClaimedEventIsAcknowledgedAndNotDispatched(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		working := make(chan struct{})
		d.app.reacts(func(dispatch) reaction { return reaction{until: working} })
		var sent []message
		var texts []string
		for _, to := range eachChannel {
			m := d.write(to)
			first := m.send(t, in)
			first.want(t, http.StatusOK, "admitted")
			d.app.awaitDispatches(t, len(sent)+1)
			retry := m.again(1).send(t, in)
			retry.want(t, http.StatusOK, "duplicate")
			if retry.body != first.body || retry.header.Get("Content-Type") != first.header.Get("Content-Type") {
				t.Errorf("%s: a retry is answered with %q, the first delivery with %q", to.channel, retry.body, first.body)
			}
			sent, texts = append(sent, m), append(texts, m.text)
		}
		close(working)
		d.rest()
		for _, m := range sent {
			m.again(2).send(t, in).want(t, http.StatusOK, "duplicate")
			m.again(3).send(t, in).want(t, http.StatusOK, "duplicate")
		}
		d.once(texts...)
	})
}

// BR-03, BR-33, BR-120, BR-122: of copies that arrive at the same moment on two instances one
// is admitted, whatever the state of Redis.
func TestConcurrentCopiesOverTwoInstancesAreDispatchedOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		redis string
		spoil func(d *deployment)
	}{
		{"up", func(*deployment) {}},
		{"down", func(d *deployment) { d.redis.Kill() }},
		{"stalled", func(d *deployment) { d.redis.Stall() }},
		{"out of reach", func(d *deployment) { d.rd.Swallow() }},
		{"emptied", func(d *deployment) { d.redis.Do("FLUSHALL") }},
	} {
		t.Run(tt.redis, func(t *testing.T) {
			t.Parallel()
			d := onServers(t, nil)
			a, b := d.two()
			known := d.write(install("acme-slack"))
			known.send(t, a).want(t, http.StatusOK, "admitted")
			d.rest()
			tt.spoil(d)

			texts := []string{known.text}
			for _, to := range eachChannel {
				m := d.write(to)
				texts = append(texts, m.text)
				admitted := 0
				for _, got := range storm(64, func(i int) *http.Request { return m.again(i/2).request(t, []*instance{a, b}[i%2]) }) {
					if got.status != http.StatusOK || got.verdict != "admitted" && got.verdict != "duplicate" {
						t.Errorf("%s: a copy got %v; want 200", to.channel, got)
					}
					if got.verdict == "admitted" {
						admitted++
					}
				}
				if admitted != 1 {
					t.Errorf("%s: %d of 64 copies were admitted; want 1", to.channel, admitted)
				}
			}
			for _, got := range storm(16, func(i int) *http.Request { return known.again(1).request(t, []*instance{a, b}[i%2]) }) {
				got.want(t, http.StatusOK, "duplicate")
			}
			d.once(texts...)
		})
	}
}

// BR-39, BR-75: what is not authentic, can't be read or is too large uses up no key, in neither store.
func TestForgedRequestsUseUpNoKey(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	in := d.serve(nil)
	slack, globex := install("acme-slack"), install("globex-slack")
	var texts []string
	var genuine []message
	for _, to := range eachChannel {
		m := d.write(to)
		genuine, texts = append(genuine, m), append(texts, m.text)
		forger := m
		forger.to.value = map[string]string{
			"slack": "guessed", "twilio": "guessed", "telegram": install("bot-b").value, "cfworker": "whsec_Z3Vlc3NlZC1ieS1zb21lYm9keS1lbHNlLXdobw==",
		}[to.channel]
		forger.send(t, in).want(t, http.StatusUnauthorized, "")
		bare := m.request(t, in)
		for _, name := range []string{"X-Slack-Signature", "X-Twilio-Signature", "X-Telegram-Bot-Api-Secret-Token", "Webhook-Signature"} {
			bare.Header.Del(name)
		}
		deliver(bare).want(t, http.StatusUnauthorized, "")
	}
	// who holds the secret of one tenant can't send in the name of another
	other := genuine[0]
	other.to.account = globex.account
	other.send(t, in).want(t, http.StatusOK, "ignored")
	other.to.id = globex.id
	other.send(t, in).want(t, http.StatusUnauthorized, "")
	deliver(signSlack(t, in, "/"+slack.id, slack.value, make([]byte, 2<<20))).want(t, http.StatusRequestEntityTooLarge, "")
	if got := in.receipts(""); len(got) != 0 {
		t.Errorf("forged requests left receipts: %v", got)
	}
	if n := d.keys(); n != 0 {
		t.Errorf("forged requests left %d keys in Redis", n)
	}
	for _, m := range genuine {
		m.send(t, in).want(t, http.StatusOK, "admitted")
	}
	d.once(texts...)
}

func TestUnnumberedEventsAreDispatchedEachTimeAndLeaveNoReceipt(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		text, slack := d.text(), install("acme-slack")
		body := []byte(url.Values{
			"command": {"/ask"}, "text": {text}, "team_id": {slack.account}, "api_app_id": {"A0APP"},
			"channel_id": {"C0GENERAL"}, "user_id": {"U0WRITER"}, "trigger_id": {"1.2.3"},
		}.Encode())
		const times = 3
		for range times {
			got := deliver(signSlack(t, in, "/"+slack.id, slack.value, body))
			got.want(t, http.StatusOK, "unnumbered")
			if got.body != "" {
				t.Errorf("the answer to a command is shown to its user: %q", got.body)
			}
		}
		d.app.awaitDispatches(t, times)
		ids := map[string]bool{}
		for _, got := range d.app.dispatches() {
			ids[got.ID] = true
			if got.Data.Kind != "command" || got.EventID != "" || got.Attempt != 1 {
				t.Errorf("dispatched %+v; want a command without an event id", got)
			}
		}
		if len(ids) != times || len(d.app.dispatches()) != times {
			t.Errorf("%d dispatches under %d ids; want %d", len(d.app.dispatches()), len(ids), times)
		}
		if got := in.receipts(""); len(got) != 0 {
			t.Errorf("%d receipts of events without a number", len(got))
		}
		if d.redis != nil && d.keys() != 0 {
			t.Errorf("%d keys in Redis of events without a number", d.keys())
		}
	})
}

// BR-19, BR-20, BR-21, BR-27: an id is one within its tenant, account, bot and app only.
func TestTenantsAccountsBotsAndAppsAreApart(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		var texts []string
		send := func(request func(text string) *http.Request) {
			t.Helper()
			text := d.text()
			texts = append(texts, text)
			deliver(request(text)).want(t, http.StatusOK, "admitted")
			deliver(request(text)).want(t, http.StatusOK, "duplicate")
		}
		for _, id := range []string{"acme-slack", "acme-kestrel", "globex-slack"} {
			to := install(id)
			send(func(text string) *http.Request {
				return signSlack(t, in, "/"+id, to.value, slackEvent(t, to.account, "Ev0SAME", slackMessage("C0SAME", "1790000000.000100", text)))
			})
		}
		slack := install("acme-slack")
		send(func(text string) *http.Request { // another app of the same workspace
			return signSlack(t, in, "/acme-slack", slack.value, slackEventOf(t, "A0OTHER", slack.account, "Ev0SAME", slackMessage("C0SAME", "1790000000.000200", text)))
		})
		send(func(text string) *http.Request { // whose app and id only look like those above when put together
			return signSlack(t, in, "/acme-slack", slack.value, slackEventOf(t, "A0APP/Ev0", slack.account, "SAME", slackMessage("C0SAME", "1790000000.000300", text)))
		})
		for _, id := range []string{"bot-a", "bot-b", "globex-bot"} {
			send(func(text string) *http.Request {
				return signTelegram(t, in, install(id), telegramMessage(900000000, 5, 7, text))
			})
		}
		send(func(text string) *http.Request { // a bot whose numbers are lower than another's were
			return signTelegram(t, in, install("bot-b"), telegramMessage(12, 6, 7, text))
		})
		send(func(text string) *http.Request { return signMail(t, in, mail("Ev0SAME", "x", text)) })
		d.once(texts...)
	})
}

// BR-08: neither of the two hides the other, in whatever order and on whatever instance.
func TestMentionAndMessageOfOneTextAreTwoEvents(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a, b := d.two()
	slack := install("acme-slack")
	for i, order := range [][]string{{"app_mention", "message"}, {"message", "app_mention"}} {
		ts, text := fmt.Sprintf("1790000000.0001%02d", i), d.text()
		for j, kind := range order {
			event := slackMessage("C0GENERAL", ts, text)
			event["type"] = kind
			body := slackEvent(t, slack.account, fmt.Sprintf("Ev0TWIN%d%d", i, j), event)
			deliver(signSlack(t, []*instance{a, b}[j], "/acme-slack", slack.value, body)).want(t, http.StatusOK, "admitted")
			deliver(signSlack(t, []*instance{b, a}[j], "/acme-slack", slack.value, body)).want(t, http.StatusOK, "duplicate")
		}
		d.rest()
		kinds := map[string]int{}
		for _, got := range d.app.of(text) {
			kinds[got.Data.Kind]++
		}
		if len(kinds) != 2 || kinds["mention"] != 1 || kinds["message.created"] != 1 {
			t.Errorf("dispatched %v; want the mention and the message, once each", kinds)
		}
	}
}

// BR-09, BR-14, BR-30: a message that comes again under new event ids is one.
func TestNewEventIDsOfOneMessageAreOne(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		slack, bot := install("acme-slack"), install("bot-a")
		text := d.text()
		for i := range 11 {
			verdict := "duplicate"
			if i == 0 {
				verdict = "admitted"
			}
			body := slackEvent(t, slack.account, fmt.Sprintf("Ev0FAN%d", i), slackMessage("C0GENERAL", "1790000000.000100", text))
			deliver(signSlack(t, in, "/acme-slack", slack.value, body)).want(t, http.StatusOK, verdict)
		}
		// the event id of the admitted one is taken, whatever message comes with it
		body := slackEvent(t, slack.account, "Ev0FAN0", slackMessage("C0GENERAL", "1790000000.000200", d.text()))
		deliver(signSlack(t, in, "/acme-slack", slack.value, body)).want(t, http.StatusOK, "duplicate")

		other := d.text()
		deliver(signTelegram(t, in, bot, telegramMessage(10, 5, 1, other))).want(t, http.StatusOK, "admitted")
		deliver(signTelegram(t, in, bot, telegramMessage(11, 5, 1, other))).want(t, http.StatusOK, "duplicate")
		chat := d.text()
		deliver(signTelegram(t, in, bot, telegramMessage(12, 5, 2, chat))).want(t, http.StatusOK, "admitted")
		d.once(text, other, chat)
	})
}

// BR-10, BR-16, BR-23, BR-25, BR-26: what only looks the same is not suppressed.
func TestEventsThatOnlyLookAlikeAreAllDispatched(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		yes := d.text()
		n := 0
		admitted := func(r *http.Request) {
			t.Helper()
			deliver(r).want(t, http.StatusOK, "admitted")
			n++
		}
		for i := range 2 { // the same words twice, from the same person, at the same moment
			for _, to := range eachChannel {
				admitted(message{to: to, id: fmt.Sprintf("200%d", i), from: "15550142", text: yes}.request(t, in))
			}
		}
		sid := "SM000000000000000000000000000000a1"
		for _, status := range []string{"delivered", "sent", "read"} {
			form := url.Values{"MessageSid": {sid}, "MessageStatus": {status}, "AccountSid": {install("acme-twilio").account}, "To": {"+14155550101"}, "From": {"+14155550142"}}
			admitted(signTwilio(t, in, "", form))
			deliver(signTwilio(t, in, "", form)).want(t, http.StatusOK, "duplicate")
		}
		admitted(signTwilio(t, in, "", twilioMessage(sid, yes)))
		bot := install("bot-a")
		admitted(signTelegram(t, in, bot, fmt.Appendf(nil, `{"update_id":31,"edited_message":{"message_id":2000,"from":{"id":15550142},`+
			`"chat":{"id":15550142,"type":"private"},"date":1790000000,"edit_date":1790000001,"text":%q}}`, yes)))
		admitted(signTelegram(t, in, bot, []byte(`{"update_id":32,"callback_query":{"id":"77","from":{"id":15550142},"data":"yes",`+
			`"message":{"message_id":2000,"chat":{"id":15550142,"type":"private"},"date":1790000000}}}`)))
		d.rest()
		if got := len(d.app.dispatches()); got != n {
			t.Errorf("%d events were dispatched; want %d", got, n)
		}
	})
}

// BR-23: set membership decides, never the order of numbers.
func TestNumbersOutOfOrderAreDispatchedOnceEach(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a, b := d.two()
	const n = 60
	texts := make([]string, n)
	for i := range texts {
		texts[i] = d.text()
	}
	order := append(rand.Perm(n), rand.Perm(n)...)
	for _, got := range storm(len(order), func(i int) *http.Request {
		k := order[i]
		return signTelegram(t, []*instance{a, b}[i%2], install("bot-a"), telegramMessage(1000+k, 100+k, k%7, texts[k]))
	}) {
		if got.status != http.StatusOK {
			t.Errorf("a delivery got %v", got)
		}
	}
	d.once(texts...)
}

// BR-05, BR-56: neither a restart nor an empty cache makes old events new.
func TestHandledEventsStayDuplicatesAfterARestart(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		first := d.serve(nil)
		var sent []message
		var texts []string
		for range 5 {
			for _, to := range eachChannel {
				m := d.write(to)
				sent, texts = append(sent, m), append(texts, m.text)
				m.send(t, first).want(t, http.StatusOK, "admitted")
			}
		}
		d.rest()
		first.kill()
		if d.redis != nil {
			d.redis.Do("FLUSHALL")
		}
		second := d.serve(nil)
		for _, m := range sent {
			m.again(1).send(t, second).want(t, http.StatusOK, "duplicate")
		}
		d.once(texts...)
	})
}

// BR-28, BR-29, BR-40: what the fast store forgets the durable one knows, and a late copy
// gives no key a longer life.
func TestFastStoreForgetsWithoutHarm(t *testing.T) {
	t.Parallel()
	d := onServers(t, settings{"policy": settings{"fast_ttl": "400ms"}})
	in := d.serve(nil)
	m := d.write(install("acme-slack"))
	m.send(t, in).want(t, http.StatusOK, "admitted")
	d.rest()
	await(t, "Redis has forgotten the event", func() bool { return d.keys() == 0 })
	for i := range 4 {
		m.again(i+1).send(t, in).want(t, http.StatusOK, "duplicate")
	}
	if n := d.keys(); n != 0 {
		t.Errorf("%d keys in Redis of an event whose time there is over", n)
	}
	d.once(m.text)
}

// An authentic event of a workspace that is not installed here is none of ours, and to tell
// the vendor of an error would only make it come again.
func TestEventsOfUnknownAccountsAreIgnored(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		slack := install("acme-slack")
		body := func(account, text string) []byte {
			return slackEvent(t, account, "Ev0UNKNOWN", slackMessage("C0GENERAL", "1790000000.000100", text))
		}
		deliver(signSlack(t, in, "", appWideSecret, body("T0NOBODY99", d.text()))).want(t, http.StatusOK, "ignored")
		deliver(signSlack(t, in, "/acme-slack", slack.value, body("T0KESTREL9", d.text()))).want(t, http.StatusOK, "ignored")
		if got := in.receipts(""); len(got) != 0 {
			t.Errorf("ignored events left receipts: %v", got)
		}
		// by the app-wide address the payload's account picks the installation
		text := d.text()
		deliver(signSlack(t, in, "", appWideSecret, body(slack.account, text))).want(t, http.StatusOK, "admitted")
		deliver(signSlack(t, in, "/acme-slack", slack.value, body(slack.account, text))).want(t, http.StatusOK, "duplicate")
		d.once(text)
		if got := d.app.dispatches()[0]; got.Tenant != slack.tenant || got.Account != slack.account {
			t.Errorf("dispatched to %s/%s; want %s/%s", got.Tenant, got.Account, slack.tenant, slack.account)
		}
	})
}

func TestConflictsAreSuppressedOrAdmittedApart(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		slack := install("acme-slack")
		first, second := d.text(), d.text()
		event := func(ts, text string) []byte {
			return slackEvent(t, slack.account, "Ev0TAKEN", slackMessage("C0GENERAL", ts, text))
		}
		deliver(signSlack(t, in, "/acme-slack", slack.value, event("1790000000.000100", first))).want(t, http.StatusOK, "admitted")
		deliver(signSlack(t, in, "/acme-slack", slack.value, event("1790000000.000200", second))).want(t, http.StatusOK, "duplicate")
		if got := in.metric(`admitone_conflicts_total{platform="slack"}`); got != 1 {
			t.Errorf("%v conflicts counted; want 1", got)
		}

		letter, forged := d.text(), d.text()
		deliver(signMail(t, in, mail("one@example.org", "offer", letter))).want(t, http.StatusOK, "admitted")
		for i, verdict := range []string{"admitted", "duplicate", "duplicate"} {
			// of the same id, from another sender at another time
			raw := []byte("X-Trace: " + fmt.Sprint(i) + "\r\nFrom: other@example.net\r\nTo: desk@example.com\r\nSubject: other\r\n" +
				"Date: Wed, 04 Feb 2026 09:15:00 +0100\r\nMessage-ID: <one@example.org>\r\n\r\n" + forged + "\r\n")
			deliver(signMail(t, in, raw)).want(t, http.StatusOK, verdict)
			d.rest() // so that the fast store knows it too
		}
		deliver(signMail(t, in, mail("one@example.org", "offer", letter))).want(t, http.StatusOK, "duplicate")
		d.once(first, letter, forged)
		var apart int
		for _, r := range in.receipts("platform=email") {
			if len(r.EventID) > 17 && r.EventID[len(r.EventID)-17] == '#' {
				apart++
				if r.MessageKey[len(r.MessageKey)-17:] != r.EventID[len(r.EventID)-17:] {
					t.Errorf("event id %s and message key %s are not marked alike", r.EventID, r.MessageKey)
				}
			}
		}
		if apart != 1 {
			t.Errorf("%d receipts of mails stand apart by their digest; want 1", apart)
		}
	})
}

package twilio

import "github.com/admitone/admitone/domain"

// A message is what a form or a CloudEvent tells of a message, read without regard to what it
// means. Of a name that is repeated the first value that is not empty counts.
type message struct {
	account   string
	sid       string
	from, to  string
	status    string
	errorCode string
	hasText   bool
}

// message reads the parameters that the claim needs.
func (ps params) message() message {
	var m message
	var sids, statuses [3]string
	first := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	for _, p := range ps {
		switch p.name {
		case "AccountSid":
			first(&m.account, p.value)
		case "MessageSid":
			first(&sids[0], p.value)
		case "SmsMessageSid":
			first(&sids[1], p.value)
		case "SmsSid":
			first(&sids[2], p.value)
		case "MessageStatus":
			first(&statuses[0], p.value)
		case "SmsStatus":
			first(&statuses[1], p.value)
		case "ErrorCode":
			first(&m.errorCode, p.value)
		case "From":
			first(&m.from, p.value)
		case "To":
			first(&m.to, p.value)
		case "Body":
			m.hasText = true
		}
	}
	// Products spell these differently and most send every spelling.
	for i := range sids {
		first(&m.sid, sids[i])
		first(&m.status, statuses[i])
	}
	return m
}

// kind tells inbound messages from status callbacks, which may share a URL: received and
// receiving are states of inbound messages alone.
func (m message) kind() domain.Kind {
	switch {
	case m.status == "received", m.status == "receiving", m.status == "" && m.hasText:
		return domain.MessageCreated
	case m.status != "":
		return domain.MessageStatus
	}
	return domain.Other // such as a call
}

// key returns the message key, empty if the message has no sid.
func (m message) key() string {
	if m.sid == "" {
		return ""
	}
	return domain.StorableID("message:" + m.sid)
}

// conversation names the two ends, the one at Twilio first, so that a customer's messages and
// the statuses of the answers stand in one conversation. It is empty without a customer.
func (m message) conversation(k domain.Kind) string {
	business, customer := m.from, m.to
	if k == domain.MessageCreated {
		business, customer = m.to, m.from
	}
	if customer == "" {
		return ""
	}
	return domain.StorableID(business + "|" + customer)
}

// eventID returns the event id of a form. Statuses of one message share its sid, and one
// status may come with several error codes; a fallback request repeats an inbound message
// with the error code of the first attempt, and is the same event.
func (m message) eventID(k domain.Kind, d domain.Digest) string {
	switch {
	case m.sid == "":
	case k == domain.MessageCreated:
		return domain.StorableID("in:" + m.sid)
	case k == domain.MessageStatus && m.errorCode != "":
		return domain.StorableID("st:" + m.sid + ":" + m.status + ":" + m.errorCode)
	case k == domain.MessageStatus:
		return domain.StorableID("st:" + m.sid + ":" + m.status)
	}
	return "fallback:" + d.String()
}

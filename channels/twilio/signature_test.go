package twilio_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/admitone/admitone/channels"
)

// The signatures of Twilio's security page and of the tests of its Node and Go libraries,
// and some made with the Node library.
func TestPublishedSignaturesAreAccepted(t *testing.T) {
	t.Parallel()
	const (
		example = "https://example.com/myapp.php?foo=1&bar=2"
		company = "https://mycompany.com/myapp.php?foo=1&bar=2"
		call    = "CallSid=CA1234567890ABCDE&Digits=1234&To=%2B18005551212"
		one310  = call + "&Caller=%2B14158675310&From=%2B14158675310"
		one309  = call + "&Caller=%2B14158675309&From=%2B14158675309"
		message = "AccountSid=AC0000000000000000000000000000a001&Body=+Gr%C3%BC%C3%9Fe+%2B+1+%F0%9F%98%80+&From=whatsapp%3A%2B447700900123" +
			"&MessageSid=SM5b1f0c9d2e7a4836b0d4c8e1f2a39577&To=whatsapp%3A%2B14155550100"
		hashed = "&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
	)
	published := credentials("12345")
	for name, c := range map[string]struct {
		credentials             channels.Credentials
		method, url, body, want string
		media                   string
		settings                string
	}{
		"security page":                {published, "POST", example, one310, "L/OH5YylLD5NRKLltdqwSvS0BnU=", formType, ""},
		"form":                         {published, "POST", company, one309, "RSOYDt4T1cUTdK1PDd93/VVr8B8=", formType, ""},
		"signed with the default port": {published, "POST", company, one309, "kvajT1Ptam85bY51eRf/AJRuM3w=", formType, ""},
		"configured with it, both":     {published, "POST", withPort(company), one309, "kvajT1Ptam85bY51eRf/AJRuM3w=", formType, ""},
		"configured with it, signed w/o": {
			published, "POST", withPort(company), one309, "RSOYDt4T1cUTdK1PDd93/VVr8B8=", formType, "",
		},
		"sorted by name, not by name and value": {
			published, "POST", company, one309 + "&Reason=Participant&ReasonConferenceEnded=test", "vOEb5UThFn24KEfnOFLQY2AE5FY=", formType, "",
		},
		"repeated name": { // BR-60
			published, "POST", company, "Sid=CA123&SidAccount=AC123&Digits=5678&Digits=1234&Digits=1234", "IK+Dwps556ElfBT0I3Rgjkr1wJU=", formType, "",
		},
		"hash of the body in the query": {
			published, "POST", company + hashed, `{"property": "value", "boolean": true}`, "a9nBmqA0ju/hNViExpshrM61xv4=", jsonType, "",
		},
		"blanks, umlauts, emoji":     {withSharedKey(), "POST", address, message, "N+88ap3IXrwakVQ2gw+8OK1JKO8=", formType, ""},
		"the same with default port": {withSharedKey(), "POST", address, message, "a0Ki+7hs5m/MTSKPglEm6d7Qm8w=", formType, ""},
		"the same with a shared key": {withSharedKey(), "POST", address, message, "6zZCqoI3e4NJ9X5bHw0skvPabF3fHHc0rWjMqKUSVcY=", formType, settings},
		"parameters of a GET in the URL": {
			withSharedKey(), "GET", address + "?Body=Hi+there&MessageSid=SM5b1f0c9d2e7a4836b0d4c8e1f2a39577", "", "5ZYmsM0tTmBsNlLDAYxVuFqzOvg=", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, c.credentials)
			r := request(c.method, c.url, c.media, c.body, c.want)
			if c.settings != "" {
				r.Header.Set("X-Twilio-Webhooks-Signature-Settings", c.settings)
			}
			if err := e.Verify(r); err != nil {
				t.Errorf("Verify: %v", err)
			}
			r.Header.Set("X-Twilio-Signature", strings.Replace(c.want, c.want[3:4], "~", 1))
			mustRefuse(t, e, r, "another signature")
			r.Header.Set("X-Twilio-Signature", c.want)
			r.URL += "&more=1"
			mustRefuse(t, e, r, "another URL")
		})
	}
}

func withPort(u string) string { return strings.Replace(u, ".com/", ".com:443/", 1) }

func TestDefaultPortMayBeSignedOrNot(t *testing.T) { // BR-58
	t.Parallel()
	const form = "MessageSid=SM1&Body=x&SmsStatus=received"
	for name, c := range map[string]struct {
		configured, signed string
		accepted           bool
	}{
		"https, neither":                    {"https://h/x", "https://h/x", true},
		"https, signed":                     {"https://h/x", "https://h:443/x", true},
		"https, configured":                 {"https://h:443/x", "https://h/x", true},
		"https, both":                       {"https://h:443/x", "https://h:443/x", true},
		"http, signed":                      {"http://h/x", "http://h:80/x", true},
		"http, configured":                  {"http://h:80/x", "http://h/x", true},
		"IPv6, signed":                      {"https://[2001:db8::1]/x", "https://[2001:db8::1]:443/x", true},
		"IPv6, configured":                  {"https://[2001:db8::1]:443/x", "https://[2001:db8::1]/x", true},
		"other port, both":                  {"https://h:8443/x", "https://h:8443/x", true},
		"other port, configured only":       {"https://h:8443/x", "https://h/x", false},
		"other port, signed only":           {"https://h/x", "https://h:8443/x", false},
		"the other scheme's port, signed":   {"https://h/x", "https://h:80/x", false},
		"the other scheme's port, unsigned": {"https://h:80/x", "https://h/x", false},
		"another host":                      {"https://h/x", "https://i/x", false},
		"another scheme":                    {"https://h/x", "http://h/x", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := post(t, c.signed, form)
			r.URL = c.configured
			if err := open(t, credentials(token)).Verify(r); (err == nil) != c.accepted {
				t.Errorf("configured %s, signed %s: %v", c.configured, c.signed, err)
			}
		})
	}
}

func TestOtherPortIsAcceptedWhereConfigured(t *testing.T) { // BR-58
	t.Parallel()
	r := load(t, "18-nonstandard-port-8443")
	r.URL = strings.Replace(r.URL, public, public+":8443", 1)
	if ev := one(t, open(t, credentials(token)), r); ev.ID != "in:SM8f9e0d1c2b3a4958677685949392a1b0" {
		t.Errorf("event id %s", ev.ID)
	}
}

func TestFragmentAndUserInformationAreNotSigned(t *testing.T) {
	t.Parallel()
	for _, configured := range []string{
		"https://hooks.example.com/in/twilio/acme#rc=2&rp=5xx,ct,rt",
		"https://hooks.example.com#rc=2/in/twilio/acme",
		"https://user:p%40ss@hooks.example.com/in/twilio/acme",
		"https://user:p@ss@hooks.example.com:443/in/twilio/acme",
	} {
		r := post(t, address, "MessageSid=SM1&Body=x")
		r.URL = configured
		if err := open(t, credentials(token)).Verify(r); err != nil {
			t.Errorf("%s: %v", configured, err)
		}
	}
}

func TestApostropheInQueryMayBeSignedInEitherForm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ received, signed string }{
		{"Body=it's&MessageSid=SM1", "Body=it's&MessageSid=SM1"},
		{"Body=it's&MessageSid=SM1", "Body=it%27s&MessageSid=SM1"},
		{"Body=it%27s&MessageSid=SM1", "Body=it's&MessageSid=SM1"},
	} {
		r := request("GET", address+"?"+c.received, "", "", sign(token, "", address+"?"+c.signed, nil))
		if ev := one(t, open(t, credentials(token)), r); decode(t, ev).Text != "it's" {
			t.Errorf("received %s, signed %s: text %q", c.received, c.signed, decode(t, ev).Text)
		}
	}
}

func TestForwardedHeadersAndHostDecideNothing(t *testing.T) { // BR-59
	t.Parallel()
	e := open(t, credentials(token))
	forged := func(r *channels.Request) {
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("X-Forwarded-Host", "evil.example.net")
		r.Header.Set("Host", "evil.example.net")
	}
	r := post(t, "https://evil.example.net/in/twilio/acme", "MessageSid=SM1&Body=x")
	r.URL = address
	forged(r)
	mustRefuse(t, e, r, "signed for the host of a header")
	r = post(t, address, "MessageSid=SM1&Body=x")
	forged(r)
	if err := e.Verify(r); err != nil {
		t.Errorf("behind a proxy: %v", err)
	}
}

func TestRepeatedFieldsAreSignedOnceEachAndSorted(t *testing.T) { // BR-60
	t.Parallel()
	e := open(t, credentials(token))
	if err := e.Verify(post(t, address, "MediaUrl0=a&Foo=2&Foo=1&Foo=2")); err != nil {
		t.Errorf("repeated field: %v", err)
	}
	r := post(t, address, "MediaUrl0=a&Foo=2&Foo=1&Foo=2")
	r.Body = []byte("MediaUrl0=a&Foo=2&Foo=1&Foo=3")
	mustRefuse(t, e, r, "one of the values changed")
}

func TestNoValueIsTrimmedOrDropped(t *testing.T) { // BR-62
	t.Parallel()
	e := open(t, credentials(token))
	for body, text := range map[string]string{
		"Body=%20hi%20":               " hi ",
		"Body=":                       "",
		"Body=&ProfileName=":          "",
		"Body=%F0%9F%98%80":           "😀",
		"Body=a%0D%0Ab":               "a\r\nb",
		"Body=1%2B1+%3D+2":            "1+1 = 2",
		"Body=a%3Bb%26c%3Dd":          "a;b&c=d",
		"Body=%09%C2%A0x%E2%80%83%0A": "\t\u00a0x\u2003\n",
	} {
		ev := one(t, e, post(t, address, "MessageSid=SM1&SmsStatus=received&"+body))
		if got := decode(t, ev).Text; got != text {
			t.Errorf("%s: text %q, want %q", body, got, text)
		}
	}
}

func TestUnescapedSemicolonIsPartOfAValue(t *testing.T) { // BR-62: url.ParseQuery drops the pair
	t.Parallel()
	signature := sign(token, "", address, url.Values{"MessageSid": {"SM1"}, "Body": {"a;b=c"}, "Odd": {"100%"}})
	r := request("POST", address, formType, "MessageSid=SM1&Body=a;b=c&Odd=100%", signature)
	if got := decode(t, one(t, open(t, credentials(token)), r)).Text; got != "a;b=c" {
		t.Errorf("text %q", got)
	}
}

func TestJSONIsBoundToItsHash(t *testing.T) { // BR-63
	t.Parallel()
	const body = `{"id":"EZ1","type":"x"}`
	e := open(t, credentials(token))
	if err := e.Verify(postJSON(body)); err != nil {
		t.Errorf("genuine: %v", err)
	}
	upper := func(r *channels.Request) {
		before, hash, _ := strings.Cut(r.URL, "=")
		r.URL = before + "=" + strings.ToUpper(hash)
	}
	resigned := func(r *channels.Request) {
		r.Header.Set("X-Twilio-Signature", sign(token, "", r.URL, nil))
	}
	for what, change := range map[string]func(*channels.Request){
		"another body":                     func(r *channels.Request) { r.Body = []byte(`{"id":"EZ2","type":"x"}`) },
		"no body":                          func(r *channels.Request) { r.Body = nil },
		"the hash dropped":                 func(r *channels.Request) { r.URL, _, _ = strings.Cut(r.URL, "?") },
		"the hash dropped, but signed":     func(r *channels.Request) { r.URL, _, _ = strings.Cut(r.URL, "?"); resigned(r) },
		"the hash twice":                   func(r *channels.Request) { _, q, _ := strings.Cut(r.URL, "?"); r.URL += "&" + q },
		"the hash twice, but signed":       func(r *channels.Request) { _, q, _ := strings.Cut(r.URL, "?"); r.URL += "&" + q; resigned(r) },
		"the hash cut short, but signed":   func(r *channels.Request) { r.URL = r.URL[:len(r.URL)-2]; resigned(r) },
		"an empty hash, but signed":        func(r *channels.Request) { r.URL, _, _ = strings.Cut(r.URL, "="); r.URL += "="; resigned(r) },
		"upper case that is not signed":    upper,
		"the body of another, hash signed": func(r *channels.Request) { r.Body = append(r.Body, ' ') },
		"a form of no parameters":          func(r *channels.Request) { r.Header.Set("Content-Type", formType); r.Body = nil },
		"a GET":                            func(r *channels.Request) { r.Method = http.MethodGet; r.Body = nil },
	} {
		r := postJSON(body)
		change(r)
		mustRefuse(t, e, r, what)
	}
	r := postJSON(body)
	upper(r)
	resigned(r)
	if err := e.Verify(r); err != nil {
		t.Errorf("upper-case hex that Twilio signed: %v", err)
	}
}

func TestNothingUnsignedIsAccepted(t *testing.T) {
	t.Parallel()
	e := open(t, credentials(token))
	bare := sign(token, "", address, nil)
	for what, r := range map[string]*channels.Request{
		"JSON without its hash": request("POST", address, jsonType, `{"id":"EZ1"}`, bare),
		"no media type":         request("POST", address, "", "MessageSid=SM1", bare),
		"multipart":             request("POST", address, "multipart/form-data; boundary=b", "--b--", bare),
		"a GET with a body":     request("GET", address, formType, "MessageSid=SM1", bare),
		"parameters moved to the URL": func() *channels.Request {
			r := post(t, address, "MessageSid=SM1&Body=x")
			r.URL, r.Body = address+"?MessageSid=SM1&Body=x", nil
			return r
		}(),
	} {
		mustRefuse(t, e, r, what)
	}
}

func TestMalformedSignatureIsRefused(t *testing.T) { // BR-66
	t.Parallel()
	e := open(t, credentials(token))
	good := post(t, address, "MessageSid=SM1&Body=x").Header.Get("X-Twilio-Signature")
	for what, values := range map[string][]string{
		"missing": nil, "empty": {""}, "one letter": {"="}, "cut short": {good[:27]}, "longer": {good + "="},
		"with a line end": {good + "\n"}, "1 MB": {strings.Repeat("A", 1<<20)}, "not ASCII": {"gr\xfc\xdfe"},
		"two": {good, good}, "a list": {good + "," + good}, "hex": {"v0=00"}, "other padding bits": {good[:26] + "/="},
	} {
		r := post(t, address, "MessageSid=SM1&Body=x")
		r.Header["X-Twilio-Signature"] = values
		mustRefuse(t, e, r, what)
	}
}

func TestRotationAcceptsEachTokenOfTheList(t *testing.T) { // BR-64
	t.Parallel()
	form := url.Values{"MessageSid": {"SM1"}, "Body": {"x"}}
	for _, c := range []struct {
		signedWith string
		configured []string
		accepted   bool
	}{
		{"old", []string{"old", "new"}, true},
		{"new", []string{"old", "new"}, true},
		{"old", []string{"new"}, false},
		{"new", []string{"new"}, true},
	} {
		r := request("POST", address, formType, form.Encode(), sign(c.signedWith, "", address, form))
		if err := open(t, credentials(c.configured...)).Verify(r); (err == nil) != c.accepted {
			t.Errorf("signed with %s, configured %v: %v", c.signedWith, c.configured, err)
		}
	}
}

func TestUnsignedSettingsNeverChooseAWeakerCheck(t *testing.T) {
	t.Parallel()
	form := url.Values{"MessageSid": {"SM1"}, "Body": {"x"}}
	byToken, byKey := sign(token, "", address, form), sign(sharedKey, "HMAC_SHA256", address, form)
	for what, c := range map[string]struct {
		credentials channels.Credentials
		signature   string
		settings    []string
		accepted    bool
	}{
		"shared key":                          {withSharedKey(), byKey, []string{settings}, true},
		"shared key, blanks in the header":    {withSharedKey(), byKey, []string{"key=k, algorithm=HMAC_SHA256"}, true},
		"token, no header":                    {withSharedKey(), byToken, nil, true},
		"shared key, no header":               {withSharedKey(), byKey, nil, false},
		"token, header":                       {withSharedKey(), byToken, []string{settings}, false},
		"no shared key configured":            {credentials(token), byKey, []string{settings}, false},
		"no shared key configured, token":     {credentials(token), byToken, []string{settings}, false},
		"no shared key configured, none":      {credentials(token), "", []string{settings}, false},
		"signed with nothing":                 {credentials(token), sign("", "HMAC_SHA256", address, form), []string{settings}, false},
		"algorithm none":                      {withSharedKey(), "", []string{"key=k,algorithm=none"}, false},
		"unknown algorithm":                   {withSharedKey(), byKey, []string{"key=k,algorithm=HMAC_MD5"}, false},
		"token, unknown algorithm":            {withSharedKey(), byToken, []string{"key=k,algorithm=HMAC_MD5"}, false},
		"no algorithm":                        {withSharedKey(), byKey, []string{"key=k"}, false},
		"empty header":                        {withSharedKey(), byToken, []string{""}, false},
		"two algorithms":                      {withSharedKey(), byKey, []string{settings, "algorithm=none"}, false},
		"token signs with SHA-256":            {withSharedKey(), sign(token, "HMAC_SHA256", address, form), []string{settings}, false},
		"shared key signs with SHA-1":         {withSharedKey(), sign(sharedKey, "", address, form), nil, false},
		"shared key signs with SHA-1, header": {withSharedKey(), sign(sharedKey, "", address, form), []string{settings}, false},
	} {
		r := request("POST", address, formType, form.Encode(), c.signature)
		if c.settings != nil {
			r.Header["X-Twilio-Webhooks-Signature-Settings"] = c.settings
		}
		if err := open(t, c.credentials).Verify(r); (err == nil) != c.accepted {
			t.Errorf("%s: %v", what, err)
		}
	}
}

package channeltest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
)

func genuineIsAccepted(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range slices.Concat(k.genuine, k.handshakes) {
		if !k.Channel.Uses(f.method) {
			errs = append(errs, fmt.Errorf("%s: the channel does not use %s", f.name, f.method))
		}
		errs = append(errs, k.mustAccept(e, k.request(f), f.name))
	}
	for _, f := range k.genuine {
		if k.Channel.Proof != "" && f.header.Get(k.Channel.Proof) == "" {
			errs = append(errs, fmt.Errorf("%s: lacks %s, in which the channel says that proof stands", f.name, k.Channel.Proof))
		}
		r := k.changed(f, func(*channels.Request) {})
		errs = append(errs, k.mustAccept(e, r, f.name+", signed by Spec.Sign"))
	}
	return errors.Join(errs...)
}

func forgedIsRefused(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range k.refused {
		errs = append(errs, k.mustRefuse(e, k.request(f), f.name))
	}
	return errors.Join(errs...)
}

func tamperedIsRefused(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	refuse := func(r *channels.Request, what string, a ...any) {
		errs = append(errs, k.mustRefuse(e, r, fmt.Sprintf(what, a...)))
	}
	for _, f := range k.genuine {
		n := len(f.body)
		if n > 0 {
			for _, at := range []int{0, n / 4, n / 2, 3 * n / 4, n - 1} {
				r := k.request(f)
				r.Body[at] ^= 1
				refuse(r, "%s: byte %d of the body changed", f.name, at)
			}
			r := k.request(f)
			r.Body = r.Body[:n-1]
			refuse(r, "%s: last byte of the body dropped", f.name)
			r = k.request(f)
			r.Body = append(r.Body, r.Body...)
			refuse(r, "%s: body doubled", f.name)
		}
		if k.PublicURL != "" {
			r := k.request(f)
			path, query, _ := strings.Cut(r.URL, "?")
			r.URL = strings.TrimSuffix(path+"/x?"+query, "?")
			refuse(r, "%s: path changed", f.name)
		}
	}
	return errors.Join(errs...)
}

func unsignedIsRefused(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range k.genuine {
		r := k.request(f)
		for _, h := range k.SignedHeaders {
			r.Header.Del(h)
		}
		what := f.name + ": without any signed header"
		if len(k.SignedHeaders) == 0 {
			r.URL, _, _ = strings.Cut(r.URL, "?")
			what = f.name + ": without its query"
		}
		errs = append(errs, k.mustRefuse(e, r, what))
		r.Body = nil
		errs = append(errs, k.mustRefuse(e, r, what+" and body"))
		r.Header = nil
		errs = append(errs, k.mustRefuse(e, r, what+", body and headers"))
	}
	return errors.Join(errs...)
}

func eachSignedHeaderIsNeeded(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range k.genuine {
		for _, h := range k.SignedHeaders {
			r := k.request(f)
			if r.Header.Get(h) == "" {
				errs = append(errs, fmt.Errorf("%s: lacks %s, which Spec.SignedHeaders lists", f.name, h))
				continue
			}
			r.Header.Del(h)
			errs = append(errs, k.mustRefuse(e, r, f.name+": without "+h))
		}
	}
	return errors.Join(errs...)
}

func headerVariantsAreRefused(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range k.genuine {
		for _, h := range k.SignedHeaders {
			genuine := f.header.Get(h)
			for what, values := range map[string][]string{
				"empty":                        {""},
				"blank":                        {" "},
				"no value at all":              {},
				"doubled, the other one first": {another(genuine), genuine},
				"doubled, the other one last":  {genuine, another(genuine)},
				"another":                      {another(genuine)},
				"cut short":                    {genuine[:max(0, len(genuine)-1)]},
				"made longer":                  {genuine + "0"},
				"1 MB long":                    {strings.Repeat("a", 1<<20)},
				"not ASCII":                    {"ключ=\xff\u00e9"},
				"not a number":                 {"-1e9"},
			} {
				r := k.request(f)
				r.Header[http.CanonicalHeaderKey(h)] = values
				errs = append(errs, k.mustRefuse(e, r, fmt.Sprintf("%s: %s %s", f.name, h, what)))
			}
		}
	}
	return errors.Join(errs...)
}

func oldRequestIsRefused(k *subject) error    { return k.clock(1) }
func futureRequestIsRefused(k *subject) error { return k.clock(-1) }

// clock moves the receiver's clock away from a freshly signed request: by the tolerance,
// which it must bear, and beyond.
func (k *subject) clock(direction time.Duration) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range k.genuine {
		r := k.changed(f, func(*channels.Request) {})
		r.Now = k.Now.Add(direction * k.Tolerance)
		errs = append(errs, k.mustAccept(e, r, fmt.Sprintf("%s: read at %s from its signing", f.name, direction*k.Tolerance)))
		for _, beyond := range []time.Duration{time.Second, time.Hour, 10 * 365 * 24 * time.Hour} {
			off := direction * (k.Tolerance + beyond)
			r.Now = k.Now.Add(off)
			errs = append(errs, k.mustRefuse(e, r, fmt.Sprintf("%s: read at %s from its signing", f.name, off)))
		}
	}
	return errors.Join(errs...)
}

func wrongSecretIsRefused(k *subject) error {
	e, err := k.open(k.withSecrets(func(list []string) []string {
		for i := range list {
			list[i] = another(list[i])
		}
		return list
	}))
	if err != nil {
		return fmt.Errorf("open with other secrets of the same form: %w", err)
	}
	var errs []error
	for _, f := range k.genuine {
		errs = append(errs, k.mustRefuse(e, k.request(f), f.name+": by an endpoint with other secrets"))
	}
	return errors.Join(errs...)
}

func emptySecretIsRefused(k *subject) error {
	var errs []error
	for _, s := range k.Channel.Secrets {
		genuine := k.Credentials.Secrets[s.Name]
		for what, list := range map[string][]string{
			"an empty secret": {""}, "a good secret and an empty one": append(slices.Clone(genuine), ""),
			"an empty secret and a good one": append([]string{""}, genuine...), "no secret": nil, "an empty list": {},
		} {
			if len(list) == 0 && s.Optional {
				continue
			}
			c := k.Credentials
			c.Secrets = maps.Clone(c.Secrets)
			c.Secrets[s.Name] = list
			if list == nil {
				delete(c.Secrets, s.Name)
			}
			if _, err := k.open(c); err == nil || errors.Is(err, errPanic) {
				errs = append(errs, fmt.Errorf("%s with %s: got the error %q, want one that refuses it", s.Name, what, fmt.Sprint(err)))
			}
		}
	}
	return errors.Join(errs...)
}

func rotatedSecretIsAccepted(k *subject) error {
	other := k.withSecrets(func(list []string) []string { return []string{another(list[0])} })
	fresh, err := k.simulate(other, k.simulation())
	if err != nil {
		return fmt.Errorf("simulate with another secret: %w", err)
	}
	single, err := k.endpoint()
	if err != nil {
		return err
	}
	errs := []error{k.mustRefuse(single, fresh, "signed with a secret that is not listed")}
	for what, order := range map[string]func([]string) []string{
		"the old secret first": func(list []string) []string { return append(list, another(list[0])) },
		"the new secret first": func(list []string) []string { return append([]string{another(list[0])}, list...) },
	} {
		e, err := k.open(k.withSecrets(order))
		if err != nil {
			errs = append(errs, fmt.Errorf("open with a list of two, %s: %w", what, err))
			continue
		}
		for _, f := range k.genuine {
			errs = append(errs, k.mustAccept(e, k.request(f), fmt.Sprintf("%s: %s, signed with the old one", f.name, what)))
		}
		errs = append(errs, k.mustAccept(e, fresh, what+", signed with the new one"))
	}
	return errors.Join(errs...)
}

func unknownSettingIsRefused(k *subject) error {
	c := k.Credentials
	c.Settings = maps.Clone(c.Settings)
	if c.Settings == nil {
		c.Settings = channels.Settings{}
	}
	c.Settings["public_url"] = "https://hooks.example.com"
	if _, err := k.open(c); err != nil {
		return fmt.Errorf("public_url, which belongs to the server, is refused: %w", err)
	}
	c.Settings["no_such_setting"] = "x"
	_, err := k.open(c)
	if err == nil {
		return errors.New("no_such_setting: opened")
	}
	if errors.Is(err, errPanic) || !strings.Contains(err.Error(), "no_such_setting") {
		return fmt.Errorf("the error does not name no_such_setting: %w", err)
	}
	return nil
}

// noSecretInErrors has the other checks provoke every error they can, and reads them all.
func noSecretInErrors(k *subject) error {
	for _, c := range checks() {
		if c.name != "NoSecretInErrors" && c.name != "Concurrent" && c.applies(k.Spec) {
			_ = guard(func() error { return c.run(k) }) // its own subtest reports it
		}
	}
	for _, unfit := range []string{" ", "\x00", "é", "!!"} {
		_, _ = k.open(k.withSecrets(func(list []string) []string {
			for i := range list {
				list[i] += unfit
			}
			return list
		}))
	}
	secret := make(map[string]string)
	add := func(what, value string) {
		if len(value) >= 8 { // shorter ones stand in errors by accident
			secret[value] = what
			secret[url.QueryEscape(value)] = what
		}
	}
	for name, list := range k.Credentials.Secrets {
		for _, s := range list {
			for _, form := range []string{s, another(s), strings.TrimPrefix(s, "whsec_")} {
				add(name, form)
			}
		}
	}
	for _, f := range slices.Concat(k.genuine, k.refused) {
		for _, h := range k.SignedHeaders {
			if v := f.header.Get(h); len(v) >= 16 { // a time stamp may be told
				add("the value of "+h, v)
			}
		}
	}
	told := make(map[string]bool)
	for _, err := range k.errs {
		for value, what := range secret {
			if strings.Contains(err.Error(), value) {
				told[what] = true
			}
		}
	}
	if len(told) > 0 {
		return fmt.Errorf("an error tells %s", strings.Join(slices.Sorted(maps.Keys(told)), ", "))
	}
	return nil
}

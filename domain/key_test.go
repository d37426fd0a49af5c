package domain_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/admitone/admitone/domain"
)

func TestStorableIDKeepsWhatAnyStoreTakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		id   string
		kept bool
	}{
		"ordinary":     {"A0LARK7Q2XZ/Ev0TIDE4K7Q2", true},
		"empty":        {"", true},
		"255 bytes":    {strings.Repeat("x", 255), true},
		"256 bytes":    {strings.Repeat("x", 256), false},
		"9000 bytes":   {strings.Repeat("x", 9000), false},
		"NUL":          {"a\x00b", false},
		"not UTF-8":    {"caf\xe9", false},
		"many bytes":   {strings.Repeat("é", 128), false},
		"odd but fine": {"a'b\"c;%_\\ \t\n", true},
	} {
		got := domain.StorableID(c.id)
		if (got == c.id) != c.kept {
			t.Errorf("%s: StorableID(%.20q) = %.40q; kept want %v", name, c.id, got, c.kept)
		}
		if len(got) > domain.MaxID || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Errorf("%s: StorableID = %q is not storable", name, got)
		}
		if again := domain.StorableID(got); again != got {
			t.Errorf("%s: StorableID of a storable id = %q; want %q", name, again, got)
		}
	}
}

// Two long ids that agree in their first 2000 bytes are two (BR-100).
func TestStorableIDTellsLongIDsApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2000)
	if a, b := domain.StorableID(long+"a"), domain.StorableID(long+"b"); a == b {
		t.Errorf("StorableID of two long ids = %q for both", a)
	}
}

// No delimiter within an id can make one key look like another (BR-19).
func TestKeysThatDifferHaveOtherDigests(t *testing.T) {
	t.Parallel()
	base := domain.Key{Tenant: "a", Platform: "slack", Account: "T1", EventID: "b:c"}
	seen := map[domain.Digest]domain.Key{base.Digest(): base}
	for _, k := range []domain.Key{
		{Tenant: "a", Platform: "slack", Account: "T1:b", EventID: "c"},
		{Tenant: "a:slack", Platform: "", Account: "T1", EventID: "b:c"},
		{Tenant: "a", Platform: "slack", Account: "T1", EventID: "B:c"},
		{Tenant: "a", Platform: "slack", Account: "T1", EventID: "b:c "},
		{Tenant: "a", Platform: "slack", Account: "T2", EventID: "b:c"},
		{Tenant: "a", Platform: "twilio", Account: "T1", EventID: "b:c"},
		{Tenant: "b", Platform: "slack", Account: "T1", EventID: "b:c"},
		{Tenant: "a", Platform: "slack", Account: "", EventID: "T1b:c"},
		{Tenant: "a", Platform: "slack", Account: "T1", EventID: "e\u0301"},
		{Tenant: "a", Platform: "slack", Account: "T1", EventID: "\u00e9"},
	} {
		if other, taken := seen[k.Digest()]; taken {
			t.Errorf("%+v and %+v have one digest", k, other)
		}
		seen[k.Digest()] = k
	}
}

// An event and a message of one name are not the same thing (BR-27).
func TestEventAndMessageOfOneNameHaveOtherDigests(t *testing.T) {
	t.Parallel()
	k := domain.Key{Tenant: "a", Platform: "email", Account: "desk@example.com", EventID: "x"}
	if k.Digest() == k.Message("x") {
		t.Error("the event x and the message x have one digest")
	}
	if !k.Message("").IsZero() {
		t.Errorf("Message of no key = %s; want the zero digest", k.Message(""))
	}
}

func TestLaneIsThatOfTheConversation(t *testing.T) {
	t.Parallel()
	a := domain.Key{Tenant: "a", Platform: "slack", Account: "T1", EventID: "1"}
	b := a
	b.EventID = "2"
	if a.Lane("C1") != b.Lane("C1") {
		t.Error("two events of one conversation have two lanes")
	}
	if a.Lane("C1") == a.Lane("C2") {
		t.Error("two conversations have one lane")
	}
	if a.Lane("") == b.Lane("") {
		t.Error("two events without a conversation have one lane")
	}
	other := a
	other.Tenant = "b"
	if a.Lane("C1") == other.Lane("C1") {
		t.Error("conversations of two tenants have one lane")
	}
}

func FuzzStorableID(f *testing.F) {
	f.Add("a", "b")
	f.Add("\x00", strings.Repeat("x", 300))
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := domain.StorableID(a), domain.StorableID(b)
		if (a == b) != (x == y) {
			t.Errorf("StorableID(%q) = %q and StorableID(%q) = %q", a, x, b, y)
		}
		if len(x) > domain.MaxID || !utf8.ValidString(x) || strings.ContainsRune(x, 0) {
			t.Errorf("StorableID(%q) = %q is not storable", a, x)
		}
	})
}

func TestIDsHaveTheFormOfTheContract(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"a": true, "0": true, "acme-slack_2": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "_a": false, "Acme": false, "a.b": false, "a\x00": false, "é": false, strings.Repeat("a", 64): false,
	} {
		if got := domain.IsID(id); got != want {
			t.Errorf("IsID(%q) = %t; want %t", id, got, want)
		}
	}
}

package payload_test

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels/payload"
)

const object = `{"a":{"b":{"c":1234567890123456789012345,"c":2}},"A":{"b":0},"s":"{\"b\":1}","list":[{"b":1}],` +
	`"a.b":"dot","*":"star","#":"hash","@this":"modifier","!x":"literal","|":"pipe","\\":"backslash","\"":"quote","":"empty","\u00e9":"accent","n":null,"t":true,"e":""}`

func TestMembersAreFoundByTheirExactNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		names []string
		want  string // of Raw; empty if there is none
	}{
		{[]string{"a", "b", "c"}, "1234567890123456789012345"},
		{[]string{"A", "b"}, "0"},
		{[]string{"A", "c"}, ""},
		{[]string{"B"}, ""},
		{[]string{"s", "b"}, ""},
		{[]string{"list", "0"}, ""},
		{[]string{"list", "b"}, ""},
		{[]string{"a.b"}, `"dot"`},
		{[]string{"*"}, `"star"`},
		{[]string{"#"}, `"hash"`},
		{[]string{"@this"}, `"modifier"`},
		{[]string{"!x"}, `"literal"`},
		{[]string{"|"}, `"pipe"`},
		{[]string{`\`}, `"backslash"`},
		{[]string{`"`}, `"quote"`},
		{[]string{""}, `"empty"`},
		{[]string{"é"}, `"accent"`},
		{[]string{"?"}, ""},
		{[]string{"@pretty"}, ""},
		{[]string{`{"a"}`}, ""},
		{[]string{"a|b"}, ""},
		{[]string{"n", "x"}, ""},
		{nil, object},
	} {
		if got := payload.Member(gjson.Parse(object), tt.names...).Raw; got != tt.want {
			t.Errorf("Member(%q) = %s; want %s", tt.names, got, tt.want)
		}
	}
}

func FuzzMemberIsTheFirstOfItsName(f *testing.F) {
	for _, name := range []string{"a", "", ".", `\`, "a.b", "@this", "é", "\x00", "\xff", "A"} {
		f.Add(object, name)
	}
	f.Fuzz(func(t *testing.T, body, name string) {
		if !gjson.Valid(body) {
			return
		}
		root := gjson.Parse(body)
		var want gjson.Result
		if root.IsObject() {
			root.ForEach(func(key, value gjson.Result) bool {
				if key.Str == name {
					want = value
				}
				return !want.Exists()
			})
		}
		if got := payload.Member(root, name); got.Raw != want.Raw {
			t.Errorf("Member(%q) of %s = %s; want %s", name, body, got.Raw, want.Raw)
		}
	})
}

func TestTextIsDigitForDigit(t *testing.T) {
	t.Parallel()
	root := gjson.Parse(object)
	for name, want := range map[string]string{
		"a": "", "s": `{"b":1}`, "n": "", "t": "", "e": "", "missing": "",
	} {
		if got := payload.Text(root.Get(name)); got != want {
			t.Errorf("Text of %s = %q; want %q", name, got, want)
		}
	}
	if got := payload.TextAt(root, "a", "b", "c"); got != "1234567890123456789012345" {
		t.Errorf("TextAt of a number = %q; want each of its digits", got)
	}
	if got := payload.FirstText(root, "missing", "n", "t", "e", "a", "s", "*"); got != `{"b":1}` {
		t.Errorf("FirstText = %q; want the first that is a text and not empty", got)
	}
	if got := payload.FirstText(root, "n"); got != "" {
		t.Errorf("FirstText of none = %q", got)
	}
}

func TestWithoutLeavesTheRestAsItStands(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ object, want string }{
		{`{"a":1.50, "b":[2 ] ,"c":{"b":3},"b":4,"B":5}`, `"a":1.50,"c":{"b":3},"B":5,`},
		{`{"b":1}`, ""},
		{`{}`, ""},
		{`["b"]`, ""},
		{`"b"`, ""},
		{``, ""},
	} {
		if got := payload.Without(gjson.Parse(tt.object), "b", "d"); got != tt.want {
			t.Errorf("Without(%s) = %s; want %s", tt.object, got, tt.want)
		}
	}
}

func TestTextBecomesUTF8(t *testing.T) {
	t.Parallel()
	if got := payload.UTF8("a\xff\xfeé"); got != "a\uFFFDé" {
		t.Errorf("UTF8 = %q; want one sign in place of what is not UTF-8", got)
	}
}

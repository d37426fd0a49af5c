// Package payload reads vendors' JSON as ids need it: names count in their exact case, of two
// equal ones the first, numbers digit for digit, and nothing is looked for inside of a string.
// What channels have in common beyond this is a coincidence of their vendors.
package payload

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// Member returns the value at the end of names, each of which is a member of the one before.
// They are names and not gjson's paths, and may come from the payload. There is none if one of
// them is missing or what should have it is no object.
func Member(v gjson.Result, names ...string) gjson.Result {
	for _, name := range names {
		if !v.IsObject() {
			return gjson.Result{}
		}
		v = v.Get(gjson.Escape(name))
	}
	return v
}

// Text returns a string as it is and a number digit for digit, and nothing of any other value:
// vendors write ids as either, and a float holds fewer digits than they have.
func Text(v gjson.Result) string {
	switch v.Type {
	case gjson.String:
		return v.Str
	case gjson.Number:
		return v.Raw
	case gjson.Null, gjson.False, gjson.True, gjson.JSON:
	}
	return ""
}

// TextAt returns the text of the member at the end of names.
func TextAt(v gjson.Result, names ...string) string { return Text(Member(v, names...)) }

// FirstText returns the first text that is not empty of the members of v with those names.
func FirstText(v gjson.Result, names ...string) string {
	for _, name := range names {
		if s := TextAt(v, name); s != "" {
			return s
		}
	}
	return ""
}

// Without returns the members of object but for those named, as they stand there, each
// followed by a comma. There are none of what is no object.
func Without(object gjson.Result, names ...string) string {
	if !object.IsObject() {
		return ""
	}
	var b strings.Builder
	b.Grow(len(object.Raw))
	object.ForEach(func(name, value gjson.Result) bool {
		if !slices.Contains(names, name.Str) {
			b.WriteString(name.Raw)
			b.WriteByte(':')
			b.WriteString(value.Raw)
			b.WriteByte(',')
		}
		return true
	})
	return b.String()
}

// UTF8 returns s with U+FFFD in place of what is not UTF-8: the application gets JSON.
func UTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

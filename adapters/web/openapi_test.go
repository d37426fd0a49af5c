package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/web"
)

var update = flag.Bool("update", false, "write docs/openapi.json")

var description = filepath.Join("..", "..", "docs", "openapi.json")

func TestPublishedDescriptionIsTheServed(t *testing.T) {
	t.Parallel()
	res, served := serveAdmin(t, config(someLedger())).get("/api/v1/openapi.json")
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("openapi.json = %d of type %q", res.StatusCode, res.Header.Get("Content-Type"))
	}
	if *update {
		if err := os.WriteFile(description, []byte(served+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	published, err := os.ReadFile(description)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(published), []byte(served)) {
		t.Errorf("%s is not what the server describes; run go test ./adapters/web -update", description)
	}
}

// Every operation that is described answers, with each status, as it is described.
func TestEveryRouteAnswersAsDescribed(t *testing.T) {
	t.Parallel()
	cfg := config(someLedger())
	_, text := serveAdmin(t, cfg).get("/api/v1/openapi.json")
	doc := object(t, text)

	down := config(someLedger())
	down.Ready = func(context.Context) web.Readiness { return web.Readiness{} }
	locked := config(someLedger())
	locked.Tokens = []string{"token"}
	empty := someLedger()
	empty.oldestOpen = func() (time.Time, error) { return time.Time{}, nil }

	asked := map[string]bool{}
	for _, c := range []struct {
		cfg                       web.AdminConfig
		method, described, actual string
		body                      string
		want                      int
	}{
		{cfg, "GET", "/healthz", "", "", 200},
		{cfg, "GET", "/readyz", "", "", 200},
		{down, "GET", "/readyz", "", "", 503},
		{cfg, "GET", "/metrics", "", "", 200},
		{cfg, "GET", "/api/v1/openapi.json", "", "", 200},
		{cfg, "GET", "/api/v1/receipts", "/api/v1/receipts?state=lost&since=24h&limit=2", "", 200},
		{cfg, "GET", "/api/v1/receipts", "/api/v1/receipts?state=none", "", 422},
		{locked, "GET", "/api/v1/receipts", "", "", 401},
		{cfg, "GET", "/api/v1/receipts/{id}", "/api/v1/receipts/" + handledID, "", 200},
		{cfg, "GET", "/api/v1/receipts/{id}", "/api/v1/receipts/none", "", 404},
		{cfg, "POST", "/api/v1/receipts/{id}/replay", "/api/v1/receipts/" + lostID + "/replay", "", 200},
		{cfg, "POST", "/api/v1/receipts/{id}/replay", "/api/v1/receipts/none/replay", "", 404},
		{cfg, "POST", "/api/v1/receipts/{id}/discard", "/api/v1/receipts/" + lostID + "/discard", "", 200},
		{cfg, "POST", "/api/v1/receipts/{id}/discard", "/api/v1/receipts/" + handledID + "/discard", "", 409},
		{cfg, "POST", "/api/v1/receipts/replay", "", `{"state":"lost","tenant":"acme"}`, 200},
		{cfg, "POST", "/api/v1/receipts/replay", "", `{"state":"open"}`, 422},
		{cfg, "POST", "/api/v1/receipts/replay", "", `no JSON`, 400},
		{cfg, "GET", "/api/v1/installations", "/api/v1/installations?tenant=acme&limit=2", "", 200},
		{cfg, "GET", "/api/v1/installations", "/api/v1/installations?limit=no", "", 422},
		{cfg, "GET", "/api/v1/installations/{id}", "/api/v1/installations/acme-slack", "", 200},
		{cfg, "GET", "/api/v1/installations/{id}", "/api/v1/installations/none", "", 404},
		{cfg, "POST", "/api/v1/installations", "", `{"id":"new","tenant":"acme","channel":"slack","account":"T1","secrets":{"signing_secret":"s"}}`, 201},
		{cfg, "POST", "/api/v1/installations", "", `{"id":"acme-slack","tenant":"acme","channel":"slack","account":"T1"}`, 409},
		{cfg, "POST", "/api/v1/installations", "", `{"id":"new","tenant":"acme","channel":"none","account":"T1"}`, 422},
		{cfg, "PATCH", "/api/v1/installations/{id}", "/api/v1/installations/acme-slack", `{"state":"paused"}`, 200},
		{cfg, "PATCH", "/api/v1/installations/{id}", "/api/v1/installations/none", `{"state":"paused"}`, 404},
		{cfg, "POST", "/api/v1/installations/{id}/rotate", "/api/v1/installations/acme-slack/rotate", `{"secrets":{"signing_secret":"new"}}`, 200},
		{cfg, "POST", "/api/v1/installations/{id}/rotate", "/api/v1/installations/acme-slack/rotate", `{}`, 422},
		{cfg, "POST", "/api/v1/installations/{id}/recheck", "/api/v1/installations/acme-slack/recheck", "", 200},
		{cfg, "POST", "/api/v1/installations/{id}/recheck", "/api/v1/installations/none/recheck", "", 404},
		{cfg, "DELETE", "/api/v1/installations/{id}", "/api/v1/installations/acme-slack", "", 200},
		{cfg, "DELETE", "/api/v1/installations/{id}", "/api/v1/installations/none", "", 404},
		{locked, "DELETE", "/api/v1/installations/{id}", "/api/v1/installations/acme-slack", "", 401},
		{cfg, "GET", "/api/v1/conversations", "/api/v1/conversations?status=pending&limit=2", "", 200},
		{cfg, "GET", "/api/v1/conversations", "/api/v1/conversations?status=open", "", 422},
		{locked, "GET", "/api/v1/conversations", "", "", 401},
		{cfg, "GET", "/api/v1/conversations/{id}/messages", "/api/v1/conversations/" + pendingID + "/messages?limit=2", "", 200},
		{cfg, "GET", "/api/v1/conversations/{id}/messages", "/api/v1/conversations/none/messages", "", 404},
		{locked, "GET", "/api/v1/conversations/{id}/messages", "/api/v1/conversations/" + pendingID + "/messages", "", 401},
		{cfg, "POST", "/api/v1/conversations/{id}/close", "/api/v1/conversations/" + pendingID + "/close", "", 200},
		{cfg, "POST", "/api/v1/conversations/{id}/close", "/api/v1/conversations/none/close", "", 404},
		{cfg, "POST", "/api/v1/conversations/{id}/close", "/api/v1/conversations/" + closedID + "/close", "", 409},
		{locked, "POST", "/api/v1/conversations/{id}/close", "/api/v1/conversations/" + pendingID + "/close", "", 401},
		{cfg, "GET", "/api/v1/polls", "", "", 200},
		{locked, "GET", "/api/v1/polls", "", "", 401},
		{cfg, "GET", "/api/v1/stats", "", "", 200},
		{config(empty), "GET", "/api/v1/stats", "", "", 200},
		{locked, "GET", "/api/v1/stats", "", "", 401},
	} {
		path := c.actual
		if path == "" {
			path = c.described
		}
		name := fmt.Sprintf("%s %s = %d", c.method, c.described, c.want)
		asked[c.method+" "+c.described] = true
		res, body := serveAdmin(t, c.cfg).call(c.method, path, c.body)
		if res.StatusCode != c.want {
			t.Errorf("%s is answered %d: %s", name, res.StatusCode, body)
			continue
		}
		op := members(at(doc, "paths", c.described, strings.ToLower(c.method)))
		if op == nil {
			t.Errorf("%s is not described", name)
			continue
		}
		mediaType, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
		media := members(at(op, "responses", fmt.Sprint(c.want), "content", mediaType))
		if media == nil {
			t.Errorf("%s: an answer of type %s is not described", name, mediaType)
			continue
		}
		if strings.HasSuffix(mediaType, "json") {
			var value any
			if err := json.Unmarshal([]byte(body), &value); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for _, wrong := range conform(doc, media["schema"], value, "body") {
				t.Errorf("%s: %s", name, wrong)
			}
		}
	}
	for path, item := range members(doc["paths"]) {
		for method := range members(item) {
			if name := strings.ToUpper(method) + " " + path; !asked[name] {
				t.Errorf("%s is described and was not asked", name)
			}
		}
	}
}

func TestDescriptionDemandsTheTokenWhereTheServerDoes(t *testing.T) {
	t.Parallel()
	_, text := serveAdmin(t, config(someLedger())).get("/api/v1/openapi.json")
	for path, item := range members(object(t, text)["paths"]) {
		for method, op := range members(item) {
			_, described := members(op)["security"]
			if want := strings.HasPrefix(path, "/api/"); described != want {
				t.Errorf("%s %s is described with a token: %t; want %t", method, path, described, want)
			}
		}
	}
}

func at(v any, path ...string) any {
	for _, name := range path {
		v = members(v)[name]
	}
	return v
}

// conform returns how value departs from a schema, as far as the description's schemas go.
func conform(doc map[string]any, schema, value any, where string) []string {
	s := members(schema)
	if ref, ok := s["$ref"].(string); ok {
		return conform(doc, at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...), value, where)
	}
	var wrong []string
	if types := texts(s["type"]); len(types) > 0 && !slices.Contains(types, typeOf(value)) &&
		(typeOf(value) != "integer" || !slices.Contains(types, "number")) {
		return []string{fmt.Sprintf("%s is %s; described as %v", where, typeOf(value), types)}
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, value) {
		wrong = append(wrong, fmt.Sprintf("%s is %v; described as one of %v", where, value, enum))
	}
	switch v := value.(type) {
	case string:
		if s["format"] == "date-time" {
			if at, err := time.Parse(time.RFC3339, v); err != nil || at.Location() != time.UTC {
				wrong = append(wrong, fmt.Sprintf("%s is %q; described as a time", where, v))
			}
		}
	case []any:
		for i, e := range v {
			wrong = append(wrong, conform(doc, s["items"], e, fmt.Sprintf("%s[%d]", where, i))...)
		}
	case map[string]any:
		properties := members(s["properties"])
		for _, name := range texts(s["required"]) {
			if _, there := v[name]; !there {
				wrong = append(wrong, fmt.Sprintf("%s lacks %v", where, name))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			p, there := properties[name]
			if !there {
				if s["additionalProperties"] == false {
					wrong = append(wrong, fmt.Sprintf("%s.%s is not described", where, name))
					continue
				}
				p = s["additionalProperties"]
			}
			wrong = append(wrong, conform(doc, p, v[name], where+"."+name)...)
		}
	}
	return wrong
}

// texts returns a text, or a list of them, as a list.
func texts(v any) []string {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var all []string
	for _, e := range list {
		if text, ok := e.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

func typeOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

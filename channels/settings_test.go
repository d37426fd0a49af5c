package channels_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
)

type settings struct {
	AppID     string        `yaml:"app_id"`
	Size      int64         `yaml:"size"`
	Share     float64       `yaml:"share"`
	Poll      time.Duration `yaml:"poll"`
	Addresses []string      `yaml:"addresses"`
	Strict    bool          `yaml:"strict"`
}

func TestSettingsAreDecoded(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		from channels.Settings
		want settings
	}{
		"none":       {nil, settings{}},
		"public url": {channels.Settings{"public_url": "https://hooks.example.com"}, settings{}},
		"of YAML": {
			channels.Settings{"app_id": "0017", "size": 5000000, "share": 0.5, "poll": "30s", "strict": true},
			settings{AppID: "0017", Size: 5000000, Share: 0.5, Poll: 30 * time.Second, Strict: true},
		},
		"integer for a text": {channels.Settings{"app_id": 1234567890}, settings{AppID: "1234567890"}},
		"of JSON": {
			channels.Settings{"app_id": float64(1234567890), "size": float64(5000000), "share": 0.5, "poll": "30s"},
			settings{AppID: "1234567890", Size: 5000000, Share: 0.5, Poll: 30 * time.Second},
		},
		"of JSON with its numbers kept": {
			channels.Settings{"app_id": json.Number("9007199254740993"), "size": json.Number("9007199254740993"), "share": json.Number("0.5")},
			settings{AppID: "9007199254740993", Size: 9007199254740993, Share: 0.5},
		},
	} {
		var got settings
		if err := tt.from.Decode(&got); err != nil {
			t.Errorf("%s: Decode: %v", what, err)
			continue
		}
		if got.AppID != tt.want.AppID || got.Size != tt.want.Size || got.Share != tt.want.Share || got.Poll != tt.want.Poll || got.Strict != tt.want.Strict {
			t.Errorf("%s: Decode = %+v; want %+v", what, got, tt.want)
		}
	}
	var got settings
	list := channels.Settings{"addresses": []any{"a@example.com", "b@example.com"}}
	if err := list.Decode(&got); err != nil || strings.Join(got.Addresses, " ") != "a@example.com b@example.com" {
		t.Errorf("Decode of a list = %q, %v", got.Addresses, err)
	}
}

func TestUnfitSettingIsNamed(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]any{"no_such_setting": "x", "App_ID": "x"} {
		err := channels.Settings{key: value}.Decode(&settings{})
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: error = %v; want one that names it", key, err)
		}
	}
	for key, value := range map[string]any{"size": "many", "poll": "soon", "addresses": 5, "strict": "perhaps"} {
		if err := (channels.Settings{key: value}).Decode(&settings{}); err == nil {
			t.Errorf("%s: %v: no error", key, value)
		}
	}
}

func TestDecodeLeavesTheSettings(t *testing.T) {
	t.Parallel()
	s := channels.Settings{"public_url": "https://hooks.example.com", "size": float64(5)}
	if err := s.Decode(&settings{}); err != nil {
		t.Fatalf("Decode: %v", err)
	}
	if s["public_url"] != "https://hooks.example.com" || s["size"] != float64(5) {
		t.Errorf("Decode has changed the settings to %v", s)
	}
}

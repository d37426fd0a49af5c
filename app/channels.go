package app

import (
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/cfworker"
	"github.com/admitone/admitone/channels/gmail"
	"github.com/admitone/admitone/channels/line"
	"github.com/admitone/admitone/channels/slack"
	"github.com/admitone/admitone/channels/teams"
	"github.com/admitone/admitone/channels/telegram"
	"github.com/admitone/admitone/channels/twilio"
	"github.com/admitone/admitone/channels/wechat"
	"github.com/admitone/admitone/channels/whatsappcloud"
)

// Channels returns the channels of this build: a new one is a line here.
func Channels() []channels.Channel {
	return []channels.Channel{
		slack.New(),
		twilio.New(),
		telegram.New(),
		cfworker.New(),
		gmail.New(),
		whatsappcloud.New(),
		line.New(),
		wechat.New(),
		teams.New(),
	}
}

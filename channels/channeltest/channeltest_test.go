package channeltest_test

import (
	"testing"

	"github.com/admitone/admitone/channels/channeltest"
)

func TestToyKeepsEveryPromise(t *testing.T) {
	t.Chdir("testdata/toy")
	channeltest.Run(t, toySpec(""))
}

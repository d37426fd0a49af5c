package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/redis"
	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

const wait = 2 * time.Second

// worksAt checks that two stores at url share what they remember.
func worksAt(t *testing.T, url string) {
	t.Helper()
	a := open(t, redis.Config{URL: url, Timeout: wait})
	b := open(t, redis.Config{URL: url, Timeout: wait})
	// A fresh cluster or Sentinel takes a moment to agree with itself.
	eventually(t, 20*time.Second, "not ready", func() bool { return a.Ready(t.Context()) == nil })
	for _, name := range []string{"a", "{b}", "c"} {
		key := domain.DigestOf(name)
		wantAbsent(t, b, key)
		remember(t, a, key, ports.MarkOf(key), time.Hour)
		wantSeen(t, b, key, ports.MarkOf(key))
	}
}

func TestConnectsToASingleServer(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, "--requirepass", "p/w#1:@")
	worksAt(t, "redis://:p%2Fw%231:%40@"+server.Addr()+"/3")
	if server.Do("AUTH", "p/w#1:@") != "+OK" {
		t.Error("the server does not ask for its password")
	}
	s := open(t, redis.Config{URL: server.URL(), Timeout: wait})
	wantError(t, s, domain.DigestOf("a"))
}

func TestConnectsToACluster(t *testing.T) {
	t.Parallel()
	node := servertest.Redis(t, "--cluster-enabled", "yes")
	if reply := node.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383"); reply != "+OK" {
		t.Fatalf("CLUSTER ADDSLOTSRANGE = %s", reply)
	}
	// The second of the hosts is down: any of them is enough.
	down := servertest.Redis(t)
	down.Stop()
	eventually(t, 20*time.Second, "cluster not up", func() bool {
		return strings.Contains(node.Do("CLUSTER", "INFO"), "cluster_state:ok")
	})
	worksAt(t, "redis+cluster://"+node.Addr()+","+down.Addr())
}

func TestConnectsToWhatSentinelWatches(t *testing.T) {
	t.Parallel()
	master := servertest.Redis(t, "--requirepass", "secret")
	sentinel := servertest.Sentinel(t, master, "main", "sentinel auth-pass main secret")
	down := servertest.Redis(t)
	down.Stop()
	worksAt(t, fmt.Sprintf("redis+sentinel://:secret@%s,%s/main/2", sentinel.Addr(), down.Addr()))
}

func TestNewRefusesWhatIsNoAddressAndTellsNoSecret(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "127.0.0.1:6379", "http://127.0.0.1:6379", "redis+other://127.0.0.1:6379", "redis+://127.0.0.1:6379",
		"redis://:hun/ter2@127.0.0.1:6379", "redis://:hunter2@127.0.0.1:x/0", "redis://:hunter2@127.0.0.1:6379/db",
		"redis://:hunter2@127.0.0.1:6379,127.0.0.1:6380", "redis://:hunter2@127.0.0.1:6379/0?hunter2=1",
		"redis://:hun%ter2@127.0.0.1:6379/0", "redis+cluster://:hunter2@127.0.0.1:6379/1",
		"redis+cluster://:hunter2@127.0.0.1:6379,", "redis+sentinel://:hunter2@127.0.0.1:6379",
		"redis+sentinel://:hunter2@127.0.0.1:6379/main/db",
	} {
		s, err := redis.New(redis.Config{URL: url})
		if err == nil {
			_ = s.Close()
			t.Errorf("New(%q) = nil; want an error", url)
			continue
		}
		if strings.Contains(err.Error(), "ter2") {
			t.Errorf("New(%q) tells the secret: %v", url, err)
		}
	}
	for _, c := range []redis.Config{
		{URL: "redis://127.0.0.1:1", Timeout: -1},
		{URL: "redis://127.0.0.1:1", Near: -1},
	} {
		if _, err := redis.New(c); err == nil {
			t.Errorf("New(%+v) = nil; want an error", c)
		}
	}
}

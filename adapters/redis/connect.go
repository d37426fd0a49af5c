package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// poolSize connections are enough: one batch is under way at a time, and one more serves
	// Ready. The rest replaces what broke.
	poolSize = 4
	// clusterPoolSize is for each node of a cluster.
	clusterPoolSize = 2
)

// errURL tells nothing of the URL itself: a password with a slash in it makes any part of it secret.
var errURL = errors.New("url must be redis://[user:password@]host:port/db, " +
	"redis+cluster://[user:password@]host:port,host:port or " +
	"redis+sentinel://[user:password@]host:port,host:port/master/db (rediss for TLS), " +
	"with a password's special characters percent-encoded and no unknown query parameter")

// debugLog takes what go-redis tells of its connections. Each of it that matters is an error of
// a call as well, so it is for those who look into the connections themselves.
type debugLog struct{}

func (debugLog) Printf(ctx context.Context, format string, v ...any) {
	if slog.Default().Enabled(ctx, slog.LevelDebug) {
		slog.DebugContext(ctx, "go-redis", "tells", fmt.Sprintf(format, v...))
	}
}

var logOnce sync.Once

// connect returns a client whose calls end with their contexts, are tried once, and whose
// connections are made within timeout.
func connect(rawURL string, timeout time.Duration) (goredis.UniversalClient, error) {
	logOnce.Do(func() { goredis.SetLogger(debugLog{}) }) // there is one for all clients
	u, err := split(rawURL)
	if err != nil {
		return nil, err
	}
	switch u.kind {
	case "":
		return single(u, timeout)
	case "cluster":
		return cluster(u, timeout)
	case "sentinel":
		return sentinel(u, timeout)
	}
	return nil, errURL
}

func single(u address, timeout time.Duration) (goredis.UniversalClient, error) {
	if len(u.hosts) != 1 {
		return nil, errURL
	}
	o, err := goredis.ParseURL(u.join(u.path))
	if err != nil {
		return nil, errURL
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.ContextTimeoutEnabled = true
	o.PoolSize, o.PipelinePoolSize = poolSize, -1
	o.Protocol, o.DisableIdentity = 2, true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return goredis.NewClient(o), nil
}

func cluster(u address, timeout time.Duration) (goredis.UniversalClient, error) {
	if strings.Trim(u.path, "/") != "" { // a cluster has no databases
		return nil, errURL
	}
	for _, host := range u.hosts[1:] {
		u.query.Add("addr", host)
	}
	o, err := goredis.ParseClusterURL(u.join(""))
	if err != nil {
		return nil, errURL
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.ContextTimeoutEnabled = true
	o.PoolSize, o.PipelinePoolSize = clusterPoolSize, -1
	o.Protocol, o.DisableIdentity = 2, true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return goredis.NewClusterClient(o), nil
}

func sentinel(u address, timeout time.Duration) (goredis.UniversalClient, error) {
	master, db, _ := strings.Cut(strings.Trim(u.path, "/"), "/")
	if master == "" {
		return nil, errURL
	}
	for _, host := range u.hosts[1:] {
		u.query.Add("addr", host)
	}
	u.query.Set("master_name", master)
	// go-redis reads the user in the URL as the Sentinels' and the parameters as Redis' own.
	if u.user != nil {
		u.query.Set("username", u.user.Username())
		if password, ok := u.user.Password(); ok {
			u.query.Set("password", password)
		}
	}
	u.user = url.UserPassword(u.query.Get("sentinel_username"), u.query.Get("sentinel_password"))
	u.query.Del("sentinel_username")
	u.query.Del("sentinel_password")
	o, err := goredis.ParseFailoverURL(u.join("/" + db))
	if err != nil {
		return nil, errURL
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.ContextTimeoutEnabled = true
	o.PoolSize, o.PipelinePoolSize = poolSize, -1
	o.Protocol, o.DisableIdentity = 2, true
	return goredis.NewFailoverClient(o), nil
}

// An address is a URL with more than one host, which net/url does not read.
type address struct {
	kind  string // "", "cluster" or "sentinel"
	tls   bool
	user  *url.Userinfo
	hosts []string
	path  string
	query url.Values
}

func split(rawURL string) (address, error) {
	var a address
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return a, errURL
	}
	base, kind, plus := strings.Cut(scheme, "+")
	if base != "redis" && base != "rediss" || plus && kind == "" {
		return a, errURL
	}
	a.kind, a.tls = kind, base == "rediss"
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	tail, err := url.Parse(rest[end:])
	if err != nil || tail.Fragment != "" {
		return a, errURL
	}
	if a.query, err = url.ParseQuery(tail.RawQuery); err != nil {
		return a, errURL
	}
	a.path = tail.Path
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		who, err := url.Parse("//" + authority[:at+1] + "host")
		if err != nil {
			return a, errURL
		}
		a.user, authority = who.User, authority[at+1:]
	}
	a.hosts = strings.Split(authority, ",")
	if slices.Contains(a.hosts, "") {
		return a, errURL
	}
	return a, nil
}

// join returns the URL of the first host in the form of go-redis.
func (a address) join(path string) string {
	u := url.URL{Scheme: "redis", User: a.user, Host: a.hosts[0], Path: path, RawQuery: a.query.Encode()}
	if a.tls {
		u.Scheme = "rediss"
	}
	return u.String()
}

package baseline

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	goredis "github.com/redis/go-redis/v9"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// A delivery is a row of the ordinary handler's table.
type delivery struct {
	ID           uint64 `gorm:"primaryKey"`
	Tenant       string `gorm:"uniqueIndex:delivery_event"`
	Platform     string `gorm:"uniqueIndex:delivery_event"`
	Account      string `gorm:"uniqueIndex:delivery_event"`
	EventID      string `gorm:"uniqueIndex:delivery_event"`
	Channel      string
	MessageKey   string
	Kind         string
	Conversation string
	Status       string
	Attempt      int
	Payload      []byte
	CreatedAt    time.Time `gorm:"index"`
	UpdatedAt    time.Time
}

// envelope is what the ordinary handler reads of a request.
type envelope struct {
	TeamID  string `json:"team_id"`
	AppID   string `json:"api_app_id"`
	EventID string `json:"event_id"`
	Type    string `json:"type"`
	Event   struct {
		Type    string `json:"type"`
		User    string `json:"user"`
		Text    string `json:"text"`
		Channel string `json:"channel"`
		TS      string `json:"ts"`
	} `json:"event"`
}

// kept is how many connections a tuned handler keeps to its database: one for each delivery
// that the benchmark judges at a time.
const kept = 64

// Ordinary returns the handler that one would write: echo, the standard library's JSON and
// HMAC for each request, SET NX in Redis against repetitions, and a row by gorm's Create. It
// does no more than that: nobody is handed the event, and none is taken up after a crash.
//
// Its settings are the defaults of the libraries: gorm puts each row into a transaction of its
// own, and database/sql keeps two connections, so that most rows connect anew when many come at
// once. A tuned one keeps connections and statements, and leaves the transaction out.
func Ordinary(ctx context.Context, secret, dsn, redisURL string, tuned bool) (http.Handler, error) {
	db, err := gorm.Open(postgres.Open(dsn), &gorm.Config{SkipDefaultTransaction: tuned, PrepareStmt: tuned})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if tuned {
		pool, err := db.DB()
		if err != nil {
			return nil, err
		}
		pool.SetMaxOpenConns(kept)
		pool.SetMaxIdleConns(kept)
	}
	if err := db.WithContext(ctx).AutoMigrate(&delivery{}); err != nil {
		return nil, fmt.Errorf("make the table: %w", err)
	}
	o, err := goredis.ParseURL(redisURL)
	if err != nil {
		return nil, err
	}
	h := ordinary{secret: []byte(secret), db: db, redis: goredis.NewClient(o)}
	e := echo.New()
	e.POST("/in/:channel/:installation", h.receive)
	return e, nil
}

type ordinary struct {
	secret []byte
	db     *gorm.DB
	redis  *goredis.Client
}

func (h ordinary) receive(c echo.Context) error {
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return c.NoContent(http.StatusBadRequest)
	}
	if !h.authentic(c.Request().Header, body) {
		return c.NoContent(http.StatusUnauthorized)
	}
	var in envelope
	if err := json.Unmarshal(body, &in); err != nil {
		return c.NoContent(http.StatusBadRequest)
	}
	ctx := c.Request().Context()
	key := "event:slack:" + in.TeamID + ":" + in.AppID + ":" + in.EventID
	fresh, err := h.redis.SetNX(ctx, key, "1", 25*time.Hour).Result()
	if err != nil {
		return c.NoContent(http.StatusServiceUnavailable)
	}
	if !fresh {
		return c.NoContent(http.StatusOK)
	}
	err = h.db.WithContext(ctx).Create(&delivery{
		Tenant: "bench", Platform: "slack", Account: in.TeamID, EventID: in.AppID + "/" + in.EventID, Channel: c.Param("channel"),
		MessageKey: "message:" + in.Event.Channel + ":" + in.Event.TS, Kind: in.Event.Type, Conversation: in.Event.Channel,
		Status: "received", Payload: body,
	}).Error
	if err != nil {
		_ = h.redis.Del(ctx, key).Err() // the vendor comes again, and finds it or does not
		return c.NoContent(http.StatusServiceUnavailable)
	}
	return c.NoContent(http.StatusOK)
}

func (h ordinary) authentic(header http.Header, body []byte) bool {
	timestamp := header.Get("X-Slack-Request-Timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, h.secret)
	mac.Write([]byte("v0:" + timestamp + ":"))
	mac.Write(body)
	return hmac.Equal([]byte("v0="+hex.EncodeToString(mac.Sum(nil))), []byte(header.Get("X-Slack-Signature")))
}

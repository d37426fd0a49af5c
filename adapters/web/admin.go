package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humaecho"
	"github.com/labstack/echo/v4"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// readyTimeout is how long /readyz waits for the dependencies; monitors give up later.
const readyTimeout = 3 * time.Second

// An AdminConfig is what the admin listener is made of. All fields but Tokens are needed,
// and all functions are called concurrently.
type AdminConfig struct {
	// Tokens are the accepted bearer tokens, several while one is being replaced. With
	// none, whoever reaches the listener may use it.
	Tokens []string
	Ledger ports.Ledger
	// Conversations are those that the claims have recorded.
	Conversations ports.Conversations
	// Content returns what a receipt, which holds its payload, tells the application.
	Content func(domain.Receipt) (domain.Content, error)
	// Installations are those that the database keeps.
	Installations ports.Installations
	Quarantine    ports.Quarantine
	// CheckInstallation returns what is wrong with one that is to be kept: domain.ErrTaken if the
	// configuration has its id or its account, else the join of everything else, in words that
	// may be shown.
	CheckInstallation func(ports.Installation) error
	// InstallationChanged makes this instance look one up anew. It does not block.
	InstallationChanged func(id string)
	// Recheck checks the quarantined requests of an installation again. It returns
	// domain.ErrNotInstalled, and domain.ErrState if nothing can be admitted now.
	Recheck func(ctx context.Context, installation string) (ports.Recheck, error)
	// Polls are the accounts that are polled.
	Polls ports.PollStore
	// Ready tells whether the process can admit, and of each dependency.
	Ready func(ctx context.Context) Readiness
	// Stats tells what this process has counted since it began.
	Stats func(ctx context.Context) Counters
	// Metrics answers /metrics.
	Metrics http.Handler
	// Nudge makes the engine look for due receipts now. It does not block.
	Nudge func()
	Log   *slog.Logger
}

// Readiness is whether the process can admit events, and why not.
type Readiness struct {
	Ready        bool         `json:"ready"`
	Dependencies []Dependency `json:"dependencies" nullable:"false"`
}

// A Dependency is something that the process needs or uses. Detail is for people and holds
// no secret.
type Dependency struct {
	Name   string `json:"name" example:"durable store"`
	Ready  bool   `json:"ready"`
	Needed bool   `json:"needed" doc:"Without it the process is not ready."`
	Detail string `json:"detail"`
}

// Counters are what one process has counted since it began.
type Counters struct {
	Verdicts              map[domain.Verdict]int64
	VendorRetries         int64 // deliveries that the vendor marked as repeated
	DuplicatesOfUnhandled int64 // duplicates that met a receipt which was not handled
}

type admin struct {
	AdminConfig
	api     huma.API
	tokens  [][sha256.Size]byte
	origins *http.CrossOriginProtection
}

// Admin returns the handler for people and monitoring: health, metrics and the API that
// /api/v1/openapi.json describes. It is safe for concurrent use. It returns an error only
// if the description can't be written.
func Admin(cfg AdminConfig) (http.Handler, error) {
	a := &admin{AdminConfig: cfg, origins: http.NewCrossOriginProtection()}
	for _, t := range cfg.Tokens {
		a.tokens = append(a.tokens, sha256.Sum256([]byte(t)))
	}
	e := newEcho(cfg.Log, writeProblem)
	e.Use(recovered, a.guard)
	a.api = humaecho.New(e, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       "Admitone admin API",
				Version:     "1",
				Description: "The ledger of receipts, for people and programs that watch over Admitone.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "server.admin_token, if one is set"},
				},
			},
		},
		Formats:       huma.DefaultFormats,
		DefaultFormat: echo.MIMEApplicationJSON,
		Transformers:  []huma.Transformer{withoutValues},
	})
	a.registerHealth(e)
	a.registerReceipts()
	a.registerConversations()
	a.registerInstallations()
	a.registerPolls()
	a.registerStats()
	if err := a.registerDescription(e); err != nil {
		return nil, err
	}
	return e, nil
}

// open are the routes that monitors reach without a token.
var open = map[string]bool{"/healthz": true, "/readyz": true, "/metrics": true}

// guard lets in who bears a token, where one is set, and keeps out other sites' pages in the
// browser of somebody who reaches the listener.
func (a *admin) guard(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set(echo.HeaderCacheControl, "no-store")
		h.Set(echo.HeaderXContentTypeOptions, "nosniff")
		if err := a.origins.Check(c.Request()); err != nil {
			return echo.NewHTTPError(http.StatusForbidden).SetInternal(err)
		}
		if len(a.tokens) > 0 && !open[c.Path()] && !a.knows(c.Request()) {
			h.Set(echo.HeaderWWWAuthenticate, `Bearer realm="admitone"`)
			return domain.ErrUnauthenticated
		}
		return next(c)
	}
}

// knows reports whether r bears one of the tokens. All are compared, and by their digests, so
// that the time taken tells neither which one was near nor how long they are.
func (a *admin) knows(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return false
	}
	sum := sha256.Sum256([]byte(token))
	known := 0
	for i := range a.tokens {
		known |= subtle.ConstantTimeCompare(sum[:], a.tokens[i][:])
	}
	return known == 1
}

// withoutValues takes from an error what the library repeats of a body that it does not accept:
// it may hold a secret.
func withoutValues(_ huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*huma.ErrorModel); ok {
		for _, e := range p.Errors {
			e.Value = nil
		}
	}
	return v, nil
}

func writeProblem(c echo.Context, status int, detail string) error {
	c.Response().Header().Set(echo.HeaderContentType, "application/problem+json")
	return c.JSON(status, problem(status, detail))
}

func problem(status int, detail string) *huma.ErrorModel {
	return &huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail}
}

// register adds an operation whose errors are answered by answerTo. The library would show
// the text of those that it does not know.
func register[I, O any](a *admin, op huma.Operation, do func(context.Context, *I) (*O, error)) {
	if !open[op.Path] {
		op.Security = []map[string][]string{{"token": {}}}
		op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusServiceUnavailable)
	}
	huma.Register(a.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := do(ctx, in)
		if err == nil {
			return out, nil
		}
		if p, ok := errors.AsType[*huma.ErrorModel](err); ok {
			return nil, p
		}
		status, detail := answerTo(err)
		logFault(ctx, a.Log, status, err, "operation", op.OperationID)
		return nil, problem(status, detail)
	})
}

type healthOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok"`
	}
}

type readyOutput struct {
	Status int
	Body   Readiness
}

func (a *admin) registerHealth(e *echo.Echo) {
	readiness := a.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Readiness](), true, "Readiness")
	// Some balancers ask by HEAD.
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		hidden := method != http.MethodGet
		register(a, huma.Operation{
			OperationID: "alive", Method: method, Path: "/healthz", Hidden: hidden,
			Summary: "Whether the process lives", Tags: []string{"health"},
		}, func(context.Context, *struct{}) (*healthOutput, error) {
			out := new(healthOutput)
			out.Body.Status = "ok"
			return out, nil
		})
		register(a, huma.Operation{
			OperationID: "ready", Method: method, Path: "/readyz", Hidden: hidden,
			Summary: "Whether the process can admit, with each dependency", Tags: []string{"health"},
			Responses: map[string]*huma.Response{"503": {
				Description: "Not ready",
				Content:     map[string]*huma.MediaType{echo.MIMEApplicationJSON: {Schema: readiness}},
			}},
		}, a.ready)
		e.Add(method, "/metrics", echo.WrapHandler(a.Metrics))
	}
	a.describe("/metrics", "metrics", "health", "Metrics for Prometheus", "text/plain", nil)
}

func (a *admin) ready(ctx context.Context, _ *struct{}) (*readyOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	out := &readyOutput{Status: http.StatusOK, Body: a.Ready(ctx)}
	if !out.Body.Ready {
		out.Status = http.StatusServiceUnavailable
	}
	if out.Body.Dependencies == nil {
		out.Body.Dependencies = []Dependency{}
	}
	return out, nil
}

// registerDescription comes last: what is registered later is not described.
func (a *admin) registerDescription(e *echo.Echo) error {
	const path = "/api/v1/openapi.json"
	a.describe(path, "describe", "description", "This description", echo.MIMEApplicationJSON,
		[]map[string][]string{{"token": {}}})
	spec, err := json.MarshalIndent(a.api.OpenAPI(), "", "  ")
	if err != nil {
		return fmt.Errorf("describe the admin API: %w", err)
	}
	e.GET(path, func(c echo.Context) error { return c.JSONBlob(http.StatusOK, spec) })
	return nil
}

// describe adds an operation that the library does not serve.
func (a *admin) describe(path, id, tag, summary, mediaType string, security []map[string][]string) {
	a.api.OpenAPI().AddOperation(&huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Tags: []string{tag},
		Security: security,
		Responses: map[string]*huma.Response{"200": {
			Description: "OK",
			Content:     map[string]*huma.MediaType{mediaType: {Schema: &huma.Schema{}}},
		}},
	})
}

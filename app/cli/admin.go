package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// adminTimeout bounds one request to the admin API.
const adminTimeout = 30 * time.Second

// An adminAPI is the admin listener of a running server.
type adminAPI struct {
	address string // without a slash at its end
	token   string
	client  *http.Client
}

func newAdminAPI(address, token string) (adminAPI, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return adminAPI{}, errors.New("--admin: must be like http://127.0.0.1:8081")
	}
	return adminAPI{address: strings.TrimRight(address, "/"), token: token, client: &http.Client{Timeout: adminTimeout}}, nil
}

// A problem is an answer that says what is wrong.
type problem struct {
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Errors []struct {
		Location string `json:"location"`
		Message  string `json:"message"`
	} `json:"errors"`
}

func (p *problem) Error() string {
	text := p.Detail
	if text == "" {
		text = strings.ToLower(http.StatusText(p.Status))
	}
	for _, e := range p.Errors {
		text += "; " + e.Location + " " + e.Message
	}
	return fmt.Sprintf("%s (%d)", text, p.Status)
}

// do asks for path and decodes the answer into out. What the server says against it is a *problem.
func (a adminAPI) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	address := a.address + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.client.Do(r)
	if err != nil {
		return a.unreachable(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read only
	if resp.StatusCode/100 != 2 {
		return a.refused(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("%s does not answer as the admin API does: %w", a.address, err)
	}
	return nil
}

func (a adminAPI) unreachable(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens at %s: is the server running, and is that its server.admin_listen (--admin)?", a.address)
	default:
		return fmt.Errorf("no answer from the admin API at %s: %s", a.address, why(err))
	}
}

func (a adminAPI) refused(resp *http.Response) error {
	p := &problem{Status: resp.StatusCode}
	if strings.HasSuffix(strings.Split(resp.Header.Get("Content-Type"), ";")[0], "json") {
		_ = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(p) // the status says enough
		p.Status = resp.StatusCode
	}
	switch {
	case resp.StatusCode != http.StatusUnauthorized:
		return p
	case a.token == "":
		return errors.New("the admin API asks for a token: give --token or set ADMITONE_SERVER_ADMIN_TOKEN to server.admin_token")
	default:
		return errors.New("the admin API does not accept the token (--token, ADMITONE_SERVER_ADMIN_TOKEN)")
	}
}

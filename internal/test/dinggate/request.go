// SPDX-License-Identifier: Apache-2.0

package dinggate

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// AppToken is the access token of an organisation's own app, as /gettoken and /v1.0/oauth2/accessToken
// give it. All own apps belong to one organisation, [OwnOrg].
func AppToken(app string) string { return "app-" + app }

// ISVToken is the access token of an ISV's app for an organisation that uses it, as
// /v1.0/oauth2/corpAccessToken gives it. Its calls are counted as corp-api, not as app-api.
func ISVToken(suite, corp string) string { return "isv-" + suite + "@" + corp }

// OwnOrg is the organisation of the callers with an [AppToken]: the key of [DimMonth].
const OwnOrg = "own"

// API is an API's name: the method and the path. It is the key of [DimAPI].
func API(method, path string) string { return method + " " + path }

// AppAPI is a key of [DimAppAPI]; api is as by [API].
func AppAPI(app, api string) string { return app + " " + api }

// CorpAPI is a key of [DimCorpAPI]; api is as by [API].
func CorpAPI(suite, corp, api string) string { return suite + "@" + corp + " " + api }

// A style is the way in which an API answers.
type style int

const (
	oldPlain style = iota // /user/get: the code is the errcode
	oldTop                // /topapi/…: the code is the sub_code of errcode 88
	newAPI                // /v1.0/…: the code is the code, with a status
	robotAPI              // /robot/send
)

// A request is what a Gate needs to know of an HTTP request.
type request struct {
	caller     string
	style      style
	path       string
	dimensions []dimensionKey // in the order in which they are asked
	invalid    bool           // it names no token: no dimension but the IP knows it
	blank      bool           // there is not even a wrong one
	token      string         // that a token endpoint gives
}

type dimensionKey struct {
	dimension Dimension
	key       string
}

// maxTokenRequest is more than a request for a token has.
const maxTokenRequest = 1 << 16

// identify returns what an HTTP request asks, and for whom.
func (g *Gate) identify(r *http.Request) request {
	ip := address(r)
	c := request{caller: r.Header.Get(HeaderCaller), path: r.URL.Path, style: styleOf(r.URL.Path)}
	if c.caller == "" {
		c.caller = ip
	}
	c.dimensions = append(c.dimensions, dimensionKey{DimIP, ip})

	if c.style == robotAPI {
		token := r.URL.Query().Get("access_token")
		if c.invalid = token == ""; !c.invalid {
			c.dimensions = append(c.dimensions, dimensionKey{DimRobot, token})
		}
		return c
	}
	token, issued := asked(r, c.style)
	if issued {
		c.token = token
	}
	app, corp := parseToken(token)
	if app == "" {
		c.invalid, c.blank = true, token == ""
		return c
	}
	api := API(r.Method, r.URL.Path)
	c.dimensions = append(c.dimensions, dimensionKey{DimAPI, api})
	if corp == OwnOrg {
		c.dimensions = append(c.dimensions, dimensionKey{DimAppAPI, AppAPI(app, api)})
	} else {
		c.dimensions = append(c.dimensions, dimensionKey{DimCorpAPI, CorpAPI(app, corp, api)})
	}
	c.dimensions = append(c.dimensions, dimensionKey{DimMonth, corp})
	return c
}

func styleOf(path string) style {
	switch {
	case path == "/robot/send":
		return robotAPI
	case strings.HasPrefix(path, "/v1.0/"), strings.HasPrefix(path, "/v2.0/"):
		return newAPI
	case strings.HasPrefix(path, "/topapi/"):
		return oldTop
	}
	return oldPlain
}

// asked is the token that a request carries, or, issued, the one that it asks for.
func asked(r *http.Request, s style) (token string, issued bool) {
	switch r.URL.Path {
	case "/gettoken":
		if key := r.URL.Query().Get("appkey"); key != "" {
			return AppToken(key), true
		}
		return "", true
	case "/v1.0/oauth2/accessToken", "/v1.0/oauth2/corpAccessToken":
		var body struct {
			AppKey     string `json:"appKey"`
			SuiteKey   string `json:"suiteKey"`
			AuthCorpID string `json:"authCorpId"`
		}
		// What is no JSON has no key.
		_ = json.NewDecoder(io.LimitReader(r.Body, maxTokenRequest)).Decode(&body)
		switch {
		case strings.HasSuffix(r.URL.Path, "/accessToken") && body.AppKey != "":
			return AppToken(body.AppKey), true
		case strings.HasSuffix(r.URL.Path, "/corpAccessToken") && body.SuiteKey != "" && body.AuthCorpID != "":
			return ISVToken(body.SuiteKey, body.AuthCorpID), true
		}
		return "", true
	}
	if s == newAPI {
		return r.Header.Get("X-Acs-Dingtalk-Access-Token"), false
	}
	return r.URL.Query().Get("access_token"), false
}

// parseToken tells whose a token is; app is empty when it is none of ours.
func parseToken(token string) (app, corp string) {
	if app, ok := strings.CutPrefix(token, "app-"); ok {
		return app, OwnOrg
	}
	if isv, ok := strings.CutPrefix(token, "isv-"); ok {
		if suite, corp, ok := strings.Cut(isv, "@"); ok && corp != "" && corp != OwnOrg {
			return suite, corp
		}
	}
	return "", ""
}

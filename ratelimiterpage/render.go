// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
)

//go:embed assets/* templates/*.html
var files embed.FS

// assetTypes are the files that are served as they are.
var assetTypes = map[string]string{
	"page.css": "text/css; charset=utf-8",
	"page.js":  "text/javascript; charset=utf-8",
	"icon.svg": "image/svg+xml",
}

// assetHash is in the address of each asset, so that a browser keeps it until it changes.
var assetHash = func() string {
	all := sha256.New()
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		all.Write(asset(name))
	}
	return hex.EncodeToString(all.Sum(nil)[:8])
}()

func asset(name string) []byte {
	text, err := files.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return text
}

func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Content-Type", assetTypes[name])
	if r.URL.Query().Get("v") == assetHash {
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	_, _ = w.Write(asset(name))
}

// pages are the templates of each language.
var pages = func() map[string]*template.Template {
	byLang := map[string]*template.Template{}
	for _, lang := range []string{"en", "zh"} {
		byLang[lang] = template.Must(template.New("").Funcs(template.FuncMap{
			"t":    func(text string, args ...any) string { return translate(lang, text, args...) },
			"hash": func() string { return assetHash },
			"dict": func(pairs ...any) map[string]any {
				m := map[string]any{}
				for i := 0; i < len(pairs); i += 2 {
					m[pairs[i].(string)] = pairs[i+1]
				}
				return m
			},
		}).ParseFS(files, "templates/*.html"))
	}
	return byLang
}()

// A pageView is what every page shows.
type pageView struct {
	Lang      string
	chosen    bool // by ?lang=, not by the browser
	Where     string
	Title     string
	Here      string // the entry of the navigation
	State     string // the address of how things stand
	Refresh   bool   // there is more in a moment
	Down      string // since when and why Redis cannot be read, or empty
	Found     int    // findings of the doctor that are at least a warning
	Message   string
	Other     string // the same page in the other language
	Home, All string // addresses
	ReadOnly  bool
	to        doctor.Target
}

// Run returns a command of rrl about the Redis of the page.
func (v *pageView) Run(command string, flags ...string) doctor.Cmd {
	return v.to.Command(command, nil, flags...)
}

// languageOf returns the language that a request asks for: zh if ?lang= or the first language that the browser wants and
// the page has is Chinese, and en otherwise.
func languageOf(r *http.Request) (lang string, chosen bool) {
	if lang := r.URL.Query().Get("lang"); lang == "zh" || lang == "en" {
		return lang, true
	}
	for part := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		tag, quality, _ := strings.Cut(part, ";")
		tag, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
		if q := strings.TrimSpace(quality); q == "q=0" || q == "q=0.0" {
			continue
		}
		if tag == "zh" || tag == "en" {
			return tag, false
		}
	}
	return "en", false
}

func (h *Handler) view(r *http.Request) *pageView {
	v := &pageView{Where: survey.Visible(h.title), ReadOnly: !h.mayDo, to: h.to}
	v.Lang, v.chosen = languageOf(r)
	v.Home = "./" + withQuery(v.query())
	v.All = "doctor" + withQuery(v.query())
	q := r.URL.Query()
	q.Del("done")
	q.Set("lang", map[string]string{"en": "zh", "zh": "en"}[v.Lang])
	v.Other = r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if v.Other == "" || r.Method == http.MethodPost {
		v.Other = "./"
	}
	v.Other += withQuery(q)
	return v
}

// noteHealth fills in what the page says about a Redis that cannot be read.
func (v *pageView) noteHealth(h *Handler) {
	if since, why, down := h.health.down(); down {
		v.Down = v.downText(since, why)
	}
	v.Found, _ = h.rounds.summary()
}

func (v *pageView) downText(since time.Time, why string) string {
	return v.t("Redis cannot be read since %[1]s: %[2]s. The page goes on by itself when it can.", v.clock(since), strings.TrimSuffix(v.t(why), "."))
}

// t returns a text in the language of the page.
func (v *pageView) t(text string, args ...any) string { return translate(v.Lang, text, args...) }

// Say returns a text in the language of the page.
func (v *pageView) Say(text doctor.Text) string {
	if v.Lang == "zh" {
		return text.In(v.t)
	}
	return text.String()
}

// chineseOr returns what a finding means, in Chinese: its own text, or else that of its check.
func chineseOr(english, ofCheck string) string { return cmp.Or(chinese().Texts[english], ofCheck) }

// check returns the name of a check in the language of the page.
func (v *pageView) check(id string) string {
	if v.Lang == "zh" {
		return chinese().Checks[id].Name
	}
	return id
}

// checks returns the names of checks.
func (v *pageView) checks(ids []string) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = v.check(id)
	}
	return strings.Join(names, translate(v.Lang, ", "))
}

// clock returns an instant of today.
func (v *pageView) clock(at time.Time) string { return at.UTC().Format("15:04:05Z") }

// query returns the language, if it was chosen, and pairs of keys and values, without those whose value is empty.
func (v *pageView) query(pairs ...string) url.Values {
	q := url.Values{}
	if v.chosen {
		q.Set("lang", v.Lang)
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// withQuery returns a query with its question mark, or nothing.
func withQuery(q url.Values) string {
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

func (v *pageView) limiterLink(name, client string) string {
	return "limiter" + withQuery(v.query("name", name, "client", client))
}

// render writes a page: the template frame with the content of that name inside.
func (h *Handler) render(w http.ResponseWriter, status int, name string, v *pageView, data any) {
	var content bytes.Buffer
	if err := pages[v.Lang].ExecuteTemplate(&content, name, data); err != nil {
		h.log.Error("ratelimiterpage: a template failed", "template", name, "error", err)
		http.Error(w, "the page cannot be shown; the log says why", http.StatusInternalServerError)
		return
	}
	var page bytes.Buffer
	frame := struct {
		*pageView
		Content template.HTML
	}{v, template.HTML(content.String())} // #nosec G203 -- it is the output of a template
	if err := pages[v.Lang].ExecuteTemplate(&page, "frame", frame); err != nil {
		h.log.Error("ratelimiterpage: a template failed", "template", "frame", "error", err)
		http.Error(w, "the page cannot be shown; the log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes())
}

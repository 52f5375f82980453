package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// A Robot is a custom robot of a DingTalk group, as an SDK has it: it knows nothing of limits. That its
// HTTP client is handed in is all that a limiter needs.
//
// https://open.dingtalk.com/document/development/custom-robots-send-group-messages
type Robot struct {
	// BaseURL is https://oapi.dingtalk.com, or a test's.
	BaseURL string
	// Token is the access_token of the robot's webhook. It is a secret.
	Token string
	// HTTP sends the requests.
	HTTP *http.Client
}

// A RobotError is DingTalk's answer to a message that it did not take.
type RobotError struct {
	Code    int    `json:"errcode"`
	Message string `json:"errmsg"`
}

func (e *RobotError) Error() string {
	return fmt.Sprintf("dingtalk: errcode %d: %s", e.Code, e.Message)
}

// SendText says something in the group. Errors: those of the HTTP client, and *RobotError.
func (r *Robot) SendText(ctx context.Context, content string) error {
	body, err := json.Marshal(map[string]any{"msgtype": "text", "text": map[string]string{"content": content}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		r.BaseURL+"/robot/send?access_token="+url.QueryEscape(r.Token), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json;charset=utf-8")
	resp, err := r.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer RobotError
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); err != nil {
		return fmt.Errorf("dingtalk: status %d, and an answer that is no JSON: %w", resp.StatusCode, err)
	}
	if answer.Code != 0 {
		return &answer
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// A Robot is a custom robot of a DingTalk group, as an SDK might implement it. It has no limit of its own: the
// limiter is in the HTTP client that it is given.
//
// https://open.dingtalk.com/document/development/custom-robots-send-group-messages
type Robot struct {
	// BaseURL is https://oapi.dingtalk.com, or the URL of a test server.
	BaseURL string
	// Token is the access_token of the robot's webhook. It is a secret.
	Token string
	// HTTP sends the requests.
	HTTP *http.Client
}

// A RobotError is the error of a message that DingTalk rejected.
type RobotError struct {
	Code    int    `json:"errcode"`
	Message string `json:"errmsg"`
}

func (e *RobotError) Error() string {
	return fmt.Sprintf("dingtalk: errcode %d: %s", e.Code, e.Message)
}

// SendText sends a text to the group. It returns the error of the HTTP client, or a *RobotError if DingTalk
// rejected the message.
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
		var call *url.Error
		if errors.As(err, &call) {
			err = call.Err // without the URL, which has the token
		}
		return fmt.Errorf("dingtalk: %w", err)
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

// SPDX-License-Identifier: Apache-2.0

// Package gateway is an HTTP proxy that keeps its clients within the limits of an [httplimit.Transport]. It is for
// programs in any language. Command rrl-gateway runs it.
//
//	g, err := gateway.New(client, rules, gateway.WithMaxWait(30*time.Second))
//	if err != nil {
//		return err
//	}
//	return http.ListenAndServe("127.0.0.1:8080", g)
//
// The rules are those of package rulefile, or of a profile of package platform. A client reaches a platform in one of
// two ways:
//
//   - It uses http://127.0.0.1:8080/api.example.com as the base URL in place of https://api.example.com.
//   - It uses http://127.0.0.1:8080 as its proxy and trusts the [CA] of [WithCA]; nothing else changes.
//
// Only the hosts that the rules name can be reached: see [WithAllow]. Anybody who can connect may use the Gateway unless
// [WithToken] is given. docs/gateway.md describes the fields and the responses.
package gateway

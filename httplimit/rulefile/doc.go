// SPDX-License-Identifier: Apache-2.0

// Package rulefile reads the rules of an httplimit.Transport from a YAML or JSON file: profiles of platforms, and rules of
// one's own:
//
//	profiles:
//	  - dingtalk-robot
//	  - {name: openai, account: acme, rates: [{scope: account, rate: 500/min}]}
//	rules:
//	  - name: messages
//	    match:
//	      patterns: ["POST api.example.com/rooms/{room}/messages"]
//	    limits:
//	      - name: "room:{path.room}"
//	        rate: 20/min
//	        min_gap: 100ms
//	        keep_alive: 1h
//	        scope: room
//	        outage_policy: closed
//	    detectors: [http]
//
// It is strict: an unknown field, a number in quotes, a duration without a unit, and a name that occurs twice are
// errors, which name the line and the field. [Parse] lists the fields.
//
// It is a separate package because it depends on a YAML parser, go.yaml.in/yaml/v3.
package rulefile

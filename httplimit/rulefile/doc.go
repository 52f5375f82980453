// SPDX-License-Identifier: Apache-2.0

// Package rulefile reads the rules of an httplimit.Transport from a YAML or JSON file:
//
//	rules:
//	  - name: messages of a robot
//	    match:
//	      patterns: ["POST oapi.example.com/robot/send"]
//	      query: {access_token: "*"}
//	    limits:
//	      - name: "robot:{query.access_token|hash}"
//	        permits: 20
//	        interval: 1m
//	        min_gap: 100ms
//	        keep_alive: 1h
//	        scope: robot
//	        outage_policy: closed
//	    detectors: [http]
//
// It is strict: an unknown field, a number in quotes, a duration without a unit, and a name that occurs twice are
// errors, which name the line and the field. [Parse] lists the fields.
//
// It is a separate package because it depends on a YAML parser, go.yaml.in/yaml/v3.
package rulefile

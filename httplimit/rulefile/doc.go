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
// It is strict: a field that is not known, a number that is a string, a duration without a unit, a name
// that stands twice is an error, which names the line and the field. [Parse] has the fields.
//
// It is a package of its own because it brings a YAML parser with it, go.yaml.in/yaml/v3.
package rulefile

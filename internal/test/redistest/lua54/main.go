// SPDX-License-Identifier: Apache-2.0

// Command lua54 is a redis-server that runs scripts by the rules of Lua 5.4, as Dragonfly and Garnet do, and not by those of
// Lua 5.1. RATELIMITER_SERVER names it for tests on such a server.
//
// It starts redis-server, of PATH, with its own arguments but for the port, and passes commands on. Scripts run in the
// interpreter lua5.4, of PATH, at one instant: no other command runs meanwhile. The interpreter is stricter than those
// servers, see lua54.lua. What is not for tests of scripts is missing, such as scripts in a transaction and subscriptions.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

//go:embed lua54.lua
var driver string

var processID = regexp.MustCompile(`process_id:\d+`)

// A server passes commands on to a redis-server, but for scripts.
type server struct {
	behind string // its address

	// Held by a script, and read by any other command while it runs.
	sync.RWMutex
	texts map[string]string // of scripts, by SHA-1
	lua   *interpreter
}

func main() {
	log.SetFlags(0)
	if slices.Contains(os.Args, "--version") {
		out, err := exec.Command("redis-server", "--version").Output()
		if err != nil {
			log.Fatal(err)
		}
		os.Stdout.Write(out)
		return
	}
	at := slices.Index(os.Args, "--port")
	if at < 0 || at+1 >= len(os.Args) {
		log.Fatal("lua54: --port PORT is missing")
	}
	port, args := os.Args[at+1], slices.Delete(slices.Clone(os.Args), at, at+2)[1:]
	if args[0] == "--as-dragonfly" {
		args, driver = args[1:], "dragonfly = true\n"+driver
	}
	behind, err := redistest.NewServer("redis-server", os.TempDir(), args...)
	if err != nil {
		log.Fatal(err)
	}
	s := &server{behind: behind.Addr(), texts: map[string]string{}, lua: start()}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go s.serve(conn)
	}
}

// A connection is one to the redis-server.
type connection struct {
	net.Conn
	in *bufio.Reader
}

func (s *server) dial() connection {
	conn, err := net.Dial("tcp", s.behind)
	if err != nil {
		log.Fatal(err)
	}
	return connection{conn, bufio.NewReader(conn)}
}

// ask sends a command, in RESP, and returns the reply.
func (c connection) ask(command []byte) []byte {
	if _, err := c.Write(command); err != nil {
		log.Fatal(err)
	}
	reply, _, err := redistest.Frame(c.in, nil, nil)
	if err != nil && err != io.EOF {
		log.Print(err)
	}
	return reply
}

// serve replies to the commands of a client. Its own connection passes on what is no script, and another one serves the
// scripts, in RESP2 whatever the client has chosen.
func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	in, plain, scripts := bufio.NewReader(conn), s.dial(), s.dial()
	defer plain.Close()
	defer scripts.Close()
	for {
		raw, words, err := redistest.Frame(in, nil, nil)
		if err != nil {
			return
		}
		if len(words) == 0 { // inline
			words = strings.Fields(string(raw))
		}
		var reply []byte
		switch name := strings.ToLower(words[0]); name {
		case "eval", "evalsha", "script":
			reply = s.script(scripts, name, words[1:])
		default:
			s.RLock()
			reply = plain.ask(raw)
			s.RUnlock()
			if name == "info" {
				reply = ours(reply)
			} else if name == "select" {
				scripts.ask(raw)
			}
		}
		if _, err := conn.Write(reply); err != nil || len(reply) == 0 {
			return
		}
	}
}

// ours returns a reply to INFO, a string, with the id of this process.
func ours(reply []byte) []byte {
	if _, words, err := redistest.Frame(bufio.NewReader(bytes.NewReader(reply)), nil, nil); err == nil && len(words) == 1 {
		return bulk(processID.ReplaceAllString(words[0], fmt.Sprint("process_id:", os.Getpid())))
	}
	return reply
}

func bulk(s string) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(s), s) }

// script runs a command about scripts.
func (s *server) script(behind connection, name string, args []string) []byte {
	s.Lock()
	defer s.Unlock()
	switch {
	case name == "script" && strings.EqualFold(args[0], "flush"):
		clear(s.texts)
		return []byte("+OK\r\n")
	case name == "script" && strings.EqualFold(args[0], "load"):
		return bulk(s.load(args[1]))
	case name == "script" && strings.EqualFold(args[0], "exists"):
		reply := fmt.Appendf(nil, "*%d\r\n", len(args)-1)
		for _, sum := range args[1:] {
			_, ok := s.texts[sum]
			reply = fmt.Appendf(reply, ":%d\r\n", map[bool]int{true: 1}[ok])
		}
		return reply
	case name == "script":
		return []byte("-ERR lua54: SCRIPT has only LOAD, EXISTS and FLUSH\r\n")
	case name == "eval":
		args[0] = s.load(args[0])
	}
	text, ok := s.texts[args[0]]
	if keys, err := strconv.Atoi(args[1]); !ok {
		return []byte("-NOSCRIPT No matching script. Please use EVAL.\r\n")
	} else if err != nil || keys < 0 || keys > len(args)-2 {
		return []byte("-ERR Number of keys can't be greater than number of args\r\n")
	}
	s.lua.send(text, args[1:]...)
	for {
		said := s.lua.receive()
		if said[0] == "reply" {
			return []byte(said[1])
		}
		command := fmt.Appendf(nil, "*%d\r\n", len(said)-1)
		for _, arg := range said[1:] {
			command = append(command, bulk(arg)...)
		}
		s.lua.send(string(behind.ask(command)))
	}
}

// load remembers a script, and returns its SHA-1.
func (s *server) load(text string) string {
	sum := sha1.Sum([]byte(text))
	name := hex.EncodeToString(sum[:])
	s.texts[name] = text
	return name
}

// An interpreter is a process that runs driver.
type interpreter struct {
	out *bufio.Writer
	in  *bufio.Reader
}

func start() *interpreter {
	cmd := exec.Command("lua5.4", "-e", "\n"+driver) // what begins with "-" is no argument of -e
	cmd.Stderr = os.Stderr
	out, err := cmd.StdinPipe() // at its end, which is that of this process, the interpreter ends
	if err != nil {
		log.Fatal(err)
	}
	in, err := cmd.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	return &interpreter{bufio.NewWriter(out), bufio.NewReader(in)}
}

func (x *interpreter) send(first string, more ...string) {
	message := binary.LittleEndian.AppendUint32(nil, uint32(1+len(more)))
	for _, s := range append([]string{first}, more...) {
		message = append(binary.LittleEndian.AppendUint32(message, uint32(len(s))), s...)
	}
	if _, err := x.out.Write(message); err != nil {
		log.Fatal(err)
	}
	if err := x.out.Flush(); err != nil {
		log.Fatal(err)
	}
}

func (x *interpreter) receive() []string {
	number := func() uint32 {
		var n [4]byte
		if _, err := io.ReadFull(x.in, n[:]); err != nil {
			log.Fatal("lua54: the interpreter has ended: ", err)
		}
		return binary.LittleEndian.Uint32(n[:])
	}
	list := make([]string, number())
	for i := range list {
		s := make([]byte, number())
		if _, err := io.ReadFull(x.in, s); err != nil {
			log.Fatal("lua54: the interpreter has ended: ", err)
		}
		list[i] = string(s)
	}
	return list
}

// SPDX-License-Identifier: Apache-2.0
// Echo and HTTP between two processes of Go, as bench/programs/go.py measures them.
//
// usage: go_echo serve echo|http PORT
//
//	go_echo load echo|http PORT CONNECTIONS SECONDS
//
// The second prints answers a second, and the processors' time for each, in us: of itself, of the
// server. The setting GO_ECHO_IDLE names a number of connections more that say nothing.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The length of a message, and of the body of an answer.
const size = 64

// Asks the server of echoes for its processors' time.
const question = 'q'

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Of this process, in us.
func used() int64 {
	var r syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return (r.Utime.Sec+r.Stime.Sec)*1000000 + r.Utime.Usec + r.Stime.Usec
}

func answer(c net.Conn) {
	b := make([]byte, size)
	for {
		if _, err := io.ReadAtLeast(c, b, size); err != nil {
			break
		}
		if b[0] == question {
			copy(b[1:], fmt.Sprintf("%-63d", used()))
		}
		if _, err := c.Write(b); err != nil {
			break
		}
	}
	c.Close()
}

func serveEcho(at string) {
	l, err := net.Listen("tcp", at)
	must(err)
	for {
		c, err := l.Accept()
		must(err)
		go answer(c)
	}
}

func serveHTTP(at string) {
	body := bytes.Repeat([]byte{'x'}, size)
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.Write(body) })
	http.HandleFunc("/used", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, used()) })
	must(http.ListenAndServe(at, nil))
}

// One connection's exchange, and the server's processors' time.
type exchange interface {
	turn()
	used() int64
}

type echo struct {
	c net.Conn
	b [size]byte
}

func (e *echo) turn() {
	_, err := e.c.Write(e.b[:])
	must(err)
	_, err = io.ReadFull(e.c, e.b[:])
	must(err)
}

func (e *echo) used() int64 {
	e.b[0] = question
	e.turn()
	us, err := strconv.ParseInt(string(bytes.TrimSpace(e.b[1:])), 10, 64)
	must(err)
	e.b[0] = 'x'
	return us
}

// A client of its own, so that the connections are as many as was asked for.
type get struct {
	client http.Client
	url    string
}

func (g *get) ask(path string) []byte {
	r, err := g.client.Get(g.url + path)
	must(err)
	b, err := io.ReadAll(bufio.NewReader(r.Body))
	must(err)
	r.Body.Close()
	return b
}

func (g *get) turn() {
	if len(g.ask("/")) != size {
		log.Fatal("another answer")
	}
}

func (g *get) used() int64 {
	us, err := strconv.ParseInt(string(g.ask("/used")), 10, 64)
	must(err)
	return us
}

func open(what, at string) exchange {
	if what == "http" {
		return &get{http.Client{Transport: &http.Transport{}}, "http://" + at}
	}
	c, err := net.Dial("tcp", at)
	must(err)
	return &echo{c: c}
}

// Connections that have been used, and are not any more.
func openIdle(what, at string) []exchange {
	n, _ := strconv.Atoi(os.Getenv("GO_ECHO_IDLE"))
	idle := make([]exchange, n)
	for i := range idle {
		idle[i] = open(what, at)
		for k := 0; k < 20; k++ {
			idle[i].turn()
		}
	}
	return idle
}

func load(what, at string, connections int, seconds float64) {
	idle := openIdle(what, at)
	all := make([]exchange, connections)
	var turns int64
	var stop int32
	var busy sync.WaitGroup
	run := func(e exchange, least int) {
		n := 0
		for ; n < least || atomic.LoadInt32(&stop) == 0; n++ {
			e.turn()
		}
		atomic.AddInt64(&turns, int64(n))
		busy.Done()
	}
	for i := range all {
		all[i] = open(what, at)
		for k := 0; k < 100; k++ {
			all[i].turn()
		}
	}
	own, server, began := used(), all[0].used(), time.Now()
	busy.Add(connections)
	for _, e := range all {
		go run(e, 1)
	}
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	atomic.StoreInt32(&stop, 1)
	busy.Wait()
	took := time.Since(began).Seconds()
	own, server = used()-own, all[0].used()-server
	fmt.Printf("rate %.1f client %.3f server %.3f idle %d\n", float64(turns)/took,
		float64(own)/float64(turns), float64(server)/float64(turns), len(idle))
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: go_echo serve|load echo|http PORT [CONNECTIONS SECONDS]")
	}
	what, at := os.Args[2], "127.0.0.1:"+os.Args[3]
	if os.Args[1] == "load" {
		connections, err := strconv.Atoi(os.Args[4])
		must(err)
		seconds, err := strconv.ParseFloat(os.Args[5], 64)
		must(err)
		load(what, at, connections, seconds)
	} else if what == "http" {
		serveHTTP(at)
	} else {
		serveEcho(at)
	}
}

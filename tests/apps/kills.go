// SPDX-License-Identifier: Apache-2.0
// One end of kills.py: plays connections as it is told on its standard input, and checks each byte.
//
// usage: kills [RECORD]
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// The table's length is no multiple of any size of a message, so that a byte in a wrong place shows.
const (
	period = 65521
	most   = 65536
	header = 8
	turns  = 64
)

var (
	table  [period + most]byte
	record *os.File
	out    sync.Mutex
	open   int32
)

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func say(format string, a ...interface{}) {
	out.Lock()
	fmt.Printf(format+"\n", a...)
	out.Unlock()
}

func fill() {
	x := uint32(1)
	for i := 0; i < period; i++ {
		x = (x*1103515245 + 12345) & 0x7fffffff
		table[i] = byte(x >> 16)
	}
	for i := period; i < len(table); i++ {
		table[i] = table[i-period]
	}
}

// The bytes of one direction of a connection, from `at`.
func bytesOf(id, way, at int64, n int) []byte {
	from := (at + id*4099 + way*17011) % period
	return table[from : from+int64(n)]
}

// What one end of a connection has done. Only its own goroutines use it, each its own words.
type end struct {
	c                         *net.TCPConn
	id                        int64
	seed                      uint32
	attempted, sent, received int64
	wrong                     int32
}

// The size of the next message: of all magnitudes.
func (e *end) next() int {
	e.seed = e.seed*1664525 + 1013904223
	return 1 + int(e.seed>>8)%(1<<(e.seed>>28+1))
}

// In the file, where the death of this process leaves it: sent, received, wrong.
func (e *end) note(word int64, value int64) {
	if record == nil {
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(value))
	_, err := record.WriteAt(b[:], (e.id*3+word)*8)
	must(err)
}

func (e *end) write(b []byte) error {
	e.attempted += int64(len(b))
	n, err := e.c.Write(b)
	e.sent += int64(n)
	e.note(0, e.sent)
	return err
}

func (e *end) got(way int64, b []byte) error {
	if !bytes.Equal(b, bytesOf(e.id, way, e.received, len(b))) {
		e.wrong = 1
		e.note(2, 1)
		return errors.New("wrong bytes")
	}
	e.received += int64(len(b))
	e.note(1, e.received)
	return nil
}

func (e *end) writes(way int64) error {
	for {
		if err := e.write(bytesOf(e.id, way, e.sent, e.next())); err != nil {
			return err
		}
	}
}

func (e *end) reads(way int64) error {
	b := make([]byte, most)
	for {
		n, err := e.c.Read(b)
		if n > 0 {
			if err := e.got(way, b[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

func (e *end) echoes() error {
	b := make([]byte, most)
	for {
		n, err := e.c.Read(b)
		if n > 0 {
			if err := e.got(0, b[:n]); err != nil {
				return err
			}
			if err := e.write(b[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

func (e *end) asks() error {
	b := make([]byte, most)
	for {
		n := e.next()
		if err := e.write(bytesOf(e.id, 0, e.sent, n)); err != nil {
			return err
		}
		if _, err := io.ReadFull(e.c, b[:n]); err != nil {
			return err
		}
		if err := e.got(0, b[:n]); err != nil {
			return err
		}
	}
}

// Both directions at once, each by a goroutine. How reading ends is how it ends.
func (e *end) both(own int64) error {
	done := make(chan bool)
	go func() {
		e.writes(own)
		done <- true
	}()
	err := e.reads(1 - own)
	e.c.Close()
	<-done
	return err
}

// Most connections begin with turns, by which they earn the fast path.
func (e *end) warm(way int64) error {
	var b [1]byte
	for i := 0; e.id%4 != 0 && i < turns; i++ {
		if way == 0 {
			if _, err := e.c.Write(b[:]); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(e.c, b[:]); err != nil {
			return err
		}
		if b[0] != 0 {
			e.wrong = 1
			return errors.New("wrong turn")
		}
		if way == 1 {
			if _, err := e.c.Write(b[:]); err != nil {
				return err
			}
		}
	}
	return nil
}

func name(err error) string {
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	}
	return strings.ReplaceAll(err.Error(), " ", "_")
}

// `way` is 0 for the end that has dialled, whose part the mode names.
func play(c *net.TCPConn, id int64, mode byte, way int64) {
	e := &end{c: c, id: id, seed: uint32(id)*2 + uint32(way) + 1}
	err := e.warm(way)
	switch {
	case err != nil:
	case mode == 'b':
		err = e.both(way)
	case mode == 'e' && way == 0:
		err = e.asks()
	case mode == 'e':
		err = e.echoes()
	case (mode == 'w') == (way == 0):
		err = e.writes(way)
	default:
		err = e.reads(1 - way)
	}
	c.Close()
	say("ended %d %s %d %d %d %d", id, name(err), e.attempted, e.sent, e.received, e.wrong)
}

func accepted(c *net.TCPConn) {
	defer atomic.AddInt32(&open, -1)
	var head [header]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		c.Close()
		return
	}
	id, err := strconv.ParseInt(string(head[1:]), 10, 64)
	must(err)
	play(c, id, head[0], 1)
}

func dial(port, mode string, id int64) {
	defer atomic.AddInt32(&open, -1)
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err == nil {
		_, err = fmt.Fprintf(c, "%s%07d", mode, id)
	}
	if err != nil { // the other one is dead already
		say("ended %d %s 0 0 0 0", id, name(err))
		return
	}
	play(c.(*net.TCPConn), id, mode[0], 0)
}

func listen() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	say("port %d", l.Addr().(*net.TCPAddr).Port)
	for {
		c, err := l.Accept()
		must(err)
		atomic.AddInt32(&open, 1)
		go accepted(c.(*net.TCPConn))
	}
}

func main() {
	fill()
	if len(os.Args) > 1 {
		var err error
		record, err = os.OpenFile(os.Args[1], os.O_RDWR, 0)
		must(err)
	}
	go listen()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if words[0] == "dial" {
			id, err := strconv.ParseInt(words[3], 10, 64)
			must(err)
			atomic.AddInt32(&open, 1)
			go dial(words[1], words[2], id)
		} else {
			say("open %d", atomic.LoadInt32(&open))
		}
	}
}

// SPDX-License-Identifier: Apache-2.0
// Uses the network of Go's libraries in the ways that programs do, and prints what came of it: the
// output is the same whatever carries the connections.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	return l
}

// Serves each connection by a goroutine until the listener is closed.
func serve(one func(*net.TCPConn)) net.Listener {
	l := listen()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go one(c.(*net.TCPConn))
		}
	}()
	return l
}

func dial(l net.Listener) *net.TCPConn {
	c, err := net.Dial("tcp", l.Addr().String())
	must(err)
	return c.(*net.TCPConn)
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed)
	}
	return b
}

func echo(c *net.TCPConn) {
	b := make([]byte, 32<<10)
	for {
		n, err := c.Read(b)
		if n > 0 {
			if _, err := c.Write(b[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	c.Close()
}

// Writes b while the answer is read, and compares.
func exchange(c net.Conn, b []byte) {
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(b)
		done <- err
	}()
	got := make([]byte, len(b))
	_, err := io.ReadFull(c, got)
	must(err)
	must(<-done)
	if !bytes.Equal(got, b) {
		log.Panicf("%d bytes came back changed", len(b))
	}
}

func sizes() {
	l := serve(echo)
	c := dial(l)
	sum := sha256.New()
	for _, n := range []int{1, 2, 63, 64, 65, 1000, 4096, 16383, 16384, 65537, 262145, 1 << 20, 3<<20 + 1} {
		for i := 0; i < 20; i++ {
			b := pattern(n, i)
			exchange(c, b)
			sum.Write(b)
		}
	}
	c.Close()
	l.Close()
	fmt.Printf("sizes: %x\n", sum.Sum(nil)[:8])
}

// Goroutines that compute without a call are preempted by signals, wherever their thread is.
func storm(procs int) {
	was := runtime.GOMAXPROCS(procs)
	l := serve(echo)
	var stop, rounds int32
	var busy, all sync.WaitGroup
	for i := 0; i < 2; i++ {
		busy.Add(1)
		go func() {
			for x := 1; atomic.LoadInt32(&stop) == 0; x = x*3 + 1 {
			}
			busy.Done()
		}()
	}
	busy.Add(1)
	go func() {
		for atomic.LoadInt32(&stop) == 0 {
			runtime.GC()
		}
		busy.Done()
	}()
	for i := 0; i < 40; i++ {
		all.Add(1)
		go func(i int) {
			c := dial(l)
			for k := 0; k < 25; k++ {
				exchange(c, pattern(1+(i*997+k*4001)%20000, i+k))
				atomic.AddInt32(&rounds, 1)
			}
			c.Close()
			all.Done()
		}(i)
	}
	all.Wait()
	atomic.StoreInt32(&stop, 1)
	busy.Wait()
	l.Close()
	runtime.GOMAXPROCS(was)
	fmt.Printf("storm of %d: %d rounds\n", procs, rounds)
}

func deadlines() {
	l := serve(func(c *net.TCPConn) {
		b := make([]byte, 1)
		for {
			if _, err := c.Read(b); err != nil {
				c.Close()
				return
			}
			if b[0] == 'a' {
				c.Write(b)
			}
		}
	})
	c := dial(l)
	b := make([]byte, 8)
	for i := 0; i < 30; i++ {
		c.Write([]byte("a"))
		n, err := io.ReadFull(c, b[:1])
		must(err)
		c.Write([]byte("s"))
		must(c.SetReadDeadline(time.Now().Add(3 * time.Millisecond)))
		m, err := c.Read(b)
		if n != 1 || m != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			log.Panic(n, m, err)
		}
		must(c.SetReadDeadline(time.Time{}))
	}
	c.SetWriteDeadline(time.Now().Add(30 * time.Millisecond))
	held := make(chan *net.TCPConn, 1) // else it would be closed as garbage
	l2 := serve(func(c *net.TCPConn) { held <- c })
	full := dial(l2)
	must(full.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)))
	_, err := full.Write(make([]byte, 64<<20))
	fmt.Println("deadlines: write ends by time:", errors.Is(err, os.ErrDeadlineExceeded))
	go func() {
		time.Sleep(5 * time.Millisecond)
		c.Close()
	}()
	_, err = c.Read(b)
	fmt.Println("deadlines: read ends by close:", errors.Is(err, net.ErrClosed))
	full.Close()
	(<-held).Close()
	l.Close()
	l2.Close()
}

func halfClose() {
	l := serve(func(c *net.TCPConn) {
		all, err := io.ReadAll(c)
		must(err)
		c.Write(bytes.ToUpper(all))
		must(c.CloseWrite())
		c.Close()
	})
	for _, n := range []int{0, 1, 100, 100000, 2000000} {
		c := dial(l)
		for at := 0; at < n; at += 1000 {
			m := n - at
			if m > 1000 {
				m = 1000
			}
			_, err := c.Write(bytes.Repeat([]byte("x"), m))
			must(err)
		}
		must(c.CloseWrite())
		all, err := io.ReadAll(c)
		must(err)
		fmt.Println("half-close:", n, len(all), bytes.Count(all, []byte("X")))
		c.Close()
	}
	l.Close()
}

// A connection that is reset, or refused.
func ends() {
	l := serve(func(c *net.TCPConn) {
		b := make([]byte, 10)
		io.ReadFull(c, b)
		c.SetLinger(0)
		c.Close()
	})
	c := dial(l)
	c.Write(make([]byte, 10))
	_, err := c.Read(make([]byte, 10))
	fmt.Println("ends: reset:", errors.Is(err, syscall.ECONNRESET))
	c.Close()
	l.Close()
	_, err = net.Dial("tcp", l.Addr().String())
	fmt.Println("ends: refused:", errors.Is(err, syscall.ECONNREFUSED))
}

// io.Copy from connection to connection is a splice in Go.
func proxy() {
	end := serve(echo)
	middle := serve(func(in *net.TCPConn) {
		out := dial(end)
		go func() {
			io.Copy(out, in)
			out.CloseWrite()
		}()
		io.Copy(in, out)
		in.Close()
		out.Close()
	})
	var all sync.WaitGroup
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func(i int) {
			c := dial(middle)
			for k := 0; k < 30; k++ {
				exchange(c, pattern(1+k*3001, i))
			}
			c.CloseWrite()
			if rest, err := io.ReadAll(c); err != nil || len(rest) != 0 {
				log.Panic(rest, err)
			}
			c.Close()
			all.Done()
		}(i)
	}
	all.Wait()
	middle.Close()
	end.Close()
	fmt.Println("proxy: done")
}

func web() {
	l := listen()
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		all, err := io.ReadAll(r.Body)
		must(err)
		w.Write(all)
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, os.Args[0])
	})
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	base := "http://" + l.Addr().String()
	var all sync.WaitGroup
	var good int32
	for i := 0; i < 16; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			for k := 0; k < 40; k++ {
				b := pattern(1+(i*1013+k*2039)%30000, k)
				r, err := client.Post(base+"/echo", "text/plain", bytes.NewReader(b))
				must(err)
				got, err := io.ReadAll(r.Body)
				must(err)
				r.Body.Close()
				if r.StatusCode == 200 && bytes.Equal(got, b) {
					atomic.AddInt32(&good, 1)
				}
			}
		}(i)
	}
	all.Wait()
	own, err := os.ReadFile(os.Args[0])
	must(err)
	same := 0
	for i := 0; i < 4; i++ {
		r, err := client.Get(base + "/file")
		must(err)
		got, err := io.ReadAll(r.Body)
		must(err)
		r.Body.Close()
		if bytes.Equal(own, got) {
			same++
		}
	}
	client.CloseIdleConnections()
	server.Close()
	fmt.Println("http:", good, "posts,", same, "files")
}

// Children that get a connection, and children that get none while connections are busy.
func children() {
	l := serve(echo)
	var stop int32
	var busy sync.WaitGroup
	for i := 0; i < 4; i++ {
		busy.Add(1)
		go func(i int) {
			c := dial(l)
			for atomic.LoadInt32(&stop) == 0 {
				exchange(c, pattern(100+i, i))
			}
			c.Close()
			busy.Done()
		}(i)
	}
	for i := 0; i < 30; i++ {
		out, err := exec.Command("/bin/echo", "child", fmt.Sprint(i)).Output()
		must(err)
		if string(out) != fmt.Sprintf("child %d\n", i) {
			log.Panicf("%q", out)
		}
	}
	_, err := exec.Command("/nonexistent/program").Output()
	fmt.Println("children: missing:", errors.Is(err, os.ErrNotExist))
	for i := 0; i < 3; i++ {
		c := dial(l)
		for k := 0; k < 50; k++ {
			exchange(c, pattern(64, k))
		}
		f, err := c.File()
		must(err)
		cmd := exec.Command("/bin/sh", "-c", "echo from the child >&3; cat <&4")
		cmd.ExtraFiles = []*os.File{f}
		r, w, err := os.Pipe()
		must(err)
		cmd.ExtraFiles = append(cmd.ExtraFiles, r)
		var out bytes.Buffer
		cmd.Stdout = &out
		must(cmd.Start())
		r.Close()
		fmt.Fprint(w, "by pipe")
		w.Close()
		must(cmd.Wait())
		f.Close()
		b := make([]byte, 15)
		_, err = io.ReadFull(c, b)
		must(err)
		exchange(c, pattern(5000, i))
		fmt.Printf("children: %q %q\n", out.String(), b)
		c.Close()
	}
	// A child in Go that goes on with it.
	c := dial(l)
	exchange(c, pattern(64, 1))
	f, err := c.File()
	must(err)
	cmd := exec.Command(os.Args[0], "child")
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.Output()
	must(err)
	fmt.Printf("children: %s", out)
	f.Close()
	c.Close()
	atomic.StoreInt32(&stop, 1)
	busy.Wait()
	l.Close()
}

// The child of one that is missing says so by a pipe. Where the pipe's number is low, the child moves it above the
// files that it is passed, maybe to the number of a connection here.
func missing() {
	var low []*os.File
	for i := 0; i < 6; i++ {
		f, err := os.Open("/dev/null")
		must(err)
		low = append(low, f)
	}
	l := serve(echo)
	var all []*net.TCPConn
	more := func() {
		for i := 0; i < 4; i++ {
			c := dial(l)
			for k := 0; k < 50; k++ {
				exchange(c, pattern(64, k))
			}
			all = append(all, c)
		}
	}
	more()
	passed, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	must(err)
	more()
	for _, f := range low {
		f.Close()
	}
	_, err = os.StartProcess("/nonexistent/program", []string{"program"}, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, passed}})
	fmt.Println("missing:", errors.Is(err, os.ErrNotExist))
	for i, c := range all {
		exchange(c, pattern(64, i))
		c.Close()
	}
	passed.Close()
	l.Close()
}

func child() {
	c, err := net.FileConn(os.NewFile(3, "connection"))
	must(err)
	for k := 0; k < 50; k++ {
		exchange(c, pattern(1000, k))
	}
	fmt.Println("child in Go: 50 exchanges")
	c.Close()
}

func datagrams() {
	a, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(err)
	b, err := net.Dial("udp", a.LocalAddr().String())
	must(err)
	buf := make([]byte, 2000)
	sum := 0
	for i := 0; i < 200; i++ {
		b.Write(pattern(1+i*7, i))
		n, from, err := a.ReadFrom(buf)
		must(err)
		a.WriteTo(buf[:n/2], from)
		m, err := b.Read(buf)
		must(err)
		sum += n + m
	}
	fmt.Println("datagrams:", sum)
}

func files() {
	f, err := os.CreateTemp("", "viaduct-go")
	must(err)
	os.Remove(f.Name())
	sum := sha256.New()
	for i := 0; i < 50; i++ {
		b := pattern(5000+i, i)
		f.Write(b)
		sum.Write(b)
	}
	_, err = f.Seek(0, io.SeekStart)
	must(err)
	again := sha256.New()
	n, err := io.Copy(again, f)
	must(err)
	fmt.Println("files:", n, bytes.Equal(sum.Sum(nil), again.Sum(nil)))
	// From a file to a connection is a sendfile in Go, and the other way a splice.
	l := serve(func(c *net.TCPConn) {
		f.Seek(0, io.SeekStart)
		io.Copy(c, f)
		c.Close()
	})
	c := dial(l)
	g, err := os.CreateTemp("", "viaduct-go")
	must(err)
	os.Remove(g.Name())
	n, err = io.Copy(g, c)
	must(err)
	g.Seek(0, io.SeekStart)
	third := sha256.New()
	io.Copy(third, g)
	fmt.Println("files: by connection:", n, bytes.Equal(sum.Sum(nil), third.Sum(nil)))
	l.Close()
	c.Close()
}

func unixes() {
	dir, err := os.MkdirTemp("", "viaduct-go")
	must(err)
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", dir+"/s")
	must(err)
	tcp := serve(echo)
	go func() {
		c, err := l.Accept()
		must(err)
		out := dial(tcp)
		go func() { io.Copy(out, c); out.CloseWrite() }()
		io.Copy(c, out)
		c.Close()
	}()
	c, err := net.Dial("unix", dir+"/s")
	must(err)
	for k := 0; k < 30; k++ {
		exchange(c, pattern(1+k*1000, k))
	}
	c.Close()
	l.Close()
	tcp.Close()
	fmt.Println("unix sockets: done")
}

// Threads that begin, wait in the kernel, and end, while others exchange.
func threads() {
	l := serve(echo)
	var all sync.WaitGroup
	var rounds int32
	for i := 0; i < 100; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			runtime.LockOSThread() // ends with its thread, which is not given to another
			c := dial(l)
			var p [2]int
			must(syscall.Pipe(p[:]))
			go func() {
				time.Sleep(time.Millisecond)
				syscall.Write(p[1], []byte("x"))
			}()
			one := make([]byte, 1)
			syscall.Read(p[0], one) // blocks the thread
			for k := 0; k < 10; k++ {
				exchange(c, pattern(64+i, k))
				atomic.AddInt32(&rounds, 1)
			}
			syscall.Close(p[0])
			syscall.Close(p[1])
			c.Close()
		}(i)
	}
	all.Wait()
	l.Close()
	fmt.Println("threads:", rounds, "rounds")
}

func derefer(p *int) (err error) {
	defer func() {
		err, _ = recover().(error)
	}()
	return fmt.Errorf("%d", *p)
}

// Signals that Go sends itself, gets from outside, and makes panics of; and what samples a profile.
func signals() {
	var profile bytes.Buffer
	must(pprof.StartCPUProfile(&profile))
	l := serve(echo)
	got := make(chan os.Signal, 1000)
	signal.Notify(got, syscall.SIGUSR1, syscall.SIGHUP)
	signal.Ignore(syscall.SIGUSR2)
	var all sync.WaitGroup
	var stop, faults int32
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			c := dial(l)
			for k := 0; atomic.LoadInt32(&stop) == 0; k++ {
				exchange(c, pattern(1+(i*997+k*401)%20000, k))
				if derefer(nil) != nil {
					atomic.AddInt32(&faults, 1)
				}
			}
			c.Close()
		}(i)
	}
	for i := 0; i < 200; i++ {
		must(syscall.Kill(os.Getpid(), syscall.SIGUSR2))
		must(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
		<-got
	}
	for atomic.LoadInt32(&faults) == 0 {
		time.Sleep(time.Millisecond)
	}
	must(syscall.Kill(os.Getpid(), syscall.SIGHUP))
	last := <-got
	atomic.StoreInt32(&stop, 1)
	all.Wait()
	l.Close()
	signal.Reset()
	pprof.StopCPUProfile()
	fmt.Println("signals:", last, faults > 0, profile.Len() > 0)
}

// The call is made in every thread, by a signal of its own where there is no C library.
func credentials() {
	l := serve(echo)
	c := dial(l)
	var stop int32
	var all sync.WaitGroup
	all.Add(1)
	go func() {
		for k := 0; atomic.LoadInt32(&stop) == 0; k++ {
			exchange(c, pattern(64, k))
		}
		all.Done()
	}()
	for i := 0; i < 20; i++ {
		must(syscall.Setresuid(-1, os.Geteuid(), -1))
		must(syscall.Setresgid(-1, os.Getegid(), -1))
	}
	atomic.StoreInt32(&stop, 1)
	all.Wait()
	c.Close()
	l.Close()
	fmt.Println("credentials: done")
}

// What it is told of its own file, and what it becomes.
func self() {
	own, err := os.Executable()
	must(err)
	link, err := os.Readlink("/proc/self/exe")
	must(err)
	numbered, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", os.Getpid()))
	must(err)
	same := own == link && own == numbered && filepath.Base(own) == filepath.Base(os.Args[0])
	a, err := os.Stat("/proc/self/exe")
	must(err)
	b, err := os.Stat(os.Args[0])
	must(err)
	f, err := os.ReadFile("/proc/self/exe")
	must(err)
	comm, err := os.ReadFile("/proc/self/comm")
	must(err)
	line, err := os.ReadFile("/proc/self/cmdline")
	must(err)
	fmt.Println("self:", same, os.SameFile(a, b), int64(len(f)) == b.Size(), string(comm) == filepath.Base(own)+"\n",
		strings.HasPrefix(string(line), os.Args[0]+"\x00"), os.Getenv("VIADUCT_START_PROGRAM") == "")
	for _, how := range []string{"/proc/self/exe", own} {
		cmd := exec.Command(how, "becomes", how)
		out, err := cmd.CombinedOutput()
		must(err)
		fmt.Printf("self: %s", out)
	}
}

// Another program in the place of this one, which has threads and connections.
func becomes() {
	l := serve(echo)
	c := dial(l)
	exchange(c, pattern(64, 1))
	for i := 0; i < 50; i++ {
		exchange(c, pattern(64, 1))
	}
	must(syscall.Exec(os.Args[2], []string{os.Args[2], "says"}, os.Environ()))
}

// Another program, started by this one: by its name, and by a shell and a script between them.
func starts(argv []string) {
	script := []string{"-c", "exec \"$@\"", "sh"}
	for _, command := range [][]string{argv, append(append([]string{"/bin/sh"}, script...), argv...)} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		must(err)
		fmt.Printf("started: %s", out)
	}
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "starts":
			starts(os.Args[2:])
			return
		case "child":
			child()
			return
		case "becomes":
			becomes()
		case "says":
			fmt.Println("what it has become")
			os.Exit(0)
		}
	}
	only := strings.Join(os.Args[1:], " ")
	run := func(name string, f func()) {
		if only == "" || strings.Contains(only, name) {
			f()
		}
	}
	run("sizes", sizes)
	run("storm", func() {
		for procs := 1; procs <= 4; procs++ {
			storm(procs)
		}
	})
	run("deadlines", deadlines)
	run("halfclose", halfClose)
	run("ends", ends)
	run("proxy", proxy)
	run("http", web)
	run("children", children)
	run("missing", missing)
	run("datagrams", datagrams)
	run("files", files)
	run("unix", unixes)
	run("threads", threads)
	run("signals", signals)
	run("credentials", credentials)
	run("self", self)
	fmt.Println("end")
}

/* SPDX-License-Identifier: Apache-2.0 */
/* One of the two processes: makes the connections and hands them to threads and loops. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "integrity.h"

static struct conn conns[CONNS_MAX];
static unsigned conn_count;

static const char *const mode_names[MODES] = {"threads", "timeo", "fork", "poll",
					      "select",	 "lt",	  "et",	  "oneshot"};

/* Both threads of a connection may note at once, and the supervisor reads it meanwhile. It
 * is for people: a mixed-up line is no harm. */
__attribute__((no_sanitize("thread"))) static void keep(char *to, const char *from)
{
	for (int i = 0; i < HISTORY_LEN; i++)
		to[i] = from[i];
}

void note(struct half *h, const char *fmt, ...)
{
	char text[HISTORY_LEN] = "";
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	keep(h->state->history[h->state->history_next++ % HISTORY], text);
}

void fail_at(const struct half *h, const char *fmt, ...)
{
	char text[512];
	const struct conn *c = h->conn;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	/* What follows from a failure at the other end says nothing. */
	fprintf(stderr,
		"integrity: %sseed %lu round %u %s%s%u connection %u %s %s (%s, pid %d, "
		"fd "
		"%d) at %lu of %lu: %s\n",
		sh->failed++ ? "(then) " : "", opt.seed, round_now,
		c->scene ? c->scene : "", c->scene ? " " : "step ", c->step, c->index,
		c->side == SERVER ? "server" : "client",
		h == &c->tx ? "sends" : "receives", mode_names[c->mode], (int)getpid(),
		h->fd, h->off, h->total, text);
	if (opt.hold)
		for (;;)
			pause();
	_exit(1);
}

/* ---- the plan ---- */

static uint64_t pick_total(uint64_t *rng)
{
	unsigned class = rnd(rng) % 10;
	if (class == 0)
		return 0;
	if (class <= 2)
		return rnd(rng) % 2000;
	return rnd(rng) % opt.bytes;
}

void plan_make(struct plan *p, unsigned index)
{
	uint64_t rng = seed_of(1, index, 0);
	unsigned class = rnd(&rng) % 20;
	p->total[CLIENT] = pick_total(&rng);
	p->total[SERVER] = pick_total(&rng);
	p->closer = rnd(&rng) % 2 ? SERVER : CLIENT;
	p->ending = class < 11	 ? END_SHUT
		    : class < 16 ? END_CLOSE
		    : class < 17 ? END_EXIT
				 : END_ABORT;
	/* Two processes that wait for each other's exit would wait for ever. */
	if (p->ending == END_EXIT)
		p->closer = round_now % 2 ? SERVER : CLIENT;
	p->cut = rnd(&rng) % (p->total[p->closer] + 1);
}

static enum mode pick_mode(uint64_t *rng, enum side side)
{
	enum mode mode = rnd(rng) % MODES;
	if (mode == MODE_FORK && (!opt.forks || !chance(rng, 3)))
		mode = MODE_THREADS;
	if (opt.side_mode[side] >= 0)
		mode = opt.side_mode[side];
	return opt.mode >= 0 ? (enum mode)opt.mode : mode;
}

static void half_init(struct half *h, struct conn *c, struct dir_state *state,
		      enum side from)
{
	h->conn = c;
	h->state = state;
	h->rng = seed_of(2 + from, c->index, c->side);
	h->key = seed_of(9, c->index, from);
	h->total = c->plan.total[from];
	h->fd = -1;
}

static void conn_init(struct conn *c, unsigned index, enum side side)
{
	memset(c, 0, sizeof *c);
	c->index = index;
	c->side = side;
	c->state = &sh->conn[side][index];
	c->rng = seed_of(5, index, side);
	plan_make(&c->plan, index);
	c->mode = pick_mode(&c->rng, side);
	c->state->mode = c->mode;
	half_init(&c->tx, c, &c->state->tx, side);
	half_init(&c->rx, c, &c->state->rx, !side);
}

/* ---- making connections ---- */

/* The smallest buffers make kernel TCP wait for delayed acknowledgements: only for a few
 * bytes. */
static void set_buffers(int fd, uint64_t *rng, bool few_bytes)
{
	static const int sizes[] = {1, 5000, 16384, 65536, 300000, 2000000};
	unsigned from = few_bytes ? 0 : 3;
	const int *snd = &sizes[from + rnd(rng) % (6 - from)];
	const int *rcv = &sizes[from + rnd(rng) % (6 - from)];
	int one = 1;
	if (chance(rng, 3))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, snd, sizeof *snd);
	if (chance(rng, 3))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, rcv, sizeof *rcv);
	if (chance(rng, 2))
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static bool few_bytes(const struct conn *c)
{
	return c->plan.total[0] + c->plan.total[1] < 20000;
}

/*
 * Linux drops packets for which a small receive buffer has no room, and then the reset of an
 * aborted connection as well, which lies behind them: without a probe nobody ever learns of it.
 */
static void probe_idle(int fd)
{
	static const int on = 1, idle_s = 5, gap_s = 1, most = 5;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &gap_s, sizeof gap_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof most);
}

void conn_open(struct conn *c, int fd)
{
	probe_idle(fd);
	c->tx.fd = c->rx.fd = fd;
	c->state->fd = fd;
	if (opt.events && !chance(&c->rng, 8))
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	if (chance(&c->rng, 2))
		set_buffers(fd, &c->rng, few_bytes(c) && !opt.events);
}

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "integrity: seed %lu round %u: %s: %s\n", opt.seed, round_now,
		what, strerror(errno));
	sh->failed = 1;
	_exit(1);
}

int connect_to(struct conn *c, unsigned port)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	to.sin_addr.s_addr = opt.peer;
	to.sin_port = htons((uint16_t)port);
	bool nonblock = chance(&c->rng, 3);
	int fd = socket(AF_INET, SOCK_STREAM | (nonblock ? SOCK_NONBLOCK : 0), 0);
	if (fd < 0)
		fail("socket");
	if (opt.events && !chance(&c->rng, 8))
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	if (chance(&c->rng, 2))
		set_buffers(fd, &c->rng, few_bytes(c) && !opt.events);
	int r = connect(fd, (struct sockaddr *)&to, sizeof to);
	while (r != 0 && (errno == EINPROGRESS || errno == EINTR)) {
		struct pollfd p = {fd, POLLOUT, 0};
		int err = 0;
		socklen_t len = sizeof err;
		if (poll(&p, 1, -1) < 0)
			continue;
		r = getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
		errno = err;
		if (err)
			r = -1;
	}
	if (r != 0 && sh->killed) {
		close(fd);
		return -1;
	}
	/* Accepted and reset already: its calls will tell. */
	if (r != 0 && !(errno == ECONNRESET && may_die(c)))
		fail("connect");
	if (nonblock && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) != 0)
		fail("fcntl");
	return fd;
}

/* False when the server was killed before. */
static bool client_connects(struct conn *c)
{
	struct sockaddr_in own;
	socklen_t len = sizeof own;
	int fd = connect_to(c, sh->listen_port);
	if (fd < 0)
		return false;
	if (getsockname(fd, (struct sockaddr *)&own, &len) != 0)
		fail("getsockname");
	sh->port[c->index] = ntohs(own.sin_port);
	conn_open(c, fd);
	return true;
}

static int server_listens(void)
{
	struct sockaddr_in own = {.sin_family = AF_INET};
	socklen_t len = sizeof own;
	uint64_t rng = seed_of(6, 0, SERVER);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	own.sin_addr.s_addr = opt.own;
	if (chance(&rng, 4))
		set_buffers(fd, &rng, false);
	if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof own) != 0 ||
	    listen(fd, CONNS_MAX) != 0 ||
	    getsockname(fd, (struct sockaddr *)&own, &len) != 0)
		fail("listen");
	sh->listen_port = ntohs(own.sin_port);
	return fd;
}

/* The port of a connection that has been reset may be another's in the same round. */
static unsigned index_of_port(unsigned port)
{
	static bool accepted[CONNS_MAX];
	for (;;) {
		for (unsigned i = 0; i < conn_count; i++)
			if (sh->port[i] == port && !accepted[i]) {
				accepted[i] = true;
				return i;
			}
		if (sh->killed)
			return CONNS_MAX;
		usleep(100);
	}
}

/* Signals may interrupt each single poll. */
static bool comes_soon(struct pollfd *p)
{
	int tries = 20, ready;
	do {
		usleep(10000);
		ready = poll(p, 1, 0);
	} while (ready <= 0 && --tries > 0);
	return ready > 0;
}

/* Returns NULL when the client died before it could tell its ports. */
static struct conn *server_accepts(int listener)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	for (;;) {
		struct pollfd p = {listener, POLLIN, 0};
		if (sh->killed && !comes_soon(&p))
			return NULL;
		if (poll(&p, 1, 50) <= 0)
			continue;
		int fd = accept(listener, (struct sockaddr *)&peer, &len);
		if (fd < 0 && errno == EINTR)
			continue;
		if (fd < 0)
			fail("accept");
		unsigned index = index_of_port(ntohs(peer.sin_port));
		if (index == CONNS_MAX) {
			close(fd);
			return NULL;
		}
		conn_open(&conns[index], fd);
		return &conns[index];
	}
}

/* ---- the ends ---- */

bool rx_complete(const struct half *h)
{
	const struct plan *p = &h->conn->plan;
	return h->off == h->total && p->closer == h->conn->side &&
	       (p->ending == END_CLOSE || p->ending == END_EXIT);
}

bool conn_aborts(const struct conn *c)
{
	return c->plan.ending == END_ABORT && c->plan.closer == c->side &&
	       c->state->tx.off >= c->plan.cut;
}

void tx_finish(struct conn *c)
{
	bool closer = c->plan.closer == c->side;
	if (conn_aborts(c)) {
		note(&c->tx, "abort");
		/* A loop closes at once; here another thread may be inside recv. */
		if (c->mode <= MODE_FORK)
			shutdown(c->tx.fd, SHUT_RDWR);
		c->aborted = true;
		return;
	}
	if (closer && (c->plan.ending == END_CLOSE || c->plan.ending == END_EXIT))
		return;
	note(&c->tx, "shutdown");
	if (shutdown(c->tx.fd, SHUT_WR) != 0 && !(errno == ENOTCONN && may_die(c)))
		fail_at(&c->tx, "shutdown: %s", strerror(errno));
}

static void close_fd(struct conn *c, int fd)
{
	if (close(fd) != 0)
		fail_at(&c->tx, "close: %s", strerror(errno));
}

void conn_close(struct conn *c)
{
	int first = c->state->fd, tx = c->tx.fd, rx = c->rx.fd;
	struct linger linger = {.l_onoff = 1, .l_linger = 1};
	if (c->plan.ending == END_EXIT && c->plan.closer == c->side)
		return;
	if (conn_aborts(c))
		linger.l_linger = 0;
	/* Without it a peer that sends into a closed window may hang in FIN_WAIT2 for a minute. */
	if (chance(&c->rng, 4) || conn_aborts(c))
		setsockopt(first, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	note(&c->tx, "close");
	/* First forgotten, then closed: a forked child closes what it finds here, and the
	 * numbers may mean something else by then. */
	c->tx.fd = c->rx.fd = -1;
	c->state->fd = -1;
	if (tx != first)
		close_fd(c, tx);
	if (rx != first)
		close_fd(c, rx);
	close_fd(c, first);
}

void side_close_others(const struct half *mine)
{
	for (unsigned i = 0; i < conn_count; i++) {
		const struct conn *c = &conns[i];
		const int fds[] = {c->state->fd, c->tx.fd, c->rx.fd};
		for (int k = 0; k < 3; k++)
			if (fds[k] >= 0 && fds[k] != mine->fd)
				close(fds[k]);
	}
}

/* ---- running ---- */

struct loop_job {
	pthread_t thread;
	enum mode mode;
	struct conn *conns[CONNS_MAX];
	unsigned count;
	uint64_t rng;
	bool started;
};

static void *loop_thread(void *arg)
{
	struct loop_job *job = arg;
	loop_run(job->mode, job->conns, job->count, job->rng);
	return NULL;
}

static void on_alarm(int sig)
{
	(void)sig;
}

void start_signals(enum side side)
{
	uint64_t rng = seed_of(7, 0, side);
	struct sigaction sa = {.sa_handler = on_alarm};
	long every = 1000 + (long)(rnd(&rng) % 5000);
	struct itimerval timer = {{0, every}, {0, every}};
	if (chance(&rng, 2))
		sa.sa_flags = SA_RESTART;
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGALRM, &sa, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	if (opt.signals && !opt.events)
		setitimer(ITIMER_REAL, &timer, NULL);
}

static void run_all(struct loop_job *jobs)
{
	for (unsigned m = 0; m < MODES; m++) {
		jobs[m].started = jobs[m].count > 0;
		if (jobs[m].started &&
		    pthread_create(&jobs[m].thread, NULL, loop_thread, &jobs[m]) != 0)
			fail("pthread_create");
	}
	for (unsigned i = 0; i < conn_count; i++)
		if (conns[i].started)
			threads_join(&conns[i]);
	for (unsigned m = 0; m < MODES; m++)
		if (jobs[m].started)
			pthread_join(jobs[m].thread, NULL);
}

int side_main(enum side side)
{
	static struct loop_job jobs[MODES];
	int listener = -1;
	if (opt.events)
		return events_main(side);
	uint64_t rng = seed_of(8, 0, 0);
	conn_count = 1 + rnd(&rng) % opt.conns;
	start_signals(side);
	for (unsigned i = 0; i < conn_count; i++)
		conn_init(&conns[i], i, side);
	if (side == SERVER)
		listener = server_listens();
	while (side == CLIENT && !sh->listen_port && !sh->killed)
		usleep(200);
	for (unsigned i = 0; i < conn_count && sh->listen_port; i++) {
		struct conn *c = &conns[i];
		if (side == SERVER)
			c = server_accepts(listener);
		else if (!client_connects(c))
			c = NULL;
		if (!c)
			break;
		if (c->mode <= MODE_FORK)
			threads_start(c);
		else
			jobs[c->mode].conns[jobs[c->mode].count++] = c;
	}
	for (unsigned m = 0; m < MODES; m++) {
		jobs[m].mode = m;
		jobs[m].rng = seed_of(10, m, side);
	}
	run_all(jobs);
	rng = seed_of(11, 0, side);
	if (chance(&rng, 2))
		_exit(0);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is linked statically: what it does with its connections, by names, and says of it. */
#include <errno.h>
#include <pthread.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
extern char **environ;
#define CHECK(x)                                                                         \
	do {                                                                             \
		if (!(x)) {                                                              \
			printf("%s:%d: %s (errno %d)\n", __func__, __LINE__, #x, errno); \
			exit(9);                                                         \
		}                                                                        \
	} while (0)
struct pair {
	int c, s;
};
static void full(int fd, void *b, size_t n, int w)
{
	char *p = b;
	while (n) {
		ssize_t r = w ? write(fd, p, n) : read(fd, p, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0) {
			perror("io");
			exit(3);
		}
		p += r;
		n -= r;
	}
}
static struct pair open_pair(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	CHECK(l >= 0);
	CHECK(!bind(l, (void *)&a, n));
	CHECK(!listen(l, 64));
	getsockname(l, (void *)&a, &n);
	struct pair p;
	p.c = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(p.c, (void *)&a, n));
	p.s = accept(l, 0, 0);
	CHECK(p.s >= 0);
	close(l);
	setsockopt(p.c, 6, TCP_NODELAY, &one, 4);
	setsockopt(p.s, 6, TCP_NODELAY, &one, 4);
	return p;
}
static void *echo(void *arg)
{
	int fd = (int)(long)arg;
	char b[4096];
	ssize_t n;
	for (;;) {
		n = read(fd, b, sizeof b);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		full(fd, b, n, 1);
	}
	close(fd);
	return 0;
}
static void ping(int fd, int times)
{
	for (int i = 0; i < times; i++) {
		unsigned char b[300], c[300];
		size_t n = 1 + i % 300;
		for (size_t k = 0; k < n; k++)
			b[k] = i * 3 + k;
		full(fd, b, n, 1);
		full(fd, c, n, 0);
		CHECK(!memcmp(b, c, n));
	}
}
static __thread int tl = 7;
static volatile int hits;
static __thread volatile int thits;
static double fp(double x)
{
	double s = 0;
	for (int i = 1; i < 50; i++)
		s += x / i;
	return s;
}
static void onsig(int s)
{
	(void)s;
	hits++;
	thits++;
	int e = errno;
	CHECK(tl == 7);
	char c;
	volatile double d = fp(hits);
	(void)d;
	errno = e;
	(void)c;
	getppid();
}
static sigjmp_buf jb;
static void onjmp(int s)
{
	(void)s;
	siglongjmp(jb, 1);
}
static void set(int sig, void (*h)(int), int flags)
{
	struct sigaction a = {.sa_handler = h, .sa_flags = flags};
	CHECK(!sigaction(sig, &a, 0));
}
static void storm(int on)
{
	struct itimerval t = {{0, on ? 100 : 0}, {0, on ? 100 : 0}};
	setitimer(ITIMER_REAL, &t, 0);
}
static void t_basic(void)
{
	struct pair p = open_pair();
	pthread_t t;
	CHECK(!pthread_create(&t, 0, echo, (void *)(long)p.s));
	ping(p.c, 2000);
	close(p.c);
	pthread_join(t, 0);
	puts("basic ok");
}
static void t_eintr(void)
{
	struct pair p = open_pair();
	char b[10];
	full(p.c, "x", 1, 1);
	full(p.s, b, 1, 0);
	set(SIGALRM, onsig, 0);
	struct itimerval v = {{0, 0}, {0, 30000}};
	setitimer(ITIMER_REAL, &v, 0);
	errno = 0;
	ssize_t r = read(p.s, b, 10);
	printf("eintr %zd %d\n", r, errno == EINTR);
	close(p.c);
	close(p.s);
}
static void t_storm(void)
{
	struct pair p = open_pair();
	pthread_t t;
	set(SIGALRM, onsig, SA_RESTART);
	CHECK(!pthread_create(&t, 0, echo, (void *)(long)p.s));
	storm(1);
	double want = fp(3.5);
	for (int i = 0; i < 60; i++) {
		ping(p.c, 100);
		CHECK(fp(3.5) == want);
	}
	storm(0);
	close(p.c);
	pthread_join(t, 0);
	printf("storm ok %d\n", hits > 0);
}
static int nest_c, nest_s;
static volatile int nesting;
static void onnest(int s)
{
	(void)s;
	if (nesting)
		return;
	nesting = 1;
	int e = errno;
	char b[64];
	write(nest_c, "hello", 5);
	int n = 0;
	while (n < 5) {
		int r = read(nest_s, b + n, 5 - n);
		if (r > 0)
			n += r;
	}
	CHECK(!memcmp(b, "hello", 5));
	errno = e;
	nesting = 0;
	hits++;
}
static void t_nested(void)
{
	struct pair p = open_pair(), q = open_pair();
	nest_c = q.c;
	nest_s = q.s;
	pthread_t t;
	sigset_t m, o;
	sigemptyset(&m);
	sigaddset(&m, SIGALRM);
	set(SIGALRM, onnest, SA_RESTART);
	pthread_sigmask(SIG_BLOCK, &m, &o);
	CHECK(!pthread_create(&t, 0, echo, (void *)(long)p.s));
	pthread_sigmask(SIG_SETMASK, &o, 0);
	hits = 0;
	storm(1);
	for (int i = 0; i < 30; i++)
		ping(p.c, 100);
	storm(0);
	close(p.c);
	pthread_join(t, 0);
	close(q.c);
	close(q.s);
	printf("nested ok %d\n", hits > 0);
}
static void t_alt(void)
{
	static char alt[16384];
	stack_t s = {.ss_sp = alt, .ss_size = sizeof alt}, o;
	CHECK(!sigaltstack(&s, 0));
	struct pair p = open_pair(), q = open_pair();
	nest_c = q.c;
	nest_s = q.s;
	pthread_t t;
	sigset_t m, om;
	sigemptyset(&m);
	sigaddset(&m, SIGALRM);
	sigaddset(&m, SIGVTALRM);
	set(SIGALRM, onnest, SA_RESTART | SA_ONSTACK | SA_NODEFER);
	pthread_sigmask(SIG_BLOCK, &m, &om);
	CHECK(!pthread_create(&t, 0, echo, (void *)(long)p.s));
	pthread_sigmask(SIG_SETMASK, &om, 0);
	hits = 0;
	struct itimerval v = {{0, 1000}, {0, 1000}};
	setitimer(ITIMER_REAL, &v, 0);
	for (int i = 0; i < 30; i++)
		ping(p.c, 100);
	usleep(20000);
	storm(0);
	CHECK(!sigaltstack(0, &o));
	CHECK(o.ss_sp == alt && o.ss_flags == 0);
	close(p.c);
	pthread_join(t, 0);
	close(q.c);
	close(q.s);
	s.ss_flags = SS_DISABLE;
	CHECK(!sigaltstack(&s, 0));
	printf("alt ok %d\n", hits > 0);
}
static __attribute__((noinline)) void deep(struct pair p, int d)
{
	volatile char pad[300];
	pad[0] = d;
	if (d) {
		deep(p, d - 1);
		pad[1] = pad[0];
		return;
	}
	char b;
	read(p.s, &b, 1);
	puts("came back");
}
static void t_jump(void)
{
	struct pair p = open_pair();
	char b[10];
	full(p.c, "x", 1, 1);
	full(p.s, b, 1, 0);
	set(SIGALRM, onjmp, 0);
	for (volatile int i = 0; i < 200; i++) {
		if (!sigsetjmp(jb, 1)) {
			struct itimerval v = {{0, 0}, {0, 300 + i}};
			setitimer(ITIMER_REAL, &v, 0);
			deep(p, i % 7);
		}
		if (i % 3 == 0) {
			full(p.c, "abc", 3, 1);
			full(p.s, b, 3, 0);
			CHECK(!memcmp(b, "abc", 3));
			full(p.s, "defg", 4, 1);
			full(p.c, b, 4, 0);
		}
	}
	int e = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN};
	epoll_ctl(e, EPOLL_CTL_ADD, p.s, &ev);
	for (volatile int i = 0; i < 100; i++) {
		if (!sigsetjmp(jb, 1)) {
			struct itimerval v = {{0, 0}, {0, 300}};
			setitimer(ITIMER_REAL, &v, 0);
			struct pollfd f = {p.s, POLLIN, 0};
			fd_set fs;
			FD_ZERO(&fs);
			FD_SET(p.s, &fs);
			if (i % 3 == 0)
				poll(&f, 1, -1);
			else if (i % 3 == 1)
				select(p.s + 1, &fs, 0, 0, 0);
			else
				epoll_wait(e, &ev, 1, -1);
			CHECK(!"back");
		}
		full(p.c, "z", 1, 1);
		CHECK(epoll_wait(e, &ev, 1, 1000) == 1);
		full(p.s, b, 1, 0);
	}
	close(e);
	close(p.c);
	close(p.s);
	puts("jump ok");
}
static void *quick(void *a)
{
	thits = 0;
	CHECK(tl == 7);
	tl = 8;
	tl = 7;
	return (void *)((long)a * 3);
}
static void t_threads(void)
{
	struct pair p = open_pair();
	pthread_t t;
	CHECK(!pthread_create(&t, 0, echo, (void *)(long)p.s));
	for (int i = 0; i < 300; i++) {
		pthread_t q[4];
		for (int k = 0; k < 4; k++)
			CHECK(!pthread_create(&q[k], 0, quick, (void *)(long)k));
		for (int k = 0; k < 4; k++) {
			void *r;
			CHECK(!pthread_join(q[k], &r));
			CHECK((long)r == k * 3);
		}
		pthread_attr_t at;
		pthread_attr_init(&at);
		pthread_attr_setdetachstate(&at, 1);
		pthread_t d;
		int r = pthread_create(&d, &at, quick, 0);
		CHECK(r == 0);
		ping(p.c, 3);
	}
	close(p.c);
	pthread_join(t, 0);
	puts("threads ok");
}
static void t_storm_threads(void)
{
	set(SIGALRM, onsig, SA_RESTART);
	storm(1);
	t_threads();
	storm(0);
	puts("storm threads ok");
}
static void t_forks(void)
{
	for (int i = 0; i < 60; i++) {
		struct pair p = open_pair();
		ping(p.c, 0);
		fflush(stdout);
		pid_t c = fork();
		CHECK(c >= 0);
		if (!c) {
			close(p.c);
			echo((void *)(long)p.s);
			_exit(5);
		}
		close(p.s);
		ping(p.c, 20);
		close(p.c);
		int st;
		CHECK(waitpid(c, &st, 0) == c || errno == EINTR);
		if (WEXITSTATUS(st) != 5)
			waitpid(c, &st, 0);
		CHECK(WEXITSTATUS(st) == 5);
	}
	puts("forks ok");
}
static void t_fork_threads(void)
{
	pthread_t t[3];
	struct pair p[3];
	for (int i = 0; i < 3; i++) {
		p[i] = open_pair();
		pthread_create(&t[i], 0, echo, (void *)(long)p[i].s);
	}
	set(SIGALRM, onsig, SA_RESTART);
	storm(1);
	for (int i = 0; i < 50; i++) {
		for (int k = 0; k < 3; k++)
			ping(p[k].c, 5);
		fflush(stdout);
		pid_t c = fork();
		if (!c) {
			storm(0);
			pthread_t q;
			void *r;
			CHECK(!pthread_create(&q, 0, quick, (void *)2L));
			pthread_join(q, &r);
			_exit(r == (void *)6L ? 4 : 1);
		}
		int st = 0;
		while (waitpid(c, &st, 0) < 0 && errno == EINTR)
			;
		CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 4);
	}
	storm(0);
	for (int i = 0; i < 3; i++) {
		close(p[i].c);
		pthread_join(t[i], 0);
	}
	puts("fork threads ok");
}
static void t_exec(const char *me)
{
	for (volatile int i = 0; i < 5; i++) {
		pid_t c;
		char *av[] = {(char *)me, "child", 0};
		fflush(stdout);
		if (i % 2)
			CHECK(!posix_spawn(&c, me, 0, 0, av, environ));
		else {
			c = vfork();
			if (!c) {
				execve(me, av, environ);
				_exit(1);
			}
		}
		int st;
		CHECK(waitpid(c, &st, 0) == c);
		CHECK(WEXITSTATUS(st) == 33);
	}
	pid_t c = vfork();
	if (!c)
		_exit(3);
	int st;
	waitpid(c, &st, 0);
	CHECK(WEXITSTATUS(st) == 3);
	FILE *f = popen("echo hi", "r");
	char b[9] = {0};
	fgets(b, 9, f);
	pclose(f);
	CHECK(!strcmp(b, "hi\n"));
	CHECK(system("exit 7") >> 8 == 7);
	puts("exec ok");
}
static void t_dup(void)
{
	struct pair p = open_pair();
	pthread_t t;
	CHECK(!pthread_create(&t, 0, echo, (void *)(long)p.s));
	ping(p.c, 50);
	int d = dup(p.c);
	close(p.c);
	ping(d, 50);
	CHECK(dup2(d, 200) == 200);
	close(d);
	ping(200, 50);
	shutdown(200, SHUT_WR);
	char b;
	CHECK(read(200, &b, 1) == 0);
	close(200);
	pthread_join(t, 0);
	puts("dup ok");
}
static char *volatile nowhere = (char *)8;

static void t_errors(void)
{
	struct pair p = open_pair();
	char b;
	full(p.c, "q", 1, 1);
	CHECK(read(p.s, nowhere, 10) == -1 && errno == EFAULT);
	CHECK(read(p.s, &b, 1) == 1 && b == 'q');
	CHECK(read(-1, &b, 1) == -1 && errno == EBADF);
	close(p.s);
	signal(SIGPIPE, SIG_IGN);
	usleep(1000);
	int r = 0;
	for (int i = 0; i < 5 && r >= 0; i++)
		r = write(p.c, &b, 1);
	CHECK(errno == EPIPE || errno == ECONNRESET);
	close(p.c);
	puts("errors ok");
}
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"basic", t_basic},	{"eintr", t_eintr},
	{"storm", t_storm},	{"nested", t_nested},
	{"alt", t_alt},		{"jump", t_jump},
	{"threads", t_threads}, {"storm_threads", t_storm_threads},
	{"forks", t_forks},	{"fork_threads", t_fork_threads},
	{"dup", t_dup},		{"errors", t_errors},
};

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(name, "child"))
		return 33;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (!*name || !strcmp(name, cases[i].name))
			cases[i].run();
	if (!*name || !strcmp(name, "exec"))
		t_exec(argv[0]);
	puts("done");
	return 0;
}

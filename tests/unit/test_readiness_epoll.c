/* SPDX-License-Identifier: Apache-2.0 */
/* epoll instances from inside: tags, the hot list, arming, and what refuses an upgrade. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "unit/test.h"

#include "base/fds.h"
#include "base/real.h"
#include "readiness/epoll.h"
#include "readiness/poll.h"
#include "unit/readiness_instance.h"

static struct epoll_reg *reg_of_locked(struct instance *in, int fd)
{
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		if (r->fd == fd)
			return r;
	REQUIRE(false);
	return NULL;
}

TEST(registration_follows_the_upgrade)
{
	struct sock_pair p = pair_make();
	struct epoll_event ev;
	int ep = ep_open();

	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 5), 0);
	for (int i = 0; i < 40; i++) {
		pair_pass(p.c, p.s);
		pair_pass(p.s, p.c);
	}
	/* Nobody may ever hear what comes by memory. */
	CHECK(!reg_of(ep, p.s)->converted);
	CHECK(!pair_in_ring(p.s));
	CHECK_EQ(ep_wait(ep, &ev, 1, 0), 0);
	pair_raise(p);
	CHECK(reg_of(ep, p.s)->converted);
	CHECK_EQ(ep_wait(ep, &ev, 1, 0), 0);
	CHECK_EQ(pair_send(p.c, "x", 1, 0), 1);
	CHECK_EQ(ep_wait(ep, &ev, 1, 10000), 1);
	CHECK_EQ(ev.data.u64, 5);
	CHECK_EQ(ev.events, EPOLLIN);
	ep_close(ep);
	CHECK(fd_sock(p.s)->regs == NULL);
	pair_close(p);
}

TEST(registration_comes_back_at_the_end)
{
	struct sock_pair p = pair_raised();
	struct epoll_event ev;
	int ep = ep_open();

	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 6), 0);
	CHECK(reg_of(ep, p.s)->converted);
	sock_refuse(fd_sock(p.s), p.s, VD_REASON_OPTION);
	for (int i = 0; i < 20 && sock_is_direct(fd_sock(p.s)); i++) {
		pair_pass(p.c, p.s);
		pair_pass(p.s, p.c);
	}
	CHECK(!sock_is_direct(fd_sock(p.s)));
	CHECK_EQ(ep_wait(ep, &ev, 1, 0), 0);
	CHECK(!reg_of(ep, p.s)->converted);
	CHECK_EQ(pair_send(p.c, "x", 1, 0), 1);
	CHECK_EQ(ep_wait(ep, &ev, 1, 10000), 1);
	CHECK_EQ(ev.data.u64, 6);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_DEL, p.s, 0, 0), 0);
	CHECK_EQ(ep_wait(ep, &ev, 1, 0), 0);
	ep_close(ep);
	pair_close(p);
}

TEST(idle_ones_are_armed_and_leave_the_hot_list)
{
	struct sock_pair p = pair_raised(), q = pair_raised();
	int ep = ep_open();
	struct instance *in = instance_at(ep);
	struct epoll_event ev[2];
	char byte;

	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 1), 0);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, q.s, EPOLLIN, 2), 0);
	for (int i = 0; i < 1000; i++) {
		CHECK_EQ(pair_send(p.c, "x", 1, 0), 1);
		CHECK_EQ(ep_wait(ep, ev, 2, 10000), 1);
		CHECK_EQ(ev[0].data.u64, 1);
		CHECK_EQ(pair_recv(p.s, &byte, 1, 0), 1);
	}
	CHECK_EQ(in->nhot, 1);
	CHECK(reg_of(ep, p.s)->hot_at);
	CHECK_EQ(reg_of(ep, p.s)->armed, 0);
	CHECK_EQ(reg_of(ep, q.s)->armed, EPOLLIN);
	/* The doorbell brings it back. */
	CHECK_EQ(pair_send(q.c, "x", 1, 0), 1);
	CHECK_EQ(ep_wait(ep, ev, 2, 10000), 1);
	CHECK_EQ(ev[0].data.u64, 2);
	CHECK_EQ(in->nhot, 2);
	CHECK_EQ(reg_of(ep, q.s)->armed, 0);
	ep_close(ep);
	pair_close(p);
	pair_close(q);
}

static void sleeps(struct instance *in)
{
	instance_lock(in);
	instance_arm(in);
	instance_unlock(in);
}

static void wakes(struct instance *in)
{
	instance_lock(in);
	instance_disarm(in);
	instance_unlock(in);
}

/* Room is an edge once somebody has lacked it: until then the peer has nothing to ring for. */
TEST(room_that_nobody_lacks_is_not_armed_for)
{
	struct sock_pair p = pair_raised();
	struct sock *s = fd_sock(p.s);
	static char buf[65536];
	struct epoll_event ev;
	int ep = ep_open();
	struct instance *in = instance_at(ep);
	size_t put = 0;
	ssize_t n;

	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN | EPOLLOUT | EPOLLET, 1), 0);
	CHECK_EQ(ep_wait(ep, &ev, 1, 10000), 1);
	CHECK_EQ(ev.events, EPOLLOUT);
	sleeps(in);
	CHECK_EQ(atomic_load(&s->slot->sleepers_tx), 1);
	CHECK_EQ(atomic_load(&s->out->tx_armed), 0);
	/* Who finds none arms for those that are counted. */
	while ((n = pair_send(p.s, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		put += (size_t)n;
	CHECK_EQ(n, -EAGAIN);
	CHECK(atomic_load(&s->out->tx_armed) != 0);
	while (put > 0 && (n = pair_recv(p.c, buf, sizeof(buf), 0)) > 0)
		put -= (size_t)n;
	wakes(in);
	CHECK_EQ(ep_wait(ep, &ev, 1, 10000), 1);
	CHECK_EQ(ev.events, EPOLLOUT);
	sleeps(in);
	CHECK_EQ(atomic_load(&s->out->tx_armed), 0);
	ep_close(ep);
	pair_close(p);
}

/* A level is another matter: who waits for it is to be woken by any room. */
TEST(a_level_of_room_is_armed_for)
{
	struct sock_pair p = pair_raised();
	int ep = ep_open();

	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN | EPOLLOUT, 1), 0);
	sleeps(instance_at(ep));
	CHECK(atomic_load(&fd_sock(p.s)->out->tx_armed) != 0);
	ep_close(ep);
	pair_close(p);
}

/* What a call has told from memory it does not tell again because the kernel, which it asks
 * after a sleep that did not come about, says the same. */
TEST(told_once_in_a_call)
{
	struct sock_pair p = pair_raised();
	int ep = ep_open();
	struct instance *in = instance_at(ep);
	struct epoll_event ev[4];
	struct batch b = {.ev = ev, .max = 4};

	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 1), 0);
	CHECK_EQ(pair_send(p.c, "x", 1, 0), 1);
	CHECK_EQ(ep_wait(ep, ev, 4, 10000), 1);
	instance_lock(in);
	instance_scan(in, &b);
	CHECK_EQ(b.n, 1);
	in->calls += 7; /* as a sleep makes it older */
	reg_heat(reg_of_locked(in, p.s));
	instance_scan_until(in, &b, UINT64_MAX);
	CHECK_EQ(b.n, 1);
	/* What it had nothing of is told when the kernel says it. */
	reg_of_locked(in, p.s)->told_at--;
	reg_heat(reg_of_locked(in, p.s));
	instance_scan_until(in, &b, UINT64_MAX);
	CHECK_EQ(b.n, 2);
	instance_unlock(in);
	ep_close(ep);
	pair_close(p);
}

/* With room for one, all ready ones get their turn. */
TEST(short_room_is_shared)
{
	struct sock_pair p[3] = {pair_raised(), pair_raised(), pair_raised()};
	int ep = ep_open(), bell = eventfd(1, EFD_CLOEXEC), seen[4] = {0};
	struct epoll_event ev;

	for (int i = 0; i < 3; i++) {
		CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p[i].s, EPOLLIN, (uint64_t)i), 0);
		CHECK_EQ(pair_send(p[i].c, "x", 1, 0), 1);
	}
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, bell, EPOLLIN, 3), 0);
	for (int i = 0; i < 400; i++) {
		CHECK_EQ(ep_wait(ep, &ev, 1, 10000), 1);
		seen[ev.data.u64 & 3]++;
	}
	for (int i = 0; i < 3; i++)
		CHECK(seen[i] > 20);
	CHECK(seen[3] > 4);
	ep_close(ep);
	close(bell);
	for (int i = 0; i < 3; i++)
		pair_close(p[i]);
}

/* A program may use any 64 bits as its data, even those of a tag. */
TEST(data_like_a_tag_refuses_the_instance)
{
	struct sock_pair p = pair_raised();
	int ep = ep_open(), bell = eventfd(1, EFD_CLOEXEC);
	uint64_t tag;

	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 1), 0);
	tag = tag_of(reg_of(ep, p.s), false);
	CHECK(tag_collides(tag));
	CHECK(!tag_collides(1));
	CHECK(!tag_collides(UINT64_MAX >> 1));
	CHECK(!tag_collides((uint64_t)(uintptr_t)&tag));
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, bell, EPOLLIN, tag), 0);
	CHECK_EQ(atomic_load(&fd_sock(p.s)->slot->reason), VD_REASON_EPOLL);
	ep_close(ep);
	close(bell);
	pair_close(p);
}

/* What the kernel has said of a connection, while its record became another's, is not the other's. */
TEST(a_late_event_is_nobodys)
{
	struct sock_pair old = pair_raised(), new = pair_raised();
	int ep = ep_open();
	struct instance *in = instance_at(ep);
	struct epoll_event late = {.events = EPOLLIN | EPOLLRDHUP | EPOLLHUP};
	struct epoll_reg *r;

	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, old.s, EPOLLIN, 1), 0);
	r = reg_of(ep, old.s);
	late.data.u64 = tag_of(r, false);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_DEL, old.s, 0, 0), 0);
	pair_close(old);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, new.s, EPOLLIN, 2), 0);
	CHECK(reg_of(ep, new.s) == r);
	instance_lock(in);
	tag_heard(in, &late);
	instance_unlock(in);
	CHECK_EQ(atomic_load(&fd_sock(new.s)->slot->seen) & (SEEN_FIN | SEEN_HUP), 0);
	CHECK_EQ(ep_wait(ep, &late, 1, 0), 0);
	ep_close(ep);
	pair_close(new);
}

TEST(a_nested_instance_is_readable_for_memory)
{
	struct sock_pair p = pair_raised();
	int in = ep_open(), out = ep_open();
	struct epoll_event ev;
	char byte;

	CHECK_EQ(ep_ctl(in, EPOLL_CTL_ADD, p.s, EPOLLIN, 1), 0);
	CHECK_EQ(ep_ctl(out, EPOLL_CTL_ADD, in, EPOLLIN, 2), 0);
	CHECK(sock_is_direct(fd_sock(p.s)));
	CHECK_EQ(ep_wait(out, &ev, 1, 0), 0);
	CHECK_EQ(pair_send(p.c, "x", 1, 0), 1);
	CHECK_EQ(ep_wait(out, &ev, 1, 10000), 1);
	CHECK_EQ(ev.data.u64, 2);
	CHECK_EQ(ep_wait(in, &ev, 1, 10000), 1);
	CHECK_EQ(pair_recv(p.s, &byte, 1, 0), 1);
	CHECK_EQ(ep_wait(out, &ev, 1, 0), 0);
	CHECK(sock_is_direct(fd_sock(p.s)));
	ep_close(in);
	ep_close(out);
	pair_close(p);
}

/* Somebody waits for it past us. */
TEST(an_instance_that_is_waited_for_unseen_keeps_its_sockets_on_tcp)
{
	struct sock_pair p = pair_make();
	int in = ep_open();

	ready_watched(in);
	CHECK_EQ(ep_ctl(in, EPOLL_CTL_ADD, p.s, EPOLLIN, 1), 0);
	CHECK_EQ(atomic_load(&fd_sock(p.s)->slot->phase), SLOT_FINAL);
	CHECK_EQ(atomic_load(&fd_sock(p.s)->slot->reason), VD_REASON_EPOLL);
	ep_close(in);
	pair_close(p);
}

/* A socket closed behind our back leaves nothing that is followed. */
TEST(a_socket_closed_past_us_is_dropped)
{
	struct sock_pair p = pair_raised();
	struct epoll_event ev;
	int ep = ep_open();

	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 1), 0);
	close(p.s);
	fd_forget(p.s);
	CHECK_EQ(ep_wait(ep, &ev, 1, 0), 0);
	CHECK_EQ(ep_wait(ep, &ev, 1, 1), 0);
	ep_close(ep);
	pair_close_fd(p.c);
}

/* Registrations by way of duplicates share one doorbell, whoever goes first. */
TEST(duplicates_share_a_doorbell)
{
	struct sock_pair p = pair_raised();
	int ep = ep_open(), d = dup(p.s);
	struct epoll_event ev[4];

	fd_duplicated(p.s, d);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 1), 0);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, d, EPOLLIN, 2), 0);
	CHECK(reg_of(ep, p.s)->bell);
	CHECK(!reg_of(ep, d)->bell);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_DEL, p.s, 0, 0), 0);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_DEL, p.s, 0, 0), -ENOENT);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_MOD, p.s, EPOLLIN, 3), -ENOENT);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(ep_wait(ep, ev, 4, 0), 0);
	CHECK_EQ(pair_send(p.c, "x", 1, 0), 1);
	CHECK_EQ(ep_wait(ep, ev, 4, 10000), 1);
	CHECK_EQ(ev[0].data.u64, 2);
	/* The other way round, and by closing. */
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 1), 0);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_DEL, d, 0, 0), 0);
	CHECK_EQ(ep_wait(ep, ev, 4, 10000), 1);
	CHECK_EQ(ev[0].data.u64, 1);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_DEL, p.s, 0, 0), 0);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, d, EPOLLIN, 2), 0);
	pair_close_fd(p.s);
	CHECK(reg_of(ep, d)->bell);
	CHECK(fd_sock(d)->regs == reg_of(ep, d));
	CHECK_EQ(ep_wait(ep, ev, 4, 10000), 1);
	CHECK_EQ(ev[0].data.u64, 2);
	ep_close(ep);
	pair_close_fd(d);
	pair_close_fd(p.c);
}

TEST(duplicates_of_an_instance_share_it)
{
	int ep = ep_open(), d = dup(ep);
	struct instance *in = instance_at(ep);

	ready_duplicated(ep, d);
	CHECK(in && instance_at(d) == in);
	ep_close(ep);
	CHECK(instance_at(ep) == NULL);
	CHECK(instance_at(d) == in);
	CHECK_EQ(instance_fd(in), d);
	ep_close(d);
	CHECK(instance_at(d) == NULL);
}

/* As the hook of fork. */
static pid_t fork_here(void)
{
	pid_t child;

	sock_forking();
	ready_forking();
	fds_forking();
	child = fork();
	if (child == 0) {
		lock_forked();
		fds_forked_child();
		sock_forked_child(false);
		ready_forked_child();
		return 0;
	}
	fds_forked_parent();
	ready_forked_parent();
	sock_forked_parent(child);
	return child;
}

/* A child's parent is alive: the instance serves two processes, so TCP. */
TEST(an_inherited_instance_goes_to_tcp)
{
	struct sock_pair p = pair_raised();
	int ep = ep_open(), status = -1;
	pid_t child;

	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 1), 0);
	child = fork_here();
	if (child == 0) {
		struct epoll_event ev;

		ep_wait(ep, &ev, 1, 0);
		_exit(atomic_load(&fd_sock(p.s)->slot->reason) == VD_REASON_EPOLL ? 0
										  : 1);
	}
	REQUIRE(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	ep_close(ep);
	pair_close(p);
}

/* What we do not know is made as the program makes it, of which a filter of its own may allow no other. */
TEST(a_wait_on_an_unknown_instance_is_left)
{
	struct epoll_event ev;
	int ep = epoll_create1(EPOLL_CLOEXEC);

	REQUIRE(ep >= 0);
	CHECK_EQ(ready_epoll_wait_alone(ep, &ev, 1, 0, -1000), -1000);
	close(ep);
}

/* ---- an instance whose maker has gone ---- */

static struct instance *watched;
static bool was_locked;

/* A child asks for its parent, which has gone. */
static void asks(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	was_locked = !lock_try(&watched->lock);
	if (!was_locked)
		lock_drop(&watched->lock);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -ESRCH;
}

static void catch_kill(void)
{
	struct sigaction act = {.sa_sigaction = asks, .sa_flags = SA_SIGINFO};
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};

	REQUIRE(sigaction(SIGSYS, &act, NULL) == 0);
	REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static void make_and_leave(int told)
{
	struct sock_pair p = pair_raised();
	int ep = ep_open();
	struct epoll_event ev;
	char said;

	REQUIRE(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 1) == 0);
	if (fork_here() > 0)
		_exit(0);
	/* Until the parent has gone, and has been waited for. */
	while (syscall(SYS_kill, instance_at(ep)->owner, 0) == 0)
		usleep(1000);
	watched = instance_at(ep);
	catch_kill();
	ep_wait(ep, &ev, 1, 0);
	said = (char)('0' + was_locked + 2 * (watched->owner == getpid()));
	REQUIRE(write(told, &said, 1) == 1);
	_exit(0);
}

/* A child becomes the owner under the lock: another thread may change the registrations. */
TEST(an_instance_changes_hands_under_its_lock)
{
	int told[2], status = -1;
	pid_t maker;
	char said = 0;

	REQUIRE(pipe(told) == 0);
	sock_pair_init();
	maker = fork_here();
	if (maker == 0)
		make_and_leave(told[1]);
	close(told[1]);
	REQUIRE(waitpid(maker, &status, 0) == maker);
	CHECK_EQ(status, 0);
	CHECK_EQ(read(told[0], &said, 1), 1);
	CHECK_EQ(said, '3');
	close(told[0]);
}

/* ---- a handler between two sleeps ---- */

static int in_vain, looks;

/* The second look is after a wake that was in vain, and a handler runs there. */
static int handle_at_second_look(int epfd, struct epoll_event *ev, int max, int ms)
{
	uint64_t count;

	(void)epfd, (void)ev, (void)max, (void)ms;
	if (++looks == 2) {
		REQUIRE(read(in_vain, &count, sizeof(count)) == sizeof(count));
		crit_note_handler(true);
	}
	return 0;
}

static void *nothing(void *arg)
{
	return arg;
}

TEST(a_handler_after_a_wake_in_vain_ends_a_wait)
{
	int in = ep_open(), out = ep_open();
	struct epoll_event ev;
	pthread_t t;

	/* A process that has never had another thread sleeps in one piece. */
	REQUIRE(pthread_create(&t, NULL, nothing, NULL) == 0);
	REQUIRE(pthread_join(t, NULL) == 0);
	in_vain = eventfd(1, EFD_CLOEXEC);
	CHECK_EQ(ep_ctl(out, EPOLL_CTL_ADD, in, EPOLLIN, 1), 0);
	CHECK_EQ(ep_ctl(out, EPOLL_CTL_ADD, in_vain, EPOLLIN, 2), 0);
	real_table.epoll_wait = handle_at_second_look;
	CHECK_EQ(ep_wait(out, &ev, 1, 2000), -EINTR);
	real_table.epoll_wait = epoll_wait;
	/* What had come by then would have been told. */
	CHECK_EQ(looks, 3);
	close(in_vain);
	ep_close(in);
	ep_close(out);
}

/* A connection comes to the instance that is slept on, whose bell ends the sleep in vain; and a handler runs then. */
static struct late {
	int in, fd, sleeps;
} late;

static int handle_as_one_comes(struct pollfd *fds, nfds_t n, const struct timespec *t,
			       const sigset_t *mask)
{
	int rc;

	if (late.sleeps++ == 0) {
		REQUIRE(ep_ctl(late.in, EPOLL_CTL_ADD, late.fd, EPOLLIN, 1) == 0);
		sock_ring_self(fd_sock(late.fd));
		rc = ppoll(fds, n, t, mask);
		CHECK_EQ(rc, 1);
		crit_note_handler(true);
		return rc;
	}
	return ppoll(fds, n, t, mask);
}

static void polled(const sigset_t *mask)
{
	const struct timespec second = {.tv_sec = 1};
	struct sock_pair p = pair_raised();
	int in = ep_open();
	struct pollfd f = {.fd = in, .events = POLLIN};

	late = (struct late){.in = in, .fd = p.s};
	epoll_nested(in);
	real_table.ppoll = handle_as_one_comes;
	CHECK_EQ(poll_nesting(&f, NULL, 1, look_deadline(&second), mask), -EINTR);
	real_table.ppoll = ppoll;
	CHECK_EQ(late.sleeps, 1);
	ep_close(in);
	pair_close(p);
}

TEST(a_handler_after_a_wake_in_vain_ends_a_poll)
{
	sigset_t none;

	sigemptyset(&none);
	polled(NULL);
	polled(&none);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: each call that sends, given memory that it cannot use. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/bad.h"

static const char text[] = "twenty bytes of text";

static ssize_t run_write(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return write(p.s, bad_place(kind, text, 20), 20);
}

static ssize_t run_write_none(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return write(p.s, bad_place(kind, text, 20), 0);
}

static ssize_t run_write_long(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return write(p.s, bad_place(kind, text, 20), __LONG_MAX__);
}

static ssize_t run_writev(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{(void *)text, 3}, {(void *)text, 20}};
	(void)extra;
	return writev(p.s, bad_place(kind, iov, sizeof iov), 2);
}

static ssize_t run_writev_second(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{(void *)text, 3}, {bad_place(kind, text, 20), 20}};
	(void)extra;
	return writev(p.s, iov, 2);
}

static ssize_t run_writev_empty(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{bad_place(kind, text, 20), 0}, {(void *)text, 20}};
	(void)extra;
	return writev(p.s, iov, 2);
}

static ssize_t run_writev_sum(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{(void *)text, 3},
			       {bad_place(kind, text, 20), __LONG_MAX__}};
	(void)extra;
	return writev(p.s, iov, 2);
}

static ssize_t run_writev_negative(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{(void *)text, 3}, {bad_place(kind, text, 20), SIZE_MAX}};
	(void)extra;
	return writev(p.s, iov, 2);
}

static ssize_t run_pwritev2(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{(void *)text, 3}, {(void *)text, 20}};
	(void)extra;
	return pwritev2(p.s, bad_place(kind, iov, sizeof iov), 2, -1, 0);
}

static ssize_t run_send(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return send(p.s, bad_place(kind, text, 20), 20, 0);
}

static ssize_t run_send_none(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return send(p.s, bad_place(kind, text, 20), 0, 0);
}

static const struct sockaddr_in somebody = {.sin_family = AF_INET};

static ssize_t run_sendto_name(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return sendto(p.s, text, 20, 0, bad_place(kind, &somebody, sizeof somebody),
		      sizeof somebody);
}

static ssize_t run_sendto_none(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return sendto(p.s, text, 20, 0, bad_place(kind, &somebody, sizeof somebody), 0);
}

static ssize_t run_sendto_long(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return sendto(p.s, text, 20, 0, bad_place(kind, &somebody, sizeof somebody), 129);
}

static ssize_t run_sendto_negative(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return sendto(p.s, text, 20, 0, bad_place(kind, &somebody, sizeof somebody),
		      UINT32_MAX);
}

static ssize_t run_sendmsg(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov = {(void *)text, 20};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	(void)extra;
	return sendmsg(p.s, bad_place(kind, &msg, sizeof msg), 0);
}

static ssize_t send_message(struct pair p, struct msghdr msg)
{
	struct iovec iov = {(void *)text, 20};
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	return sendmsg(p.s, &msg, 0);
}

static ssize_t run_sendmsg_vector(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{(void *)text, 3}, {(void *)text, 20}};
	struct msghdr msg = {.msg_iov = bad_place(kind, iov, sizeof iov),
			     .msg_iovlen = 2};
	(void)extra;
	return sendmsg(p.s, &msg, 0);
}

static ssize_t run_sendmsg_many(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov = {(void *)text, 3};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = kind == FITS ? 1025 : SIZE_MAX - kind};
	(void)extra;
	return sendmsg(p.s, &msg, 0);
}

static ssize_t run_sendmsg_name(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return send_message(p, (struct msghdr){.msg_name = bad_place(kind, &somebody,
								     sizeof somebody),
					       .msg_namelen = sizeof somebody});
}

static ssize_t run_sendmsg_name_none(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return send_message(p, (struct msghdr){.msg_name = bad_place(kind, &somebody,
								     sizeof somebody)});
}

static ssize_t run_sendmsg_name_long(struct pair p, enum bad kind, char *extra)
{
	char name[256] = {AF_INET};
	(void)extra;
	return send_message(
		p, (struct msghdr){.msg_name = bad_place(kind, name, sizeof name),
				   .msg_namelen = sizeof name});
}

static ssize_t run_sendmsg_name_negative(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return send_message(p, (struct msghdr){.msg_name = bad_place(kind, &somebody,
								     sizeof somebody),
					       .msg_namelen = UINT32_MAX});
}

static ssize_t run_sendmsg_control(struct pair p, enum bad kind, char *extra)
{
	char control[64] = "";
	(void)extra;
	return send_message(p, (struct msghdr){.msg_control = bad_place(kind, control,
									sizeof control),
					       .msg_controllen = sizeof control});
}

static ssize_t run_sendmsg_control_short(struct pair p, enum bad kind, char *extra)
{
	char control[64] = "";
	(void)extra;
	return send_message(p, (struct msghdr){.msg_control = bad_place(kind, control,
									sizeof control),
					       .msg_controllen = 5});
}

static ssize_t run_sendmsg_control_long(struct pair p, enum bad kind, char *extra)
{
	char control[64] = "";
	(void)extra;
	return send_message(p, (struct msghdr){.msg_control = bad_place(kind, control,
									sizeof control),
					       .msg_controllen = SIZE_MAX});
}

static ssize_t run_sendmmsg(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov = {(void *)text, 5};
	struct mmsghdr msgs[2] = {{.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}},
				  {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}}};
	(void)extra;
	return sendmmsg(p.s, bad_place(kind, msgs, sizeof msgs), 2, 0);
}

static ssize_t run_sendmmsg_vector(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov = {(void *)text, 5};
	struct mmsghdr msgs[2] = {
		{.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}},
		{.msg_hdr = {.msg_iov = bad_place(kind, &iov, sizeof iov),
			     .msg_iovlen = 1}}};
	(void)extra;
	return sendmmsg(p.s, msgs, 2, 0);
}

static ssize_t run_sendfile(struct pair p, enum bad kind, char *extra)
{
	static int file = -1;
	off_t at = 3, *offset = bad_place(kind, &at, sizeof at);
	if (file < 0)
		file = fileno(tmpfile());
	NEED(pwrite(file, text, 20, 0) == 20 && lseek(file, 0, SEEK_SET) == 0);
	ssize_t n = sendfile(p.s, file, offset, 10);
	sprintf(extra, " at %u, file at %d", bad_word(kind, offset),
		(int)lseek(file, 0, SEEK_CUR));
	return n;
}

static const struct bad_call sends[] = {
	{"write", run_write, false},
	{"write of nothing", run_write_none, false},
	{"write of LONG_MAX", run_write_long, false},
	{"writev", run_writev, false},
	{"writev, second", run_writev_second, false},
	{"writev, empty first", run_writev_empty, false},
	{"writev, sum too long", run_writev_sum, false},
	{"writev, negative", run_writev_negative, false},
	{"pwritev2", run_pwritev2, false},
	{"send", run_send, false},
	{"send of nothing", run_send_none, false},
	{"sendto, name", run_sendto_name, false},
	{"sendto, name of length 0", run_sendto_none, false},
	{"sendto, long name", run_sendto_long, false},
	{"sendto, negative name", run_sendto_negative, false},
};

CASE(bad_sends, DIRECT)
{
	bad_sweep(sends, COUNT_OF(sends));
}

static const struct bad_call sent_messages[] = {
	{"sendmsg", run_sendmsg, false},
	{"sendmsg, vector", run_sendmsg_vector, false},
	{"sendmsg, too many", run_sendmsg_many, false},
	{"sendmsg, name", run_sendmsg_name, false},
	{"sendmsg, name of length 0", run_sendmsg_name_none, false},
	{"sendmsg, long name", run_sendmsg_name_long, false},
	{"sendmsg, negative name", run_sendmsg_name_negative, false},
	{"sendmsg, control", run_sendmsg_control, false},
	{"sendmsg, short control", run_sendmsg_control_short, false},
	{"sendmsg, long control", run_sendmsg_control_long, false},
	{"sendmmsg", run_sendmmsg, false},
	{"sendmmsg, second vector", run_sendmmsg_vector, false},
	{"sendfile, offset", run_sendfile, false},
};

CASE(bad_sent_messages, DIRECT)
{
	bad_sweep(sent_messages, COUNT_OF(sent_messages));
}

/* O_APPEND means nothing to a socket, but to sendfile. */
CASE(sendfile_append, DIRECT)
{
	struct pair p = pair_warm_open();
	int file = fileno(tmpfile()), flags = fcntl(p.s, F_GETFL);
	off_t at = 0;
	NEED(pwrite(file, text, 20, 0) == 20);
	NEED(fcntl(p.s, F_SETFL, flags | O_APPEND) == 0);
	say_result("sendfile", sendfile(p.s, file, NULL, 10));
	say_result("sendfile at", sendfile(p.s, file, &at, 10));
	say_result("write", write(p.s, text, 20));
	say("file at %ld, %ld", (long)lseek(file, 0, SEEK_CUR), (long)at);
	NEED(fcntl(p.s, F_SETFL, flags) == 0);
	say_result("sendfile", sendfile(p.s, file, NULL, 10));
	pair_close(p);
}

/* A file that cannot be read, or not to any place. */
CASE(sendfile_unreadable, DIRECT)
{
	struct pair p = pair_warm_open();
	char path[] = "/tmp/viaduct-sendfile-XXXXXX";
	int file = mkstemp(path);
	NEED(file >= 0 && write(file, "abcdefgh", 8) == 8);
	int written = open(path, O_WRONLY | O_CLOEXEC),
	    named = open(path, O_PATH | O_CLOEXEC);
	off_t at = 0;
	NEED(unlink(path) == 0);
	say_result("write-only", sendfile(p.s, written, NULL, 4));
	say_result("from an offset", sendfile(p.s, written, &at, 4));
	say_result("a place", sendfile(p.s, named, &at, 4));
	NEED(fcntl(file, F_SETFL, O_DIRECT) == 0 || errno == EINVAL);
	say_result("past the cache", sendfile(p.s, file, &at, 8));
	close(named);
	close(written);
	close(file);
	pair_close(p);
}

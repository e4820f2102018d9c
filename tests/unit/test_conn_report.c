/* SPDX-License-Identifier: Apache-2.0 */
/* The report: one line a process, all keys, valid JSON whatever the program's name. */
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "conn/report.h"
#include "unit/child.h"

static char file[] = "/tmp/viaduct-report-XXXXXX";
static char text[8192];

static void new_file(void)
{
	int fd;

	strcpy(file, "/tmp/viaduct-report-XXXXXX");
	fd = mkstemp(file);
	REQUIRE(fd >= 0);
	close(fd);
	setenv("VIADUCT_REPORT", file, 1);
}

static char *take(void)
{
	int fd = open(file, O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	close(fd);
	unlink(file);
	return text;
}

static void one_line(void *arg)
{
	char want[1024];

	(void)arg;
	program_invocation_short_name = "a\"b\\c\n\xc3\xa9";
	report_add(&report_now.connections, 3);
	report_add(&report_now.upgraded, 2);
	report_add(&report_now.downgraded, 1);
	report_add(&report_now.tx_direct_bytes, 5000000000);
	report_add(&report_now.rx_direct_bytes, 4);
	report_add(&report_now.tx_rdma_bytes, 11);
	report_add(&report_now.rx_rdma_bytes, 12);
	report_add(&report_now.tx_tcp_bytes, 5);
	report_add(&report_now.rx_tcp_bytes, 6);
	report_add(&report_now.doorbells, 7);
	report_add(&report_now.sleeps, 8);
	report_add(&report_now.redirects, 9);
	report_add(&report_now.zero_copies, 10);
	report_add(&report_now.reasons[VD_REASON_PLAIN_PEER], 1);
	report_add(&report_now.reasons[VD_REASON_KERNEL], 2);
	report_write();
	report_write();
	snprintf(want, sizeof(want),
		 "{\"pid\":%d,\"program\":\"a\\\"b\\\\c\\u000a\\u00c3\\u00a9\","
		 "\"connections\":3,\"upgraded\":2,\"downgraded\":1,"
		 "\"tx_direct_bytes\":5000000000,\"rx_direct_bytes\":4,"
		 "\"tx_rdma_bytes\":11,\"rx_rdma_bytes\":12,"
		 "\"tx_tcp_bytes\":5,\"rx_tcp_bytes\":6,\"doorbells\":7,\"sleeps\":8,"
		 "\"redirects\":9,\"zero_copies\":10,\"pinned_bytes\":0,\"native\":null,"
		 "\"reasons\":{\"plain-peer\":1,\"kernel\":2}}\n",
		 getpid());
	CHECK_STR(take(), want);
}

TEST(exact_line)
{
	new_file();
	CHILD(one_line, NULL);
}

static int count_lines(const char *s)
{
	int n = 0;

	for (; *s; s++)
		n += *s == '\n';
	return n;
}

static void grandchild(void *arg)
{
	(void)arg;
	report_forked();
	report_write();
}

static void processes(void *arg)
{
	(void)arg;
	report_add(&report_now.sleeps, 9);
	report_write();
	CHILD(grandchild, NULL);
	report_reopen();
	report_write();
	take();
	CHECK_EQ(count_lines(text), 3);
	char *second = strchr(text, '\n') + 1;
	CHECK(strstr(text, "\"sleeps\":9") < second);
	CHECK(strstr(second, "\"sleeps\":0,\"redirects\":0,\"zero_copies\":0,\"pinned_"
			     "bytes\":0,\"native\":"
			     "null,\"reasons\":"
			     "{}}\n") != NULL);
	CHECK(strstr(strchr(second, '\n'), "\"sleeps\":9") != NULL);
}

TEST(forks_and_failed_execs)
{
	new_file();
	CHILD(processes, NULL);
}

static void longest(void *arg)
{
	static char name[4096];
	char last[64];

	(void)arg;
	memset(name, '\x01', sizeof(name) - 1);
	program_invocation_short_name = name;
	for (uint32_t i = 0; i < VD_REASON_COUNT; i++)
		report_add(&report_now.reasons[i], UINT64_MAX);
	report_add(&report_now.sleeps, UINT64_MAX);
	report_write();
	take();
	CHECK_EQ(count_lines(text), 1);
	snprintf(last, sizeof(last), "\"%s\":18446744073709551615}}\n",
		 reason_name(VD_REASON_COUNT - 1));
	CHECK(strstr(text, last));
}

TEST(nothing_is_cut)
{
	new_file();
	CHILD(longest, NULL);
}

static void after_another(void *arg)
{
	int fd = open(getenv("VIADUCT_REPORT"), O_WRONLY | O_APPEND | O_CREAT, 0600);

	(void)arg;
	REQUIRE(fd >= 0 && write(fd, "{\"pid\":1,", 9) == 9);
	close(fd);
	report_write();
	report_reopen();
	report_write();
	take();
	CHECK_EQ(count_lines(text), 3);
	CHECK(strncmp(text, "{\"pid\":1,\n{\"pid\":", 17) == 0);
}

TEST(a_torn_line_stays_alone)
{
	new_file();
	CHILD(after_another, NULL);
}

enum { WRITERS = 8, WRITES = 300 };

static pid_t start_writer(void)
{
	pid_t pid = fork();

	for (int i = 0; pid == 0 && i < WRITES; i++) {
		report_write();
		report_reopen();
	}
	if (pid == 0)
		_exit(0);
	REQUIRE(pid > 0);
	return pid;
}

/* Those who write at the same time wait for each other: no line is taken for a torn one. */
TEST(many_write_whole_lines)
{
	pid_t pid[WRITERS];
	FILE *f;
	char line[4096];
	int lines = 0;

	new_file();
	for (int i = 0; i < WRITERS; i++)
		pid[i] = start_writer();
	for (int i = 0; i < WRITERS; i++)
		CHECK_EQ(waitpid(pid[i], NULL, 0), pid[i]);
	f = fopen(getenv("VIADUCT_REPORT"), "re");
	REQUIRE(f);
	for (; fgets(line, sizeof(line), f); lines++)
		CHECK(line[0] == '{' && strstr(line, "}}\n"));
	fclose(f);
	unlink(file);
	CHECK_EQ(lines, WRITERS * WRITES);
}

static void unset(void *arg)
{
	(void)arg;
	report_write();
}

TEST(no_file_no_report)
{
	unsetenv("VIADUCT_REPORT");
	CHILD(unset, NULL);
	setenv("VIADUCT_REPORT", "/nonexistent/dir/file", 1);
	CHILD(unset, NULL);
}

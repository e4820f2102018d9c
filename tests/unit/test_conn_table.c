/* SPDX-License-Identifier: Apache-2.0 */
/* What others see of a family's memory: they may read it, and nothing else. */
#include "unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conn/report.h"
#include "conn/table.h"

#define SLOTS 512u

/* The descriptor of the table, as another process would find it. */
static int table_fd(void)
{
	char path[64], target[64];
	for (int fd = 3; fd < 20000; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		if (n <= 0)
			continue;
		target[n] = 0;
		if (strstr(target, TABLE_NAME))
			return fd;
	}
	return -1;
}

static struct slot_table *seen;

static void look(void)
{
	char path[64];
	if (seen)
		return;
	REQUIRE(slot_table_init(SLOTS, TABLE_SHEETS) == 0);
	int fd = table_fd();
	REQUIRE(fd > 2);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	REQUIRE(fd >= 0);
	seen = mmap(NULL, sizeof(*seen) + SLOTS * sizeof(struct slot), PROT_READ,
		    MAP_SHARED, fd, 0);
	REQUIRE(seen != MAP_FAILED);
	close(fd);
}

static struct table_process *entry_of(pid_t pid)
{
	for (uint32_t i = 0; i < TABLE_PROCESSES; i++)
		if (atomic_load(&seen->processes[i].pid) == pid)
			return &seen->processes[i];
	return NULL;
}

TEST(read_from_outside)
{
	look();
	CHECK_EQ(seen->magic, TABLE_MAGIC);
	CHECK_EQ(seen->slot_count, SLOTS);
	CHECK_EQ(seen->slot_bytes, sizeof(struct slot));
	struct slot *sl = slot_alloc();
	REQUIRE(sl);
	CHECK_EQ(atomic_load(&seen->slots[slot_index(sl)].holders[0]), getpid());
	slot_release(sl, false);
	struct table_process *p = entry_of(getpid());
	REQUIRE(p);
	report_add(&report_now.sleeps, 7);
	CHECK_EQ(atomic_load(&p->counts.sleeps), 7);
}

TEST(not_written_from_outside)
{
	look();
	int fd = table_fd();
	char byte = 1;
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(pwrite(fd, &byte, 1, 0) < 0);
	CHECK(ftruncate(fd, 0) < 0);
}

TEST(a_child_counts_for_itself)
{
	look();
	int status;
	uint64_t mine = atomic_load(&report_now.sleeps);
	slot_table_forking();
	pid_t child = fork();
	if (child == 0) {
		report_forked();
		table_forked_child(true);
		report_add(&report_now.sleeps, 5);
		struct table_process *p = entry_of(getpid());
		_exit(p && atomic_load(&p->counts.sleeps) == 5 ? 0 : 1);
	}
	table_forked_parent(0);
	REQUIRE(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	CHECK_EQ(atomic_load(&report_now.sleeps), mine);
}

TEST(entries_of_the_dead_are_used_again)
{
	look();
	int status;
	for (unsigned i = 0; i < TABLE_PROCESSES + 20; i++) {
		slot_table_forking();
		pid_t child = fork();
		if (child == 0)
			pause();
		REQUIRE(child > 0);
		table_forked_parent(child);
		REQUIRE(entry_of(child));
		kill(child, SIGKILL);
		REQUIRE(waitpid(child, &status, 0) == child);
	}
	CHECK(entry_of(getpid()));
}

TEST(a_fork_that_fails_leaves_no_entry)
{
	look();
	for (unsigned i = 0; i < 2 * TABLE_PROCESSES; i++) {
		slot_table_forking();
		table_forked_parent(-1);
	}
	CHECK(!entry_of(TABLE_RESERVED));
	CHECK(entry_of(getpid()));
}

/* Buckets follow one another without a gap, and each time is in its own. */
TEST(times_of_calls)
{
	uint64_t begin = 0;

	for (uint32_t i = 0; i < CALL_BUCKETS - 1; i++) {
		CHECK(call_bucket_end(i) > begin);
		CHECK_EQ(call_bucket(begin), i);
		CHECK_EQ(call_bucket(call_bucket_end(i) - 1), i);
		CHECK(i == 0 || call_bucket_end(i) - begin <= begin / 4);
		begin = call_bucket_end(i);
	}
	CHECK_EQ(call_bucket(begin), CALL_BUCKETS - 1);
	CHECK_EQ(call_bucket(UINT64_MAX), CALL_BUCKETS - 1);
	CHECK_EQ(call_bucket_end(CALL_BUCKETS - 1), begin);
}

static bool is_empty(const struct call_sheet *sheet)
{
	static const struct call_sheet empty;

	return !memcmp((const void *)sheet, (const void *)&empty, sizeof(empty));
}

/* A child counts for itself, and whoever gets its entry after it begins with nothing. */
TEST(calls_of_a_child)
{
	struct call_sheet *ours, *childs;
	struct table_process *entry;
	int status, tell[2];
	pid_t child;

	look();
	REQUIRE(pipe(tell) == 0);
	ours = table_call_sheet();
	REQUIRE(ours);
	CHECK(is_empty(ours));
	atomic_store(&ours->rows[0].ns, 1);
	slot_table_forking();
	child = fork();
	if (child == 0) {
		table_forked_child(true);
		childs = table_call_sheet();
		_exit(!childs || childs == ours || !is_empty(childs) ||
		      (atomic_store(&childs->rows[0].ns, 2), false) ||
		      write(tell[1], &childs, sizeof(childs)) != sizeof(childs));
	}
	table_forked_parent(child);
	close(tell[1]);
	REQUIRE(read(tell[0], &childs, sizeof(childs)) == sizeof(childs));
	close(tell[0]);
	waitpid(child, &status, 0);
	CHECK_EQ(status, 0);
	entry = entry_of(child);
	REQUIRE(entry);
	CHECK_EQ(atomic_load(&entry->calls), 2);
	CHECK_EQ(atomic_load(&childs->rows[0].ns), 2);
	for (uint32_t i = 0; i < TABLE_PROCESSES && atomic_load(&entry->calls); i++) {
		slot_table_forking();
		table_forked_parent(-1);
	}
	CHECK_EQ(atomic_load(&entry->calls), 0);
	CHECK_EQ(atomic_load(&ours->rows[0].ns), 1);
}

static struct slot_table *table_written(void)
{
	return (struct slot_table *)(void *)((char *)(table_here() -
						      table_number_here()) -
					     offsetof(struct slot_table, processes));
}

/* What a child gets of `ask`, which runs there: true, or false. */
static bool ask_child(bool (*ask)(void))
{
	int status;
	pid_t child;

	slot_table_forking();
	child = fork();
	if (child == 0) {
		table_forked_child(true);
		_exit(ask() ? 0 : 1);
	}
	table_forked_parent(child);
	REQUIRE(waitpid(child, &status, 0) == child);
	return status == 0;
}

static bool gets_an_empty_sheet(void)
{
	struct call_sheet *sheet = table_call_sheet();
	bool well = sheet && is_empty(sheet);

	if (well)
		atomic_store(&sheet->rows[0].ns, 3);
	return well && table_call_sheet() == sheet;
}

static bool gets_no_sheet(void)
{
	for (int i = 0; i < 10000; i++)
		if (table_call_sheet())
			return false;
	return true;
}

/* More processes than there are sheets, one after another: the dead's are used again. */
TEST(sheets_of_the_dead)
{
	const struct slot_table *t;
	uint64_t ours;

	look();
	REQUIRE(table_call_sheet());
	t = table_written();
	ours = atomic_load(&t->sheets_taken);
	CHECK_EQ(ours & (ours - 1), 0);
	for (uint32_t i = 0; i < 3 * TABLE_SHEETS; i++)
		REQUIRE(ask_child(gets_an_empty_sheet));
	CHECK_EQ(atomic_load(&t->sheets_taken) & ours, ours);
}

/* Those of the living are not, whatever the table says of them. */
TEST(sheets_of_the_living)
{
	struct slot_table *t;

	look();
	REQUIRE(table_call_sheet());
	t = table_written();
	atomic_store(&t->sheets_taken, UINT64_MAX);
	for (uint32_t i = 0; i < TABLE_PROCESSES; i++)
		atomic_store(&t->processes[i].calls, 0);
	for (uint32_t i = 0; i < TABLE_SHEETS; i++) {
		atomic_store(&t->processes[100 + i].pid, getppid());
		atomic_store(&t->processes[100 + i].calls, i + 1);
	}
	CHECK(ask_child(gets_no_sheet));
	atomic_store(&t->processes[105].pid, 0);
	CHECK(ask_child(gets_an_empty_sheet));
	/* A number that is none. */
	atomic_store(&table_here()->calls, UINT32_MAX);
	CHECK(!table_call_sheet());
	atomic_store(&table_here()->calls, TABLE_SHEETS + 1);
	CHECK(!table_call_sheet());
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the ways of a Go program into the kernel, in files that are made for it. */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/find_call.h"
#include "base/go_text.h"
#include "unit/test.h"

/* Whole functions, from programs of Go 1.19. */
#define SYSCALL6                                                                         \
	"\x49\x89\xf2\x48\x89\xfa\x48\x89\xce\x48\x89\xdf\x0f\x05\x48\x3d\x01\xf0\xff"   \
	"\xff\x76\x15\x48\xf7\xd8\x48\x89\xc1\x48\xc7\xc0\xff\xff\xff\xff\x48\xc7\xc3"   \
	"\0\0\0\0\xc3\x48\x89\xd3\x48\xc7\xc1\0\0\0\0\xc3"
#define VFORK	     "\x48\x8b\x44\x24\x08\x41\x5c\x0f\x05\x41\x54\x48\x3d\x01\xf0\xff\xff"
#define EXIT	     "\x8b\x7c\x24\x08\xb8\xe7\0\0\0\x0f\x05\xc3"
#define EPOLL_CREATE "\x8b\x7c\x24\x08\xb8\xd5\0\0\0\x0f\x05\x89\x44\x24\x10\xc3"
/* Of statically linked programs; \x88, \x80 and \x48 are offsets that differ between versions. */
#define CLONE                                                                            \
	"\x4d\x8d\x85\x88\0\0\0\x49\x83\xc0\x08\x48\x81\xcf\0\0\x08\0\xb8\x38\0\0\0"     \
	"\x0f\x05\x48\x83\xf8\0\x74\x05\x89\x44\x24\x30\xc3\x48\x89\xf4\x49\x83\xfd\0"   \
	"\x74\x26\x49\x83\xf9\0\x74\x20\xb8\xba\0\0\0\x0f\x05\x49\x89\x45\x48\x4d\x89"   \
	"\x69\x30\x64\x4c\x89\x0c\x25\xf8\xff\xff\xff\x4d\x89\xce\xe8\x34\xdf\xff\xff"
#define CLONE_PATCH  18 /* the jump, from the begin of these bytes */
#define CLONE_PROCID 61
#define NEWOSPROC    "\xc7\x04\x24\0\x0f\x05\0"
#define EXIT_THREAD                                                                      \
	"\x48\x8b\x44\x24\x08\xc7\0\0\0\0\0\xbf\0\0\0\0\xb8\x3c\0\0\0\x0f\x05\xcd\x03"   \
	"\xeb\xfe"
#define SIGACTION                                                                        \
	"\x48\x8b\x7c\x24\x08\x48\x8b\x74\x24\x10\x48\x8b\x54\x24\x18\x4c\x8b\x54\x24"   \
	"\x20\xb8\x0d\0\0\0\x0f\x05\x89\x44\x24\x28\xc3"
#define SETTLS                                                                           \
	"\x48\x83\xec\x28\x48\x89\x6c\x24\x20\x48\x8d\x6c\x24\x20\x48\x83\xc7\x08\x48"   \
	"\x89"                                                                           \
	"\xfe\x48\xc7\xc7\x02\x10\0\0\x48\xc7\xc0\x9e\0\0\0\x0f\x05\x48\x3d\x01\xf0\xff" \
	"\xff\x76\x0b\xc7\x04\x25\xf1\0\0\0\xf1\0\0\0"
#define SETTLS_PATCH 28
/* Where the kernel begins, and what that leads to. */
#define ENTRY	  "\xe9\0\0\0\0"
#define RT0_AMD64 "\x48\x8b\x3c\x24\x48\x8d\x74\x24\x08\xe9\0\0\0\0"
/* lea m0.tls, call settls, movq $0x123,%fs:-8, mov m0.tls, cmp, je */
#define RT0_GO                                                                           \
	"\x48\x8d\x3d\0\x10\0\0\xe8\0\0\0\0\x64\x48\xc7\x04\x25\xf8\xff\xff\xff\x23\x01" \
	"\0\0\x48\x8b\x05\xe7\x0f\0\0\x48\x3d\x23\x01\0\0\x74\x05"
#define RT0_CALL 8
/* Of Go 1.27. */
#define LATER_SYSCALL6                                                                   \
	"\x49\x89\xf2\x48\x89\xfa\x48\x89\xce\x48\x89\xdf\x0f\x05\x48\x3d\x01\xf0\xff"   \
	"\xff\x76\x13\x48\xf7\xd8\x48\x89\xc1\x48\xc7\xc0\xff\xff\xff\xff\xbb\0\0\0\0"   \
	"\xc3\x48\x89\xd3\xb9\0\0\0\0\xc3"
#define LATER_SETTLS                                                                     \
	"\x55\x48\x89\xe5\x48\x83\xec\x20\x48\x83\xc7\x08\x48\x89\xfe\xbf\x02\x10\0\0"   \
	"\xb8\x9e\0\0\0\x0f\x05\x48\x3d\x01\xf0\xff\xff\x76\x0b"
#define LATER_SETTLS_PATCH 20
/* The Syscall of Go 1.18. */
#define OLDER "\x48\x8b\x44\x24\x08\x0f\x05\x48\x3d\x01\xf0\xff\xff"

enum {
	LOAD_AT = 0x400000,
	TEXT = 0x400,
	DYNAMIC = 0x1000, /* or the end, where there is none */
	SYMBOLS = 0x1100,
	STRINGS = 0x1200,
	SIZE = 0x1300
};

static _Alignas(8) unsigned char file[SIZE];
static size_t text_end;

static void add(const char *bytes, size_t len)
{
	memcpy(file + text_end, bytes, len);
	text_end += len + 7;
}
#define ADD(bytes) add((bytes), sizeof(bytes) - 1)

static void begin(const char *import)
{
	Elf64_Ehdr *eh = (void *)file;
	Elf64_Phdr *ph = (void *)(file + sizeof(*eh));
	Elf64_Dyn *d = (void *)(file + DYNAMIC);
	Elf64_Sym *symbols = (void *)(file + SYMBOLS);

	memset(file, 0x90, sizeof(file));
	memset(file, 0, TEXT);
	memset(file + DYNAMIC, 0, SIZE - DYNAMIC);
	memcpy(eh->e_ident, ELFMAG, SELFMAG);
	eh->e_ident[EI_CLASS] = ELFCLASS64;
	eh->e_phentsize = sizeof(*ph);
	eh->e_phoff = sizeof(*eh);
	eh->e_phnum = 3;
	ph[0] = (Elf64_Phdr){.p_type = PT_LOAD,
			     .p_flags = PF_R | PF_X,
			     .p_offset = 0,
			     .p_vaddr = LOAD_AT,
			     .p_filesz = DYNAMIC};
	ph[1] = (Elf64_Phdr){.p_type = PT_LOAD,
			     .p_flags = PF_R,
			     .p_offset = DYNAMIC,
			     .p_vaddr = LOAD_AT + DYNAMIC,
			     .p_filesz = SIZE - DYNAMIC};
	ph[2] = (Elf64_Phdr){.p_type = PT_DYNAMIC, .p_offset = DYNAMIC, .p_filesz = 64};
	d[0] = (Elf64_Dyn){.d_tag = DT_STRTAB, .d_un.d_val = LOAD_AT + STRINGS};
	d[1] = (Elf64_Dyn){.d_tag = DT_STRSZ, .d_un.d_val = 64};
	d[2] = (Elf64_Dyn){.d_tag = DT_SYMTAB, .d_un.d_val = LOAD_AT + SYMBOLS};
	symbols[1].st_name = 1;
	strcpy((char *)file + STRINGS + 1, import);
	text_end = TEXT;
}

/* The distance from behind those four bytes. */
static void lead(size_t from, size_t to)
{
	int32_t far = (int32_t)((int64_t)to - (int64_t)(from + 4));

	memcpy(file + from, &far, sizeof(far));
}

static struct {
	size_t entry, rt0_amd64, rt0_go, settls, clone, exit_thread, newosproc, sigaction;
} at;

/* A program that is linked statically, and as known. */
static void begin_static(void)
{
	Elf64_Ehdr *eh = (void *)file;

	begin("");
	eh->e_phnum = 1;
	eh->e_type = ET_EXEC;
	ADD(SYSCALL6);
	ADD(VFORK);
	ADD(EXIT);
	at.entry = text_end;
	ADD(ENTRY);
	at.rt0_amd64 = text_end;
	ADD(RT0_AMD64);
	at.rt0_go = text_end;
	ADD(RT0_GO);
	at.settls = text_end;
	ADD(SETTLS);
	at.clone = text_end;
	ADD(CLONE);
	at.exit_thread = text_end;
	ADD(EXIT_THREAD);
	at.newosproc = text_end;
	ADD(NEWOSPROC);
	at.sigaction = text_end;
	ADD(SIGACTION);
	eh->e_entry = LOAD_AT + at.entry;
	lead(at.entry + 1, at.rt0_amd64);
	lead(at.rt0_amd64 + 10, at.rt0_go);
	lead(at.rt0_go + RT0_CALL, at.settls);
}

/* What go_text_begins says of the file that was looked into last. */
static bool begins;

static int find(size_t size, struct go_text *found)
{
	static char path[] = "/tmp/viaduct-go-text-XXXXXX";
	int fd = mkstemp(path), r;

	REQUIRE(fd >= 0 && write(fd, file, size) == (ssize_t)size);
	r = go_text_find(path, found);
	begins = go_text_begins(path);
	close(fd);
	unlink(path);
	strcpy(path + strlen(path) - 6, "XXXXXX");
	return r;
}

static const char *lack(void)
{
	struct go_text found;
	int r = find(SIZE, &found);

	CHECK_EQ(r, found.lacks ? -ENOEXEC : 0);
	return found.lacks ? found.lacks : "";
}

TEST(each_way_is_found_where_it_is)
{
	struct go_text found;
	uint64_t syscall6, vfork, leave;

	begin("pthread_create");
	syscall6 = text_end;
	ADD(SYSCALL6);
	vfork = text_end;
	ADD(VFORK);
	leave = text_end;
	ADD(EXIT);
	CHECK_EQ(find(SIZE, &found), 0);
	CHECK(!found.lacks);
	CHECK_EQ(found.at[GO_SYSCALL6], LOAD_AT + syscall6 + 12);
	CHECK_EQ(found.at[GO_VFORK], LOAD_AT + vfork + 7);
	CHECK_EQ(found.at[GO_EXIT], LOAD_AT + leave + 4);
	CHECK_EQ(found.at[GO_EPOLL_CTL], 0);
	CHECK(!found.is_static);
	for (int i = 0; i < GO_EPOLL_CREATE; i++)
		CHECK(!memcmp(file + (found.at[i] - LOAD_AT), found.was[i],
			      GO_PATCH_BYTES));
}

TEST(what_is_not_as_known_is_refused)
{
	begin("pthread_create");
	ADD(EXIT);
	CHECK(strstr(lack(), "way into the kernel"));
	ADD(SYSCALL6);
	CHECK_STR(lack(), "");
	ADD(SYSCALL6);
	CHECK(strstr(lack(), "way into the kernel"));

	begin("pthread_create");
	ADD(SYSCALL6);
	CHECK(strstr(lack(), "its runtime"));
	ADD(EXIT);
	ADD(EXIT);
	CHECK(strstr(lack(), "its runtime"));

	begin("pthread_create");
	ADD(SYSCALL6);
	ADD(EXIT);
	ADD(VFORK);
	ADD(VFORK);
	CHECK(strstr(lack(), "its runtime"));

	begin("pthread_create");
	ADD(SYSCALL6);
	ADD(EXIT);
	ADD(OLDER);
	CHECK(strstr(lack(), "system calls of its own"));

	/* One of the four alone. */
	begin("pthread_create");
	ADD(SYSCALL6);
	ADD(EXIT);
	ADD(EPOLL_CREATE);
	CHECK(strstr(lack(), "its runtime"));

	begin("pthread_join");
	ADD(SYSCALL6);
	ADD(EXIT);
	CHECK(strstr(lack(), "without cgo"));
}

TEST(a_static_program_is_found_to_be_as_known)
{
	struct go_text found;

	begin_static();
	CHECK_EQ(find(SIZE, &found), 0);
	CHECK(found.is_static && !found.lacks);
	CHECK_EQ(found.at[GO_SETTLS], LOAD_AT + at.settls + SETTLS_PATCH);
	CHECK_EQ(found.at[GO_CLONE], LOAD_AT + at.clone + CLONE_PATCH);
	CHECK_EQ(found.at[GO_EXIT_THREAD], LOAD_AT + at.exit_thread + 5);
	CHECK_EQ(found.at[GO_SIGACTION], LOAD_AT + at.sigaction + 20);
	for (int i = 0; i < GO_PLACES; i++)
		CHECK(!found.at[i] || !memcmp(file + (found.at[i] - LOAD_AT),
					      found.was[i], GO_PATCH_BYTES));
	/* As versions differ. */
	file[at.clone + CLONE_PROCID] = 0x40;
	file[at.clone + 3] = 0x80;
	CHECK_EQ(find(SIZE, &found), 0);
	/* As short jumps, too. */
	begin_static();
	file[at.entry] = 0xeb;
	file[at.entry + 1] = (unsigned char)(at.rt0_amd64 - at.entry - 2);
	CHECK_EQ(find(SIZE, &found), 0);
	/* With a loader it is another kind of program, which those do not concern. */
	begin("pthread_create");
	ADD(SYSCALL6);
	ADD(EXIT);
	ADD(CLONE);
	ADD("\xb8\x38\0\0\0\x0f\x05");
	CHECK_EQ(find(SIZE, &found), 0);
	CHECK(!found.is_static && !found.at[GO_CLONE]);
}

TEST(shorter_forms_since_go_1_27)
{
	struct go_text found;
	size_t syscall6;

	begin_static();
	memset(file + TEXT, 0x90, sizeof(SYSCALL6));
	memset(file + at.settls, 0x90, sizeof(SETTLS));
	syscall6 = text_end;
	ADD(LATER_SYSCALL6);
	at.settls = text_end;
	ADD(LATER_SETTLS);
	lead(at.rt0_go + RT0_CALL, at.settls);
	CHECK_EQ(find(SIZE, &found), 0);
	CHECK_EQ(found.at[GO_SYSCALL6], LOAD_AT + syscall6 + 12);
	CHECK_EQ(found.at[GO_SETTLS], LOAD_AT + at.settls + LATER_SETTLS_PATCH);
	CHECK(!memcmp(found.was[GO_SETTLS], file + at.settls + LATER_SETTLS_PATCH,
		      GO_PATCH_BYTES));
	/* Both forms in one program. */
	ADD(SYSCALL6);
	CHECK(strstr(lack(), "way into the kernel"));
}

TEST(a_static_program_that_is_not_as_known_is_refused)
{
	static const char *const names[] = {"does not begin", "its runtime",
					    "system calls of its own"};
	const struct {
		const size_t *part;
		size_t offset;
		int name;
	} spoilt[] = {
		{&at.entry, 0, 0},     {&at.entry, 1, 0},
		{&at.rt0_amd64, 3, 0}, {&at.rt0_amd64, 9, 0},
		{&at.rt0_go, 0, 0},    {&at.rt0_go, 3, 0},
		{&at.rt0_go, 7, 0},    {&at.rt0_go, RT0_CALL, 0},
		{&at.rt0_go, 17, 0},   {&at.rt0_go, 28, 0},
		{&at.rt0_go, 34, 0},   {&at.settls, 20, 0},
		{&at.clone, 8, 1},     {&at.clone, CLONE_PROCID + 1, 1},
		{&at.clone, 74, 1},    {&at.exit_thread, 22, 1},
		{&at.sigaction, 4, 1}, {&at.newosproc, 3, 1},
	};

	for (size_t i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++) {
		begin_static();
		file[*spoilt[i].part + spoilt[i].offset] ^= 0x41;
		CHECK(strstr(lack(), names[spoilt[i].name]));
	}
	begin_static();
	((Elf64_Ehdr *)file)->e_type = ET_DYN;
	CHECK(strstr(lack(), names[0]));
	begin_static();
	((Elf64_Ehdr *)file)->e_phnum = 2;
	((Elf64_Phdr *)(file + sizeof(Elf64_Ehdr)))[1] = (Elf64_Phdr){.p_type = PT_TLS};
	CHECK(strstr(lack(), names[0]));
	begin_static();
	ADD("\xb8\x38\0\0\0\x0f\x05"); /* clone */
	CHECK(strstr(lack(), names[2]));
	begin_static();
	ADD("\xb8\x9e\0\0\0\x0f\x05"); /* arch_prctl */
	CHECK(strstr(lack(), names[2]));
	begin_static();
	ADD(SIGACTION);
	CHECK(strstr(lack(), names[1]));
}

TEST(its_begin_tells_what_it_is)
{
	begin("pthread_create");
	ADD(SYSCALL6);
	ADD(EXIT);
	CHECK_STR(lack(), "");
	CHECK(!begins);

	/* What is not as known later on is for the search to say. */
	begin_static();
	file[at.rt0_go] ^= 0x41;
	file[at.clone + 8] ^= 0x41;
	CHECK(strstr(lack(), "does not begin"));
	CHECK(begins);

	begin_static();
	file[at.rt0_amd64 + 3] ^= 0x41;
	CHECK(strstr(lack(), "does not begin"));
	CHECK(!begins);
}

/* Wherever it lies to the sixteen bytes that are looked at together, and the last one alone is none. */
TEST(a_call_is_found_anywhere)
{
	unsigned char text[80];

	for (size_t begin = 0; begin < 20; begin++)
		for (size_t end = begin; end < sizeof(text); end++) {
			memset(text, 0x0f, sizeof(text));
			CHECK(!find_call(text + begin, text + end));
			memset(text, 0x05, sizeof(text));
			CHECK(!find_call(text + begin, text + end));
			if (end - begin < 2)
				continue;
			text[end - 2] = 0x0f;
			CHECK(find_call(text + begin, text + end) == text + end - 2);
			CHECK(!find_call(text + begin, text + end - 1));
			/* The first of two. */
			text[end - 2] = 0x05;
			text[begin] = 0x0f;
			CHECK(find_call(text + begin, text + end) == text + begin);
		}
}

/* A file is what its maker made it: whatever it says, nothing outside it is read. */
TEST(files_that_lie)
{
	struct go_text found;

	begin("pthread_create");
	ADD(SYSCALL6);
	ADD(EXIT);
	for (size_t size = 0; size < SIZE; size += 61)
		CHECK_EQ(find(size, &found), -ENOEXEC);
	srandom(7);
	for (int i = 0; i < 3000; i++) {
		begin("pthread_create");
		ADD(SYSCALL6);
		ADD(EXIT);
		for (int n = 0; n < 3; n++) {
			size_t in[] = {(size_t)random() % 0x100,
				       DYNAMIC + (size_t)random() % 64,
				       SYMBOLS + (size_t)random() % 64};

			file[in[random() % 3]] = (unsigned char)random();
		}
		find(SIZE, &found);
	}
	for (int i = 0; i < 3000; i++) {
		begin_static();
		for (int n = 0; n < 3; n++) {
			size_t in[] = {(size_t)random() % 0x80,
				       at.entry + (size_t)random() % 5,
				       at.rt0_go + (size_t)random() % 40};

			file[in[random() % 3]] = (unsigned char)random();
		}
		find(SIZE, &found);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls of static programs, and room to lead them away: in files made for it, and real ones. */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/insn.h"
#include "base/static_text.h"
#include "unit/test.h"

enum { LOAD_AT = 0x400000, TEXT = 0x400, DATA = 0x1000, SIZE = 0x1100 };

static _Alignas(8) unsigned char file[SIZE];
static size_t text_end;
static uint8_t concerns[512];
static struct static_text found;

static Elf64_Phdr *segments(void)
{
	return (void *)(file + sizeof(Elf64_Ehdr));
}

static Elf64_Shdr *sections(void)
{
	return (void *)(file + 0x200);
}

static void begin(void)
{
	Elf64_Ehdr *eh = (void *)file;

	memset(file, 0, sizeof(file));
	memset(concerns, 0, sizeof(concerns));
	concerns[SYS_socket] = concerns[SYS_exit] = concerns[SYS_read] = 1;
	memcpy(eh->e_ident, ELFMAG, SELFMAG);
	eh->e_ident[EI_CLASS] = ELFCLASS64;
	eh->e_type = ET_EXEC;
	eh->e_machine = EM_X86_64;
	eh->e_entry = LOAD_AT + TEXT;
	eh->e_phentsize = sizeof(Elf64_Phdr);
	eh->e_phoff = sizeof(*eh);
	eh->e_phnum = 2;
	eh->e_shentsize = sizeof(Elf64_Shdr);
	eh->e_shoff = 0x200;
	eh->e_shnum = 1;
	segments()[0] = (Elf64_Phdr){.p_type = PT_LOAD,
				     .p_flags = PF_R | PF_X,
				     .p_vaddr = LOAD_AT,
				     .p_filesz = DATA};
	segments()[1] = (Elf64_Phdr){.p_type = PT_LOAD,
				     .p_flags = PF_R,
				     .p_offset = DATA,
				     .p_vaddr = LOAD_AT + DATA,
				     .p_filesz = SIZE - DATA};
	text_end = TEXT;
}

static void add(const char *bytes, size_t len)
{
	memcpy(file + text_end, bytes, len);
	text_end += len;
}
#define ADD(bytes) add((bytes), sizeof(bytes) - 1)

static int find_in(size_t size)
{
	static char path[] = "/tmp/viaduct-static-text-XXXXXX";
	int fd = mkstemp(path), r;

	sections()[0] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
				     .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
				     .sh_addr = LOAD_AT + TEXT,
				     .sh_offset = TEXT,
				     .sh_size = text_end - TEXT};
	REQUIRE(fd >= 0 && write(fd, file, size) == (ssize_t)size);
	r = static_text_find(path, concerns, sizeof(concerns), &found);
	close(fd);
	unlink(path);
	strcpy(path + strlen(path) - 6, "XXXXXX");
	return r;
}

/* The only site of the program. */
static struct static_site only(void)
{
	struct static_site s;

	REQUIRE(find_in(SIZE) == 0 && found.count == 1);
	s = found.sites[0];
	static_text_finish(&found);
	return s;
}

static bool is_refused(const char *why)
{
	return find_in(SIZE) == -ENOEXEC && strstr(found.lacks, why);
}

#define SYSCALL "\x0f\x05"
#define CMP	"\x48\x3d\x01\xf0\xff\xff" /* cmp $-4095,%rax */

TEST(left_when_its_number_is_known)
{
	struct static_site s;

	begin();
	ADD("\xb8\x27\0\0\0\x89\xdf" SYSCALL "\xc3"); /* getpid; mov %ebx,%edi between */
	s = only();
	CHECK(s.kind == STATIC_LEAVE && s.number == SYS_getpid);
	CHECK_EQ(s.at, LOAD_AT + TEXT + 7);
	/* A jump to the syscall: the number may be another. je to it, mov $9,%eax */
	begin();
	ADD("\x74\x05\xb8\x27\0\0\0" SYSCALL CMP "\xc3");
	s = only();
	CHECK(s.kind == STATIC_JUMP && s.number == -1);
	/* Written again, in a part: mov $0x29,%al */
	begin();
	ADD("\xb8\x27\0\0\0\xb0\x29" SYSCALL CMP "\xc3");
	CHECK_EQ(only().number, -1);
	/* xor %eax,%eax is read, which concerns us */
	begin();
	ADD("\x31\xc0" SYSCALL CMP "\xc3");
	s = only();
	CHECK(s.kind == STATIC_JUMP && s.number == SYS_read);
}

TEST(jumps_forward)
{
	struct static_site s;

	begin();
	ADD("\x90" SYSCALL CMP "\x76\x01\x90\xc3");
	s = only();
	CHECK(s.kind == STATIC_JUMP && s.head_bytes == 0 && s.tail_bytes == 6);
	CHECK(s.jump == s.at && s.back == s.at + 8 && !memcmp(s.tail, CMP, 6));
	/* mov %eax,%ebx; ret: three bytes */
	begin();
	ADD("\x90" SYSCALL "\x89\xc3\xc3");
	s = only();
	CHECK(s.kind == STATIC_JUMP && s.tail_bytes == 3 && s.back == 0);
	/* test %eax,%eax; js over a nop */
	begin();
	ADD("\x90" SYSCALL "\x85\xc0\x78\x01\x90\xc3");
	s = only();
	CHECK(s.tail_bytes == 2 && s.cond == 0x88);
	CHECK(s.back == s.at + 6 && s.cond_to == s.at + 7);
	/* nop; jmp */
	begin();
	ADD("\x90" SYSCALL "\x90\xeb\x01\x90\xc3");
	s = only();
	CHECK(s.cond == 0 && s.tail_bytes == 1 && s.back == s.at + 6);
}

TEST(jumps_backward)
{
	struct static_site s;

	/* mov $socket,%eax; syscall; call 0 */
	begin();
	ADD("\xb8\x29\0\0\0" SYSCALL "\xe8\0\0\0\0\xc3");
	s = only();
	CHECK(s.kind == STATIC_JUMP && s.number == SYS_socket && s.head_bytes == 5);
	CHECK(s.jump == s.at - 5 && s.back == s.at + 2 && s.tail_bytes == 0);
	/* exit: what is behind is another's */
	begin();
	ADD("\xb8\x3c\0\0\0" SYSCALL CMP "\xc3");
	s = only();
	CHECK(s.head_bytes == 5 && s.tail_bytes == 0);
}

TEST(jumps_to_nops_nearby)
{
	struct static_site s;

	/* je to the syscall, call behind it, NOPs of 3 and 5 bytes */
	begin();
	ADD("\x74\x01\x90" SYSCALL "\xe8\0\0\0\0\xc3"
	    "\x0f\x1f\0\x0f\x1f\x44\0\0\xc3");
	s = only();
	CHECK(s.kind == STATIC_PAD && s.jump == s.at && s.back == s.at + 2);
	CHECK(s.pad == s.at + 8 && s.pad_skip == 6);
	/* One too few. */
	begin();
	ADD("\x74\x01\x90" SYSCALL "\xe8\0\0\0\0\xc3"
	    "\x90\x0f\x1f\x44\0\0\xc3");
	CHECK(is_refused("no room"));
	CHECK_EQ(found.lacks_at, LOAD_AT + TEXT + 3);
}

/* What one site has taken is not another's. */
TEST(nops_are_for_one)
{
	static const char site[] = "\x74\x01\x90" SYSCALL "\xe8\0\0\0\0\xc3";
	static const char nops[] = "\x90\x90\x90\x90\x90\x90\x90\xc3";
	size_t bytes = sizeof(site) - 1;

	begin();
	add(site, bytes);
	add(site, bytes);
	add(nops, sizeof(nops) - 1);
	CHECK(is_refused("no room"));
	CHECK_EQ(found.lacks_at, LOAD_AT + TEXT + bytes + 3);
	add(nops, sizeof(nops) - 1);
	REQUIRE(find_in(SIZE) == 0 && found.count == 2);
	CHECK_EQ(found.sites[0].pad, LOAD_AT + TEXT + 2 * bytes);
	CHECK_EQ(found.sites[1].pad, found.sites[0].pad + 8);
	static_text_finish(&found);
	/* The first one's jump has room in these NOPs, and takes them all. */
	begin();
	ADD("\xeb\x00" SYSCALL);
	ADD("\x66\x0f\x1f\x84\0\0\0\0\0\xc3");
	add(site, bytes);
	CHECK(is_refused("no room"));
}

TEST(a_file_of_too_many_parts)
{
	begin();
	ADD("\xc3");
	((Elf64_Ehdr *)file)->e_phnum = 65;
	CHECK(is_refused("too many parts"));
}

/* Each way to an instruction behind the syscall: nothing may be there but itself. */
TEST(nothing_that_can_be_jumped_to_is_moved)
{
	uint64_t behind = LOAD_AT + TEXT + 8;
	struct static_site s;

	begin(); /* je over the syscall */
	ADD("\x74\x02" SYSCALL "\x48\x89\xc7\xc3");
	CHECK(is_refused("no room"));
	begin();
	ADD("\xe8\0\0\0\0\x90" SYSCALL "\x48\x89\xc7\x48\x89\xc6\xc3");
	s = only();
	CHECK(s.head_bytes == 0 && s.tail_bytes == 3 && s.back == behind + 3);
	memcpy(file + DATA + 0x10, &behind, sizeof(behind)); /* a pointer */
	CHECK(is_refused("no room"));
	/* A table of branches, known by its lea: lea DATA+0x20(%rip),%rdx */
	begin();
	ADD("\x48\x8d\x15\0\0\0\0\xe8\0\0\0\0\x90" SYSCALL
	    "\x48\x89\xc7\x48\x89\xc6\xc3");
	memcpy(file + TEXT + 3, &(int32_t){DATA + 0x20 - TEXT - 7}, 4);
	CHECK_EQ(only().tail_bytes, 3);
	memcpy(file + DATA + 0x20, &(int32_t){TEXT + 15 - DATA - 0x20}, 4);
	CHECK(is_refused("no room"));
}

/* Before the call it may be moved, its distance corrected: nothing else whose memory is told by one. */
TEST(lea_by_distance)
{
	struct static_site s;

	begin(); /* lea DATA(%rip),%rsi; syscall; cmp; ret */
	ADD("\x48\x8d\x35\0\0\0\0" SYSCALL "\xc3");
	memcpy(file + TEXT + 3, &(int32_t){DATA - TEXT - 7}, 4);
	s = only();
	CHECK(s.jump == LOAD_AT + TEXT && s.head_bytes == 7 && s.rip_end == 7);
	begin();
	ADD("\xe8\0\0\0\0\x48\x8d\x35\0\0\0\0\x89\xc6" SYSCALL "\xe8\0\0\0\0\xc3");
	memcpy(file + TEXT + 8, &(int32_t){DATA - TEXT - 12}, 4);
	s = only();
	CHECK(s.head_bytes == 9 && s.rip_end == 7);
	begin(); /* mov DATA(%rip),%rsi */
	ADD("\x48\x8b\x35\0\0\0\0" SYSCALL "\xc3");
	memcpy(file + TEXT + 3, &(int32_t){DATA - TEXT - 7}, 4);
	CHECK(is_refused("no room"));
}

/* As glibc since 2.41 and musl do, which look whether a signal has come before a place. */
TEST(cancels_by_place)
{
	const uint64_t end = LOAD_AT + TEXT + 7;

	begin();
	ADD(SYSCALL CMP "\xc3");
	REQUIRE(find_in(SIZE) == 0);
	CHECK(!found.cancels_by_place);
	static_text_finish(&found);
	begin();
	ADD("\x4c\x89\x5c\x24\x08" SYSCALL CMP "\xc3");
	REQUIRE(find_in(SIZE) == 0);
	CHECK(!found.cancels_by_place); /* nothing names it */
	static_text_finish(&found);
	memcpy(file + DATA + 0x10, &end, sizeof(end));
	REQUIRE(find_in(SIZE) == 0);
	CHECK(found.cancels_by_place);
	static_text_finish(&found);
	begin(); /* lea -7(%rip),%rdx */
	ADD("\x4c\x89\x5c\x24\x08" SYSCALL "\xc3\x48\x8d\x15\xf8\xff\xff\xff\xc3");
	REQUIRE(find_in(SIZE) == 0);
	CHECK(found.cancels_by_place);
	static_text_finish(&found);
}

TEST(refused_as_a_whole)
{
	begin(); /* an instruction there is not */
	ADD("\xb8\x27\0\0\0" SYSCALL "\xc3\x06");
	CHECK(is_refused("data among"));
	begin(); /* a jump into the middle of another */
	ADD("\xeb\x01\xb8\x27\0\0\0" SYSCALL "\xc3");
	CHECK(is_refused("data among"));
	begin(); /* mov from the text */
	ADD("\x8b\x05\0\0\0\0\xc3");
	CHECK(is_refused("data among"));
	begin(); /* movzbl TEXT(%rax),%eax: at a fixed address this one reads from there, too */
	ADD("\x0f\xb6\x80\0\x04\x40\0\xc3");
	CHECK(is_refused("data among"));
	begin(); /* lea TEXT(%rax),%eax */
	ADD("\x8d\x80\0\x04\x40\0\xc3");
	CHECK_EQ(find_in(SIZE), 0);
	static_text_finish(&found);
	begin();
	ADD("\xcd\x80\xc3");
	CHECK(is_refused("32 bits"));
	begin();
	ADD("\xc3");
	segments()[0].p_flags |= PF_W;
	CHECK(is_refused("change its instructions"));
	begin();
	ADD("\xc3");
	((Elf64_Ehdr *)file)->e_shnum = 0;
	CHECK(is_refused("no sections"));
	begin();
	ADD("\xc3");
	segments()[1].p_type = PT_INTERP;
	CHECK(is_refused("dynamically"));
}

/* A table of bytes that are instructions as well: its address is taken, and no branch leads there. */
TEST(a_table_that_looks_like_code)
{
	static const char *const before[] = {
		"",		    /* the table begins with it */
		"\x90\x48\x89\xf7", /* mov %rsi,%rdi */
		"\x0f\x05",	    /* one more */
		"\x48\x39\xc7\x75\x00", /* jne to it: the branch is the table's, but it is one */
		"\x48\x89\xf8",		/* mov %rdi,%rax */
		"\x48\x63\x07",		/* movslq (%rdi),%rax */
		"\xe8\0\0\0\0\x90", /* call */
	};

	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
		size_t len = i == 3 ? 5 : i == 6 ? 6 : strlen(before[i]);

		begin(); /* lea 1(%rip),%rsi; ret */
		ADD("\x48\x8d\x35\x01\0\0\0\xc3");
		add(before[i], len);
		ADD(SYSCALL "\x48\x89\xc7\x48\x89\xc6\xc3");
		if (i < 3) {
			CHECK(is_refused("data among"));
			CHECK_EQ(found.lacks_at, LOAD_AT + TEXT + 8 + (i == 1 ? 4 : 0));
		} else {
			CHECK_EQ(find_in(SIZE), 0);
			static_text_finish(&found);
		}
	}
}

TEST(a_table_with_a_symbol)
{
	Elf64_Sym *symbol = (void *)(file + DATA + 0x40);

	for (int i = 0; i < 4; i++) {
		begin();
		ADD("\xc3\x90\x90\x90\xc3");
		((Elf64_Ehdr *)file)->e_shnum = 2;
		sections()[1] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
					     .sh_offset = DATA + 0x40,
					     .sh_size = 2 * sizeof(*symbol)};
		symbol[1].st_value = LOAD_AT + TEXT + (i == 1 ? 5 : 4);
		symbol[1].st_info =
			ELF64_ST_INFO(STB_LOCAL, i == 2 ? STT_FUNC : STT_OBJECT);
		if (i == 3) /* outside the file */
			sections()[1].sh_offset = SIZE - sizeof(*symbol);
		if (i == 0) {
			CHECK(is_refused("data among"));
			CHECK_EQ(found.lacks_at, LOAD_AT + TEXT + 4);
		} else {
			CHECK_EQ(find_in(SIZE), 0);
			static_text_finish(&found);
		}
	}
}

/* In an executable segment, and in no section that says it is code: where data is, it may be chance. */
TEST(code_outside_sections_of_code)
{
	const int32_t to_zero = -(LOAD_AT + TEXT + 5);
	static const char *const those[] = {SYSCALL, "\x0f\x34", "\xcd\x80"};
	static const char names[] = "\0.rodata.cst4\0.mine";
	Elf64_Ehdr *eh = (void *)file;

	for (int i = 0; i < 3 * 4; i++) {
		begin();
		ADD("\xc3");
		memcpy(file + TEXT + 0x100, those[i % 3], 2);
		memcpy(file + DATA + 0x40, names, sizeof(names));
		eh->e_shnum = 3;
		eh->e_shstrndx = 2;
		sections()[1] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
					     .sh_flags = SHF_ALLOC,
					     .sh_name = 1,
					     .sh_addr = LOAD_AT + TEXT + 0x100,
					     .sh_offset = TEXT + 0x100,
					     .sh_size = 2};
		sections()[2] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
					     .sh_offset = DATA + 0x40,
					     .sh_size = sizeof(names)};
		if (i / 3 == 1)
			sections()[1].sh_name = 14; /* .mine */
		if (i / 3 == 2)
			sections()[1].sh_type = SHT_NOTE;
		if (i / 3 == 3)
			sections()[1].sh_offset += 2;
		if (i / 3 == 0 || i / 3 == 2) {
			CHECK_EQ(find_in(SIZE), 0);
			static_text_finish(&found);
		} else {
			CHECK(is_refused("outside its sections"));
			CHECK_EQ(found.lacks_at, LOAD_AT + TEXT + 0x100);
		}
	}
	begin(); /* a branch there, whatever it is; one to 0 is to what is not there */
	ADD("\xe8\xfb\0\0\0\xc3");
	CHECK(is_refused("outside its sections"));
	begin();
	ADD("\xe8\0\0\0\0\xc3");
	memcpy(file + TEXT + 1, &to_zero, sizeof(to_zero));
	CHECK_EQ(find_in(SIZE), 0);
	static_text_finish(&found);
}

/* Position-independent: a program says that it is one, and has no name that others link with. */
TEST(a_library_is_refused)
{
	Elf64_Dyn *dynamic = (void *)(file + DATA + 0x40);

	for (int i = 0; i < 4; i++) {
		begin();
		ADD("\xc3");
		((Elf64_Ehdr *)file)->e_type = ET_DYN;
		((Elf64_Ehdr *)file)->e_phnum = i == 3 ? 2 : 3;
		segments()[2] = (Elf64_Phdr){.p_type = PT_DYNAMIC,
					     .p_offset = DATA + 0x40,
					     .p_filesz = 3 * sizeof(*dynamic)};
		dynamic[0].d_tag = DT_FLAGS_1;
		dynamic[0].d_un.d_val = i == 1 ? DF_1_NOW : DF_1_NOW | DF_1_PIE;
		dynamic[1].d_tag = i == 2 ? DT_SONAME : DT_NEEDED;
		if (i == 0) {
			CHECK_EQ(find_in(SIZE), 0);
			static_text_finish(&found);
		} else {
			CHECK(is_refused("a library"));
		}
	}
}

/* GS is ours, and FS the program's by arch_prctl alone. A selector in them sets where they begin. */
TEST(refused_for_its_segments)
{
	static const char *const those[] = {
		"\xf3\x48\x0f\xae\xd8", /* wrgsbase %rax */
		"\x8e\xe8",		/* mov %eax,%gs */
		"\x8e\x65\x08",		/* mov 8(%rbp),%fs */
		"\x0f\xa1",		/* pop %fs */
		"\x0f\xa9",		/* pop %gs */
		"\x0f\xb4\x45\x08",	/* lfs 8(%rbp),%eax */
		"\x48\x0f\xb5\x45\x08", /* lgs 8(%rbp),%rax */
		"\x0f\x01\xf8",		/* swapgs */
	};

	for (size_t i = 0; i < sizeof(those) / sizeof(those[0]); i++) {
		begin();
		add(those[i], strlen(those[i]));
		ADD("\xc3");
		CHECK(is_refused("FS or GS"));
	}
	begin(); /* mov %eax,%es; mov %gs,%eax; lss; rdtscp */
	ADD("\x8e\xc0\x8c\xe8\x0f\xb2\x45\x08\x0f\x01\xf9\xc3");
	CHECK_EQ(find_in(SIZE), 0);
	static_text_finish(&found);
}

/* Inside another instruction these bytes are none of their own. */
TEST(a_number_that_looks_like_one)
{
	begin();
	ADD("\xb8\x0f\x05\0\0\xc3");
	CHECK_EQ(find_in(SIZE), 0);
	CHECK_EQ(found.count, 0);
	static_text_finish(&found);
}

TEST(lengths)
{
	static const char *const whole[] = {
		"\x62\xf1\xfe\x28\x6f\x46\x01", /* EVEX, an offset of 1 byte */
		"\xc5\xf8\x77",
		"\xc4\xe3\x79\x63\xc1\x1a",
		"\x66\x2e\x0f\x1f\x84\x01\x01\x01\x01\x01",
		"\x48\xb8\x01\x02\x03\x04\x05\x06\x07\x08",
		"\x66\xc7\x45\x01\x02\x03",
		"\xf7\x45\x08\x01\x02\x03\x04",
		"\xf7\x5d\x08",
		"\x64\x48\x8b\x04\x25\x28\x01\x01\x01",
		"\x0f\xba\x65\x10\x07",
		"\xc7\xf8\x01\x02\x03\x04",
		"\xf3\x0f\x1e\xfa",
		"\x66\x0f\x78\xc1\x02\x01",	/* extrq $1,$2,%xmm1 */
		"\xf2\x0f\x78\xca\x02\x01",	/* insertq $1,$2,%xmm2,%xmm1 */
		"\x62\xf5\x6c\x48\x58\xd9",	/* vaddph %zmm1,%zmm2,%zmm3 */
		"\xc4\xe2\x7b\x4b\x4c\x18\x01", /* tileloadd 1(%rax,%rbx),%tmm1 */
	};
	struct insn x;

	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		size_t len = strlen(whole[i]);

		CHECK(insn_decode((const uint8_t *)whole[i], len, &x) && x.len == len);
		CHECK(!insn_decode((const uint8_t *)whole[i], len - 1, &x));
	}
	CHECK(!insn_decode((const uint8_t *)"\xd5\x11\x89\xc0", 4, &x)); /* REX2 */
	/* mov to a debug register: never a program's, and its ModRM is read in another way */
	CHECK(!insn_decode((const uint8_t *)"\x0f\x23\x87\1\1\1\1", 7, &x));
}

/* A file is what its maker made it: whatever it says, nothing outside it is read. */
TEST(files_that_lie)
{
	srandom(7);
	for (int i = 0; i < 3000; i++) {
		size_t size = i % 3 ? SIZE : (size_t)random() % SIZE + 1;

		begin();
		ADD("\xb8\x29\0\0\0" SYSCALL CMP "\xc3");
		for (int n = 0; n < 3; n++)
			file[(size_t)random() % (n ? 0x100 : TEXT + 16)] =
				(unsigned char)random();
		if (find_in(size) == 0)
			static_text_finish(&found);
	}
}

/* Programs of the build, with a colon between their names. */
TEST(real_programs)
{
	char names[4096], *rest = names, *name;
	const char *given = getenv("VD_TEST_STATIC_PROGRAMS");

	memset(concerns, 1, sizeof(concerns)); /* each has to find room */
	snprintf(names, sizeof(names), "%s", given ? given : "");
	while ((name = strsep(&rest, ":")) && *name) {
		int r = static_text_find(name, concerns, sizeof(concerns), &found);

		if (r < 0)
			printf("%s: %s, at %#lx\n", name, found.lacks, found.lacks_at);
		REQUIRE(r == 0);
		printf("%s: %zu system calls\n", name, found.count);
		CHECK(found.count > 10);
		static_text_finish(&found);
	}
}

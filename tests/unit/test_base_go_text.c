/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the ways of a Go program into the kernel, in files that are made for it. */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
/* The Syscall of Go 1.18. */
#define OLDER "\x48\x8b\x44\x24\x08\x0f\x05\x48\x3d\x01\xf0\xff\xff"

enum {
	LOAD_AT = 0x400000,
	TEXT = 0x400,
	DYNAMIC = 0x1000,
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

static int find(size_t size, struct go_text *found)
{
	static char path[] = "/tmp/viaduct-go-text-XXXXXX";
	int fd = mkstemp(path), r;

	REQUIRE(fd >= 0 && write(fd, file, size) == (ssize_t)size);
	r = go_text_find(path, found);
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
	for (int i = 0; i < GO_EPOLL_CREATE; i++)
		CHECK(!memcmp(file + (found.at[i] - LOAD_AT), go_text_bytes(i),
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
}

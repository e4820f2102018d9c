/* SPDX-License-Identifier: Apache-2.0 */
/* The board of a peer on this host, which writes to it what it likes: src/native/board.c, message.c.
 * A message lies in the peer's arena, a notification in an export; and nothing is waited for in vain. */
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "fuzz/fuzz.h"
#include "native/board.h"
#include "viaduct/viaduct.h"

enum { WAIT_MS = 60000, CHANGES_MOST = 12, BOX = 4096, AHEAD = 4 };

/* The victim, and its peer, whose library is honest. */
static vd_conn *victim, *peer;
static struct board *board;
static uint8_t *arena, box[BOX];
static uint32_t told;		 /* the number of the board's last entry */
static struct board_entry right; /* of the next one, but for its length */
static uint32_t wants, released;

/* ---- an input: changes, each of a word of the entry that comes next, or of another ---- */

enum word { NOTHING, AT, LEN, AFTER, TOKEN, NUMBER, ID, TAG, WANTS, RELEASED, WORDS };

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	/* word, place from the next entry on, a value of four bytes, which is added to what is right where
	 * the word has its upper bit */
	static const uint8_t seeds[][24] = {
		{LEN, 0, 4, 0, 0, 0, NUMBER | 128, 0, 1, 0, 0, 0},
		{AT, 0, 255, 3, 0, 0, LEN, 0, 1, 4, 0, 0, NUMBER | 128, 0, 1, 0, 0, 0},
		{ID, 0, 0, 4, 0, 0, LEN, 0, 16, 0, 0, 0, NUMBER | 128, 0, 1, 0, 0, 0},
		{RELEASED, 0, 1, 0, 0, 0, WANTS, 0, 0, 0, 0, 0},
		{AFTER | 128, 0, 9, 0, 0, 0, LEN, 0, 4, 0, 0, 0, NUMBER | 128, 0, 1, 0, 0,
		 0},
		{LEN, 0, 0, 8, 0, 0, NUMBER | 128, 0, 1, 0, 0, 0,
		 LEN, 1, 9, 0, 0, 0, NUMBER | 128, 1, 1, 0, 0, 0},
	};

	if (n >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	memcpy(out, seeds[n], sizeof(seeds[n]));
	return sizeof(seeds[n]);
}

static _Atomic uint32_t *word_of(enum word which, unsigned place)
{
	struct board_entry *e = &board->entries[(told + place) % BOARD_ENTRIES];

	switch (which) {
	case AT:
		return &e->at;
	case LEN:
		return &e->len;
	case AFTER:
		return &e->after;
	case TOKEN:
		return &e->token;
	case NUMBER:
		return &e->number;
	case ID:
		return &e->id;
	case TAG:
		return &e->tag;
	case WANTS:
		return &board->wants;
	default:
		return &board->released;
	}
}

static void change(struct fuzz_bytes *b)
{
	uint8_t kind = (uint8_t)fuzz_number(b, 1);
	unsigned place = (unsigned)fuzz_number(b, 1) % AHEAD;
	uint32_t value = (uint32_t)fuzz_number(b, 4);
	enum word which = (enum word)((kind & 127) % WORDS);

	if (which == NUMBER && kind & 128)
		value += told + place;
	else if (kind & 128)
		value += atomic_load(word_of(which, place));
	if (which != NOTHING)
		atomic_store(word_of(which, place), value);
}

static uint32_t get(_Atomic uint32_t *word)
{
	return atomic_load(word);
}

/* What an honest library would say next, but for the number, by which it says it. */
static void prepare(void)
{
	for (unsigned i = 0; i < AHEAD; i++) {
		atomic_store(word_of(AT, i), get(&right.at) + i);
		atomic_store(word_of(LEN, i), 1);
		atomic_store(word_of(AFTER, i), get(&right.after));
		atomic_store(word_of(TOKEN, i), get(&right.token));
		atomic_store(word_of(NUMBER, i), 0);
		atomic_store(word_of(ID, i), 0);
		atomic_store(word_of(TAG, i), 0);
	}
	atomic_store(&board->wants, wants);
	atomic_store(&board->released, released);
}

/* ---- the pair, until it is caught ---- */

/* The peer's, in this process, too: shared memory that may be written. Of two the one that holds what it has
 * sent. */
static void find_board(uint8_t mark)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512];

	FUZZ_CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:viaduct-memory") && strstr(line, " rw-s ") &&
		    sscanf(line, "%lx-%lx", &from, &to) == 2 && to - from >= BOARD_ALL &&
		    *(uint8_t *)from == mark)	 /* NOLINT */
			arena = (uint8_t *)from; /* NOLINT */
	fclose(maps);
	board = arena ? board_of(arena) : NULL;
}

static void send_byte(vd_conn *c, uint8_t byte)
{
	void *p;

	FUZZ_CHECK(vd_reserve(c, 1, &p) == 0);
	memset(p, byte, 1);
	FUZZ_CHECK(vd_commit(c, 1) == 0);
}

static void take_byte(vd_conn *c)
{
	const void *p;
	size_t len;

	FUZZ_CHECK(vd_peek(c, &p, &len, WAIT_MS) == 0 && len == 1);
	FUZZ_CHECK(vd_release(c) == 0);
}

static void open_pair(void)
{
	static vd_listener *from;
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	vd_region *x;
	char port[8];

	if (!from)
		FUZZ_CHECK(vd_listen("127.0.0.1", "0", &from) == 0);
	FUZZ_CHECK(getsockname(vd_listener_fd(from), (struct sockaddr *)&at, &len) == 0);
	snprintf(port, sizeof(port), "%u", ntohs(at.sin_port));
	FUZZ_CHECK(vd_connect("127.0.0.1", port, WAIT_MS, &victim) == 0);
	FUZZ_CHECK(vd_accept(from, WAIT_MS, &peer) == 0);
	FUZZ_CHECK(vd_export(victim, "box", box, BOX, VD_WRITE, box, &x) == 0);
	board = NULL;
	arena = NULL;
	do {
		send_byte(victim, 5);
		take_byte(peer);
		send_byte(peer, 9);
		take_byte(victim);
		if (!board)
			find_board(9);
	} while (!board || !atomic_load(&board->entries[0].number));
	for (told = 0; get(&board->entries[told].number) == told + 1; told++)
		;
	right = board->entries[told - 1];
	right.at++;
	wants = get(&board->wants);
	released = get(&board->released);
}

static void close_pair(void)
{
	vd_close(peer);
	vd_close(victim);
	victim = peer = NULL;
}

/* ---- the victim ---- */

/* What was told of memory begins behind it. */
static void pass_message(size_t len)
{
	right.at = get(word_of(AT, 0)) +
		   (uint32_t)((len + FRAME_GRANULE - 1) / FRAME_GRANULE);
	right.token = get(word_of(TOKEN, 0));
	told++;
}

static void read_all(const void *message, size_t len)
{
	const uint8_t *p = message;
	uint64_t sum = 0;

	FUZZ_CHECK(len > 0 && len <= VD_MESSAGE_MAX);
	for (size_t i = 0; i < len; i++)
		sum += p[i];
	FUZZ_CHECK(sum <= 255ull * len && vd_release(victim) == 0);
}

/* 1: there was something; 0: nothing; -1: the connection has ended. */
static int look(void)
{
	const void *message;
	struct vd_event ev;
	size_t len;
	int r = vd_peek(victim, &message, &len, 0);

	if (r == 0) {
		read_all(message, len);
		pass_message(len);
		return 1;
	}
	r = vd_wait(victim, &ev, 1, 0);
	if (r != 1)
		return r == -ETIMEDOUT ? 0 : -1;
	if (ev.kind == VD_EVENT_NOTIFY) {
		FUZZ_CHECK(ev.user == box && ev.offset <= BOX &&
			   ev.len <= BOX - ev.offset);
		told++;
	}
	return ev.kind == VD_EVENT_END ? -1 : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = {data, size};
	void *room;
	int r = 1;

	if (!victim)
		open_pair();
	prepare();
	for (unsigned i = 0; i < CHANGES_MOST && b.left; i++)
		change(&b);
	while (r > 0)
		r = look();
	/* What it says to have released bounds what is sent. */
	if (r == 0 && vd_reserve(victim, 1, &room) == 0)
		vd_commit(victim, 0);
	for (unsigned i = 0; i < BOX; i++)
		FUZZ_CHECK(box[i] == 0);
	if (r < 0)
		close_pair();
	return 0;
}

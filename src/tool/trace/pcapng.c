/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of a pcapng file (draft-ietf-opsawg-pcapng), in this machine's byte order. */
#include "tool/trace/trace.h"

#include <string.h>

enum {
	BLOCK_SECTION = 0x0a0d0d0a,
	BLOCK_INTERFACE = 1,
	BLOCK_STATISTICS = 5,
	BLOCK_PACKET = 6,
};

/* Option codes; those from 2 on belong to their block. */
enum {
	OPT_END = 0,
	OPT_COMMENT = 1,
	SHB_OS = 3,
	SHB_USERAPPL = 4,
	IF_NAME = 2,
	IF_DESCRIPTION = 3,
	IF_TSRESOL = 9,
	EPB_FLAGS = 2,
	ISB_START = 2,
	ISB_END = 3,
};

#define LINKTYPE_RAW 101
#define OPTION_MOST  1024u

/* The options of one block. */
struct options {
	uint8_t data[2 * OPTION_MOST];
	size_t size;
};

static size_t padded(size_t n)
{
	return (n + 3) & ~(size_t)3;
}

static void option_add(struct options *o, uint16_t code, const void *value, size_t len)
{
	uint16_t head[2] = {code, (uint16_t)len};

	if (o->size + sizeof(head) + padded(len) + sizeof(head) > sizeof(o->data))
		return;
	memcpy(o->data + o->size, head, sizeof(head));
	memset(o->data + o->size + sizeof(head), 0, padded(len));
	memcpy(o->data + o->size + sizeof(head), value, len);
	o->size += sizeof(head) + padded(len);
}

static void option_text(struct options *o, uint16_t code, const char *text)
{
	size_t len = strlen(text);

	option_add(o, code, text, len < OPTION_MOST ? len : OPTION_MOST);
}

static void put(struct pcapng *p, const void *data, size_t size)
{
	static const char zeros[4];

	if (size)
		fwrite(data, 1, size, p->out);
	fwrite(zeros, 1, padded(size) - size, p->out);
}

/* A block of `body`, which is followed by `data` and the options. */
static void put_block(struct pcapng *p, uint32_t type, const void *body, size_t body_size,
		      const void *data, size_t size, const struct options *o)
{
	static const uint16_t end[2] = {OPT_END, 0};
	uint32_t total = (uint32_t)(3 * sizeof(uint32_t) + padded(body_size) +
				    padded(size) + o->size + (o->size ? sizeof(end) : 0));
	uint32_t head[2] = {type, total};

	put(p, head, sizeof(head));
	put(p, body, body_size);
	put(p, data, size);
	put(p, o->data, o->size);
	if (o->size)
		put(p, end, sizeof(end));
	put(p, &total, sizeof(total));
}

void pcapng_begin(struct pcapng *p, const struct trace_target *t)
{
	struct {
		uint32_t magic;
		uint16_t major, minor;
		int64_t size;
	} __attribute__((packed)) section = {0x1a2b3c4d, 1, 0, -1};
	struct {
		uint16_t linktype, reserved;
		uint32_t snaplen;
	} interface = {LINKTYPE_RAW, 0, p->snaplen};
	struct options o = {.size = 0};
	uint8_t nanoseconds = 9;
	char text[64];

	option_text(&o, SHB_OS, "Linux");
	option_text(&o, SHB_USERAPPL, "viaduct " VD_VERSION);
	put_block(p, BLOCK_SECTION, &section, sizeof(section), NULL, 0, &o);
	o.size = 0;
	option_text(&o, IF_NAME, "viaduct");
	snprintf(text, sizeof(text), "direct path of %s (%d)", t->name, (int)t->pid);
	option_text(&o, IF_DESCRIPTION, text);
	option_add(&o, IF_TSRESOL, &nanoseconds, 1);
	put_block(p, BLOCK_INTERFACE, &interface, sizeof(interface), NULL, 0, &o);
}

void pcapng_packet(struct pcapng *p, uint64_t time_ns, enum pcapng_way way,
		   const void *packet, size_t size, const char *comment)
{
	size_t kept = p->snaplen && size > p->snaplen ? p->snaplen : size;
	uint32_t body[5] = {0, (uint32_t)(time_ns >> 32), (uint32_t)time_ns,
			    (uint32_t)kept, (uint32_t)size};
	uint32_t flags = way;
	struct options o = {.size = 0};

	option_add(&o, EPB_FLAGS, &flags, sizeof(flags));
	if (comment && *comment)
		option_text(&o, OPT_COMMENT, comment);
	put_block(p, BLOCK_PACKET, body, sizeof(body), packet, kept, &o);
	if (!p->packets++)
		p->first_ns = time_ns;
	p->last_ns = time_ns;
}

void pcapng_end(struct pcapng *p, uint64_t lost_bytes, const char *comment)
{
	uint32_t body[3] = {0, (uint32_t)(p->last_ns >> 32), (uint32_t)p->last_ns};
	uint32_t start[2] = {(uint32_t)(p->first_ns >> 32), (uint32_t)p->first_ns};
	uint32_t end[2] = {body[1], body[2]};
	struct options o = {.size = 0};
	char text[OPTION_MOST];

	option_add(&o, ISB_START, start, sizeof(start));
	option_add(&o, ISB_END, end, sizeof(end));
	snprintf(text, sizeof(text), "%s; %llu bytes lost", comment,
		 (unsigned long long)lost_bytes);
	option_text(&o, OPT_COMMENT, text);
	put_block(p, BLOCK_STATISTICS, body, sizeof(body), NULL, 0, &o);
}

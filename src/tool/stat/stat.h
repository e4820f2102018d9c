/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `viaduct stat` share: what was asked, the rows, and ways to print them. */
#ifndef VD_TOOL_STAT_STAT_H
#define VD_TOOL_STAT_STAT_H

#include <stdio.h>

#include "tool/observe/observe.h"

/* Where a connection's bytes go: SWITCHING if a direction is between the two, else RING if
 * a direction is there, else TCP. */
#define STAT_PATHS (OBSERVE_RDMA + 1)
#define STAT_ANY   UINT32_MAX

enum stat_format { STAT_TABLE, STAT_JSON, STAT_PROMETHEUS };

struct stat_options {
	enum stat_format format;
	bool wide, both, processes, rpc, per_connection, watch, by_messages;
	bool busiest;	     /* was asked for */
	double seconds;	     /* between two looks */
	unsigned long count; /* of looks; 0 without end */
	/* Filters: 0, NULL or STAT_ANY take everything. */
	pid_t pid;
	uint16_t port;
	uint32_t path, reason;
	const char *program;
	/* Of the table: names that were asked for, and by which one to sort; NULL: as usual. */
	const char *columns, *sort;
};

/* Per second, since the look before. */
struct stat_rates {
	double sent, received, messages;
};

/* One end of a connection, in one process. */
struct stat_row {
	const struct observe_conn *c;	       /* by its lowest descriptor */
	const struct observe_conn *const *all; /* by all of them */
	uint32_t descriptors, more_processes;
	uint8_t path; /* enum observe_path */
	bool shown;   /* by the filters, and once a connection */
	struct stat_rates rates;
};

/* A Viaduct process, with what is open. */
struct stat_process {
	const struct observe_process *p;
	size_t paths[STAT_PATHS], reasons[VD_REASON_COUNT];
	size_t open;
	bool shown;
	struct stat_rates rates;
};

/* Remote procedure calls of one kind, of one process. */
struct stat_call {
	const struct observe_call *c;
	bool shown;  /* the filters let its process pass */
	double rate; /* per second, since the look before */
};

struct stat_view {
	struct observe seen;
	double time; /* seconds since 1970 */
	const struct observe_conn **conns;
	struct stat_row *rows;
	struct stat_process *processes;
	struct stat_call *calls;
	size_t row_count, process_count, call_count, shown;
	bool has_rates;
};

/* What one look leaves to the next. */
struct stat_past {
	struct stat_was *items;
	struct stat_call_was *calls;
	size_t count, call_count;
	double time;
};

/* ---- view.c ---- */

/* 0 or -errno, with a sentence in message. */
int stat_look(struct stat_view *v, const struct stat_options *o, char *message,
	      size_t size);
void stat_forget(struct stat_view *v);
/* Fills the rates in, sorts by them, and keeps what the next look compares with. */
void stat_compare(struct stat_view *v, struct stat_past *past,
		  const struct stat_options *o);
static inline uint64_t stat_sent(const struct observe_conn *c)
{
	return c->tx_direct_bytes + c->tx_tcp_bytes;
}
static inline uint64_t stat_received(const struct observe_conn *c)
{
	return c->rx_direct_bytes + c->rx_tcp_bytes;
}
static inline uint64_t stat_messages(const struct observe_conn *c)
{
	return c->tx_messages + c->rx_messages;
}

/* ---- table.c: a table whose columns are as wide as they need to be ---- */

#define STAT_CELL	 256
#define STAT_COLUMNS_MAX 64

/* What makes a terminal show it, and what ends that. */
#define STAT_BOLD  "\033[1m"
#define STAT_PLAIN "\033[0m"

struct stat_column {
	const char *title;
	int rank; /* the highest goes first where the width is short; 0 never */
	bool right;
	void (*print)(const void *item, char *out); /* at most STAT_CELL bytes */
	/* What to sort by, the greatest first; NULL: by its text. */
	double (*value)(const void *item);
};

enum {
	STAT_WIDE = 50,
	STAT_RATE = 100
}; /* ranks from here on are for --wide, or rates */

struct stat_shape {
	const struct stat_column *columns;
	size_t column_count;
	int width; /* 0: no limit */
	bool wide, rates;
	bool picked; /* by their names: rates are shown even where none are known */
	size_t lines; /* rows that are printed at most; the last says how many there are more */
	bool has_bold; /* the head is bold */
	/* What makes a terminal show a row in its colour. NULL: they have none. */
	const char *(*colour)(const void *item);
};

/* items: pointers. 0 or -ENOMEM. */
int stat_table(FILE *out, const struct stat_shape *shape, const void *const *items,
	       size_t count);
/* "1.2M": in binary or decimal steps. At most 8 bytes. Returns out. */
char *stat_size(uint64_t n, char *out);
char *stat_number(uint64_t n, char *out);
/* A program may give itself any name: what does not print becomes a question mark. */
char *stat_name(const char *name, char *out, size_t size);

/* ---- the formats; each returns 0 or -errno ---- */

struct stat_page {
	int width;    /* 0: no limit */
	size_t lines; /* 0: no limit */
	bool has_bold, has_colours;
};

/* columns.c: those of the table that was asked for. */
const struct stat_column *stat_columns_of(const struct stat_options *o, size_t *count);
/* print.c */
int stat_print(FILE *out, struct stat_view *v, const struct stat_options *o,
	       const struct stat_page *page);
/* 0, or -EINVAL with a complaint: a name of --columns or --sort is none of this table's. */
int stat_check_columns(const struct stat_options *o);
/* notes.c: the sentences below the table. */
void stat_notes(FILE *out, const struct stat_view *v, const struct stat_options *o);
/* json.c. On one line, or one for each item. */
void stat_json(FILE *out, const struct stat_view *v, bool one_line);
/* prometheus.c */
void stat_prometheus(FILE *out, const struct stat_view *v, bool per_connection);

/* ---- calls.c: remote procedure calls ---- */

/* Fills v->calls, when it is known which processes are shown: 0 or -ENOMEM. `counts`: v->shown becomes
 * the number of those that are shown. */
int stat_calls_make(struct stat_view *v, bool counts);
/* As stat_compare, which does this, too, while past->time is still that of the look before. */
void stat_calls_compare(struct stat_view *v, struct stat_past *past);
const struct stat_column *stat_calls_columns(size_t *count);
/* As a member of an object, those of the process; and as labels, of one. */
void stat_calls_json(FILE *out, const struct stat_view *v,
		     const struct observe_process *p);
void stat_calls_labels(FILE *out, const struct observe_call *c);

/* ---- watch.c ---- */

/* Returns an exit status. */
int stat_watch(const struct stat_options *o);

#endif

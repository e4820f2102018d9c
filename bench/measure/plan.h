/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of `viaduct bench` measures: its options, and the rows that follow from
 * them. */
#ifndef VD_MEASURE_PLAN_H
#define VD_MEASURE_PLAN_H

#include "measure/host.h"

enum { PLAN_LIST_MAX = 32, PLAN_LOADS_MAX = 8, PLAN_CROWDS_MAX = 2 };
/* Busy loops beside; and, until the options are known, as many as --busy will say. */
enum { PLAN_BUSY_MAX = 1024, PLAN_BUSY };

enum plan_placement { PLAN_TWO, PLAN_ONE, PLAN_FREE, PLAN_PLACEMENTS };

/* Long options, as getopt gives them; `given` of a plan has their bits. */
enum plan_option {
	PATTERNS = 1,
	SIZES,
	OVER,
	PAIRS,
	TIME,
	PLACEMENT,
	BUSY,
	CONNS,
	CONG,
	JSON,
	THINK,
	ACTIVE,
	LOAD,
	CSV,
	WAIT,
	REPORT,
	MATRIX,
	SPIN,
	RECHECK,
	FAIL_BELOW,
	VERDICT,
	RATE,
	HOST,
	PORT,
	ANSWER,
	PLAN_OPTIONS
};
_Static_assert(PLAN_OPTIONS <= 32, "a bit for each");

struct plan {
	const struct bench_pattern *patterns[PLAN_LIST_MAX];
	size_t sizes[PLAN_LIST_MAX];
	unsigned pattern_count, size_count;
	bool sizes_given;
	unsigned pairs;
	unsigned conns[PLAN_LIST_MAX], conns_count; /* the first is 1 */
	unsigned active;			    /* of them at most; 0: all */
	unsigned busy;				    /* as --busy says */
	unsigned busy_named;		      /* loops that the word busy stands for */
	unsigned load[PLAN_LOADS_MAX], loads; /* busy loops beside: all rows with each */
	/* Those of a matrix in addition, for rows that plan_crowd_wants wants; not pinned. */
	unsigned crowd[PLAN_CROWDS_MAX], crowds;
	unsigned think_us;
	unsigned rate; /* round trips a second; 0: one after another */
	enum plan_placement placement[PLAN_PLACEMENTS];
	unsigned placements;
	const char *over; /* comma-separated names of contenders, or NULL */
	char *const *server, *const *client; /* of the user's own; NULL: patterns */
	unsigned wait_s;
	const char *unfit; /* an option that means nothing for these, or NULL */
	const char *csv;
	const char *json;	  /* file, "-", or NULL */
	const char *report;	  /* folder that holds this file, or NULL */
	struct bench_setting set; /* of the first placement */
	uint32_t given;		  /* options, by bits */
	uint64_t under_way_max;	  /* bytes, for rows of many connections */
	bool quick, matrix, verdict;
	bool answers;	    /* to other hosts, and measures nothing */
	struct host host;   /* the other one; its name NULL: both ends are here */
	bool spin[2];	    /* which of them are measured: off, on */
	unsigned recheck;   /* pairs more for a cell with a pair below 1 */
	double fail_below;  /* 0: never */
	char *const *files; /* of a verdict */
	unsigned file_count;
};

/* Fills in the plan. Returns 0; 1 when help was printed; -EINVAL after a message. */
int plan_parse(struct plan *plan, int argc, char **argv);
/* A message about the command line; returns -EINVAL. */
int plan_complain(const char *what, const char *value);
/* All that can be compared, but for other systems' programs; NULL past the last. */
const struct bench_contender *plan_contender_at(size_t i);
/* The name is one of a list's, which has commas between them. */
bool plan_names(const char *list, const char *name);
/* The contenders of a row, the one to compare with first. Returns how many. */
unsigned plan_contenders(const struct plan *plan, const struct bench_pattern *pattern,
			 unsigned conns, const struct bench_contender **who);
/* The sizes to measure the pattern at, as far as plan_wants wants them. */
const size_t *plan_sizes(const struct plan *plan, const struct bench_pattern *pattern,
			 unsigned *count);
/* True when the pattern is measured at this size and with this many connections. */
bool plan_wants(const struct plan *plan, const struct bench_pattern *pattern, size_t size,
		unsigned conns);
/* How many of the connections have messages under way. */
unsigned plan_active(const struct plan *plan, unsigned conns);
unsigned plan_conns_max(const struct plan *plan);

/* ---- place.c: the processors of the two ends ---- */

const char *plan_placement_name(enum plan_placement placement);
/* "two,one": as --placement takes them. */
const char *plan_placement_names(char buf[16], const struct plan *plan);
int plan_parse_placement(struct plan *plan, const char *list);
/* Finds the processors. Returns 0, or -EINVAL after a message. */
int plan_place(struct plan *plan);
struct bench_setting plan_setting(const struct plan *plan, enum plan_placement placement);

/* ---- load.c: what runs beside ---- */

/* 0, or -EINVAL after a message. */
int plan_parse_load(struct plan *plan, const char *list);
/* After it the loads are numbers of busy loops. Without --load: as --busy says. */
void plan_set_loads(struct plan *plan);
/* The most busy loops beside any row. */
unsigned plan_busy_max(const struct plan *plan);
/* "quiet", "busy", or "busy-6" for a number that neither --busy nor its default says. */
void plan_load_name(char name[BENCH_LOAD_LETTERS], const struct plan *plan,
		    unsigned busy);
/* "0,2,6": those of all rows; into buf, which is returned. */
const char *plan_load_list(char buf[96], const struct plan *plan);
/* More loops than processors, in a matrix that names neither load nor placement. */
void plan_set_crowds(struct plan *plan);
/* True for a row that is measured with a crowd, too. */
bool plan_crowd_wants(const struct plan *plan, const struct bench_pattern *pattern,
		      size_t size);

/* ---- plan_host.c: --host and --answer ---- */

/* 0, or -EINVAL after a message. */
int plan_check_host(struct plan *plan);
/* True where a contender can be measured between two hosts. */
bool plan_host_fits(const struct plan *plan, const struct bench_pattern *pattern,
		    unsigned conns, const struct bench_contender *c);

/* ---- expand.c: --matrix and what belongs to it ---- */

/* These return 0, or -EINVAL after a message. */
int plan_parse_spin(struct plan *plan, const char *list);
int plan_parse_below(struct plan *plan, const char *text);
/* Sets what the command line has left open to the whole product. */
int plan_expand(struct plan *plan);
/* False where a pattern has no figures at this placement in a matrix. */
bool plan_places(const struct plan *plan, const struct bench_pattern *pattern,
		 enum plan_placement placement);
/* Without --matrix: nothing that only it can do may have been asked for. */
int plan_check_plain(const struct plan *plan);
int plan_take_files(struct plan *plan, int argc, char **argv);
unsigned plan_matrix_contenders(const struct plan *plan,
				const struct bench_pattern *pattern,
				const struct bench_contender **who);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark that `viaduct bench` executes: kernel TCP, AF_UNIX and Viaduct in one run, in alternating
 * pairs. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/standard.h"
#include "measure/finding.h"
#include "measure/matrix.h"
#include "measure/pair.h"
#include "measure/plan.h"
#include "measure/progress.h"
#include "tool/cli.h"
#include "tool/floor.h"
#include "tool/json.h"
#include "tool/self.h"

enum { LINE_TIME_NS = 8000000, NEAR_LINE_NS = 200 };
/* Beyond these the two ends of the raw ring had not a processor each. */
enum { LINE_BELIEVED_NS = 1500, RTT_BELIEVED = 10 };

struct out {
	FILE *table, *json, *csv; /* each may be NULL */
	bool is_counting; /* the first time round: how many measurements there will be */
	unsigned rows;
	struct progress progress;
	struct matrix matrix;
	struct findings *findings;
};

/* Nanoseconds of a round trip through one cache line; 0 when there is one processor. */
static double line_ns(const struct plan *plan)
{
	double rate = 0;
	if (plan->set.floor_cpus[0] < 0 ||
	    floor_run(FLOOR_LINE, 0, LINE_TIME_NS, plan->set.floor_cpus, &rate) < 0)
		return 0;
	return 1e9 / rate;
}

/* wanted: bits of the contenders. */
static void measure_pair(const struct plan *plan, const struct bench_setting *set,
			 struct out *out, struct bench_row *row, unsigned pair,
			 unsigned wanted)
{
	row->line_ns[pair] = line_ns(plan);
	for (unsigned w = 0; w < row->contenders; w++) {
		struct bench_sample *s = &row->samples[w][pair];
		if (!(wanted & 1u << w))
			continue;
		progress_show(&out->progress, row, pair, row->who[w]->name);
		bench_measure(set, row, row->who[w], s);
		if (progress_interrupted())
			return;
		progress_note(&out->progress, row, pair, w);
	}
}

/* Pairs from the first up to `end`, which are whole. False: interrupted. */
static bool measure_up_to(const struct plan *plan, const struct bench_setting *set,
			  struct out *out, struct bench_row *row, unsigned end,
			  unsigned wanted)
{
	unsigned pair = row->pairs;

	row->pairs = end; /* as it is shown */
	for (; pair < end; pair++) {
		measure_pair(plan, set, out, row, pair, wanted);
		if (progress_interrupted()) {
			row->pairs = pair;
			return false;
		}
	}
	return true;
}

static unsigned bits(unsigned set)
{
	unsigned n = 0;
	for (; set; set &= set - 1)
		n++;
	return n;
}

static void measure_pairs(const struct plan *plan, enum plan_placement placement,
			  struct out *out, struct bench_row *row)
{
	struct bench_setting set = plan_setting(plan, placement);
	unsigned wanted;

	if (!measure_up_to(plan, &set, out, row, plan->pairs, ~0u))
		return;
	wanted = plan->matrix ? matrix_doubtful(row) : 0;
	if (!wanted)
		return;
	out->progress.total += plan->recheck * bits(wanted | 1);
	measure_up_to(plan, &set, out, row, row->pairs + plan->recheck, wanted | 1);
}

static void measure_row(const struct plan *plan, enum plan_placement placement,
			struct out *out, struct bench_row *row)
{
	measure_pairs(plan, placement, out, row);
	progress_hide(&out->progress);
	if (!row->pairs)
		return;
	if (plan->matrix)
		matrix_add_row(&out->matrix, row);
	if (out->table) {
		bench_table_row(out->table, row);
		fflush(out->table);
	}
	if (out->json) {
		fprintf(out->json, out->rows ? ",\n" : "\n");
		bench_json_row(out->json, row);
	}
	if (out->csv) {
		bench_csv_row(out->csv, row);
		fflush(out->csv);
	}
	findings_note(out->findings, row);
	out->rows++;
}

/* Busy loops; of a crowd only for some rows. */
struct beside {
	unsigned busy;
	bool crowd;
};

static void measure_rows(const struct plan *plan, struct out *out,
			 const struct bench_pattern *pattern, unsigned conns,
			 enum plan_placement placement, const struct beside *beside)
{
	static struct bench_row row; /* large */
	unsigned count;
	const size_t *sizes = plan_sizes(plan, pattern, &count);
	for (unsigned i = 0; i < count; i++) {
		if (!plan_wants(plan, pattern, sizes[i], conns))
			continue;
		memset(&row, 0, sizeof(row));
		row.pattern = pattern;
		row.size_bytes = pattern->shape == BENCH_CRR ? BENCH_CRR_BYTES : sizes[i];
		if (beside->crowd && !plan_crowd_wants(plan, pattern, row.size_bytes))
			continue;
		row.conns = conns;
		row.active = plan_active(plan, conns);
		row.busy = beside->busy;
		plan_load_name(row.load, plan, row.busy);
		row.think_us = pattern->think ? plan->think_us : 0;
		row.rate = plan->rate;
		row.placement = plan_placement_name(placement);
		row.matrix = plan->matrix;
		row.contenders = plan_contenders(plan, pattern, conns, row.who);
		if (out->is_counting)
			out->progress.total += plan->pairs * row.contenders;
		else if (row.contenders && !progress_interrupted())
			measure_row(plan, placement, out, &row);
	}
}

struct floor {
	double line_ns, rtt_ns, small_per_s, large_bytes_per_s;
};

static void measure_floor(const struct plan *plan, struct floor *f)
{
	const int *cpus = plan->set.floor_cpus;
	double rate = 0;
	memset(f, 0, sizeof(*f));
	if (cpus[0] < 0)
		return;
	f->line_ns = line_ns(plan);
	if (!floor_run(FLOOR_RTT, 64, 3 * LINE_TIME_NS, cpus, &rate))
		f->rtt_ns = 1e9 / rate;
	if (!floor_run(FLOOR_STREAM, 64, 3 * LINE_TIME_NS, cpus, &rate))
		f->small_per_s = rate;
	if (!floor_run(FLOOR_STREAM, 16384, 3 * LINE_TIME_NS, cpus, &rate))
		f->large_bytes_per_s = rate * 16384;
}

/* One line on what would be measured too if it were there. */
static void print_absent(FILE *out)
{
	const struct bench_peer *p;
	char list[256] = "";
	size_t n = 0;
	for (size_t i = 0; (p = bench_peer_at(i)) && n < sizeof(list); i++)
		if (!bench_peer_found(p))
			n += (size_t)snprintf(list + n, sizeof(list) - n,
					      "%s%s (install %s)", n ? ", " : "",
					      p->program, p->package);
	if (n)
		bench_head_line(out, "absent     not measured: %s", list);
}

static void json_peers(FILE *out)
{
	const struct bench_peer *p;
	fprintf(out, ",\"peers\":[");
	for (size_t i = 0; (p = bench_peer_at(i)); i++)
		fprintf(out,
			"%s{\"over\":\"%s\",\"program\":\"%s\",\"package\":\"%s\","
			"\"found\":%s}",
			i ? "," : "", p->name, p->program, p->package,
			bench_peer_found(p) ? "true" : "false");
	fputc(']', out);
}

/* How long it takes, as a measurement takes its time and is begun and ended besides. */
static void print_length(const struct plan *plan, FILE *out, unsigned measurements)
{
	double s = (double)plan->set.time_ns / 1e9 * measurements;

	bench_head_line(out, "takes      %.0f %s or more: %u measurements",
			s < 120 ? s : s / 60, s < 120 ? "s" : "minutes", measurements);
}

static void print_head(const struct plan *plan, FILE *out, const struct floor *f,
		       unsigned measurements)
{
	const int *c = plan->set.floor_cpus;
	char names[16], loads[96];
	bench_machine_text(out);
	if (!plan->host.name)
		print_absent(out);
	if (f->line_ns > LINE_BELIEVED_NS || f->rtt_ns > RTT_BELIEVED * f->line_ns) {
		bench_head_line(out,
				"floor      no figures of the raw ring: the machine was "
				"too busy for them");
	} else if (f->line_ns > 0) {
		bench_head_line(out,
				"placement  %.0f ns a round trip through one cache line, "
				"processors %d and %d (%s)",
				f->line_ns, c[1], c[0],
				f->line_ns < NEAR_LINE_NS ? "near" : "far");
		bench_head_line(out,
				"floor      raw ring: %.0f ns a round trip of 64 B; one "
				"way 64 B %.1f M/s, 16 KiB %.1f GB/s",
				f->rtt_ns, f->small_per_s / 1e6,
				f->large_bytes_per_s / 1e9);
	}
	bench_head_line(
		out, "run        %u pair%s of %g s, ends on %s, %s busy beside, TCP %s",
		plan->pairs, plan->pairs == 1 ? "" : "s", (double)plan->set.time_ns / 1e9,
		plan->placements > 1		 ? plan_placement_names(names, plan)
		: plan->placement[0] == PLAN_TWO ? "two processors"
		: plan->placement[0] == PLAN_ONE ? "one processor"
						 : "any processor",
		plan_load_list(loads, plan),
		plan->set.congestion[0] ? plan->set.congestion : "as the system has it");
	print_length(plan, out, measurements);
	if (plan->rate)
		bench_head_line(
			out,
			"rate       %u round trips a second; medians and ratios are "
			"of their times",
			plan->rate);
	if (plan->host.name)
		bench_head_line(out, "hosts      the servers run on %s (%s)%s%s",
				plan->host.name, plan->host.address,
				plan->host.has_rsockets
					? ""
					: "; no rsockets, for want of a device or of "
					  "librspreload.so",
				plan->host.has_verbs ? ""
						     : "; no verbs, for want of a device "
						       "with the address, at each end");
	fputc('\n', out);
	/* "rtt-epoll x100 free busy-12", "rtt-epoll x10000 busy", "rtt-epoll" */
	bench_table_head(out,
			 plan->crowds ? 28
			 : plan->matrix || plan->conns_count > 1 || plan_busy_max(plan)
				 ? 24
				 : 14,
			 plan->matrix ? 14 : 10);
	fflush(out);
}

static void print_json_head(const struct plan *plan, FILE *out, const struct floor *f)
{
	char names[16];

	bench_json_head(out, "patterns");
	fprintf(out,
		",\n\"floor\":{\"line_ns\":%.1f,\"ring_rtt_64_ns\":%.1f,"
		"\"ring_64_per_s\":%.6g,\"ring_16k_bytes_per_s\":%.6g}",
		f->line_ns, f->rtt_ns, f->small_per_s, f->large_bytes_per_s);
	fprintf(out,
		",\n\"run\":{\"pairs\":%u,\"time_s\":%g,\"placement\":\"%s\","
		"\"cpus\":[%d,%d],\"busy\":%u,\"think_us\":%u,\"active\":%u,\"rate_per_"
		"s\":%u,"
		"\"congestion\":",
		plan->pairs, (double)plan->set.time_ns / 1e9,
		plan_placement_names(names, plan), plan->set.cpus[0], plan->set.cpus[1],
		plan_busy_max(plan), plan->think_us, plan->active, plan->rate);
	write_json_string(out, plan->set.congestion);
	if (plan->host.name) {
		fprintf(out, ",\"host\":");
		write_json_string(out, plan->host.name);
	}
	json_peers(out);
	if (plan->matrix)
		fprintf(out, ",\"matrix\":true,\"recheck\":%u", plan->recheck);
	fprintf(out, "},\n\"rows\":[");
}

static FILE *open_output(const char *path)
{
	FILE *f = fopen(path, "we");
	if (!f)
		fprintf(stderr, "viaduct bench: cannot write %s: %s\n", path,
			strerror(errno));
	return f;
}

static int open_outputs(const struct plan *plan, struct out *out)
{
	static struct findings findings; /* large */

	memset(out, 0, sizeof(*out));
	out->table = stdout;
	out->findings = &findings;
	for (unsigned i = 0; i < plan->pattern_count; i++)
		findings.copy_asked =
			findings.copy_asked || bench_is_copy(plan->patterns[i]);
	if (plan->csv && !(out->csv = open_output(plan->csv)))
		return -EIO;
	if (out->csv)
		bench_csv_head(out->csv);
	if (!plan->json)
		return 0;
	if (!strcmp(plan->json, "-")) {
		out->json = stdout;
		out->table = NULL;
		return 0;
	}
	out->json = open_output(plan->json);
	return out->json ? 0 : -EIO;
}

static int close_output(FILE *f, const char *what)
{
	int err = ferror(f) || fflush(f);
	if (f != stdout)
		err |= fclose(f);
	if (err)
		fprintf(stderr, "viaduct bench: cannot write the %s\n", what);
	return err;
}

static int close_outputs(struct out *out, bool matrix)
{
	int err = 0;
	if (out->table)
		findings_print(out->table, out->findings);
	if (out->json) {
		fprintf(out->json, "\n]");
		if (matrix)
			matrix_json(out->json, &out->matrix);
		findings_json(out->json, out->findings);
		if (progress_interrupted())
			fprintf(out->json, ",\n\"interrupted\":true");
		fprintf(out->json, "}\n");
		err |= close_output(out->json, "JSON");
	}
	if (out->csv)
		err |= close_output(out->csv, "CSV");
	progress_failures(&out->progress);
	if (progress_interrupted())
		fprintf(stderr,
			"viaduct bench: ended early, by a signal: %u %s, and whole\n",
			out->rows,
			out->rows == 1 ? "row was measured" : "rows were measured");
	return err || out->progress.failures;
}

static bool uses_viaduct(const struct plan *plan)
{
	for (unsigned i = 0; i < plan->pattern_count; i++) {
		const struct bench_contender *who[BENCH_CONTENDERS_MAX];
		unsigned n = plan_contenders(plan, plan->patterns[i], 1, who);
		for (unsigned w = 0; w < n; w++)
			if (who[w]->via_server || who[w]->via_client)
				return true;
	}
	return false;
}

static int run_programs(const struct plan *plan)
{
	static struct pair pair; /* large */
	pair.server = plan->server;
	pair.client = plan->client;
	pair.pairs = plan->pairs;
	pair.wait_s = plan->wait_s;
	return pair_main(&pair, plan->json);
}

static void measure_pattern(const struct plan *plan, struct out *out,
			    const struct bench_pattern *pattern)
{
	for (unsigned k = 0; k < plan->conns_count; k++) {
		for (unsigned p = 0; p < plan->placements; p++)
			for (unsigned b = 0; b < plan->loads; b++)
				if (plan_places(plan, pattern, plan->placement[p]))
					measure_rows(
						plan, out, pattern, plan->conns[k],
						plan->placement[p],
						&(struct beside){plan->load[b], false});
		for (unsigned c = 0; c < plan->crowds; c++)
			measure_rows(plan, out, pattern, plan->conns[k], PLAN_FREE,
				     &(struct beside){plan->crowd[c], true});
	}
}

/* counts: how many there are, and measures nothing. */
static void measure_patterns(const struct plan *plan, struct out *out, bool counts)
{
	out->is_counting = counts;
	for (unsigned i = 0; i < plan->pattern_count; i++)
		measure_pattern(plan, out, plan->patterns[i]);
}

static int run_patterns(const struct plan *plan)
{
	struct floor floor;
	struct out out;
	int status;

	if (uses_viaduct(plan) && bench_check_viaduct() < 0) {
		fprintf(stderr, "viaduct bench: give --over tcp,unix,floor and leave the "
				"plain patterns out to measure without it\n");
		return 1;
	}
	if (bench_files_raise(plan_conns_max(plan), uses_viaduct(plan)) < 0)
		return 1;
	if (open_outputs(plan, &out) < 0)
		return 1;
	if (!out.table && isatty(STDERR_FILENO))
		bench_machine_warn(stderr);
	progress_catch();
	measure_floor(plan, &floor);
	measure_patterns(plan, &out, true);
	if (out.table)
		print_head(plan, out.table, &floor, out.progress.total);
	if (out.json)
		print_json_head(plan, out.json, &floor);
	progress_begin(&out.progress);
	measure_patterns(plan, &out, false);
	if (plan->matrix && out.table)
		matrix_print(out.table, &out.matrix);
	status = close_outputs(&out, plan->matrix) ? 1 : 0;
	if (!status && plan->fail_below > 0)
		status = matrix_status(&out.matrix, plan->fail_below);
	matrix_finish(&out.matrix);
	return status;
}

static int command(int argc, char **argv)
{
	struct plan plan;
	int status;

	if (argc < 2 || !strchr(argv[1], '/')) {
		fprintf(stderr, "viaduct-bench: `viaduct bench` runs this program, and "
				"tells it where it lies itself\n");
		return EXIT_USAGE;
	}
	self_is(argv[1]);
	argc--;
	argv++;
	if (argc > 1 && !strcmp(argv[1], "--role"))
		return bench_role_main(argc, argv);
	status = plan_parse(&plan, argc, argv);
	if (status)
		return status > 0 ? 0 : EXIT_USAGE;
	if (plan.verdict)
		return matrix_verdict(plan.files, plan.file_count, plan.fail_below);
	if (plan.answers)
		return host_answer(plan.host.port);
	if (plan.host.name && host_find(&plan.host) < 0)
		return 1;
	if (plan.host.name) {
		plan.set.host = &plan.host;
		plan.set.address = plan.host.address;
	}
	if (plan.report && report_begin(plan.report, plan.json) < 0)
		return 1;
	status = plan.server ? run_programs(&plan) : run_patterns(&plan);
	if (plan.report && report_end(plan.report, plan.json) < 0)
		status = status ? status : 1;
	progress_die();
	return status;
}

int main(int argc, char **argv)
{
	return standard_end("viaduct bench", command(argc, argv));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `viaduct bench`, and what is compared with what. */
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure/plan.h"
#include "tool/cli.h"

static const struct bench_contender contenders[] = {
	{.name = "tcp"},
	{.name = "viaduct", .via_server = true, .via_client = true},
	{.name = "tcp-spin", .spin = true},
	{.name = "rsockets", .rsockets = true},
	{.name = "verbs", .verbs = true},
	{.name = "unix", .unix_domain = true},
	{.name = "floor", .floor = true},
	{.name = "ring", .copy = BENCH_COPY_RING},
	{.name = "vm-write", .copy = BENCH_COPY_WRITE},
	{.name = "vm-read", .copy = BENCH_COPY_READ},
};
/* One for each peer, filled in once. */
static struct bench_contender peer_contenders[BENCH_PEERS_MAX];
static const struct bench_contender plain_contenders[] = {
	{.name = "tcp"},
	{.name = "via-client", .via_client = true},
	{.name = "via-server", .via_server = true},
};

static const char help_text[] =
	"usage: viaduct bench [OPTION...]\n"
	"       viaduct bench --host HOST [--port PORT] [OPTION...]\n"
	"       viaduct bench --answer [--port PORT]\n"
	"       viaduct bench --verdict [--fail-below X] FILE.json...\n"
	"       viaduct bench [--pairs N] [--wait SEC] [--json FILE | --report DIR]\n"
	"                     -- SERVER [ARG...] -- CLIENT [ARG...]\n"
	"\n"
	"Measures kernel TCP, AF_UNIX and Viaduct in alternating pairs on this machine;\n"
	"or runs your own server and client plain and under Viaduct, and says whether "
	"it\n"
	"is worth it.\n"
	"\n"
	"  --patterns LIST    of rtt, rtt-spin, rtt-epoll, rtt-poll, stream, bidir, "
	"crr,\n"
	"                     session, session-30, session-100, think, think-sleep,\n"
	"                     logp, plain, plain-spin, plain-stream, and of the\n"
	"                     experiments copy, copy-cold, setup, setup-spin (default:\n"
	"                     all but the experiments)\n"
	"  --sizes LIST       message sizes, as 64,16K,4M (default: 1 B to 4 MiB)\n"
	"  --over LIST        of tcp, viaduct, tcp-spin, unix, floor, of ways to copy\n"
	"                     ring, vm-write, vm-read, and of other systems' ucx, fi,\n"
	"                     where installed (default: all); with --host of tcp,\n"
	"                     viaduct, tcp-spin, rsockets, verbs\n"
	"  --host HOST        the servers run on that host, which has to answer\n"
	"  --answer           be the other host of what `viaduct bench --host` measures\n"
	"  --port PORT        where it answers (default 7432)\n"
	"  --pairs N          measurements of each kind (default 5)\n"
	"  --time SEC         length of one measurement (default 0.5)\n"
	"  --placement WHERE  two (processors), one, or free (default two); as a list\n"
	"                     with the matrix\n"
	"  --think US         time between reply and request in think, think-sleep\n"
	"                     (default 100)\n"
	"  --busy N           N busy loops beside\n"
	"  --load LIST        of quiet, busy and numbers of busy loops, as 0,2,6,12:\n"
	"                     measures each row in each way (busy: two loops, or as\n"
	"                     --busy says)\n"
	"  --conns LIST       rtt-epoll and rtt-poll also over so many connections,\n"
	"                     as 10,100,1000,10000\n"
	"  --active N         of which only N have messages under way (default: all)\n"
	"  --rate N           begins N round trips a second, over all connections, and\n"
	"                     compares how long each took from when it was to begin\n"
	"  --congestion NAME  congestion control of TCP (default cubic; \"\": the "
	"system's)\n"
	"  --json FILE        figures as JSON; - is standard output, without the table\n"
	"  --report DIR       a page with plots in this folder, and the figures as JSON\n"
	"  --csv FILE         every sample as a line of CSV\n"
	"  --wait SEC         how long your own server may take to listen (default 10)\n"
	"  --quick            three short pairs at four sizes\n"
	"  --matrix           the product of patterns, sizes, connections, placements,\n"
	"                     loads, and spinning or not, against TCP; then all cells\n"
	"                     below 1.0\n"
	"  --spin LIST        of on, off (in the matrix; default: both)\n"
	"  --recheck N        pairs more for a cell of the matrix with a pair below 1.0\n"
	"                     (default 6)\n"
	"  --fail-below X     exit status 2 when the ratio of a cell of the matrix is\n"
	"                     below X\n"
	"  --verdict          lists the cells below 1.0 in files written with the "
	"option\n"
	"                     json\n"
	"  --help             print this\n\n"
	"Exit status: 0; 1 when something cannot be measured or written; 2 for a wrong\n"
	"command line, or by --fail-below. See viaduct-bench(1).\n";

static const size_t default_sizes[] = {1,     64,    1024,     4096,
				       16384, 65536, 1u << 20, 4u << 20};
static const size_t quick_sizes[] = {64, 1024, 65536, 1u << 20};

#define SIZES_TAKEN "--sizes takes 1 to 64M, bytes or with K or M behind, as in 64,16K"

static int complain(const char *what, const char *value)
{
	warn_line("viaduct bench: %s: `%s`; see `viaduct bench --help`", what, value);
	return -EINVAL;
}

int plan_complain(const char *what, const char *value)
{
	return complain(what, value);
}

bool plan_names(const char *list, const char *name)
{
	size_t len = strlen(name);
	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, name, len) && (at[len] == ',' || !at[len]))
			return true;
	}
	return false;
}

static bool is_peer(const char *name)
{
	const struct bench_peer *p;
	for (size_t i = 0; (p = bench_peer_at(i)); i++)
		if (!strcmp(p->name, name))
			return true;
	return false;
}

const struct bench_contender *plan_contender_at(size_t i)
{
	return i < sizeof(contenders) / sizeof(contenders[0]) ? &contenders[i] : NULL;
}

static int parse_over(struct plan *plan, const char *list)
{
	char copy[256];
	plan->over = NULL;
	snprintf(copy, sizeof(copy), "%s", list);
	for (char *save, *s = strtok_r(copy, ",", &save); s;
	     s = strtok_r(NULL, ",", &save)) {
		const struct bench_contender *c;
		size_t i = 0;
		while ((c = plan_contender_at(i)) && strcmp(c->name, s))
			i++;
		if (!c && !is_peer(s))
			return complain("unknown name in --over", s);
		plan->over = list;
	}
	return plan->over ? 0 : complain("no name in --over", list);
}

static int parse_patterns(struct plan *plan, const char *list)
{
	char copy[256];
	snprintf(copy, sizeof(copy), "%s", list);
	plan->pattern_count = 0;
	for (char *save, *s = strtok_r(copy, ",", &save); s;
	     s = strtok_r(NULL, ",", &save)) {
		const struct bench_pattern *p = bench_pattern_find(s);
		if (!p || plan->pattern_count == PLAN_LIST_MAX)
			return complain(bench_pattern_names(), s);
		plan->patterns[plan->pattern_count++] = p;
	}
	return plan->pattern_count ? 0 : complain("no name in --patterns", list);
}

static int parse_sizes(struct plan *plan, const char *list)
{
	plan->size_count = 0;
	plan->sizes_given = true;
	for (const char *at = list; *at;) {
		char *end;
		unsigned long long v = strtoull(at, &end, 10);
		if (*end == 'K' || *end == 'k' || *end == 'M') {
			v <<= *end == 'M' ? 20 : 10;
			end++;
		}
		if (end == at || (*end && *end != ',') || v < 1 || v > 64u << 20 ||
		    plan->size_count == PLAN_LIST_MAX)
			return complain(SIZES_TAKEN, list);
		plan->sizes[plan->size_count++] = v;
		at = *end ? end + 1 : end;
	}
	return plan->size_count ? 0 : complain(SIZES_TAKEN, list);
}

static int parse_number(const char *option, unsigned min, unsigned max, unsigned *value)
{
	const char *text = optarg;
	char *end, want[64];
	unsigned long v = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || v < min || v > max) {
		snprintf(want, sizeof(want), "%s takes a number from %u to %u", option,
			 min, max);
		return complain(want, text);
	}
	*value = (unsigned)v;
	return 0;
}

/* What an end can have from one address to one port. */
enum { CONNS_MAX = 25000 };

static int parse_conns(struct plan *plan, const char *list)
{
	plan->conns_count = 1;
	for (const char *at = list; *at;) {
		char *end;
		unsigned long v = strtoul(at, &end, 10);
		if (end == at || (*end && *end != ',') || v < 1 || v > CONNS_MAX ||
		    plan->conns_count == PLAN_LIST_MAX)
			return complain("--conns takes 1 to 25000, as in 10,1000", list);
		if (v > 1)
			plan->conns[plan->conns_count++] = (unsigned)v;
		at = *end ? end + 1 : end;
	}
	return *list ? 0 : complain("--conns takes 1 to 25000, as in 10,1000", list);
}

unsigned plan_active(const struct plan *plan, unsigned conns)
{
	return plan->active && plan->active < conns ? plan->active : conns;
}

unsigned plan_conns_max(const struct plan *plan)
{
	unsigned max = 1;
	for (unsigned i = 0; i < plan->conns_count; i++)
		max = plan->conns[i] > max ? plan->conns[i] : max;
	return max;
}

static int parse_time(const char *text, uint64_t *ns)
{
	char *end;
	double s = strtod(text, &end);
	if (end == text || *end || !(s >= 0.001 && s <= 3600))
		return complain("--time takes 0.001 to 3600 seconds", text);
	*ns = (uint64_t)(s * 1e9);
	return 0;
}

/* Bytes of all messages under way; beyond it a machine measures its memory. */
enum { UNDER_WAY_MAX = 256 << 20 };

static void use_defaults(struct plan *plan)
{
	const struct bench_pattern *p;
	memset(plan, 0, sizeof(*plan));
	for (size_t i = 0; (p = bench_pattern_at(i)); i++)
		if (p->shape < BENCH_COPY)
			plan->patterns[plan->pattern_count++] = p;
	plan->size_count = sizeof(default_sizes) / sizeof(default_sizes[0]);
	memcpy(plan->sizes, default_sizes, sizeof(default_sizes));
	plan->pairs = 5;
	plan->conns[plan->conns_count++] = 1;
	plan->under_way_max = UNDER_WAY_MAX;
	plan->placements = 1; /* PLAN_TWO */
	plan->spin[0] = plan->spin[1] = true;
	plan->think_us = 100;
	plan->wait_s = 10;
	plan->host.port = HOST_PORT;
	plan->set.time_ns = 500000000;
	plan->set.congestion = "cubic";
}

static void use_quick(struct plan *plan)
{
	plan->pairs = 3;
	plan->set.time_ns = 100000000;
	plan->quick = true;
	if (plan->sizes_given)
		return;
	plan->size_count = sizeof(quick_sizes) / sizeof(quick_sizes[0]);
	memcpy(plan->sizes, quick_sizes, sizeof(quick_sizes));
}

/* Not every user may choose every algorithm. Said once, rather than at each connection. */
static void check_congestion(struct plan *plan)
{
	const char *name = plan->set.congestion;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && *name &&
	    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) <
		    0) {
		fprintf(stderr,
			"viaduct bench: congestion control %s: %s; TCP runs as the "
			"system has it\n",
			name, strerror(errno));
		plan->set.congestion = "";
	}
	if (fd >= 0)
		close(fd);
}

/* The figures of a report lie in its folder, as JSON: one of the two options is enough. */
static int parse_output(struct plan *plan, int option, const char *value)
{
	char *path = NULL;
	bool report = option == REPORT;

	if (!*value)
		return complain(report ? "--report takes a folder"
				       : "--json takes a file",
				value);
	if (plan->json && report != (plan->report != NULL))
		return complain("--report writes the JSON itself: leave --json out",
				value);
	plan->json = value;
	if (!report)
		return 0;
	plan->report = value;
	if (asprintf(&path, "%s/results.json", value) < 0)
		return -ENOMEM;
	plan->json = path;
	return 0;
}

static int parse_option(struct plan *plan, int option)
{
	switch (option) {
	case PATTERNS:
		return parse_patterns(plan, optarg);
	case SIZES:
		return parse_sizes(plan, optarg);
	case OVER:
		return parse_over(plan, optarg);
	case PAIRS:
		return parse_number("--pairs", 1, BENCH_PAIRS_MAX, &plan->pairs);
	case TIME:
		return parse_time(optarg, &plan->set.time_ns);
	case PLACEMENT:
		return plan_parse_placement(plan, optarg);
	case BUSY:
		return parse_number("--busy", 0, PLAN_BUSY_MAX, &plan->busy);
	case LOAD:
		return plan_parse_load(plan, optarg);
	case WAIT:
		return parse_number("--wait", 1, 3600, &plan->wait_s);
	case CSV:
		plan->csv = optarg;
		return *optarg ? 0 : complain("--csv takes a file", optarg);
	case CONNS:
		return parse_conns(plan, optarg);
	case ACTIVE:
		return parse_number("--active", 1, CONNS_MAX, &plan->active);
	case CONG:
		plan->set.congestion = optarg;
		return 0;
	case THINK:
		return parse_number("--think", 1, 1000000, &plan->think_us);
	case RATE:
		return parse_number("--rate", 1, 10000000, &plan->rate);
	case JSON:
	case REPORT:
		return parse_output(plan, option, optarg);
	case MATRIX:
		plan->matrix = true;
		return 0;
	case SPIN:
		return plan_parse_spin(plan, optarg);
	case RECHECK:
		return parse_number("--recheck", 0, BENCH_PAIRS_MAX, &plan->recheck);
	case FAIL_BELOW:
		return plan_parse_below(plan, optarg);
	case VERDICT:
		plan->verdict = true;
		return 0;
	case HOST:
		plan->host.name = optarg;
		return 0;
	case PORT:
		return parse_number("--port", 1, 65535, &plan->host.port);
	case ANSWER:
		plan->answers = true;
		return 0;
	case 'q':
		use_quick(plan);
		return 0;
	case 'h':
		fputs(help_text, stdout);
		return 1;
	default:
		usage_error("bench", NULL);
		return -EINVAL;
	}
}

/* A fixed rate is that of round trips without time between them. */
static bool may_have_rate(const struct bench_pattern *p)
{
	return p->shape == BENCH_RTT && !p->think;
}

static int check_rate(struct plan *plan)
{
	unsigned kept = 0;

	if (plan->matrix)
		return complain("--rate is no part of the matrix: leave one out of",
				"--matrix --rate");
	for (unsigned i = 0; i < plan->pattern_count; i++) {
		const struct bench_pattern *p = plan->patterns[i];

		if (may_have_rate(p))
			plan->patterns[kept++] = p;
		else if (plan->given & 1u << PATTERNS)
			return complain(
				"--rate takes rtt, rtt-spin, rtt-epoll, rtt-poll, "
				"plain and plain-spin, not",
				p->name);
	}
	plan->pattern_count = kept;
	return 0;
}

/* SERVER [ARG...] -- CLIENT [ARG...] */
static int parse_programs(struct plan *plan, int argc, char **argv)
{
	int at = optind;

	while (at < argc && strcmp(argv[at], "--"))
		at++;
	if (at == optind || at + 1 >= argc)
		return complain("two programs are needed, -- SERVER -- CLIENT, after",
				argv[optind]);
	if (plan->unfit)
		return complain("an option that means nothing for your own programs",
				plan->unfit);
	argv[at] = NULL;
	plan->server = argv + optind;
	plan->client = argv + at + 1;
	return 0;
}

int plan_parse(struct plan *plan, int argc, char **argv)
{
	static const struct option options[] = {
		{"patterns", 1, NULL, PATTERNS},
		{"sizes", 1, NULL, SIZES},
		{"over", 1, NULL, OVER},
		{"pairs", 1, NULL, PAIRS},
		{"time", 1, NULL, TIME},
		{"placement", 1, NULL, PLACEMENT},
		{"think", 1, NULL, THINK},
		{"busy", 1, NULL, BUSY},
		{"load", 1, NULL, LOAD},
		{"csv", 1, NULL, CSV},
		{"wait", 1, NULL, WAIT},
		{"conns", 1, NULL, CONNS},
		{"active", 1, NULL, ACTIVE},
		{"rate", 1, NULL, RATE},
		{"congestion", 1, NULL, CONG},
		{"json", 1, NULL, JSON},
		{"quick", 0, NULL, 'q'},
		{"report", 1, NULL, REPORT},
		/* Of the matrix. */
		{"matrix", 0, NULL, MATRIX},
		{"spin", 1, NULL, SPIN},
		{"recheck", 1, NULL, RECHECK},
		{"fail-below", 1, NULL, FAIL_BELOW},
		{"verdict", 0, NULL, VERDICT},
		/* Of two hosts. */
		{"host", 1, NULL, HOST},
		{"port", 1, NULL, PORT},
		{"answer", 0, NULL, ANSWER},
		{"help", 0, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	use_defaults(plan);
	argv[0] = (char *)"viaduct bench"; /* getopt's messages begin with it */
	for (int c, at = 0; (c = getopt_long(argc, argv, "+h", options, &at)) != -1;) {
		int err = parse_option(plan, c);
		if (err)
			return err;
		plan->given |= c < PLAN_OPTIONS ? 1u << c : 0;
		if (c != PAIRS && c != JSON && c != REPORT && c != WAIT)
			plan->unfit = options[at].name;
	}
	if (plan->verdict)
		return plan_take_files(plan, argc, argv);
	if (optind < argc && !strcmp(argv[optind - 1], "--"))
		return parse_programs(plan, argc, argv);
	if (optind < argc)
		return complain("unexpected argument", argv[optind]);
	if (plan_check_host(plan) < 0 || (plan->rate && check_rate(plan) < 0))
		return -EINVAL;
	if (plan->matrix ? plan_expand(plan) < 0 : plan_check_plain(plan) < 0)
		return -EINVAL;
	plan_set_loads(plan);
	check_congestion(plan);
	return plan_place(plan);
}

static bool contender_fits(const struct plan *plan, const struct bench_pattern *pattern,
			   unsigned conns, const struct bench_contender *c)
{
	if (plan->over && !plan_names(plan->over, c->name))
		return false;
	if (plan->host.name ? !plan_host_fits(plan, pattern, conns, c)
			    : c->rsockets || c->verbs)
		return false;
	if (plan->rate && c->floor)
		return false;
	if (c->copy || bench_is_copy(pattern))
		return c->copy && bench_is_copy(pattern) &&
		       plan->placement[0] != PLAN_ONE && plan->set.floor_cpus[0] >= 0 &&
		       !bench_copy_forbidden(c->copy);
	if (pattern->shape == BENCH_SETUP)
		return !c->spin && !c->floor && !c->unix_domain;
	if (c->spin)
		return pattern->shape == BENCH_RTT && pattern->wait != BENCH_SPIN &&
		       !pattern->think && conns == 1;
	if (c->floor)
		return conns == 1 && !pattern->think && plan->placement[0] != PLAN_ONE &&
		       plan->set.floor_cpus[0] >= 0 &&
		       (pattern->shape == BENCH_RTT || pattern->shape == BENCH_STREAM);
	return true;
}

/* They spin, so one processor is not enough, and have patterns of their own. */
static bool peer_fits(const struct plan *plan, const struct bench_pattern *pattern,
		      unsigned conns, const struct bench_peer *p)
{
	return bench_peer_found(p) && !plan->host.name && conns == 1 && !plan->rate &&
	       plan->placement[0] != PLAN_ONE && plan->set.floor_cpus[0] >= 0 &&
	       !pattern->think && !pattern->plain && pattern->wait == BENCH_BLOCK &&
	       (pattern->shape == BENCH_RTT ||
		(pattern->shape == BENCH_STREAM && p->streams)) &&
	       (!plan->over || plan_names(plan->over, p->name));
}

static unsigned add_peers(const struct plan *plan, const struct bench_pattern *pattern,
			  unsigned conns, const struct bench_contender **who, unsigned n)
{
	const struct bench_peer *p;
	for (size_t i = 0; (p = bench_peer_at(i)) && i < BENCH_PEERS_MAX; i++) {
		peer_contenders[i].name = p->name;
		peer_contenders[i].peer = p;
		if (peer_fits(plan, pattern, conns, p))
			who[n++] = &peer_contenders[i];
	}
	return n;
}

unsigned plan_contenders(const struct plan *plan, const struct bench_pattern *pattern,
			 unsigned conns, const struct bench_contender **who)
{
	unsigned n = 0;
	if (plan->matrix)
		return plan_matrix_contenders(plan, pattern, who);
	if (pattern->plain) {
		while (n < sizeof(plain_contenders) / sizeof(plain_contenders[0])) {
			who[n] = &plain_contenders[n];
			n++;
		}
		return n;
	}
	for (size_t i = 0; i < sizeof(contenders) / sizeof(contenders[0]); i++)
		if (contender_fits(plan, pattern, conns, &contenders[i]))
			who[n++] = &contenders[i];
	return add_peers(plan, pattern, conns, who, n);
}

const size_t *plan_sizes(const struct plan *plan, const struct bench_pattern *pattern,
			 unsigned *count)
{
	if (bench_is_copy(pattern) && !plan->sizes_given)
		return bench_copy_sizes(plan->quick, count);
	*count = plan->size_count;
	return plan->sizes;
}

bool plan_wants(const struct plan *plan, const struct bench_pattern *pattern, size_t size,
		unsigned conns)
{
	/* One size is enough where the size is not what it is about. */
	if (pattern->shape == BENCH_CRR)
		return conns == 1 && size == plan->sizes[0];
	if ((pattern->plain || pattern->think || pattern->shape == BENCH_LOGP ||
	     pattern->shape == BENCH_SETUP) &&
	    !plan->sizes_given && size != 64)
		return false;
	if ((uint64_t)plan_active(plan, conns) * size > plan->under_way_max && conns > 1)
		return false;
	return conns == 1 ||
	       (pattern->shape == BENCH_RTT &&
		(pattern->wait == BENCH_EPOLL || pattern->wait == BENCH_POLL));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The list that `viaduct bench --verdict` makes of a file of figures, which may be anybody's.
 * Not reached: the page, which is drawn in Python (tests/cli/page.py). */
#include <jansson.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "tool/cli.h"
#include "measure/matrix.h"

/* With ' for ", $S for the spread of a figure, and $R for the results of a row. */
static const char spread[] = "{'median':2.5,'min':2,'max':3}";
static const char results[] =
	"'results':[{'over':'tcp','ops_per_s':$S,'errors':['x']},"
	"{'over':'viaduct','ops_per_s':$S,'ratio':$S,'cpu_ns_per_op':500,"
	"'ratio_samples':[0.8,0.9,0.7],'direct_bytes':7,'tcp_bytes':1,'spin':'50us',"
	"'reasons':{'off':3},'ops_per_cpu_s':$S,'logp':{'half_rtt_ns':$S,'latency_ns':"
	"$S,'send_ns':$S,'recv_ns':$S,'gap_ns':$S,'gap_ns_per_byte':$S}},"
	"{'over':'unix','ops_per_s':$S,'ratio':$S},{'over':'floor','ops_per_s':$S}]";
static const char *const templates[] = {
	"{'format':1,'schema':1,'kind':'patterns','viaduct':'0.1.0','started':'2026',"
	"'machine':{'kernel':'6.1','cpu':'A <cpu> & more','cpus':8,'load':'0.1',"
	"'memory_bytes':8589934592},'floor':{'line_ns':70,'ring_rtt_64_ns':110,"
	"'ring_64_per_s':6e7,'ring_16k_bytes_per_s':6e10},'run':{'pairs':5,'time_s':0.5,"
	"'placement':'two','busy':2,'congestion':'cubic','cpus':[1,0],'peers':[{'over':"
	"'ucx','program':'p','package':'q','found':false}]},'rows':["
	"{'pattern':'rtt','size_bytes':64,'conns':1,'line_ns':90,$R},"
	"{'pattern':'rtt','size_bytes':4096,'conns':1,$R},"
	"{'pattern':'rtt','size_bytes':64,'conns':1,'busy':2,'load':'busy',$R},"
	"{'pattern':'crr','size_bytes':64,'conns':1,$R}]}",
	"{'kind':'patterns','rows':[{'pattern':'stream','size_bytes':64,'bytes_per_op':"
	"64,"
	"'conns':100,'active':10,$R},{'pattern':'stream','size_bytes':64,'conns':10,$R},"
	"{'pattern':'think','size_bytes':64,'conns':1,'think_us':100,'unit':'round trip',"
	"$R},{'pattern':'logp','size_bytes':64,'conns':1,'busy':6,'load':'busy-6',$R},"
	"{'pattern':'setup','size_bytes':64,'conns':1,$R}]}",
	"{'run':{'matrix':true,'placement':'one'},'rows':[{'pattern':'rtt','size_bytes':"
	"64,"
	"'conns':1,'placement':'one','load':'busy','busy':6,$R},{'pattern':'stream',"
	"'size_bytes':65536,'conns':4,'placement':'sockets',$R},{'pattern':'rtt',"
	"'size_bytes':-1,'conns':1,'results':[{'over':'tcp'},{'over':'viaduct','ratio':"
	"{'median':0.5,'min':0.4,'max':0.6},'ratio_samples':[0.5]}]}]}",
	"{'kind':'programs','sentence':'<b>3 times</b>','server':['a b','c'],'client':"
	"['redis-benchmark','-q'],'pairs':3,'ratio':$S,'plain':{'elapsed_s':$S,"
	"'client_cpu_s':$S},'under_viaduct':{'elapsed_s':$S,'server_cpu_s':$S},"
	"'connections':5,'upgraded':4,'direct_bytes':1e9,'tcp_bytes':7}",
};

enum { DOCUMENTS = sizeof(templates) / sizeof(templates[0]) };
static char documents[DOCUMENTS][FUZZ_MAX];

static char *expand(char *to, const char *from)
{
	for (; *from; from++) {
		if (*from != '$')
			*to++ = *from == '\'' ? '"' : *from;
		else
			to = expand(to, *++from == 'S' ? spread : results);
	}
	*to = '\0';
	return to;
}

static void make_documents(void)
{
	for (int i = 0; i < DOCUMENTS && !*documents[i]; i++)
		FUZZ_CHECK(expand(documents[i], templates[i]) < documents[i] + FUZZ_MAX);
}

/* An input is a text, or the number of a document and what is to be changed in it. */
size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	if (n >= 2 * DOCUMENTS)
		return 0;
	make_documents();
	if (n >= DOCUMENTS) {
		memset(out, 0, 32);
		out[0] = (uint8_t)(n - DOCUMENTS);
		return 32;
	}
	memcpy(out, documents[n], strlen(documents[n]));
	return strlen(documents[n]);
}

/* ---- a document that is changed ---- */

enum { NODES_MAX = 2000 };
struct node {
	json_t *parent;
	const char *key; /* NULL: of an array */
	size_t index;
};
static struct node nodes[NODES_MAX];
static size_t node_count;

static void list_nodes(json_t *of)
{
	const char *key;
	json_t *value;
	size_t i;

	json_object_foreach(of, key, value)
	{
		if (node_count < NODES_MAX)
			nodes[node_count++] = (struct node){of, key, 0};
		list_nodes(value);
	}
	json_array_foreach(of, i, value)
	{
		if (node_count < NODES_MAX)
			nodes[node_count++] = (struct node){of, NULL, i};
		list_nodes(value);
	}
}

static json_t *value_of(const struct node *n)
{
	return n->key ? json_object_get(n->parent, n->key)
		      : json_array_get(n->parent, n->index);
}

static json_t *new_value(struct fuzz_bytes *b)
{
	static const double numbers[] = {0,	1,	-1,	2,     63,   64,   1e9,
					 1e300, -1e300, 1e-300, 0.999, 9999, 1e18, 4e9};
	static const char *const words[] = {
		"",	  "rtt",     "rtt-epoll",
		"stream", "bidir",   "crr",
		"logp",	  "think",   "plain",
		"tcp",	  "viaduct", "unix",
		"busy-7", "<cpu>",   "one",
		"two",	  "message", "round trip",
		"setup",  "session", "&\"'\xc3\xa9\xe2\x80\xa8"};
	char text[256] = "";
	double d;

	switch (fuzz_number(b, 1) % 8) {
	case 0:
		return json_real(numbers[fuzz_number(b, 1) %
					 (sizeof(numbers) / sizeof(numbers[0]))]);
	case 1:
		return json_string(
			words[fuzz_number(b, 1) % (sizeof(words) / sizeof(words[0]))]);
	case 2:
		fuzz_take(b, &d, sizeof(d));
		return json_real(d);
	case 3:
		fuzz_take(b, text, fuzz_number(b, 1) % sizeof(text));
		text[sizeof(text) - 1] = '\0';
		return json_string(text);
	case 4:
		return json_integer((json_int_t)fuzz_number(b, 8));
	case 5:
		return fuzz_number(b, 1) % 2 ? json_array() : json_object();
	case 6:
		return fuzz_number(b, 1) % 2 ? json_true() : json_null();
	default:
		return json_deep_copy(value_of(&nodes[fuzz_number(b, 2) % node_count]));
	}
}

static void change(json_t *root, struct fuzz_bytes *b)
{
	const struct node *n;
	json_t *value;

	node_count = 0;
	list_nodes(root);
	if (node_count == 0)
		return;
	n = &nodes[fuzz_number(b, 2) % node_count];
	value = new_value(b);
	if (!value) /* no number, or no UTF-8 */
		return;
	if (n->key)
		json_object_set_new(n->parent, n->key, value);
	else if (fuzz_number(b, 1) % 2)
		json_array_insert_new(n->parent, n->index, value);
	else
		json_array_set_new(n->parent, n->index, value);
}

static const json_t *document(size_t i)
{
	static json_t *read[DOCUMENTS];

	if (!read[i])
		read[i] = json_loads(documents[i], 0, NULL);
	return read[i];
}

static char *changed(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = {data, size};
	json_t *root = json_deep_copy(document(fuzz_number(&b, 1)));
	char *text;

	FUZZ_CHECK(root);
	for (int i = 0; i < 8 && b.left > 0; i++)
		change(root, &b);
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	FUZZ_CHECK(text);
	return text;
}

/* ---- a file that is in no folder ---- */

static int file = -1;
static char file_path[40];

static void file_put(const uint8_t *data, size_t size)
{
	if (file < 0)
		file = memfd_create("fuzz", MFD_CLOEXEC);
	snprintf(file_path, sizeof(file_path), "/proc/self/fd/%d", file);
	FUZZ_CHECK(file >= 0 && ftruncate(file, 0) == 0 &&
		   pwrite(file, data, size, 0) == (ssize_t)size);
}

/* In the place of the command's. */
void warn_line(const char *format, ...)
{
	char line[4096];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	FUZZ_CHECK(*line);
}

static void print_list(const struct figures *f)
{
	struct matrix m = {0};
	char *list = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&list, &size);

	FUZZ_CHECK(out);
	matrix_add_figures(&m, f);
	matrix_print(out, &m);
	FUZZ_CHECK(fclose(out) == 0 && strstr(list, "cells below TCP"));
	free(list);
	matrix_finish(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = NULL;
	struct figures f;

	make_documents();
	if (size && data[0] < DOCUMENTS)
		text = changed(data, size);
	file_put(text ? (uint8_t *)text : data, text ? strlen(text) : size);
	free(text);
	if (figures_load(&f, file_path) == 0)
		print_list(&f);
	figures_finish(&f);
	return 0;
}

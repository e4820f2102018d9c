/* SPDX-License-Identifier: Apache-2.0 */
/* The list that `viaduct bench --verdict` makes of a file of figures, which may be anybody's.
 * Not reached: the page, which is drawn in Python (tests/cli/page.py). */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "tool/cli.h"
#include "measure/matrix.h"

/* With ' for ", and these for what comes often. Each is as small as may be: reading JSON takes
 * most of the time. */
static const char *const parts[128] = {
	['S'] = "{'median':2.5,'min':2,'max':3}",
	['T'] = "{'over':'tcp','ops_per_s':$S,'errors':['x']}",
	['V'] = "{'over':'viaduct','ops_per_s':$S,'ratio':$S,'ratio_samples':[0.8,0.9,0."
		"7]}",
	['R'] = "'results':[$T,$V]",
};
static const char *const templates[] = {
	"{'format':1,'schema':1,'kind':'patterns','viaduct':'0.1.0','started':'2026',"
	"'machine':{'kernel':'6.1','cpu':'A <cpu> & more','cpus':8,'load':'0.1',"
	"'memory_bytes':8589934592},'floor':{'line_ns':70,'ring_rtt_64_ns':110,"
	"'ring_64_per_s':6e7,'ring_16k_bytes_per_s':6e10},'rows':[]}",
	"{'kind':'patterns','run':{'pairs':5,'time_s':0.5,'placement':'two','busy':2,"
	"'congestion':'cubic','cpus':[1,0],'peers':[{'over':'ucx','program':'p','package'"
	":"
	"'q','found':false}]},'rows':[{'pattern':'rtt','size_bytes':64,'conns':1,$R}]}",
	"{'kind':'patterns','rows':[{'pattern':'rtt','size_bytes':4096,'conns':1,"
	"'line_ns':90,'results':[$T,{'over':'viaduct','ops_per_s':$S,'ratio':$S,"
	"'cpu_ns_per_op':500,'direct_bytes':7,'tcp_bytes':1,'spin':'50us','reasons':{'"
	"off'"
	":3},'ops_per_cpu_s':$S}]}]}",
	"{'kind':'patterns','rows':[{'pattern':'crr','size_bytes':64,'conns':1,'results':"
	"["
	"$T,$V,{'over':'unix','ops_per_s':$S,'ratio':$S},{'over':'floor','ops_per_s':$S}]"
	"}"
	"]}",
	"{'kind':'patterns','rows':[{'pattern':'stream','size_bytes':64,'bytes_per_op':"
	"64,"
	"'conns':100,'active':10,'load':'busy','busy':2,$R},{'pattern':'stream',"
	"'size_bytes':64,'conns':10,$R}]}",
	"{'kind':'patterns','rows':[{'pattern':'think','size_bytes':64,'conns':1,"
	"'think_us':100,'unit':'round "
	"trip',$R},{'pattern':'setup','size_bytes':64,'conns'"
	":1,$R}]}",
	"{'kind':'patterns','rows':[{'pattern':'logp','size_bytes':64,'conns':1,'busy':6,"
	"'load':'busy-6','results':[$T,{'over':'viaduct','logp':{'half_rtt_ns':$S,"
	"'latency_ns':$S,'send_ns':$S,'recv_ns':$S,'gap_ns':$S,'gap_ns_per_byte':$S}}]}]"
	"}",
	"{'run':{'matrix':true,'placement':'one'},'rows':[{'pattern':'rtt','size_bytes':"
	"64,"
	"'conns':1,'placement':'one','load':'busy','busy':6,$R}]}",
	"{'run':{'matrix':true},'rows':[{'pattern':'stream','size_bytes':65536,'conns':4,"
	"'placement':'sockets',$R},{'pattern':'rtt','size_bytes':-1,'conns':1,'results':["
	"{'over':'tcp'},{'over':'viaduct','ratio':{'median':0.5,'min':0.4,'max':0.6},"
	"'ratio_samples':[0.5]}]}]}",
	"{'kind':'programs','sentence':'<b>3 times</b>','server':['a b','c'],'client':"
	"['redis-benchmark','-q'],'pairs':3,'ratio':$S,'plain':{'elapsed_s':$S,"
	"'client_cpu_s':$S},'under_viaduct':{'elapsed_s':$S,'server_cpu_s':$S},"
	"'connections':5,'upgraded':4,'direct_bytes':1e9,'tcp_bytes':7}",
};

enum { DOCUMENTS = sizeof(templates) / sizeof(templates[0]), VALUES_MAX = 200 };
/* A value of a document's text, as from the first to behind the last byte. */
struct value {
	const char *begin, *end;
	bool is_element; /* of an array */
};
static struct document {
	char text[FUZZ_MAX / 4];
	struct value values[VALUES_MAX]; /* in the order of their beginnings */
	size_t count;
} documents[DOCUMENTS];

static char *expand(char *to, const char *from)
{
	for (; *from; from++) {
		if (*from != '$')
			*to++ = *from == '\'' ? '"' : *from;
		else
			to = expand(to, parts[(unsigned char)*++from]);
	}
	*to = '\0';
	return to;
}

/* Lists the value that begins here, and what is in it; returns its end. No string of a document
 * has a quotation mark in it. */
static const char *list_values(struct document *of, const char *at, bool is_element)
{
	struct value *v = &of->values[of->count++];

	FUZZ_CHECK(of->count < VALUES_MAX);
	*v = (struct value){at, at, is_element};
	if (*at == '"') {
		at = strchr(at + 1, '"') + 1;
	} else if (*at == '{' || *at == '[') {
		bool is_array = *at++ == '[';

		while (*at != '}' && *at != ']') {
			if (!is_array)
				at = strchr(at + 1, '"') + 2;
			at = list_values(of, at, is_array);
			at += *at == ',';
		}
		at++;
	} else {
		at += strcspn(at, ",}]");
	}
	v->end = at;
	return at;
}

static void make_documents(void)
{
	for (size_t i = 0; i < DOCUMENTS && !documents[i].count; i++) {
		struct document *d = &documents[i];

		FUZZ_CHECK(expand(d->text, templates[i]) < d->text + sizeof(d->text));
		FUZZ_CHECK(!*list_values(d, d->text, false));
	}
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
	memcpy(out, documents[n].text, strlen(documents[n].text));
	return strlen(documents[n].text);
}

/* ---- a document that is changed ---- */

static char changed_text[FUZZ_MAX * 2];

static char *put(char *to, const char *from, size_t size)
{
	FUZZ_CHECK(size < (size_t)(changed_text + sizeof(changed_text) - to));
	memcpy(to, from, size);
	return to + size;
}

static char *put_string(char *to, struct fuzz_bytes *b)
{
	to = put(to, "\"", 1);
	for (size_t n = fuzz_number(b, 1); n; n--) {
		uint8_t c = (uint8_t)fuzz_number(b, 1);
		char escaped[8];

		if (c >= ' ' && c < 0x7f && c != '"' && c != '\\')
			to = put(to, (char *)&c, 1);
		else
			to = put(to, escaped, (size_t)sprintf(escaped, "\\u%04x", c));
	}
	return put(to, "\"", 1);
}

static char *put_new(char *to, const struct document *d, struct fuzz_bytes *b)
{
	static const char *const words[] = {"0",
					    "1",
					    "-1",
					    "2",
					    "63",
					    "64",
					    "1e9",
					    "1e300",
					    "-1e300",
					    "1e-300",
					    "0.999",
					    "9999",
					    "1e18",
					    "4000000000",
					    "\"\"",
					    "\"rtt\"",
					    "\"rtt-epoll\"",
					    "\"stream\"",
					    "\"bidir\"",
					    "\"crr\"",
					    "\"logp\"",
					    "\"think\"",
					    "\"plain\"",
					    "\"tcp\"",
					    "\"viaduct\"",
					    "\"unix\"",
					    "\"busy-7\"",
					    "\"<cpu>\"",
					    "\"one\"",
					    "\"two\"",
					    "\"message\"",
					    "\"round trip\"",
					    "\"setup\"",
					    "\"session\"",
					    "\"&\\\"'\xc3\xa9\xe2\x80\xa8\"",
					    "[]",
					    "{}",
					    "true",
					    "null"};
	char number[40] = "0";
	const char *word = number;
	const struct value *v;
	double d64;

	switch (fuzz_number(b, 1) % 8) {
	case 0:
		fuzz_take(b, &d64, sizeof(d64));
		if (isfinite(d64))
			snprintf(number, sizeof(number), "%.17g", d64);
		break;
	case 1:
		return put_string(to, b);
	case 2:
		snprintf(number, sizeof(number), "%" PRId64, (int64_t)fuzz_number(b, 8));
		break;
	case 3:
	case 4:
		v = &d->values[fuzz_number(b, 2) % d->count];
		return put(to, v->begin, (size_t)(v->end - v->begin));
	default:
		word = words[fuzz_number(b, 1) % (sizeof(words) / sizeof(words[0]))];
	}
	return put(to, word, strlen(word));
}

/* From the beginning to the end: each change is behind the one before, and none is within
 * another. A 0 changes nothing. */
static size_t changed(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = {data, size};
	const struct document *d = &documents[fuzz_number(&b, 1)];
	const char *from = d->text;
	size_t next = 0;
	char *to = changed_text;

	for (int i = 0; i < 8 && b.left > 0 && next < d->count; i++) {
		size_t n = fuzz_number(&b, 2);
		const struct value *v = &d->values[next + n % (d->count - next)];

		if (n == 0)
			continue;
		to = put(to, from, (size_t)(v->begin - from));
		to = put_new(to, d, &b);
		from = v->end;
		if (v->is_element && n & 0x8000) { /* before it */
			to = put(to, ",", 1);
			from = v->begin;
		}
		while (next < d->count && d->values[next].begin < v->end)
			next++;
	}
	to = put(to, from, strlen(from));
	return (size_t)(to - changed_text);
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
	struct figures f;

	make_documents();
	if (size && data[0] < DOCUMENTS) {
		size = changed(data, size);
		data = (const uint8_t *)changed_text;
	}
	file_put(data, size);
	if (figures_load(&f, file_path) == 0)
		print_list(&f);
	figures_finish(&f);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reads viaductd.conf. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/settings.h"
#include "base/log.h"
#include "settings/conffile.h"

#define BLANKS	 " \t"
#define RATE_MAX 1000000u

struct reader {
	const char *path;
	unsigned line, wrong;
	struct settings *s;
	settings_complain *complain;
	unsigned set; /* bits: which settings have been met */
};

static void wrong(struct reader *r, const char *text)
{
	char place[PATH_MAX + 16];

	r->wrong++;
	snprintf(place, sizeof(place), "%s:%u", r->path, r->line);
	r->complain(place, text);
}

static bool take_name(char *to, size_t size, const char *value)
{
	if (*value != '/' || strlen(value) >= size)
		return false;
	strcpy(to, value);
	return true;
}

static bool take_number(const char *value, uint32_t low, uint32_t high, uint32_t *out)
{
	uint64_t v = 0;

	for (const char *c = value; *c; c++) {
		if (*c < '0' || *c > '9' || v > high)
			return false;
		v = v * 10 + (uint64_t)(*c - '0');
	}
	if (!*value || v < low || v > high)
		return false;
	*out = (uint32_t)v;
	return true;
}

static bool take_address(const char *text, struct in6_addr *out, unsigned *bits)
{
	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, text, out->s6_addr + 12) == 1) {
		out->s6_addr[10] = out->s6_addr[11] = 0xff;
		*bits = 32;
		return true;
	}
	*bits = 128;
	return inet_pton(AF_INET6, text, out) == 1;
}

static bool take_net(char *text, struct in6_addr *out, unsigned *prefix_bits)
{
	char *slash = strchr(text, '/');
	unsigned max;
	uint32_t length;

	if (slash)
		*slash = '\0';
	if (!take_address(text, out, &max))
		return false;
	length = max;
	if (slash && !take_number(slash + 1, 0, max, &length))
		return false;
	*prefix_bits = length + 128 - max;
	return true;
}

/* ADDRESS for NET */
static bool take_peer(struct settings *s, const char *value)
{
	struct settings_peer *peer = &s->peer[s->peers];
	char words[160], *rest = words, *daemon, *word, *net;
	unsigned bits;

	if (s->peers == SETTINGS_PEER_MAX || strlen(value) >= sizeof(words))
		return false;
	strcpy(words, value);
	daemon = strtok_r(rest, BLANKS, &rest);
	word = strtok_r(NULL, BLANKS, &rest);
	net = strtok_r(NULL, BLANKS, &rest);
	if (!net || strcmp(word, "for") != 0 || strtok_r(NULL, BLANKS, &rest) ||
	    !take_address(daemon, &peer->daemon, &bits) ||
	    !take_net(net, &peer->net, &peer->prefix_bits))
		return false;
	s->peers++;
	return true;
}

static bool take_log(struct settings *s, const char *value)
{
	size_t n = strcspn(value, ":");

	if (strlen(value) >= PATH_MAX || log_level_of(value, n) < 0 ||
	    (value[n] && strcmp(value + n, ":stderr") != 0 && value[n + 1] != '/'))
		return false;
	snprintf(s->log, sizeof(s->log), "%s%s", value, value[n] ? "" : ":stderr");
	return true;
}

static bool take_listen(struct settings *s, const char *value)
{
	unsigned bits;

	return s->listens < SETTINGS_LISTEN_MAX &&
	       take_address(value, &s->listen[s->listens], &bits) && ++s->listens;
}

static bool take_port(struct settings *s, const char *value)
{
	uint32_t v = 0;

	if (!take_number(value, 1, 65535, &v))
		return false;
	s->port = (uint16_t)v;
	return true;
}

/* May come several times: listen and peer. */
enum {
	SET_SOCKET,
	SET_NEAR_SOCKET,
	SET_KEY_FILE,
	SET_LOG,
	SET_PORT,
	SET_RATE_UID,
	SET_RATE_PEER,
	SET_ONCE,
	SET_LISTEN = SET_ONCE,
	SET_PEER,
	SET_COUNT
};

static const struct {
	const char *name, *remedy;
} set_names[SET_COUNT] = {
	[SET_SOCKET] = {"socket",
			"socket takes the absolute name of an AF_UNIX socket, of "
			"at most 107 characters"},
	[SET_NEAR_SOCKET] = {"near-socket",
			     "near-socket takes the absolute name of an AF_UNIX socket, "
			     "of at most 107 characters"},
	[SET_KEY_FILE] = {"key-file", "key-file takes an absolute name"},
	[SET_LOG] = {"log", "log takes off, error, info or debug, with :stderr or :/FILE "
			    "after it if wanted"},
	[SET_PORT] = {"port", "port takes a number from 1 to 65535"},
	[SET_RATE_UID] = {"rate-uid",
			  "rate-uid takes a number of requests a second, from "
			  "1 to 1000000"},
	[SET_RATE_PEER] = {"rate-peer", "rate-peer takes a number of questions a second, "
					"from 1 to 1000000"},
	[SET_LISTEN] = {"listen",
			"listen takes one IPv4 or IPv6 address, and there are at "
			"most 8 of them"},
	[SET_PEER] = {"peer", "peer takes ADDRESS for NETWORK, such as 10.0.0.2 for "
			      "192.168.9.0/24, and there are at most 256 of them"},
};

static bool take(struct settings *s, unsigned id, const char *value)
{
	switch (id) {
	case SET_SOCKET:
		return take_name(s->socket, sizeof(s->socket), value);
	case SET_NEAR_SOCKET:
		return take_name(s->near, sizeof(s->near), value);
	case SET_KEY_FILE:
		return take_name(s->key_file, sizeof(s->key_file), value);
	case SET_LOG:
		return take_log(s, value);
	case SET_PORT:
		return take_port(s, value);
	case SET_RATE_UID:
		return take_number(value, 1, RATE_MAX, &s->rate_uid);
	case SET_RATE_PEER:
		return take_number(value, 1, RATE_MAX, &s->rate_peer);
	case SET_LISTEN:
		return take_listen(s, value);
	default:
		return take_peer(s, value);
	}
}

static void take_rule(struct reader *r, const char *line)
{
	struct rules *rules = &r->s->rules;
	char message[256];
	unsigned before = rules->count;

	if (rules_add(line, rules, message, sizeof(message)) != 0) {
		wrong(r, message);
		return;
	}
	for (unsigned i = before; i < rules->count; i++)
		if (!rules->rule[i].any_role)
			wrong(r, "role= is unknown here: nobody can prove who has "
				 "connected");
}

static void take_line(struct reader *r, const char *line)
{
	size_t n = strcspn(line, BLANKS "=");
	const char *value = line + n + strspn(line + n, BLANKS);

	if (*value != '=') {
		take_rule(r, line);
		return;
	}
	value += 1 + strspn(value + 1, BLANKS);
	for (unsigned id = 0; id < SET_COUNT; id++) {
		if (strlen(set_names[id].name) != n ||
		    strncmp(set_names[id].name, line, n) != 0)
			continue;
		if (id < SET_ONCE && r->set & 1u << id)
			wrong(r, "it is set twice: remove one of the two");
		else if (!take(r->s, id, value))
			wrong(r, set_names[id].remedy);
		r->set |= 1u << id;
		return;
	}
	wrong(r, "there are the settings socket, near-socket, listen, port, key-file, "
		 "log, peer, "
		 "rate-uid "
		 "and rate-peer, and rules that begin with allow or deny");
}

static void defaults(struct settings *s)
{
	memset(s, 0, sizeof(*s));
	strcpy(s->socket, "/run/viaduct/relay.sock");
	strcpy(s->key_file, VD_SYSCONFDIR "/viaductd.key");
	strcpy(s->log, "info:stderr");
	s->port = SETTINGS_PORT;
	s->rate_uid = 200;
	s->rate_peer = 1000;
}

unsigned settings_parse(const char *path, const char *text, size_t bytes,
			struct settings *out, settings_complain *complain)
{
	struct reader r = {.path = path, .s = out, .complain = complain};

	defaults(out);
	for (size_t at = 0; at < bytes; at += strlen(text + at) + 1) {
		r.line++;
		if (text[at])
			take_line(&r, text + at);
	}
	return r.wrong;
}

unsigned settings_read(const char *path, bool must_exist, struct settings *out,
		       settings_complain *complain)
{
	/* Stays: the rules point into it. */
	static struct conffile file;

	if (*path != '/' || strlen(path) >= sizeof(file.path)) {
		defaults(out);
		complain(path, "an absolute name is needed");
		return 1;
	}
	strcpy(file.path, path);
	conffile_read(&file, must_exist ? CONFFILE_NAMED : CONFFILE_SYSTEM);
	if (file.state == CONFFILE_READ)
		return settings_parse(path, file.text, file.size, out, complain);
	defaults(out);
	if (file.state == CONFFILE_ABSENT)
		return 0;
	complain(path, file.why);
	return 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* viaductd: the relay by which processes on two hosts meet. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/printable.h"
#include "base/standard.h"
#include "daemon/daemon.h"

#define FDS_WANTED 16384 /* more than the tables hold */

/* Mostly tables that are touched only as far as they are used. */
static struct relay relay;

struct options {
	const char *config, *new_key;
	bool check, foreground, version;
};

static const char usage[] =
	"usage: viaductd [OPTION...]\n"
	"\n"
	"The relay by which processes on two hosts meet: viaductd(8).\n"
	"\n"
	"  --config FILE   in the place of " VD_SYSCONFDIR "/viaductd.conf\n"
	"  --check         look at the file and at the keys, and say what is wrong\n"
	"  --foreground    do not go to the background\n"
	"  --new-key ID    print a new key, as a line for the file of keys\n"
	"  --version       print the version\n"
	"  --help          print this\n";

static void complain(const char *place, const char *text)
{
	char line[8192];

	snprintf(line, sizeof(line), "%s: %s", place, text);
	printable(line);
	fprintf(stderr, "viaductd: %s\n", line);
}

static int usage_error(void)
{
	fputs("usage: see `viaductd --help`\n", stderr);
	return -2;
}

/* systemd hands the key over by LoadCredential=viaductd.key. */
static void choose_key_file(struct settings *s)
{
	const char *folder = getenv("CREDENTIALS_DIRECTORY");
	char path[PATH_MAX];
	int n;

	if (!folder || *folder != '/')
		return;
	n = snprintf(path, sizeof(path), "%s/viaductd.key", folder);
	if (n > 0 && (size_t)n < sizeof(path) && access(path, F_OK) == 0)
		strcpy(s->key_file, path);
}

/* Not to the disk by swap, where the limit of locked memory lets us: a help, no need. */
static void hide(struct keys *keys)
{
	sodium_mlock(keys, sizeof(*keys));
}

/* Whether it can be opened, or made: without making it. */
static bool log_fits(const char *setting)
{
	char path[PATH_MAX], folder[PATH_MAX];
	int fd;

	if (!log_file(setting, path, sizeof(path)))
		return true;
	fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0) {
		close(fd);
		return true;
	}
	snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') + 1 - path),
		 path);
	if (errno == ENOENT && access(folder, W_OK | X_OK) == 0)
		return true;
	complain(path, strerror(errno));
	return false;
}

static bool load(struct relay *r, const struct options *o)
{
	const char *path = o->config ? o->config : VD_SYSCONFDIR "/viaductd.conf";
	unsigned wrong = settings_read(path, o->config != NULL, &r->settings, complain);
	char message[512];

	choose_key_file(&r->settings);
	hide(&r->keys);
	if (keys_read(r->settings.key_file, &r->keys, message, sizeof(message)) != 0) {
		complain(r->settings.key_file, message);
		wrong++;
	}
	wrong += !log_fits(r->settings.log);
	return wrong == 0;
}

static int make_key(const char *id)
{
	char line[KEYS_LINE_BYTES];

	if (keys_new_line(id, line) != 0) {
		complain(id, "an ID has 1 to 16 letters, digits, dots, - or _");
		return 2;
	}
	puts(line);
	sodium_memzero(line, sizeof(line));
	return standard_end("viaductd", 0);
}

/* For systemd and for whoever waits in its way: NOTIFY_SOCKET of sd_notify(3). */
static void say_ready(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	size_t n = path ? strlen(path) : 0;
	int fd;

	if (n < 2 || n >= sizeof(name.sun_path) || (*path != '/' && *path != '@'))
		return;
	memcpy(name.sun_path, path, n);
	if (*path == '@')
		name.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	sendto(fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&name,
	       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
	close(fd);
}

static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	if (limit.rlim_cur >= FDS_WANTED)
		return;
	limit.rlim_cur = limit.rlim_max < FDS_WANTED ? limit.rlim_max : FDS_WANTED;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* All is open by now, so whoever has started us learns by our exit that it is. */
static int go_to_background(void)
{
	pid_t pid = fork();
	int fd;

	if (pid != 0) {
		if (pid > 0)
			_exit(0);
		return -errno;
	}
	setsid();
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; fd >= 0 && i < 3; i++)
		dup2(fd, i);
	if (fd > 2)
		close(fd);
	return chdir("/") < 0 ? -errno : 0;
}

static void init(struct relay *r)
{
	for (int i = 0; i < RELAY_CLIENTS; i++)
		r->client[i].fd = -1;
	for (int i = 0; i < 2 * RELAY_LINKS; i++)
		r->link[i].fd = -1;
	publish_init(r);
	r->by_uid.per_second = r->settings.rate_uid;
	r->by_peer.per_second = r->settings.rate_peer;
	r->by_stranger.per_second = 8;
	r->by_log.per_second = 8;
	r->probes_by_uid.per_second = r->probes_by_host.per_second = RELAY_PROBES;
}

static int open_all(struct relay *r)
{
	char message[256] = "";
	int e;

	raise_limit();
	init(r);
	e = owner_init();
	if (e < 0) {
		complain("the kernel cannot be asked for connections (AF_NETLINK, "
			 "sock_diag)",
			 strerror(-e));
		return e;
	}
	e = loop_init(r);
	if (e < 0)
		complain("it cannot begin", strerror(-e));
	else if ((e = listen_open(r, message, sizeof(message))) < 0)
		fprintf(stderr, "viaductd: %s\n", message);
	return e;
}

static int serve(struct relay *r, const struct options *o)
{
	bool to_stderr = strstr(r->settings.log, ":stderr") != NULL;
	int e;

	if (!o->foreground && to_stderr && strncmp(r->settings.log, "off", 3) != 0) {
		complain("the log",
			 "in the background nobody sees it: name a file by `log = "
			 "LEVEL:FILE`, or use --foreground");
		return 2;
	}
	if (open_all(r) < 0)
		return 1;
	if ((!o->foreground && go_to_background() < 0) || loop_watch_signals(r) < 0)
		return 1;
	listen_own(r);
	hide(&r->keys); /* a child inherits no lock */
	log_init(r->settings.log);
	if (geteuid() == 0 && !*r->settings.near)
		log_info("it runs as root, which it needs for nothing: give it a user of "
			 "its own");
	log_info("ready: processes by %s, %u listeners, port %u, %u keys, %u rules",
		 r->settings.socket, r->listeners, r->settings.port, r->keys.count,
		 r->settings.rules.count);
	e = translate_open(r);
	if (e < 0)
		log_error("the child that asks conntrack cannot begin: %s", strerror(-e));
	say_ready();
	e = loop_run(r);
	if (e < 0)
		log_error("it ends: %s", strerror(-e));
	else
		log_info("it ends, as it was told to");
	listen_close(r);
	keys_forget(&r->keys);
	return e < 0;
}

/* Positive: go on; else the exit status, negated. */
static int parse(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{"config", required_argument, NULL, 'c'},
		{"check", no_argument, NULL, 'k'},
		{"foreground", no_argument, NULL, 'f'},
		{"new-key", required_argument, NULL, 'n'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int c;

	if (argc > 0)
		argv[0] = (char *)"viaductd"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "", known, NULL)) >= 0) {
		switch (c) {
		case 'c':
			o->config = optarg;
			break;
		case 'k':
			o->check = true;
			break;
		case 'f':
			o->foreground = true;
			break;
		case 'n':
			o->new_key = optarg;
			break;
		case 'v':
			o->version = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			return usage_error();
		}
	}
	if (optind < argc) {
		complain(argv[optind], "it takes no arguments, only options");
		return usage_error();
	}
	if (o->version)
		puts("viaductd " VD_VERSION);
	return !o->version;
}

int main(int argc, char **argv)
{
	struct options o = {0};
	int r;

	standard_fill();
	r = parse(argc, argv, &o);

	if (r <= 0)
		return standard_end("viaductd", -r);
	/* Neither a core nor a debugger of our user gets the keys: before there are any. */
	prctl(PR_SET_DUMPABLE, 0);
	/* What is given up does not come back by an exec: it makes none. */
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (sodium_init() < 0) {
		complain("libsodium", "it cannot begin");
		return 1;
	}
	if (o.new_key)
		return make_key(o.new_key);
	if (!load(&relay, &o))
		return 1;
	return o.check ? 0 : serve(&relay, &o);
}

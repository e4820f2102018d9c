/* SPDX-License-Identifier: Apache-2.0 */
/* How much fits a terminal. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tool/terminal.h"

/* Where the terminal does not tell, the shell may have. */
static int from_shell(const char *name, int otherwise)
{
	const char *text = getenv(name);
	char *end;
	long n = text ? strtol(text, &end, 10) : 0;

	return text && end != text && !*end && n > 0 && n < 10000 ? (int)n : otherwise;
}

int terminal_size(FILE *out, int *lines)
{
	struct winsize w = {0};
	int fd = fileno(out);

	if (fd < 0 || !isatty(fd))
		return 0;
	if (ioctl(fd, TIOCGWINSZ, &w) != 0)
		w = (struct winsize){0};
	*lines = w.ws_row ? w.ws_row : from_shell("LINES", TERMINAL_LINES);
	return w.ws_col ? w.ws_col : from_shell("COLUMNS", TERMINAL_WIDTH);
}

int terminal_width(FILE *out)
{
	int lines;

	return terminal_size(out, &lines);
}

bool terminal_has_screen(FILE *out)
{
	const char *term = getenv("TERM");
	int fd = fileno(out);

	return fd >= 0 && isatty(fd) && !(term && !strcmp(term, "dumb"));
}

bool terminal_has_colours(FILE *out)
{
	const char *no = getenv("NO_COLOR");

	return !(no && *no) && terminal_has_screen(out);
}

int terminal_room(FILE *out)
{
	int width = terminal_width(out);

	return width ? width : from_shell("COLUMNS", 0);
}

static const char *put_line(FILE *out, const char *text, int room, int indent)
{
	int column = 0;

	while (*text && *text != '\n') {
		int blanks = (int)strspn(text, " ");
		int len = (int)strcspn(text + blanks, " \n");

		if (room && column > indent && column + blanks + len > room) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
			text += blanks;
			blanks = 0;
		}
		fprintf(out, "%.*s", blanks + len, text);
		column += blanks + len;
		text += blanks + len;
	}
	fputc('\n', out);
	return text + (*text == '\n');
}

void terminal_lines(FILE *out, const char *text, int indent)
{
	int room = terminal_room(out);

	while (*text)
		text = put_line(out, text, room, indent);
}

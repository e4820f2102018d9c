/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the page faults of a forked child that ends at once, on average. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS 50

static long faults(int who)
{
	struct rusage r;

	return getrusage(who, &r) == 0 ? r.ru_minflt : 0;
}

int main(void)
{
	long before = faults(RUSAGE_CHILDREN);

	if (listen(socket(AF_INET, SOCK_STREAM, 0), 1) < 0)
		return 1;
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			exit(0);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			return 1;
	}
	printf("%ld\n", (faults(RUSAGE_CHILDREN) - before) / FORKS);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* files_static.c - a static target: no loader, no LD_PRELOAD. Runs ARG... if there is one. */
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc > 1)
		execv(argv[1], argv + 1);
	return argc > 1;
}

/* SPDX-License-Identifier: MIT */
/* loop.c - an application with a poll loop of its own: the collector is one of its descriptors. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sparring/sparring.h>

static int failed(const char *what)
{
	fprintf(stderr, "loop: %s: %s\n", what, spr_error_text());
	return 1;
}

/* The sink: looks at each record where it lies, and keeps nothing. */
static int put(void *arg, spr_batch *batch)
{
	uint64_t *n_records = arg;
	struct spr_record record;

	while (spr_batch_next(batch, &record) > 0)
		++*n_records;
	return 0;
}

static int produce(const char *address)
{
	spr_producer *producer;

	if (spr_attach(&producer, address))
		return failed("attach");
	for (int i = 0; i < 1000; i++) {
		if (spr_write(spr_writer_here(producer), 0, &i, sizeof(i)))
			return failed("write");
		if (i % 100 == 0)
			poll(NULL, 0, 3); /* ms */
	}
	spr_detach(producer);
	return 0;
}

/* Until the channel is sealed, because the child has closed its end of the pipe, and drained. */
static int loop(spr_collector *collector, spr_channel *channel, int child_fd)
{
	struct pollfd fds[2] = {
		{ .fd = spr_collector_fd(collector), .events = POLLIN },
		{ .fd = child_fd, .events = POLLIN },
	};
	int64_t got = 0;

	while (got >= 0) {
		if (poll(fds, 2, -1) < 0)
			continue; /* a signal */
		if (fds[1].revents) {
			fds[1].fd = -1;
			if (spr_channel_seal(channel))
				return failed("seal");
		}
		if (fds[0].revents)
			got = spr_collector_step(collector, 0); /* never waits */
	}
	return got == -ENODATA ? 0 : failed("step");
}

int main(void)
{
	struct spr_stats stats = SPR_STATS_INIT;
	struct spr_sink sink = SPR_SINK_INIT;
	spr_collector *collector;
	spr_channel *channel;
	uint64_t n_records = 0;
	int ends[2];

	sink.put = put;
	sink.arg = &n_records;
	if (spr_channel_open(&channel, "ring:", NULL) || spr_collector_open(&collector, 0) ||
	    spr_collector_add(collector, channel, &sink) || pipe(ends))
		return failed("open");
	const pid_t child = fork();
	if (child == 0)
		_exit(produce(spr_channel_address(channel)));
	close(ends[1]);
	if (child < 0 || loop(collector, channel, ends[0]))
		return 1;
	waitpid(child, NULL, 0);
	if (spr_channel_stats(channel, &stats) || spr_collector_close(collector) ||
	    spr_channel_close(channel))
		return failed("close");
	printf("%llu records, %llu written, %llu lost\n", (unsigned long long)n_records,
	       (unsigned long long)stats.written, (unsigned long long)stats.lost);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* hello.c - one process writes records, another collects them into a trace and reads it back. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sparring/sparring.h>

/* What our records look like: the trace carries this, so anybody can read it. */
static const struct spr_field fields[] = {
	{ .name = "step", .type = SPR_U32 },
	{ .name = "text", .type = SPR_STRING },
};
static const struct spr_kind kinds[] = { { .name = "greeting", .fields = fields, .n_fields = 2 } };

static int failed(const char *what)
{
	fprintf(stderr, "hello: %s: %s\n", what, spr_error_text());
	return 1;
}

/* The producer: usually another program, which finds the address in its environment. */
static int produce(const char *address)
{
	static const char text[] = "hello";
	const uint16_t n = sizeof(text) - 1;
	spr_producer *producer;
	struct spr_slot slot;

	if (spr_attach(&producer, address))
		return failed("attach");
	const int kind = spr_kind_find(producer, "greeting");
	if (kind < 0)
		return failed("kind");
	for (uint32_t step = 1; step <= 3; step++) {
		spr_writer *writer = spr_writer_here(producer);

		if (spr_reserve(writer, (uint32_t)kind, 4 + 2 + n, &slot))
			continue; /* full or sealed: counted, and the verdict says so */
		memcpy(slot.data, &step, 4);
		memcpy((char *)slot.data + 4, &n, 2);
		memcpy((char *)slot.data + 6, text, n);
		spr_commit(writer, &slot);
	}
	spr_detach(producer);
	return 0;
}

/* Everything that is in the channel until its producer has ended, through the encoder to fd. */
static int collect(spr_channel *channel, pid_t child, int fd)
{
	struct spr_encoder_options options = SPR_ENCODER_OPTIONS_INIT;
	struct spr_verdict verdict = SPR_VERDICT_INIT;
	struct spr_sink sink = SPR_SINK_INIT;
	spr_collector *collector;
	spr_encoder *encoder;
	int64_t got = 0;

	options.fd = fd;
	options.kinds = kinds;
	options.n_kinds = 1;
	if (spr_encoder_open(&encoder, &options) || spr_encoder_sink(encoder, &sink) ||
	    spr_collector_open(&collector, 0) || spr_collector_add(collector, channel, &sink))
		return failed("collector");
	while (got >= 0) {
		if (child && waitpid(child, NULL, WNOHANG) == child) {
			child = 0;
			if (spr_channel_seal(channel))
				return failed("seal");
		}
		got = spr_collector_step(collector, 10);
	}
	if (got != -ENODATA) /* that is the end: sealed and drained */
		return failed("step");
	if (spr_collector_close(collector) || spr_channel_verdict(channel, &verdict) ||
	    spr_encoder_close(encoder, &verdict))
		return failed("end");
	printf("%llu records delivered, %s\n", (unsigned long long)verdict.delivered,
	       verdict.reasons ? "incomplete" : "complete");
	return 0;
}

static int read_back(int fd)
{
	struct spr_value step, text;
	const struct spr_kind *kind;
	struct spr_record record;
	spr_trace *trace;
	uint32_t n_kinds;

	if (lseek(fd, 0, SEEK_SET) || spr_trace_open(&trace, fd, NULL))
		return failed("trace");
	kind = spr_trace_kinds(trace, &n_kinds);
	while (spr_trace_next(trace, &record) > 0) {
		if (spr_record_field(kind, &record, 0, &step) < 0 ||
		    spr_record_field(kind, &record, 1, &text) < 0)
			return failed("field");
		printf("step %llu: %.*s\n", (unsigned long long)step.number, (int)text.n,
		       (const char *)text.bytes);
	}
	spr_trace_close(trace);
	return 0;
}

int main(void)
{
	struct spr_channel_options options = SPR_CHANNEL_OPTIONS_INIT;
	spr_channel *channel;
	const int fd = open("hello.spr", O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0) {
		perror("hello.spr");
		return 1;
	}
	options.kinds = kinds;
	options.n_kinds = 1;
	if (spr_channel_open(&channel, "ring:", &options))
		return failed("channel");
	const pid_t child = fork();
	if (child == 0)
		_exit(produce(spr_channel_address(channel)));
	if (child < 0 || collect(channel, child, fd) || spr_channel_close(channel))
		return 1;
	return read_back(fd);
}

/* SPDX-License-Identifier: MIT */
/* ring_support.c - records that carry their proof, and the sink that checks it (see the header). */
#include "tests/ring_support.h"

#include <dirent.h>
#include <limits.h>
#include <sys/mount.h>
#include <time.h>

#include "shm/layout.h"

/* --- Small things ---------------------------------------------------------------------------- */

void sleep_us(uint64_t us)
{
	struct timespec t = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

bool is_emulated(void)
{
	return getenv("EMULATOR") != NULL;
}

uint32_t test_count(uint32_t quick, uint32_t in_long)
{
	const uint32_t n = test_long() ? in_long : quick;

	return UNDER_TSAN || UNDER_ASAN || is_emulated() ? (n + 9) / 10 : n;
}

void *shared_memory(size_t n_bytes)
{
	void *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	return at;
}

struct tally *tally_open(uint32_t n_lines)
{
	const size_t n_bytes = sizeof(struct tally) + n_lines * sizeof(struct tally_line);
	struct tally *t = shared_memory(n_bytes);

	t->n_lines = n_lines;
	t->map_bytes = n_bytes;
	return t;
}

void tally_close(struct tally *t)
{
	if (t)
		munmap(t, t->map_bytes);
}

struct tally_line tally_sum(const struct tally *t)
{
	struct tally_line sum = { 0 };

	for (uint64_t i = 0; i < t->n_lines; i++) {
		spr_add_relaxed(&sum.taken, spr_load_relaxed(&t->line[i].taken));
		spr_add_relaxed(&sum.committed, spr_load_relaxed(&t->line[i].committed));
		spr_add_relaxed(&sum.dropped, spr_load_relaxed(&t->line[i].dropped));
		spr_add_relaxed(&sum.refused, spr_load_relaxed(&t->line[i].refused));
		spr_add_relaxed(&sum.abandoned, spr_load_relaxed(&t->line[i].abandoned));
		spr_add_relaxed(&sum.other, spr_load_relaxed(&t->line[i].other));
	}
	return sum;
}

/* --- Records ---------------------------------------------------------------------------------- */

struct record_head {
	uint64_t proof;
	uint64_t counter;
	uint32_t source, bytes;
};

static uint64_t mix(uint64_t x)
{
	return test_random(&x);
}

static uint64_t proof_of(const struct record_head *h)
{
	return mix(h->counter ^ mix(((uint64_t)h->source << 32 | h->bytes) + 0x5eed));
}

/* Word i behind the head; the last one may be cut. */
static uint64_t filler(const struct record_head *h, uint32_t i)
{
	return h->proof + i * 0x9e3779b97f4a7c15u;
}

static void fill_record(void *data, uint32_t source, uint64_t counter, uint32_t bytes)
{
	struct record_head h = { 0, counter, source, bytes };
	unsigned char *at = data;
	uint32_t i = 0;

	h.proof = proof_of(&h);
	memcpy(at, &h, sizeof(h));
	for (uint32_t done = sizeof(h); done < bytes; done += 8) {
		const uint64_t word = filler(&h, i++);
		memcpy(at + done, &word, bytes - done < 8 ? bytes - done : 8);
	}
}

/* Is it whole? Its head is copied out first: the bytes may be the writer's. */
static bool read_record(const struct spr_record *rec, struct record_head *h)
{
	const unsigned char *at = rec->data;
	uint32_t i = 0, done = sizeof(*h);
	uint64_t tail;

	if (rec->bytes < sizeof(*h))
		return false;
	memcpy(h, at, sizeof(*h));
	if (h->bytes != rec->bytes || h->proof != proof_of(h))
		return false;
	for (; done + 8 <= h->bytes; done += 8) {
		uint64_t word;

		memcpy(&word, at + done, 8);
		if (word != filler(h, i++))
			return false;
	}
	tail = filler(h, i);
	return memcmp(at + done, &tail, h->bytes - done) == 0;
}

static void count_answer(struct tally_line *line, int err)
{
	if (err == -EAGAIN)
		spr_add_relaxed(&line->dropped, 1u);
	else if (err == -EPIPE)
		spr_add_relaxed(&line->refused, 1u);
	else if (err)
		spr_add_relaxed(&line->other, 1u);
}

int open_record(spr_writer *w, struct tally *t, uint32_t source, uint32_t bytes,
                struct spr_slot *slot)
{
	const int err = spr_reserve(w, 0, bytes, slot);

	if (err) {
		count_answer(&t->line[source], err);
		return err;
	}
	fill_record(slot->data, source, spr_add_relaxed(&t->line[source].taken, 1u), bytes);
	return 0;
}

int end_record(spr_writer *w, struct tally *t, uint32_t source, struct spr_slot *slot)
{
	const int err = spr_commit(w, slot);

	if (!err)
		spr_add_acq_rel(&t->line[source].committed, 1u); /* [RETURNED] */
	else
		count_answer(&t->line[source], err);
	return err;
}

int put_record(spr_writer *w, struct tally *t, uint32_t source, uint32_t bytes)
{
	struct spr_slot slot;
	const int err = open_record(w, t, source, bytes, &slot);

	return err ? err : end_record(w, t, source, &slot);
}

/* --- Check ------------------------------------------------------------------------------------ */

void check_open(struct check *c, struct tally *t)
{
	memset(c, 0, sizeof(*c));
	c->tally = t;
	c->n_slots = 1024;
	c->writers = calloc(c->n_slots, sizeof(*c->writers));
	c->sources = calloc(t ? t->n_lines : 1, sizeof(*c->sources));
}

void check_close(struct check *c)
{
	for (uint64_t i = 0; c->tally && i < c->tally->n_lines; i++)
		free(c->sources[i].bits);
	free(c->sources);
	free(c->writers);
	memset(c, 0, sizeof(*c));
}

void check_fault(struct check *c, const char *format, ...)
{
	va_list args;

	if (c->n_faults++)
		return;
	va_start(args, format);
	vsnprintf(c->fault, sizeof(c->fault), format, args);
	va_end(args);
}

static void grow_writers(struct check *c)
{
	struct seen_writer *old = c->writers;
	const uint64_t n_old = c->n_slots;

	c->n_slots *= 2;
	c->writers = calloc(c->n_slots, sizeof(*c->writers));
	c->n_writers = 0;
	for (uint64_t i = 0; i < n_old; i++) {
		if (old[i].used)
			*check_writer(c, old[i].writer) = old[i];
	}
	free(old);
}

struct seen_writer *check_writer(struct check *c, uint64_t writer)
{
	uint64_t i = mix(writer) & (c->n_slots - 1);

	while (c->writers[i].used && c->writers[i].writer != writer)
		i = (i + 1) & (c->n_slots - 1);
	if (c->writers[i].used)
		return &c->writers[i];
	if (c->n_writers * 2 >= c->n_slots) {
		grow_writers(c);
		return check_writer(c, writer);
	}
	c->n_writers++;
	c->writers[i] = (struct seen_writer){ .writer = writer, .used = true,
		                              .source = UINT32_MAX };
	return &c->writers[i];
}

static bool mark_source(struct seen_source *s, uint64_t counter)
{
	if (counter >= s->n_bits) {
		uint64_t n = s->n_bits ? s->n_bits : 1024;

		while (n <= counter)
			n *= 2;
		s->bits = realloc(s->bits, n / 8);
		memset((char *)s->bits + s->n_bits / 8, 0, (n - s->n_bits) / 8);
		s->n_bits = n;
	}
	if (s->bits[counter / 64] >> (counter % 64) & 1)
		return false;
	s->bits[counter / 64] |= 1ull << (counter % 64);
	s->delivered++;
	if (counter >= s->highest)
		s->highest = counter + 1;
	return true;
}

bool check_has(const struct check *c, uint32_t source, uint64_t counter)
{
	const struct seen_source *s = &c->sources[source];

	return counter < s->n_bits && (s->bits[counter / 64] >> (counter % 64) & 1);
}

static void check_own(struct check *c, struct seen_writer *w, const struct spr_record *rec)
{
	struct record_head h;

	if (!read_record(rec, &h)) {
		check_fault(c, "writer %llx seq %llu: %u bytes that nobody wrote",
		            (unsigned long long)w->writer, (unsigned long long)rec->seq,
		            rec->bytes);
		return;
	}
	if (h.source >= c->tally->n_lines || h.counter > 1ull << 40) {
		check_fault(c, "source %u counter %llu out of range", h.source,
		            (unsigned long long)h.counter);
		return;
	}
	if (w->source == UINT32_MAX)
		w->source = h.source;
	if (w->source != h.source)
		check_fault(c, "writer %llx carries sources %u and %u",
		            (unsigned long long)w->writer, w->source, h.source);
	if (h.counter < w->counter_next && !c->is_unordered)
		check_fault(c, "writer %llx source %u: counter %llu after %llu",
		            (unsigned long long)w->writer, h.source,
		            (unsigned long long)h.counter, (unsigned long long)w->counter_next - 1);
	w->counter_next = h.counter + 1;
	if (!mark_source(&c->sources[h.source], h.counter))
		check_fault(c, "source %u counter %llu came twice", h.source,
		            (unsigned long long)h.counter);
}

static void check_record(struct check *c, const struct spr_record *rec)
{
	struct seen_writer *w = check_writer(c, rec->writer);
	const bool is_late = rec->flags & SPR_LATE;

	if (w->is_gone)
		check_fault(c, "a record of writer %llx after it was gone",
		            (unsigned long long)rec->writer);
	if (c->is_resumed && !w->delivered)
		w->next_seq = rec->seq;
	if (c->is_by_time && rec->time_ns < w->last_time_ns)
		check_fault(c, "writer %llx: stamp %llu after %llu",
		            (unsigned long long)rec->writer, (unsigned long long)rec->time_ns,
		            (unsigned long long)w->last_time_ns);
	if (rec->seq < w->next_seq)
		check_fault(c, "writer %llx: seq %llu, expected %llu",
		            (unsigned long long)rec->writer, (unsigned long long)rec->seq,
		            (unsigned long long)w->next_seq);
	else
		w->gaps += rec->seq - w->next_seq, c->gaps += rec->seq - w->next_seq;
	w->next_seq = rec->seq + 1;
	w->delivered++;
	w->pid = rec->pid;
	w->tid = rec->tid;
	if (rec->time_ns && is_late != (rec->time_ns < c->until_ns))
		check_fault(c, "stamp %llu, tick %llu, LATE %d: writer %llx",
		            (unsigned long long)rec->time_ns, (unsigned long long)c->until_ns,
		            is_late, (unsigned long long)rec->writer);
	c->n_late += is_late;
	w->last_time_ns = rec->time_ns;
	c->n_records++;
	c->n_bytes += rec->bytes;
	if (rec->kind == SPR_KIND_BLIND)
		c->n_blind++;
	else if (!c->is_plain)
		check_own(c, w, rec);
}

void check_batch(struct check *c, spr_batch *b)
{
	struct spr_record rec;
	uint64_t n = 0;
	int more;

	c->n_batches++;
	while ((more = spr_batch_next(b, &rec)) > 0) {
		n++;
		if (c->skip_one_at && c->n_records == c->skip_one_at) {
			c->skip_one_at = 0;
			continue;
		}
		check_record(c, &rec);
	}
	if (more)
		check_fault(c, "spr_batch_next: %s", strerror(-more));
	if (!n)
		check_fault(c, "an empty batch");
}

static int sink_put(void *arg, spr_batch *b)
{
	struct check *c = arg;
	const int answer = c->put_hook ? c->put_hook(c->put_arg, b) : 0;

	if (answer)
		return answer;
	check_batch(c, b);
	return 0;
}

static int sink_tick(void *arg, uint64_t until_ns)
{
	struct check *c = arg;

	c->n_ticks++;
	if (until_ns < c->until_ns)
		check_fault(c, "tick %llu after %llu", (unsigned long long)until_ns,
		            (unsigned long long)c->until_ns);
	c->until_ns = until_ns;
	return 0;
}

static int sink_gone(void *arg, uint64_t writer, uint64_t written, uint64_t lost)
{
	struct check *c = arg;
	struct seen_writer *w = check_writer(c, writer);

	if (w->is_gone)
		check_fault(c, "writer %llx gone twice", (unsigned long long)writer);
	w->is_gone = true;
	if (written != w->delivered + lost || lost < w->gaps)
		check_fault(c,
		            "writer %llx gone: written %llu, delivered %llu, lost %llu, gaps %llu",
		            (unsigned long long)writer, (unsigned long long)written,
		            (unsigned long long)w->delivered, (unsigned long long)lost,
		            (unsigned long long)w->gaps);
	c->n_gone++;
	c->gone_written += written;
	c->gone_lost += lost;
	return 0;
}

void check_sink(struct check *c, struct spr_sink *out)
{
	*out = (struct spr_sink)SPR_SINK_INIT;
	out->arg = c;
	out->put = sink_put;
	out->tick = sink_tick;
	out->gone = sink_gone;
}

/* --- Rig ----------------------------------------------------------------------------------------
 */

/* What a failed case leaves is removed when its process ends. */
static char  folders[64][64];
static pid_t folders_pid;

static void remove_folders(void)
{
	for (int i = 0; i < 64 && folders_pid == getpid(); i++) {
		DIR *dir = folders[i][0] ? opendir(folders[i]) : NULL;

		if (!dir)
			continue;
		for (const struct dirent *e; (e = readdir(dir));)
			unlinkat(dirfd(dir), e->d_name, 0);
		closedir(dir);
		rmdir(folders[i]);
	}
}

void make_folder(char *folder, size_t room)
{
	const char *top = getenv("SPARRING_TEST_FOLDER");
	static unsigned next;

	if (!top)
		top = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(folder, room, "%s/spr-test-XXXXXX", top);
	assert_non_null(mkdtemp(folder));
	if (folders_pid != getpid()) {
		folders_pid = getpid();
		memset(folders, 0, sizeof(folders));
		atexit(remove_folders);
	}
	snprintf(folders[next++ % 64], sizeof(folders[0]), "%s", folder);
}

void rig_open_in(struct rig *r, const char *folder, uint32_t flags,
                 const struct spr_channel_options *opt, uint32_t n_sources)
{
	struct spr_channel_options mine = SPR_CHANNEL_OPTIONS_INIT;
	struct spr_sink sink;
	char address[128];
	int err;

	memset(r, 0, sizeof(*r));
	snprintf(r->folder, sizeof(r->folder), "%s", folder);
	mine.capacity_bytes = 64u << 20;
	snprintf(address, sizeof(address), "ring:%s", folder);
	err = spr_channel_open(&r->ch, address, opt ? opt : &mine);
	if (err)
		print_message("    %s: %s\n", address, spr_error_text());
	assert_int_equal(err, 0);
	snprintf(r->address, sizeof(r->address), "%s", spr_channel_address(r->ch));
	r->tally = tally_open(n_sources);
	check_open(&r->check, r->tally);
	if (flags & RIG_EMBEDDED)
		return;
	err = spr_collector_open(&r->c, (flags & RIG_READ ? SPR_READ : 0) |
	                                        (flags & RIG_PLAIN ? SPR_PLAIN : 0));
	assert_int_equal(err, 0);
	check_sink(&r->check, &sink);
	assert_int_equal(spr_collector_add(r->c, r->ch, &sink), 0);
}

void rig_open(struct rig *r, uint32_t flags, const struct spr_channel_options *opt,
              uint32_t n_sources)
{
	char folder[64];

	make_folder(folder, sizeof(folder));
	rig_open_in(r, folder, flags, opt, n_sources);
}

int64_t rig_step(struct rig *r, int timeout_ms)
{
	int64_t n;

	if (!r->c) {
		sleep_us((uint64_t)timeout_ms * 1000 / 4);
		return 0;
	}
	n = spr_collector_step(r->c, timeout_ms);
	if (n == -ENODATA) {
		r->is_drained = true;
		return 0;
	}
	if (n < 0)
		check_fault(&r->check, "spr_collector_step: %s (%s)", strerror((int)-n),
		            spr_error_text());
	return n < 0 ? 0 : n;
}

void rig_settle(struct rig *r, int quiet_ms)
{
	while (rig_step(r, quiet_ms) > 0)
		;
}

static void walk_all(struct rig *r)
{
	spr_batch *b = NULL;
	int more;

	while ((more = spr_channel_walk(r->ch, &b)) > 0)
		check_batch(&r->check, b);
	if (more)
		check_fault(&r->check, "spr_channel_walk: %s", strerror(-more));
}

void rig_finish(struct rig *r)
{
	if (!r->is_sealed)
		assert_int_equal(spr_channel_seal(r->ch), 0);
	r->is_sealed = true;
	if (r->c) {
		while (!r->is_drained && !r->check.n_faults)
			rig_step(r, 1000);
	} else {
		walk_all(r);
		r->is_drained = true;
	}
	r->stats = (struct spr_stats)SPR_STATS_INIT;
	assert_int_equal(spr_channel_stats(r->ch, &r->stats), 0);
}

static void print_sums(const struct rig *r, const struct tally_line *sum)
{
	const struct spr_stats *s = &r->stats;

	print_message(
		"    stats: written %llu delivered %llu lost %llu pending %llu refused %llu\n",
		(unsigned long long)s->written, (unsigned long long)s->delivered,
		(unsigned long long)s->lost, (unsigned long long)s->pending,
		(unsigned long long)s->refused);
	print_message("    sink:  %llu records, gaps %llu, gone %llu (written %llu lost %llu), "
	              "late %llu\n",
	              (unsigned long long)r->check.n_records, (unsigned long long)r->check.gaps,
	              (unsigned long long)r->check.n_gone,
	              (unsigned long long)r->check.gone_written,
	              (unsigned long long)r->check.gone_lost, (unsigned long long)r->check.n_late);
	print_message(
		"    tally: taken %llu committed %llu dropped %llu refused %llu abandoned %llu "
		"other %llu\n",
		(unsigned long long)spr_load_relaxed(&sum->taken),
		(unsigned long long)spr_load_relaxed(&sum->committed),
		(unsigned long long)spr_load_relaxed(&sum->dropped),
		(unsigned long long)spr_load_relaxed(&sum->refused),
		(unsigned long long)spr_load_relaxed(&sum->abandoned),
		(unsigned long long)spr_load_relaxed(&sum->other));
	if (r->check.n_faults)
		print_message("    %llu faults, the first: %s\n",
		              (unsigned long long)r->check.n_faults, r->check.fault);
}

/* Every source: what commit promised arrived, and nothing that was never taken. */
static bool sources_hold(const struct rig *r, bool killed)
{
	for (uint64_t i = 0; i < r->tally->n_lines; i++) {
		const struct tally_line *line = &r->tally->line[i];
		const struct seen_source *s = &r->check.sources[i];
		const uint64_t committed = spr_load_relaxed(&line->committed);
		const uint64_t taken = spr_load_relaxed(&line->taken);
		const uint64_t most = killed ? taken : committed;

		if (s->delivered >= committed && s->delivered <= most && s->highest <= taken)
			continue;
		print_message("    source %llu: taken %llu, committed %llu, delivered %llu, "
		              "highest %llu\n",
		              (unsigned long long)i, (unsigned long long)taken,
		              (unsigned long long)committed, (unsigned long long)s->delivered,
		              (unsigned long long)s->highest);
		return false;
	}
	return true;
}

static void expect_exact(struct rig *r, bool killed)
{
	const struct tally_line sum = tally_sum(r->tally);
	const struct spr_stats *s = &r->stats;
	const uint64_t dropped = spr_load_relaxed(&sum.dropped);
	const uint64_t refused = spr_load_relaxed(&sum.refused);
	bool ok = r->is_drained && !r->check.n_faults && !spr_load_relaxed(&sum.other);

	ok = ok && s->written == s->delivered + s->lost + s->pending && s->pending == 0;
	ok = ok && s->delivered == r->check.n_records && s->written_bytes == r->check.n_bytes;
	ok = ok && r->check.gaps <= s->lost;
	ok = ok && sources_hold(r, killed);
	/* A producer may die between the library's count and its own. */
	ok = ok && (killed ? s->lost >= dropped : s->lost == dropped);
	ok = ok && (killed ? s->refused >= refused : s->refused == refused);
	if (!ok)
		print_sums(r, &sum);
	assert_true(ok);
}

void rig_expect_exact(struct rig *r)
{
	expect_exact(r, false);
}

void rig_expect_exact_after_kills(struct rig *r)
{
	expect_exact(r, true);
}

void rig_close(struct rig *r)
{
	if (r->c)
		assert_int_equal(spr_collector_close(r->c), 0);
	if (r->ch)
		assert_int_equal(spr_channel_close(r->ch), 0);
	check_close(&r->check);
	tally_close(r->tally);
	if (rmdir(r->folder))
		fail_msg("%s: %s: something was left behind", r->folder, strerror(errno));
	memset(r, 0, sizeof(*r));
}

uint64_t rig_resident(struct rig *r)
{
	struct spr_stats s = SPR_STATS_INIT;

	assert_int_equal(spr_channel_stats(r->ch, &s), 0);
	return s.resident_bytes;
}

/* The children end on their own; the bound is for a ring that hangs them. */
#define HANG_NS 60000000000u

void rig_run(struct rig *r, const pid_t *pids, int *status, uint32_t n)
{
	const uint64_t hang_ns = test_now_ns() + HANG_NS;
	uint32_t n_ended = 0;
	bool *ended = calloc(n, sizeof(*ended));

	while (n_ended < n) {
		for (uint32_t i = 0; i < n; i++) {
			if (!ended[i] && waitpid(pids[i], &status[i], WNOHANG) == pids[i]) {
				ended[i] = true;
				n_ended++;
			}
		}
		if (test_now_ns() > hang_ns) {
			check_fault(&r->check, "%u of %u children hang", n - n_ended, n);
			for (uint32_t i = 0; i < n; i++) {
				if (!ended[i])
					kill(pids[i], SIGKILL);
			}
		}
		if (n_ended < n)
			rig_step(r, 2);
	}
	free(ended);
}

void rig_run_expecting_zero(struct rig *r, const pid_t *pids, uint32_t n)
{
	int *status = calloc(n, sizeof(*status));
	uint32_t n_wrong = 0;

	rig_run(r, pids, status, n);
	for (uint32_t i = 0; i < n; i++) {
		if (status[i] && !n_wrong++)
			print_message("    child %u: status %#x\n", i, (unsigned)status[i]);
	}
	free(status);
	if (r->check.n_faults)
		print_message("    %s\n", r->check.fault);
	assert_int_equal(n_wrong, 0);
}

/* Read, not mapped: a look must not make pages exist. */
static void read_file(const struct rig *r, void *into, size_t n_bytes, uint64_t at)
{
	const int fd = open(rig_path(r), O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, into, n_bytes, (off_t)at), n_bytes);
	close(fd);
}

const char *rig_path(const struct rig *r)
{
	return strchr(r->address, ':') + 1;
}

uint32_t rig_segments_owned(const struct rig *r)
{
	struct spr_ring_header header;
	struct spr_ring_geometry g = { 0 };
	uint32_t n_owned = 0;

	read_file(r, &header, sizeof(header), 0);
	assert_true(spr_ring_geometry_init(&g, header.n_segments));
	for (uint32_t c = 0; c < SPR_RING_CLASSES; c++) {
		const size_t n_bytes = g.n_segments[c] * sizeof(struct spr_ring_desc);
		struct spr_ring_desc *desc = malloc(n_bytes);

		read_file(r, desc, n_bytes, g.desc_at[c]);
		for (uint32_t i = 0; i < g.n_segments[c]; i++)
			n_owned += spr_ring_owner_is_owned(spr_load_relaxed(&desc[i].owner));
		free(desc);
	}
	return n_owned;
}

uint32_t rig_slots_taken(const struct rig *r)
{
	const size_t n_bytes = SPR_RING_SLOTS * sizeof(struct spr_ring_slot);
	struct spr_ring_slot *slots = malloc(n_bytes);
	uint32_t n_taken = 0;

	read_file(r, slots, n_bytes, SPR_RING_SLOTS_AT);
	for (uint32_t i = 0; i < SPR_RING_SLOTS; i++)
		n_taken += spr_load_relaxed(&slots[i].state) != SPR_SLOT_FREE;
	free(slots);
	return n_taken;
}

void rig_expect_all_back(struct rig *r)
{
	const uint64_t hang_ns = test_now_ns() + 20000000000u;

	while ((rig_segments_owned(r) || rig_slots_taken(r)) && test_now_ns() < hang_ns)
		rig_step(r, 20);
	assert_int_equal(rig_segments_owned(r), 0);
	assert_int_equal(rig_slots_taken(r), 0);
}

/* --- Processes -----------------------------------------------------------------------------------
 */

static const int cmocka_catches[] = { SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS };

pid_t spawn(int (*role)(struct rig *r, uint32_t arg), struct rig *r, uint32_t arg)
{
	const pid_t parent = getpid();
	const pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(99);
	/* A failed assertion, a fault: they must not go on with the other tests in here. */
	setenv("CMOCKA_TEST_ABORT", "1", 1);
	for (size_t i = 0; i < sizeof(cmocka_catches) / sizeof(*cmocka_catches); i++)
		signal(cmocka_catches[i], SIG_DFL);
	_exit(role(r, arg));
}

int wait_for(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -1;
	}
	return status;
}

void expect_exit(pid_t pid, int code)
{
	const int status = wait_for(pid);

	if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
		fail_msg("child ended with status %#x, expected exit %d", (unsigned)status, code);
}

void child_failed(const char *file, int line, const char *what)
{
	dprintf(2, "    %s:%d: in a child: not true: %s\n", file, line, what);
	_exit(98);
}

spr_producer *attach_or_exit(const char *address)
{
	spr_producer *p = NULL;
	const int err = spr_attach(&p, address);

	if (err) {
		dprintf(2, "    attach %s: %s (%s)\n", address, strerror(-err), spr_error_text());
		_exit(97);
	}
	return p;
}

static void write_line(const char *path, const char *text)
{
	const int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		if (write(fd, text, strlen(text)) < 0)
			dprintf(2, "    %s: %s\n", path, strerror(errno));
		close(fd);
	}
}

int enter_small_tmpfs(const char *path, uint64_t size_bytes)
{
	const uid_t uid = getuid();
	const gid_t gid = getgid();
	char text[64];

	if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS))
		return -errno;
	if (uid) {
		write_line("/proc/self/setgroups", "deny");
		snprintf(text, sizeof(text), "%u %u 1", uid, uid);
		write_line("/proc/self/uid_map", text);
		snprintf(text, sizeof(text), "%u %u 1", gid, gid);
		write_line("/proc/self/gid_map", text);
	}
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -errno;
	snprintf(text, sizeof(text), "size=%llu,mode=0777", (unsigned long long)size_bytes);
	if (mount("tmpfs", path, "tmpfs", 0, text))
		return -errno;
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * sparring.h - the whole public interface of libsparring, and its manual.
 *
 *   target process                          the collector's process
 *   spr_producer                            spr_channel
 *     spr_writer (one per thread) --------->  spr_collector --spr_batch--> spr_sink
 *       reserve / commit         transport      step, wake, fd               yours, or a
 *                                ring: arena: pipe: unix: bpf:               spr_encoder --> trace
 *                                                                            spr_trace  <--
 *
 * Said once, true everywhere:
 *   Errors     int results are >= 0 on success and -errno on failure; errno is left alone.
 *              "E:" names what a function returns beside -EINVAL and, for what makes a
 *              handle, -ENOMEM. spr_error_text() has the sentence.
 *   Ownership  What open or attach gives, close or detach takes back; NULL is a no-op.
 *              Pointers passed in are borrowed for the call unless "kept until" is said.
 *   Threads    One handle, one thread at a time, except "T: any".
 *   Signals    "S": may be called from a signal handler, a malloc hook, between fork or
 *              vfork and exec; takes no lock, allocates nothing, touches no dynamic TLS.
 *   Fork       A producer survives fork: the child's threads get writers of their own at
 *              their first record. No other handle does.
 *   Structs    Sized ones start from their _INIT, grow at the end, and zero is always the
 *              default; an older library refuses (-E2BIG) a newer field that is not zero.
 *              Frozen ones never change. In options, fd 0 without `write` is -EINVAL.
 *   Platform   Linux, x86-64 first; aarch64 compiles and passes the conformance suite.
 */
#ifndef SPARRING_SPARRING_H
#define SPARRING_SPARRING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SPR_API /* the sender's library hides even these */
#define SPR_API __attribute__((visibility("default")))
#endif
#define SPR_CHECK __attribute__((warn_unused_result))

#define SPR_VERSION_MAJOR 0
#define SPR_VERSION_MINOR 1
SPR_API unsigned spr_version(void); /* major << 16 | minor of the library loaded. T: any. S. */

/* A typedef is a handle: nothing inside is yours. A struct you may fill or read. */
typedef struct spr_channel   spr_channel;
typedef struct spr_producer  spr_producer;
typedef struct spr_writer    spr_writer;
typedef struct spr_collector spr_collector;
typedef struct spr_batch     spr_batch;
typedef struct spr_encoder   spr_encoder;
typedef struct spr_trace     spr_trace;

/* --- Kinds: what records look like ---------------------------------------------- */

/*
 * A channel declares the kinds of record it carries and every trace repeats the
 * declaration, so a trace can be read, exported and compressed by column without the
 * program that wrote it. A record's bytes are its fields in order, little endian, without
 * padding; STRING and BYTES are a uint16_t length and that many bytes; an OPTIONAL field
 * is one byte, 0 (absent, nothing follows) or 1. Kind 0 is "bytes": one opaque field.
 */
enum spr_type {
	SPR_U8 = 1, SPR_U16, SPR_U32, SPR_U64, SPR_I32, SPR_I64,
	SPR_HEX64,  /* an address or a bit set: delta-coded per writer, shown in hex */
	SPR_STRING, /* text by custom, any bytes in fact (paths) */
	SPR_BYTES,
};
#define SPR_OPTIONAL (1u << 0)
#define SPR_ENUM     (1u << 1) /* an unsigned type: shown as labels[value] */
#define SPR_FLAGS    (1u << 2) /* an unsigned type: shown as the list of labels[bit] */
#define SPR_LIST     (1u << 3) /* STRING or BYTES: a uint16_t count, then so many of them */
struct spr_field { /* frozen */
	const char *name; /* as in JSON and column names */
	uint32_t    type; /* enum spr_type */
	uint32_t    flags;
	const char *const *labels;
	uint32_t    n_labels;
	uint32_t    reserved[3];
};
struct spr_kind { /* frozen */
	const char             *name;
	const struct spr_field *fields;
	uint32_t                n_fields;
	uint32_t                reserved;
};

/* The kinds of our own spies, ordinary declarations: "process", "file", "result"; "memory". */
SPR_API extern const struct spr_kind spr_kinds_files[3];
SPR_API extern const struct spr_kind spr_kind_memory;
#define SPR_KIND_BLIND 65535u /* on every channel: pid, reason, text */

/* --- Channel: the receiving end, owner of the backing object -------------------- */

struct spr_channel_options { /* sized */
	uint32_t size;
	uint32_t flags;            /* SPR_UNSTAMPED, SPR_DROP; an unknown bit is -EINVAL */
	uint64_t capacity_bytes;   /* most that may wait unread, address space, sparse; 0: default
	                            * (ring:, arena: 1 GiB, less under RLIMIT_AS; bpf: 16 MiB) */
	uint32_t record_bytes_max; /* default and most: 64 KiB */
	uint32_t stall_ms;         /* full: how long one writer may wait in all before records
	                            * are dropped and counted; default 1000; UINT32_MAX: as long
	                            * as the collector lives. Without a collector: not at all */
	uint32_t batch_bytes;      /* pipe:, unix: 0 sends each record at commit; else when so
	                            * much has gathered, or at spr_writer_flush(): commit then
	                            * promises nothing; what a killed writer held is counted */
	uint32_t drain_ms;         /* pipe:, unix: after seal, how long accepted connections are
	                            * read on towards their end; default 1000 */
	const struct spr_kind *kinds; /* copied; kinds[0] is kind 1 */
	uint32_t n_kinds;
	uint32_t reserved;
};
#define SPR_CHANNEL_OPTIONS_INIT                                                                   \
	{                                                                                          \
		sizeof(struct spr_channel_options), 0, 0, 0, 0, 0, 0, NULL, 0, 0                   \
	}
#define SPR_UNSTAMPED (1u << 0) /* no time stamps: order within a writer only, ~9 ns less */
#define SPR_DROP      (1u << 1) /* full: drop and count at once */
#define SPR_GUARD     (1u << 2) /* a process-wide SIGBUS handler that covers this channel's
                                 * mapping alone and hands every other fault on: somebody who
                                 * truncates the file under us makes the verdict incomplete
                                 * instead of killing the collector. Off: no handler at all */

/* Create what `address` names: "ring:", "pipe:", ... with nothing after the colon for a
 * private place, or a folder to make it in.
 * E: -EEXIST, -ENOSPC, -EACCES, -ENOTSUP (scheme not built, or the kernel lacks it). */
SPR_API SPR_CHECK int spr_channel_open(spr_channel **out, const char *address,
                                       const struct spr_channel_options *opt);
/* What a producer attaches to; valid until close. Printable, no '=' or newline, fits an
 * environment variable. */
SPR_API const char *spr_channel_address(const spr_channel *ch);
SPR_API const struct spr_kind *spr_channel_kinds(const spr_channel *ch, uint32_t *n);
/* What a dead collector left in a folder: sealed, to walk or to add. E: -ENOENT, -EPROTO,
 * -EBUSY (it lives). */
SPR_API SPR_CHECK int spr_channel_recover(spr_channel **out, const char *folder);
/* bpf: has kernel producers only: the ring buffer map to hand to them; what they put into
 * it and where they count losses is in sparring/sparring_bpf.h. E: -ENOTSUP. */
SPR_API int spr_channel_bpf_map_fd(const spr_channel *ch);

/* Shut the gate: what was committed before is delivered; what comes later is refused
 * (-EPIPE), counted as refused, and never waited for. Again: a no-op. T: any. */
SPR_API int spr_channel_seal(spr_channel *ch);
/* After seal, without a collector: the next batch of what is there, in place; start with
 * *batch = NULL; 1, or 0 at the end. Any number of walks, each its own cursor; T: any.
 * Batches stay valid until spr_channel_close(); stopping early needs no call. From the seal
 * on everything committed counts as delivered. The bytes of a writer that still lives could
 * change under a hostile one: copy before you trust.
 * E: -EBUSY (not sealed, or a collector owns it), -EPROTO (one writer's nonsense; go on). */
SPR_API SPR_CHECK int spr_channel_walk(spr_channel *ch, spr_batch **batch);
/* Seal if need be, unlink, release. Never waits for a writer. E: -EBUSY (kept batches: then
 * nothing is released). */
SPR_API int spr_channel_close(spr_channel *ch);

/* written == delivered + lost + pending, exact after seal, a snapshot before; pending is 0
 * once drained. written is what the writers' own sequence numbers say, never computed. */
struct spr_stats { /* sized */
	uint32_t size, n_writers; /* all there have ever been: a thread may have several */
	uint64_t written, delivered, lost, pending, refused; /* records; written and lost are
	                                                      * counted by the writers */
	uint64_t written_bytes, resident_bytes; /* payload; of the backing object, now */
	uint64_t stalls, wakes, wakes_missed;   /* writers' waits for room; sleeps of the collector;
	                                         * those that only the backstop ended: 0 */
};
#define SPR_STATS_INIT { sizeof(struct spr_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
SPR_API SPR_CHECK int spr_channel_stats(const spr_channel *ch, struct spr_stats *out); /* T: any */

/* --- Verdict: what a recording is worth ----------------------------------------- */

/* Transport: did everything written arrive. */
#define SPR_LOST         (1u << 0) /* dropped when full, or malformed: counted */
#define SPR_LEFT_RUNNING (1u << 1) /* processes still attached and alive at seal, by pid */
#define SPR_CUT          (1u << 2) /* the trace has no end */
/* Coverage: was everything that happened written. Each with records of kind "blind". */
#define SPR_BLIND        (1u << 8) /* some task or some way of acting could not be seen */
struct spr_verdict { /* sized */
	uint32_t size, reasons; /* 0: complete */
	uint64_t delivered, lost, left_running, blind;
	uint64_t refused; /* came after the seal */
};
#define SPR_VERDICT_INIT { sizeof(struct spr_verdict), 0, 0, 0, 0, 0, 0 }
SPR_API SPR_CHECK int spr_channel_verdict(const spr_channel *ch, struct spr_verdict *out);

/* --- Producer and writers ------------------------------------------------------- */

/* One per process and channel, up to eight channels. Leaves no descriptor open in the
 * process on ring: and arena:; calls no malloc and no function that a preload library may
 * hook. Fails at once when nobody receives; never hangs.
 * E: -ENOENT, -ECONNREFUSED, -EPIPE (sealed), -EALREADY, -EACCES, -EPROTO (not ours, or
 * another layout). */
SPR_API SPR_CHECK int spr_attach(spr_producer **out, const char *address);
/* No writer of it may be in use any more; undrained records stay the collector's. */
SPR_API void spr_detach(spr_producer *p);
SPR_API int spr_kind_find(const spr_producer *p, const char *name); /* E: -ENOENT. S. */
/* "What pid (0: this process) does now cannot be seen": a record of SPR_KIND_BLIND. T: any. S. */
SPR_API void spr_producer_blind(spr_producer *p, uint32_t pid, const char *reason,
                                const char *text);
/* From here on (and in forked children) memory operations only: the process has put a
 * filter on its system calls. What then finds no room is dropped and counted. T: any. S. */
SPR_API void spr_producer_confine(spr_producer *p);

/* This thread's writer, made at its first call; never NULL (one that only counts losses
 * when there is no room). After fork the child's call gives a fresh one. T: any. S. */
SPR_API spr_writer *spr_writer_here(spr_producer *p);
/* With batch_bytes: what has gathered is sent. Else nothing. S. E: -EPIPE, -EAGAIN. */
SPR_API int spr_writer_flush(spr_writer *w);
/* This thread writes no more. Not needed: the collector takes back what dead threads held. */
SPR_API void spr_writer_end(spr_producer *p);

/* A record being written in place. Fill data[0..bytes); time_ns may be overwritten. */
struct spr_slot { /* frozen */
	void    *data;
	uint64_t time_ns; /* stamped at reserve; 0 if unstamped */
	uint32_t bytes;
	uint32_t reserved;
	uint64_t token[2];
};
/* Room for a record, ended by one commit or abandon on the same thread, in any nesting. The
 * slot is kept until then and must not move (its place on the stack is how an abandoned
 * record is told from an open one). A signal handler may write between the two (up to four deep);
 * its record does not wait for the outer one, and only stamps order the two. A record that was
 * jumped away from (longjmp) or whose process died never was, and its lane is taken back. S. E:
 * -EMSGSIZE, -EAGAIN (full past stall_ms: counted), -EPIPE (sealed: counted). */
SPR_API SPR_CHECK int spr_reserve(spr_writer *w, uint32_t kind, uint32_t bytes,
                                  struct spr_slot *slot);
/* The same, about another task (a vfork child, a process watched from outside). S. */
SPR_API SPR_CHECK int spr_reserve_for(spr_writer *w, uint32_t pid, uint32_t tid, uint32_t kind,
                                      uint32_t bytes, struct spr_slot *slot);
/* 0 (and no batch_bytes): the record is the collector's, whatever becomes of this process.
 * E: -EPIPE (the gate shut in between), on pipe: and unix: also -EAGAIN. S. */
SPR_API int spr_commit(spr_writer *w, struct spr_slot *slot);
SPR_API void spr_abandon(spr_writer *w, struct spr_slot *slot); /* S. */
/* reserve, copy, commit: all of it or none. S. */
SPR_API SPR_CHECK int spr_write(spr_writer *w, uint32_t kind, const void *data, uint32_t bytes);

/* --- Collector: takes batches from channels, hands them to sinks ---------------- */

struct spr_record { /* frozen */
	const void *data;
	uint32_t    bytes;
	uint16_t    kind;
	uint16_t    flags;   /* SPR_LATE, SPR_HAS_ID */
	uint64_t    time_ns; /* CLOCK_MONOTONIC; 0 if unstamped */
	uint64_t    seq;     /* within the writer, from 0, no gap but the lost ones */
	uint64_t    writer;  /* never used twice in a collector; a thread may have several */
	int32_t     pid, tid; /* whom it is about, in the collector's pid namespace */
	uint64_t    reserved[2];
};
#define SPR_LATE   (1u << 0) /* stamped before a tick that has passed: its writer was held up */
#define SPR_HAS_ID (1u << 1) /* pid and tid are known */

/* Records of one writer, in order: while (spr_batch_next(b, &rec) > 0) ... E: -EPROTO. */
SPR_API int  spr_batch_next(spr_batch *b, struct spr_record *rec);
SPR_API void spr_batch_rewind(spr_batch *b);
SPR_API const spr_channel *spr_batch_channel(const spr_batch *b);
SPR_API void spr_batch_release(spr_batch *b); /* of a kept one. T: any. */

struct spr_sink { /* sized */
	uint32_t size, flags;
	void *arg;
	/* 0 takes the batch, its bytes are then reused; 1 keeps it, in place, until
	 * spr_batch_release(), in any order and soon (by the next tick): its room is the
	 * writers'. -EAGAIN: offer it again after spr_collector_wake() or 1 ms; meanwhile the
	 * channel rests and the fd is quiet. Any other error ends step().
	 * Must not call into the collector, spr_collector_wake() aside. */
	int (*put)(void *arg, spr_batch *b);
	/* Once per pass, after all channels: what was committed before until_ns, the start of
	 * the pass, has been put; older stamps that still come are flagged LATE. */
	int (*tick)(void *arg, uint64_t until_ns);
	/* This writer is gone for good. */
	int (*gone)(void *arg, uint64_t writer, uint64_t written, uint64_t lost);
	/* The collector it was added to, whom to wake after -EAGAIN; NULL at its close. */
	void (*bind)(void *arg, spr_collector *c);
};
#define SPR_SINK_INIT { sizeof(struct spr_sink), 0, NULL, NULL, NULL, NULL, NULL }

/* flags: SPR_PLAIN (no io_uring), SPR_READ (copy out of the file instead of reading the
 * mapping: for writers one does not trust with the file's length). Same records. */
#define SPR_PLAIN (1u << 0)
#define SPR_READ  (1u << 1)
SPR_API SPR_CHECK int spr_collector_open(spr_collector **out, uint32_t flags);
/* ch: kept until spr_collector_close(), closed by you afterwards. sink: copied. */
SPR_API SPR_CHECK int spr_collector_add(spr_collector *c, spr_channel *ch,
                                        const struct spr_sink *sink);
/* Wait up to timeout_ms (-1: for ever), deliver what is there. Number of records; 0: a
 * timeout or a wake. E: -ENODATA (every channel is sealed and drained: the end),
 * -EPROTO (a writer left nonsense, counted; the others go on), put's. */
SPR_API SPR_CHECK int64_t spr_collector_step(spr_collector *c, int timeout_ms);
SPR_API void spr_collector_wake(spr_collector *c);     /* a waiting step returns. T: any. S. */
/* Readable when step would not wait, up to 2 ms late while records keep coming. E: as open. */
SPR_API int  spr_collector_fd(const spr_collector *c);
SPR_API int  spr_collector_close(spr_collector *c); /* E: -EBUSY (kept batches) */

/* --- Encoder: parallel zstd, frames in the order of put ------------------------- */

struct spr_encoder_options { /* sized */
	uint32_t size, flags;   /* SPR_GIVEN_ORDER */
	const char *format;     /* "spr" (default), "memtrack" */
	uint32_t workers;       /* default: one per CPU, the collector's share left free */
	int32_t  level;         /* zstd level; 0: the format's default */
	uint32_t frame_records; /* a frame ends at so many records; default 65536 */
	uint32_t frame_bytes;   /* or at so many bytes as put; default 8 MiB; not in "memtrack" */
	const struct spr_kind *kinds;
	uint32_t n_kinds;
	int32_t  fd;            /* kept until close, closed by you; unused if there is: */
	int (*write)(void *arg, const void *bytes, size_t n); /* all of it: 0, or -errno */
	void *arg;
};
#define SPR_ENCODER_OPTIONS_INIT \
	{ sizeof(struct spr_encoder_options), 0, NULL, 0, 0, 0, 0, NULL, 0, -1, NULL, NULL }
#define SPR_GIVEN_ORDER (1u << 0) /* keep the order of put; default: by time, between ticks */
SPR_API SPR_CHECK int spr_encoder_open(spr_encoder **out, const struct spr_encoder_options *opt);
/* To add to a collector, any number of times: kinds are matched by name. Its put answers
 * -EAGAIN while the workers are behind, so a slow disk ends in the channel's full policy. */
SPR_API SPR_CHECK int spr_encoder_sink(spr_encoder *e, struct spr_sink *out);
/* Records of your own; recs and their data stay yours and unchanged until `done` (may be
 * NULL: then both are copied), called once, by any thread, also when this fails. Waits while
 * the workers are behind. A record unlike its kind is counted as lost. */
SPR_API SPR_CHECK int spr_encoder_put(spr_encoder *e, const struct spr_record *recs, size_t n,
                                      void (*done)(void *arg), void *arg);
SPR_API SPR_CHECK int spr_encoder_tick(spr_encoder *e, uint64_t until_ns);
/* Everything put so far can be read from the file. E: the first write error, for good. */
SPR_API SPR_CHECK int spr_encoder_sync(spr_encoder *e);
/* Verdict: what the encoder saw itself and `more` (may be NULL), then the seek table, which
 * is the end mark. The data is safe only if this returns 0. */
SPR_API SPR_CHECK int spr_encoder_close(spr_encoder *e, const struct spr_verdict *more);

/* --- Trace: reading what an encoder wrote --------------------------------------- */

struct spr_trace_options { /* sized */
	uint32_t size, flags;    /* SPR_FOLLOW: wait for more at the end of a growing one */
	uint32_t workers;
	uint32_t n_fields;       /* only these columns ("kind.field"); 0: all. Records of other
	                          * kinds come without fields; an unknown name is -EINVAL */
	const char *const *fields;
};
#define SPR_TRACE_OPTIONS_INIT { sizeof(struct spr_trace_options), 0, 0, 0, NULL }
#define SPR_FOLLOW (1u << 0) /* next: -EAGAIN for now; SPR_CUT once its recorder is gone */
/* fd: a file (from where it stands), a pipe or a concatenation of traces; kept until close,
 * closed by you. E: -EPROTO (no trace, another version, cut within its header), -EISDIR,
 * -EAGAIN (SPR_FOLLOW: the header is not there yet). */
SPR_API SPR_CHECK int spr_trace_open(spr_trace **out, int fd, const struct spr_trace_options *opt);
/* As projected: they describe rec->data. A later trace of a concatenation may add some: what is
 * there stays, in the same place. */
SPR_API const struct spr_kind *spr_trace_kinds(const spr_trace *t, uint32_t *n);
struct spr_value { /* frozen; one field of a record */
	const void *bytes;   /* STRING, BYTES: of element 0; the next element's uint16_t length
	                      * stands right behind it */
	uint64_t    number;  /* the value, signed ones sign-extended; STRING, BYTES: elements */
	uint32_t    n;       /* STRING, BYTES: how many bytes element 0 has */
	uint32_t    present; /* 0: an OPTIONAL one that is absent */
};
/* kind NULL: rec is of kind 0 (its one field is all of it) or "blind". */
SPR_API int spr_record_field(const struct spr_kind *kind, const struct spr_record *rec,
                             uint32_t field, struct spr_value *out); /* E: -EPROTO */
/* The next record in the trace's order; 1, 0 at the end. rec->data is valid until the next.
 * E: -EBADMSG (a frame is damaged: named by spr_error_text(); the next call goes on). */
SPR_API SPR_CHECK int spr_trace_next(spr_trace *t, struct spr_record *rec);
/* Frames, without decoding them; spans may overlap (LATE records). E: -ERANGE, -ESPIPE. */
struct spr_frame { /* frozen */
	uint64_t at, bytes, content_bytes, records, first_ns, last_ns;
	uint64_t reserved[2];
};
SPR_API SPR_CHECK int spr_trace_frame(spr_trace *t, uint64_t index, struct spr_frame *out);
SPR_API SPR_CHECK int spr_trace_seek_frame(spr_trace *t, uint64_t index);
SPR_API SPR_CHECK int spr_trace_seek(spr_trace *t, uint64_t time_ns); /* E: -ESPIPE */
/* Of all traces in it, and what was found damaged so far. E: -ENODATA (the file carries none:
 * memtrack's own), -EAGAIN (a pipe not read to its end, a trace that still grows). */
SPR_API SPR_CHECK int spr_trace_verdict(spr_trace *t, struct spr_verdict *out);
SPR_API void spr_trace_close(spr_trace *t);

/* --- Asking --------------------------------------------------------------------- */

/* "ring", "bpf", "io_uring", ...: 1 usable here, 0 not built, -errno why not.
 * SPARRING_DISABLE=io_uring,bpf makes them -ENOTSUP. T: any. */
SPR_API int spr_probe(const char *feature);
/* Why this thread's last open, attach, add or next failed; valid until its next. */
SPR_API const char *spr_error_text(void);

#ifdef __cplusplus
}
#endif
#endif /* SPARRING_SPARRING_H */

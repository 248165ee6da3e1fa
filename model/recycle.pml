/* SPDX-License-Identifier: MIT */
/*
 * recycle.pml - a segment's life: claim, commit, hop, full, close, death, drain, free, punch.
 *
 * Checks COMMIT, CONSUME, CLOSE, FREE, CLAIM, INUSE and DEATH, and invariants 1 to 6. One atomic
 * block is one access to shared memory; what a block does beside it is private or a ghost (g_...).
 * A writer may die before any of its stores: the kernel then drops its lock.
 *
 * Faults, one -D each:
 *   FAULT_COMMITTED_BEFORE_CLOSED    (a)  FAULT_COMMITTED_BEFORE_DEATH  (a, for the dead)
 *   FAULT_IDENTITY_BEFORE_COMMITTED  (b)  FAULT_ORDINAL_LEFT            (b, its second half)
 *   FAULT_NO_LAST_LOOK               (d)  FAULT_FREE_UNPOPULATED        (h)
 *   FAULT_DEATH_AFTER_OWNER: a claim may be undone between the two, its owner die, another claim
 *   FAULT_ANY_ORDINAL: the first segment found is taken for the lane's next
 *   FAULT_EMPTY_OUT_OF_TURN: a closed segment without records is freed at once
 *   FAULT_REAP_BY_INUSE: after a death, only segments with their bit in inuse are looked at
 * and a pair taken apart: WEAK_COMMIT, WEAK_CONSUME, WEAK_FREE.
 */
#ifndef N_WRITERS
#define N_WRITERS 2
#endif
#ifndef N_SEGMENTS
#define N_SEGMENTS 2
#endif
#ifndef N_RECORDS
#define N_RECORDS 3 /* that each writer tries to write */
#endif
#ifndef MAX_DEATHS
#define MAX_DEATHS 1
#endif
#ifndef MAX_PUNCHES
#define MAX_PUNCHES 1
#endif
#ifndef CAP
#define CAP 2 /* records in a segment */
#endif
#ifndef MAX_LARGER
#define MAX_LARGER 0 /* records that want a segment of another class, whatever room there is */
#endif
#define NONE 15

#define HOLE      0
#define READY     1
#define COLLECTOR 2
#define OWNED(w)  (3 + (w))
#define is_owned(o)  ((o) >= 3)
#define writer_of(o) ((o) - 3)

/* The descriptors. */
byte owner[N_SEGMENTS];
byte committed[N_SEGMENTS];
byte consumed[N_SEGMENTS];
bit closed[N_SEGMENTS];
byte lost[N_SEGMENTS];
byte writer_id[N_SEGMENTS]; /* w + 1 */
byte ordinal[N_SEGMENTS];
bit inuse[N_SEGMENTS];
byte header_lost[N_WRITERS];
/* The segments: whose record, and its sequence number. */
bit populated[N_SEGMENTS]; /* pages are there */
byte rec_writer[N_SEGMENTS * CAP];
byte rec_seq[N_SEGMENTS * CAP];
/* The kernel. */
bit lock[N_WRITERS];
byte n_deaths;

/* The collector's own memory. */
byte mine[N_SEGMENTS]; /* consumed, as it knows it */
bit known_dead[N_WRITERS];
byte next_ordinal[N_WRITERS];
byte sum_lost[N_WRITERS];

/* Ghosts. */
byte g_committed[N_WRITERS]; /* 1 + the last sequence number committed */
byte g_delivered[N_WRITERS]; /* 1 + the last one delivered */
byte g_lost[N_WRITERS];      /* bit n: record n was counted as lost and is not yet jumped over */
byte g_n_lost[N_WRITERS];
bit g_hopping[N_WRITERS];
bit g_freeing[N_SEGMENTS]; /* the collector is zeroing it */
byte n_ended;
byte n_punches;

#define CHECK(name, condition) \
	if :: (condition) :: else -> name = 1; assert(!name) fi
hidden byte I1_positions, I2_free_is_zero, I2_ready_is_populated, I3_live_is_kept, I4_one_open;
hidden byte I5_order, I5_once, I6_sums, I6_all_space_back, touched_a_hole;

#define MAY_DIE if :: true :: n_deaths < MAX_DEATHS -> n_deaths++; goto died fi

/* CAS a segment to ourselves; nxt = NONE if there is none, or its pages can't be had. */
inline claim()
{
	if :: at = 0 :: at = N_SEGMENTS - 1 fi; /* a hint, good or stale */
	do
	:: nxt == NONE && tries < N_SEGMENTS ->
		atomic {
			MAY_DIE;
			from = owner[at]; /* [FREE] [CLAIM] */
			if
			:: from == READY || from == HOLE ->
				owner[at] = OWNED(w); nxt = at; g_hopping[w] = 1
			:: else -> at = (at + 1) % N_SEGMENTS
			fi;
			tries++
		}
	:: else -> break
	od;
	if
	:: nxt != NONE && from == HOLE ->
		atomic { MAY_DIE; from = READY; if :: populated[nxt] = 1 :: from = HOLE fi }
		if
		:: from == HOLE -> atomic { MAY_DIE; owner[nxt] = HOLE; nxt = NONE; g_hopping[w] = 0 }
		:: else
		fi
	:: else
	fi;
	if
	:: nxt != NONE -> atomic { MAY_DIE; inuse[nxt] = 1 } /* [INUSE] */
	:: else
	fi;
	atomic { at = 0; tries = 0; from = 0 }
}

inline identify()
{
	atomic {
		MAY_DIE;
		segments++;
		writer_id[nxt] = w + 1; ordinal[nxt] = segments
	}
}

inline close_old()
{
	atomic { MAY_DIE; if :: cur != NONE -> closed[cur] = 1 :: else fi; g_hopping[w] = 0 } /* [CLOSE] */
}

inline write_bytes()
{
	atomic {
		MAY_DIE;
		CHECK(touched_a_hole, populated[cur]);
		rec_writer[cur * CAP + head % CAP] = w; rec_seq[cur * CAP + head % CAP] = seq
	}
}

inline commit()
{
	atomic { MAY_DIE; committed[cur] = head + 1; g_committed[w] = seq + 1 } /* [COMMIT] */
}

proctype writer(byte w)
{
	byte cur = NONE, nxt = NONE, head, seen, segments, seq, at, tries, from;
#if MAX_LARGER > 0
	byte n_larger;
#endif
	bit larger, abandoned;

	do
	:: seq == N_RECORDS -> break
	:: else ->
#if MAX_LARGER > 0
		if :: true :: n_larger < MAX_LARGER && cur != NONE -> larger = 1; n_larger++ fi;
#endif
		if
		:: cur != NONE && head == seen + CAP ->
			atomic { seen = consumed[cur] } /* [CONSUME] */
		:: else
		fi;
		if
		:: cur == NONE || head == seen + CAP || larger ->
			claim();
			if
			:: nxt != NONE ->
				identify(); close_old();
				cur = nxt; head = 0; seen = 0; nxt = NONE;
				if :: larger -> abandoned = 1 :: true fi; /* reserved, then given up */
				larger = 0
			:: else
			fi
		:: else
		fi;
		if
		:: abandoned -> seq--
		:: cur != NONE && head < seen + CAP && !larger && !abandoned ->
#ifdef WEAK_COMMIT
			commit(); write_bytes();
#else
			write_bytes(); commit();
#endif
			head++
		:: else -> /* full: counted where the next one to free the segment will look */
			atomic {
				MAY_DIE;
				if :: cur != NONE -> lost[cur]++ :: else -> header_lost[w]++ fi;
				g_lost[w] = g_lost[w] | (1 << seq); g_n_lost[w]++
			}
		fi;
		larger = 0; abandoned = 0; seq++
	od;
	if :: cur != NONE -> atomic { MAY_DIE; closed[cur] = 1 } :: else fi; /* [CLOSE] */
died:
	atomic { lock[w] = 0; g_hopping[w] = 0; n_ended++ } /* [DEATH] */
}

/* Records [mine, upto) of segment g to the sink, each looked at in its place. */
inline deliver(g, upto)
{
#ifdef WEAK_CONSUME
	atomic { consumed[g] = upto }
#endif
	do
	:: mine[g] < upto ->
		atomic {
			CHECK(I5_order, rec_writer[g * CAP + mine[g] % CAP] == w);
			q = rec_seq[g * CAP + mine[g] % CAP];
			CHECK(I5_once, q >= g_delivered[w]);
			/* What was jumped over was lost, every one of it. */
			do
			:: g_delivered[w] < q ->
				CHECK(I5_order, g_lost[w] & (1 << g_delivered[w]));
				g_lost[w] = g_lost[w] & ~(1 << g_delivered[w]); g_delivered[w]++
			:: else -> break
			od;
			g_delivered[w] = q + 1;
			rec_writer[g * CAP + mine[g] % CAP] = NONE; rec_seq[g * CAP + mine[g] % CAP] = 0;
			mine[g]++; q = 0
		}
	:: else -> break
	od;
#ifndef WEAK_CONSUME
	atomic { consumed[g] = upto } /* [CONSUME] */
#endif
}

inline load_committed() { atomic { c = committed[s] } /* [COMMIT] */ }
inline load_identity() { atomic { i_writer = writer_id[s]; i_ordinal = ordinal[s] } }
inline load_closed() { atomic { gone = closed[s] } /* [CLOSE] */ }

inline give_back()
{
	atomic {
		CHECK(I3_live_is_kept, closed[s] || !lock[w]);
		sum_lost[w] = sum_lost[w] + lost[s];
		to = READY; g_freeing[s] = 1
	}
#ifndef FAULT_FREE_UNPOPULATED
	if
	:: mine[s] == 0 && dead && !gone -> to = HOLE /* it may have died inside populate */
	:: else
	fi;
#endif
#ifdef WEAK_FREE
	atomic { owner[s] = to; g_freeing[s] = 0 }
#endif
	atomic { /* in one: nobody looks before owner says so */
		inuse[s] = 0; /* [INUSE] */
		committed[s] = 0; consumed[s] = 0; closed[s] = 0; lost[s] = 0; writer_id[s] = 0;
#ifndef FAULT_ORDINAL_LEFT
		ordinal[s] = 0;
#endif
		mine[s] = 0
	}
#ifndef WEAK_FREE
	atomic { owner[s] = to; g_freeing[s] = 0; to = 0 } /* [FREE] */
#endif
}

/* Who is dead, and what did they claim whose bit they never set? Death first, then owner: the
 * claim of a dead owner stands. */
inline look_for_dead()
{
	atomic {
		do
		:: s < N_WRITERS ->
			if :: known_dead[s] = !lock[s] :: !quiet fi; /* [DEATH]; not probed in each pass */
			s++
		:: else -> break
		od;
		s = 0
	}
#if defined(FAULT_DEATH_AFTER_OWNER)
	do
	:: s < N_SEGMENTS ->
		atomic { o = owner[s] }
		atomic { if :: is_owned(o) && !lock[writer_of(o)] && !inuse[s] -> dead = 1 :: else fi }
		if
		:: dead -> w = writer_of(o); known_dead[w] = 1; give_back(); dead = 0; w = 0
		:: else
		fi;
		o = 0; s++
	:: else -> break
	od;
	s = 0
#elif !defined(FAULT_REAP_BY_INUSE)
	atomic { /* in one: the word of a dead owner does not change any more */
		do
		:: s < N_SEGMENTS ->
			o = owner[s]; /* [CLAIM] */
			if :: is_owned(o) && known_dead[writer_of(o)] -> inuse[s] = 1 :: else fi; /* [INUSE] */
			s++
		:: else -> break
		od;
		s = 0; o = 0
	}
#endif
}

inline look()
{
	atomic { o = (inuse[s] -> owner[s] : HOLE) } /* [INUSE] [CLAIM] */
	if
	:: is_owned(o) ->
		w = writer_of(o);
#if defined(FAULT_COMMITTED_BEFORE_CLOSED)
		dead = known_dead[w]; load_committed(); load_closed(); load_identity();
#elif defined(FAULT_COMMITTED_BEFORE_DEATH)
		load_closed(); load_committed(); atomic { dead = !lock[w] } load_identity();
#elif defined(FAULT_IDENTITY_BEFORE_COMMITTED)
		load_identity(); dead = known_dead[w]; load_closed(); load_committed();
#else
		dead = known_dead[w]; load_closed(); load_committed(); load_identity();
#endif
		if
		:: c == 0 && !gone ->
			if :: dead -> give_back() :: else fi /* it never got to anything */
#ifdef FAULT_EMPTY_OUT_OF_TURN
		:: c == 0 && gone -> give_back()
#define has_identity (c > 0)
#else
#define has_identity (c > 0 || gone)
#endif
#ifdef FAULT_ANY_ORDINAL
#define its_turn true
#else
#define its_turn (i_ordinal == next_ordinal[w] + 1)
#endif
		:: has_identity && !its_turn ->
			CHECK(I5_order, i_writer == w + 1 && i_ordinal > next_ordinal[w])
		:: has_identity && its_turn ->
			CHECK(I5_order, i_writer == w + 1);
			deliver(s, c);
#ifdef FAULT_NO_LAST_LOOK
			load_closed();
#endif
			if
			:: gone || dead -> next_ordinal[w] = i_ordinal; give_back()
			:: else
			fi
		fi;
		atomic { w = 0; dead = 0; gone = 0; c = 0; i_writer = 0; i_ordinal = 0 }
	:: else
	fi;
	o = 0
}

/* Between passes: punch a free segment, or populate a hole. */
inline tend()
{
	if
	:: n_punches < MAX_PUNCHES ->
		atomic {
			if :: s = 0 :: s = N_SEGMENTS - 1 fi;
			o = owner[s]; n_punches++;
			if :: o == READY || o == HOLE -> owner[s] = COLLECTOR :: else fi
		}
		if
		:: o == READY ->
			atomic { CHECK(I3_live_is_kept, owner[s] == COLLECTOR); populated[s] = 0 }
			atomic { owner[s] = HOLE } /* [FREE] */
		:: o == HOLE ->
			atomic { if :: populated[s] = 1; o = READY :: skip fi }
			atomic { owner[s] = o } /* [FREE] */
		:: else
		fi;
		o = 0
	:: true
	fi
}

proctype collector()
{
	byte s, o, w, c, q, i_writer, i_ordinal, to, n_quiet;
	bit dead, gone, quiet;

	do
	:: atomic { quiet = (n_ended == N_WRITERS); s = 0 }
		look_for_dead();
		do
		:: s < N_SEGMENTS -> look(); s++
		:: else -> break
		od;
		if
		:: quiet && n_quiet == N_SEGMENTS - 1 -> break /* each pass frees one of a lane's at least */
		:: quiet && n_quiet < N_SEGMENTS - 1 -> n_quiet++
		:: else -> tend()
		fi
	od;
	/* Every writer is gone: everything has arrived, and all space is back. */
	atomic {
		s = 0;
		do
		:: s < N_SEGMENTS -> CHECK(I6_all_space_back, owner[s] == READY || owner[s] == HOLE); s++
		:: else -> break
		od;
		w = 0;
		do
		:: w < N_WRITERS ->
			CHECK(I6_sums, g_delivered[w] == g_committed[w]);
			CHECK(I6_sums, sum_lost[w] + header_lost[w] == g_n_lost[w]);
			w++
		:: else -> break
		od
	}
}

#define zero(s) (committed[s] == 0 && consumed[s] == 0 && closed[s] == 0 && lost[s] == 0 && \
                 ordinal[s] == 0 && writer_id[s] == 0)
#define free(s) (owner[s] == READY || owner[s] == HOLE)
#define open_by(s, w) (lock[w] && owner[s] == OWNED(w) && !closed[s] && !g_freeing[s])
#define older_is_open(s, t, w) (open_by(s, w) && owner[t] == OWNED(w) && closed[t] && \
                                ordinal[s] && ordinal[s] < ordinal[t])

/* Runs only when an invariant is broken. */
active proctype monitor()
{
	byte s, w;

end:	if
#define WATCH(s) \
	:: atomic { is_owned(owner[s]) && (consumed[s] > committed[s] || committed[s] > consumed[s] + CAP) -> I1_positions = 1; assert(!I1_positions) } \
	:: atomic { free(s) && !zero(s) -> I2_free_is_zero = 1; assert(!I2_free_is_zero) } \
	:: atomic { owner[s] == READY && !populated[s] -> I2_ready_is_populated = 1; assert(!I2_ready_is_populated) }
	WATCH(0) WATCH(1)
#if N_SEGMENTS > 2
	WATCH(2)
#endif
#define OPEN(w) \
	:: atomic { \
		open_by(0, w) && open_by(1, w) && !g_hopping[w] -> I4_one_open = 1; assert(!I4_one_open) \
	} \
	:: atomic { older_is_open(0, 1, w) || older_is_open(1, 0, w) -> I4_one_open = 1; assert(!I4_one_open) }
	OPEN(0)
#if N_WRITERS > 1
	OPEN(1)
#endif
	fi
}

init {
	byte i;

	atomic {
		owner[0] = READY; populated[0] = 1;
		do
		:: i < N_WRITERS -> lock[i] = 1; run writer(i); i++
		:: else -> break
		od;
		run collector()
	}
}

/* SPDX-License-Identifier: MIT */
/*
 * lanes.pml - one thread, signal handlers in the middle of its records, jumps out of them, death.
 *
 * Checks invariant 5 within each lane, and that a record whose commit has returned is delivered
 * whatever becomes of the one around it. All that orders a thread against its own handler is the
 * compiler barrier; so a step here is a store in program order. Each handler writes one record;
 * it may jump away (longjmp), from inside its own record too, and the lane it leaves open is taken
 * back by a later record that stands above it. There is room enough; recycle.pml has the rest.
 *
 * Faults: FAULT_NESTED_WAITS (f), FAULT_NO_RESYNC, FAULT_HEAD_BEFORE_SEQ, FAULT_OPEN_LATE,
 * FAULT_FREE_BEFORE_HEAD, FAULT_SAME_LANE.
 */
#ifndef N_RECORDS
#define N_RECORDS 2 /* of the thread itself */
#endif
#ifndef N_SIGNALS
#define N_SIGNALS 2
#endif
#define LANES 3
#define ROOM (N_RECORDS + N_SIGNALS) /* in each lane's segment */

/* Shared. A record is its operation's number + 1 in two halves, and its sequence number. */
byte committed[LANES];
byte half_1[LANES * ROOM];
byte half_2[LANES * ROOM];
byte rec_seq[LANES * ROOM];

/* The thread's own. */
byte head[LANES];
byte seq[LANES];
bit open[LANES];
byte n_signals;

/* Ghosts, a bit per operation. */
byte n_operations;
byte g_returned;
byte g_delivered;
bit ended;

#define CHECK(name, condition) \
	if :: (condition) :: else -> name = 1; assert(!name) fi
hidden byte I5_order, I5_once, I6_returned_is_delivered, record_is_whole;

/* The last record may have been committed before it was jumped away from. */
inline take_back(l)
{
#ifndef FAULT_NO_RESYNC
	if
	:: committed[l] > head[l] ->
		if :: rec_seq[l * ROOM + head[l]] == seq[l] -> seq[l]++ :: else fi;
		head[l] = committed[l]
	:: else
	fi;
#endif
	open[l] = 0
}

/* A record in lane l, in program order; SIGNAL is what may happen between two stores. */
#define WRITE(l, k, SIGNAL) \
	OPEN(l); SIGNAL; \
	atomic { half_1[l * ROOM + head[l]] = k + 1; rec_seq[l * ROOM + head[l]] = seq[l] } SIGNAL; \
	atomic { half_2[l * ROOM + head[l]] = k + 1 } SIGNAL; \
	OPEN_LATE(l); \
	PUBLISH(l, head[l] + 1); SIGNAL; \
	ADVANCE_1(l); SIGNAL; \
	ADVANCE_2(l); SIGNAL; \
	ADVANCE_3(l); \
	atomic { g_returned = g_returned | (1 << k) }

#ifdef FAULT_OPEN_LATE
#define OPEN(l)
#define OPEN_LATE(l) open[l] = 1
#else
#define OPEN(l) open[l] = 1
#define OPEN_LATE(l)
#endif
#ifdef FAULT_NESTED_WAITS
/* The outermost commit publishes what all lanes have gathered. */
#define PUBLISH(l, to) \
	if \
	:: l == 0 -> atomic { committed[0] = to; committed[1] = late[1]; committed[2] = late[2] } \
	:: else -> late[l] = to \
	fi
byte late[LANES];
#else
#define PUBLISH(l, to) atomic { committed[l] = to } /* [COMMIT] */
#endif
#if defined(FAULT_HEAD_BEFORE_SEQ)
#define ADVANCE_1(l) head[l]++
#define ADVANCE_2(l) seq[l]++
#define ADVANCE_3(l) open[l] = 0
#elif defined(FAULT_FREE_BEFORE_HEAD)
#define ADVANCE_1(l) open[l] = 0
#define ADVANCE_2(l) seq[l]++
#define ADVANCE_3(l) head[l]++
#else
#define ADVANCE_1(l) seq[l]++
#define ADVANCE_2(l) head[l]++
#define ADVANCE_3(l) open[l] = 0
#endif

/* In the handler: go on, die, or jump out of it and of whatever it interrupted. */
#define IN_HANDLER \
	if :: true :: true -> goto died :: !jumped -> jumped = 1; goto again fi

/* The first lane that is not open; one that its own stack position proves dead is taken back. */
#define HANDLER \
	if \
	:: true \
	:: true -> goto died \
	:: n_signals < N_SIGNALS -> \
		atomic { \
			n_signals++; k = n_operations; n_operations++; \
			if \
			:: !open[0] -> l = 0 \
			:: open[0] && !open[1] -> l = 1 \
			:: open[0] && open[1] -> take_back(1); l = 1 /* we stand above it */ \
			:: open[0] && open[1] && !open[2] -> l = 2   /* we do not */ \
			fi \
		} \
		NESTED; \
		atomic { l = 0; k = 0 } \
		IN_HANDLER \
	fi

proctype thread()
{
	byte n, k, l, outer;
	bit jumped;

#ifdef FAULT_SAME_LANE
#define NESTED atomic { l = 0 } WRITE(0, k, IN_HANDLER)
#else
#define NESTED WRITE(l, k, IN_HANDLER)
#endif
again:
	atomic {
		l = 0; k = 0;
		if :: open[0] -> take_back(0) :: else fi; /* jumped away from: we stand above it */
	}
	do
	:: n == N_RECORDS -> break
	:: else ->
		atomic { n++; outer = n_operations; n_operations++ }
		HANDLER;
		if
		:: open[0] -> atomic { take_back(0) }
		:: else
		fi;
		WRITE(0, outer, HANDLER);
		HANDLER
	od;
died:
	atomic { ended = 1; n = 0; k = 0; l = 0; outer = 0; jumped = 0 } /* [DEATH] */
}

proctype collector()
{
	byte mine[LANES];
	byte l, c, k;
	bit quiet;

	do
	:: atomic { quiet = ended; l = 0 } /* [DEATH] */
		do
		:: l < LANES ->
			atomic { c = committed[l] } /* [COMMIT] */
			do
			:: mine[l] < c ->
				atomic {
					k = half_1[l * ROOM + mine[l]];
					CHECK(record_is_whole, k != 0 && k == half_2[l * ROOM + mine[l]]);
					CHECK(I5_order, rec_seq[l * ROOM + mine[l]] == mine[l]);
					CHECK(I5_once, !(g_delivered & (1 << (k - 1))));
					g_delivered = g_delivered | (1 << (k - 1));
					mine[l]++; k = 0
				}
			:: else -> break
			od;
			c = 0; l++
		:: else -> break
		od;
		if :: quiet -> break :: else fi
	od;
	CHECK(I6_returned_is_delivered, (g_returned & ~g_delivered) == 0)
}

init {
	atomic { run thread(); run collector() }
}

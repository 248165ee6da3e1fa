/* SPDX-License-Identifier: MIT */
/*
 * doorbell.pml - a collector falls asleep and writers ring; a writer short of room waits.
 *
 * Checks ARM, BELL and SPACE: no wake-up is lost, on either side. No timeout is modelled, neither
 * the collector's backstop nor the writer's deadline: they must never be needed. A writer may be
 * killed at any step; what the living commit must arrive all the same (that the death itself ends
 * the sleep, by a pidfd, is left out).
 *
 * Machines that delay stores: each processor has a store buffer of depth 1. What is stored in it
 * is seen by others later: when the buffer drains by itself, before the next store or atomic
 * read-modify-write of the same processor, at its full fence, or at a membarrier, which drains
 * every processor's.
 *
 * Faults: FAULT_NO_MEMBARRIER (c), FAULT_NO_WRITER_FENCE and FAULT_NO_COLLECTOR_FENCE (SPACE),
 * FAULT_BELL_READ_LATE (BELL), FAULT_NO_PASS_AFTER_ARMING, FAULT_DISARM_FIRST (a killed ringer takes
 * everybody's bell along), FAULT_NO_ARMING_COUNT (a late ringer disarms the next sleep).
 */
#ifndef N_WRITERS
#define N_WRITERS 2
#endif
#ifndef N_RECORDS
#define N_RECORDS 3 /* of each writer */
#endif
#ifndef MAX_DEATHS
#define MAX_DEATHS 0
#endif
#ifndef CAP
#define CAP 2 /* records in a segment */
#endif

byte committed[N_WRITERS];
byte consumed[N_WRITERS];
bit armed;   /* of gate */
bit waiters[N_WRITERS]; /* a bit per lane */
/* Of a word that counts up only one thing matters: is it still what somebody has seen of it? */
bit arming_seen[N_WRITERS]; /* gate's count */
bit bell_seen;
bit space_seen[N_WRITERS];

/* The kernel: who sleeps in a futex wait. */
bit collector_sleeps;
bit writer_sleeps[N_WRITERS];

/* The store buffers; the last one is the collector's. */
#define COLLECTOR N_WRITERS
#define EMPTY     0
#define COMMITTED 1
#define CONSUMED  2 /* + w */
#define WAITERS   9
byte word[N_WRITERS + 1];
byte value[N_WRITERS + 1];

byte mine[N_WRITERS]; /* delivered, as the collector knows it */
byte n_ended;
byte n_deaths;
bit g_dead[N_WRITERS];

#define CHECK(name, condition) \
	if :: (condition) :: else -> name = 1; assert(!name) fi
hidden byte no_lost_wake_of_the_collector, no_lost_wake_of_a_writer;

#define MAY_DIE if :: true :: n_deaths < MAX_DEATHS -> n_deaths++; g_dead[w] = 1; goto died fi

/* Inside an atomic block. */
inline drain(cpu)
{
	if
	:: word[cpu] == COMMITTED -> committed[cpu] = value[cpu]
	:: word[cpu] == WAITERS -> waiters[cpu] = 1
	:: word[cpu] >= CONSUMED && word[cpu] < WAITERS -> consumed[word[cpu] - CONSUMED] = value[cpu]
	:: else
	fi;
	word[cpu] = EMPTY; value[cpu] = 0
}

inline store(cpu, to, what)
{
	drain(cpu);
	word[cpu] = to; value[cpu] = what
}

inline wait_for_room()
{
	atomic { space_seen[w] = 1 }
	atomic { MAY_DIE; store(w, WAITERS, 1) } /* [SPACE] */
#ifndef FAULT_NO_WRITER_FENCE
	atomic { drain(w) }
#endif
	atomic { seen = consumed[w] } /* [CONSUME] [SPACE] */
	if
	:: n == seen + CAP ->
		atomic { if :: space_seen[w] -> writer_sleeps[w] = 1 :: else fi } /* futex wait */
		!writer_sleeps[w];
		atomic { seen = consumed[w] }
	:: else
	fi;
	atomic { space_seen[w] = 0 }
}

/* Wake first, disarm after, and only the arming that was seen. */
inline ring()
{
#ifdef FAULT_DISARM_FIRST
	atomic { MAY_DIE; drain(w); disarm(); armed_by_me = was }
	if
	:: armed_by_me ->
#endif
	atomic { MAY_DIE; drain(w); bell_seen = 0 }   /* [BELL] */
	atomic { MAY_DIE; collector_sleeps = 0 }      /* futex wake */
#ifdef FAULT_DISARM_FIRST
	:: else
	fi
#else
	atomic { MAY_DIE; drain(w); disarm() }        /* [ARM] */
#endif
}

/* A CAS from the word that was seen. */
inline disarm()
{
#ifdef FAULT_NO_ARMING_COUNT
	was = armed; armed = 0;
#else
	was = armed && arming_seen[w];
	if :: was -> armed = 0 :: else fi;
#endif
	arming_seen[w] = 0
}

proctype writer(byte w)
{
	byte n, seen;
	bit was;
#ifdef FAULT_DISARM_FIRST
	bit armed_by_me;
#endif

	do
	:: n == N_RECORDS -> break
	:: n < N_RECORDS && n == seen + CAP -> wait_for_room()
	:: n < N_RECORDS && n < seen + CAP ->
		n++;
		atomic { MAY_DIE; store(w, COMMITTED, n) } /* [COMMIT] */
		atomic { arming_seen[w] = armed; was = armed } /* [ARM] */
		if :: was -> ring(); was = 0 :: else fi
	od;
died:
	atomic { n_ended++; n = 0; seen = 0; was = 0; arming_seen[w] = 0; space_seen[w] = 0 }
}

/* Room is published lane by lane, and whose room it is is woken. */
inline pass()
{
	atomic { moved = 0; i = 0 }
	do
	:: i < N_WRITERS ->
		atomic {
			c = committed[i]; /* [COMMIT] [ARM] */
			was = (c > mine[i]);
			if
			:: was -> mine[i] = c; moved = 1; store(COLLECTOR, CONSUMED + i, c)
			:: else
			fi;
			c = 0
		}
		if
		:: was ->
#ifndef FAULT_NO_COLLECTOR_FENCE
			atomic { drain(COLLECTOR) } /* full fence */
#endif
			atomic { was = waiters[i] } /* [SPACE] */
			if
			:: was ->
				atomic { drain(COLLECTOR); waiters[i] = 0 } /* [SPACE] */
				atomic { do :: c < N_WRITERS -> space_seen[c] = 0; c++ :: else -> break od; c = 0 }
				atomic { writer_sleeps[i] = 0 } /* futex wake */
			:: else
			fi;
			was = 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline sleep()
{
#ifndef FAULT_BELL_READ_LATE
	atomic { bell_seen = 1 } /* [BELL] */
#endif
	atomic { drain(COLLECTOR); armed = 0 }
	atomic { /* [ARM] with the next count */
		armed = 1;
		do :: i < N_WRITERS -> arming_seen[i] = 0; i++ :: else -> break od;
		i = 0
	}
#ifndef FAULT_NO_MEMBARRIER
	atomic { i = 0; do :: i <= N_WRITERS -> drain(i); i++ :: else -> break od; i = 0 }
#endif
#ifndef FAULT_NO_PASS_AFTER_ARMING
	pass();
#endif
#ifdef FAULT_BELL_READ_LATE
	atomic { bell_seen = 1 }
#endif
	if
	:: !moved ->
		atomic { if :: bell_seen -> collector_sleeps = 1 :: else fi } /* futex wait */
end_asleep:	!collector_sleeps
	:: else -> atomic { drain(COLLECTOR); armed = 0 }
	fi;
	atomic { bell_seen = 0 }
}

proctype collector()
{
	byte i, c;
	bit moved, was;

	do
	:: pass();
		if
		:: moved
		:: !moved -> sleep()
		fi
	od
}

active proctype memory()
{
	byte cpu;

end:	do
	:: atomic { word[0] != EMPTY -> drain(0) }
	:: atomic { word[1] != EMPTY -> drain(1) }
#if N_WRITERS > 1
	:: atomic { word[2] != EMPTY -> drain(2) }
#endif
	od
}

#ifndef LIVENESS
/* Nobody can move any more: then nothing may be left to do. */
active proctype watcher()
{
	byte i;

end:	timeout;
	atomic {
		CHECK(no_lost_wake_of_a_writer, n_ended == N_WRITERS);
		do
		:: i < N_WRITERS -> CHECK(no_lost_wake_of_the_collector, g_dead[i] || mine[i] == N_RECORDS); i++
		:: else -> break
		od
	}
}
#endif

init {
	byte i;

	atomic {
		do
		:: i < N_WRITERS -> run writer(i); i++
		:: else -> break
		od;
		run collector()
	}
}

#ifdef LIVENESS
#if N_WRITERS > 1
#define all_delivered (mine[0] == N_RECORDS && mine[1] == N_RECORDS)
#else
#define all_delivered (mine[0] == N_RECORDS)
#endif
ltl everything_arrives { <> all_delivered }
#endif

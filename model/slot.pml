/* SPDX-License-Identifier: MIT */
/*
 * slot.pml - one process slot, processes that want it, and the collector that frees it after a
 * death.
 *
 * Checks SLOT, DEATH and the generation, and invariant 3: what a living process owns is not given
 * away. Each process attaches if it can, owns a segment for a while, commits a record and ends:
 * killed at any step, or by detaching. Any of them may fail to keep its lock, and then lives on in
 * an UNLOCKED slot; the last one can't lock at all (another root).
 *
 * Faults: FAULT_STATE_BEFORE_LOCK (e), FAULT_COLLECTOR_STATE_BEFORE_LOCK (e, the other side),
 * FAULT_NO_GENERATION, FAULT_UNLOCK_BEFORE_STATE, FAULT_COMMITTED_BEFORE_DEATH,
 * FAULT_GENERATION_AFTER_UNLOCK.
 */
#ifndef N_PROCESSES
#define N_PROCESSES 3
#endif
#define NOBODY    0 /* else process + 1 */
#define COLLECTOR 9

#define FREE     0
#define ATTACHED 1
#define UNLOCKED 2
#define TAKING   3
#define LOCKING  4

/* The slot, its lock byte, and a segment for each process. */
byte state;
byte generation;
byte lock;
byte owner[N_PROCESSES];   /* 0: free, else the generation that owns it (there is one slot) */
bit committed[N_PROCESSES];
bit closed[N_PROCESSES];

/* Ghosts. */
bit g_alive[N_PROCESSES];
bit g_committed[N_PROCESSES];
bit g_delivered[N_PROCESSES];
bit g_unlocked[N_PROCESSES]; /* ended without a lock: nobody can know before the close */
byte n_in_slot;
byte n_ended;

#define CHECK(name, condition) \
	if :: (condition) :: else -> name = 1; assert(!name) fi
hidden byte I3_live_is_kept, I6_last_commit_arrives, I6_all_space_back, one_process_in_a_slot;
hidden byte slot_comes_back;

#define MAY_DIE if :: true :: true -> goto died fi

inline look() { atomic { seen = state } /* [SLOT] */ }
inline lock_it() { atomic { got = (lock == NOBODY); if :: got -> lock = p + 1 :: else fi } }
inline unlock_it() { atomic { lock = NOBODY } }

/* Take the slot: in = 1. dead_too: also that of a dead process that was not reaped yet. */
inline register_locked()
{
	if :: dead_too = 0 :: dead_too = 1 fi;
	look();
	if
	:: seen == FREE || (dead_too && seen == ATTACHED) ->
		lock_it();
		if
		:: got ->
			MAY_DIE;
#ifndef FAULT_STATE_BEFORE_LOCK
			look();
#endif
			if
			:: seen == FREE -> atomic { /* [SLOT] */
#ifdef FAULT_STATE_BEFORE_LOCK
				state = LOCKING; in = 1
#else
				if :: state == FREE -> state = LOCKING; in = 1 :: else fi
#endif
				}
			:: seen == ATTACHED && dead_too -> in = 1
			:: else
			fi;
			MAY_DIE;
			if
			:: in
			:: else -> unlock_it(); got = 0
			fi
		:: else
		fi
	:: else
	fi
}

inline register_unlocked()
{
	atomic { if :: state == FREE -> state = TAKING; in = 1 :: else fi } /* [SLOT] */
}

inline fill(to)
{
	MAY_DIE;
	atomic { mine = generation + 1 }
#ifdef FAULT_NO_GENERATION
	mine = 1;
#endif
	atomic {
		generation = mine; n_in_slot++;
		CHECK(one_process_in_a_slot, n_in_slot == 1)
	}
	MAY_DIE;
	atomic { state = to } /* [SLOT] */
	MAY_DIE
}

inline lock_keep()
{
	if
	:: true
	:: true ->
#ifdef FAULT_UNLOCK_BEFORE_STATE
		unlock_it(); atomic { state = UNLOCKED }
#else
		atomic { state = UNLOCKED } /* [SLOT] */
		MAY_DIE;
		unlock_it();
#endif
		got = 0
	fi
}

proctype process(byte p; bit can_lock)
{
	byte seen, mine;
	bit got, in, dead_too;

	if
	:: can_lock -> register_locked()
	:: else -> register_unlocked()
	fi;
	if
	:: in && can_lock -> fill(ATTACHED); lock_keep()
	:: in && !can_lock -> fill(UNLOCKED)
	:: else -> goto out
	fi;
	MAY_DIE;
	atomic { owner[p] = mine }                        /* [CLAIM] */
	MAY_DIE;
	atomic { committed[p] = 1; g_committed[p] = 1 }   /* [COMMIT] */
	MAY_DIE;
	atomic { closed[p] = 1 }                          /* [CLOSE] */
	MAY_DIE;
	if
	:: got
	:: else -> atomic { n_in_slot--; state = FREE; mine = 0 } /* [SLOT] */
	fi;
	goto out;
died:
	g_unlocked[p] = (in && (!got || state == UNLOCKED));
out:
	atomic { /* [DEATH] */
		if :: got -> lock = NOBODY :: else fi;
		if :: mine && n_in_slot -> n_in_slot-- :: else fi;
		g_alive[p] = 0; got = 0; in = 0; mine = 0; seen = 0; dead_too = 0; n_ended++
	}
}

/* A segment of a dead or closed owner: deliver, free. */
inline take(i)
{
	atomic { if :: c -> g_delivered[i] = 1 :: else fi }
	atomic {
		CHECK(I3_live_is_kept, !g_alive[i] || closed[i]);
		committed[i] = 0; closed[i] = 0; owner[i] = 0 /* [FREE] */
	}
}

/* Segments whose owner is known to be dead, or closed. */
inline pass()
{
	i = 0;
	do
	:: i < N_PROCESSES ->
		atomic { o = owner[i] } /* [CLAIM] */
		if
		:: o != 0 ->
#ifdef FAULT_COMMITTED_BEFORE_DEATH
			atomic { c = committed[i] }
			atomic { if :: generation > dead_upto + 1 -> dead_upto = generation - 1 :: else fi; dead = (o <= dead_upto) }
			atomic { dead = dead || closed[i] }
#else
			dead = (o <= dead_upto);
			atomic { dead = dead || closed[i] } /* [CLOSE] */
			atomic { c = committed[i] }         /* [COMMIT] */
#endif
			if :: dead -> take(i) :: else fi;
			atomic { dead = 0; c = 0; o = 0 }
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* Whoever takes the slot holds the lock: the generations before its own are dead. */
inline probe()
{
	atomic { seen = state } /* [SLOT] */
	atomic { if :: generation > dead_upto + 1 -> dead_upto = generation - 1 :: else fi } /* [SLOT] */
	if
	:: seen == ATTACHED || seen == LOCKING ->
		atomic { if :: lock == NOBODY -> lock = COLLECTOR; got = 1 :: else fi } /* [DEATH] */
		if
		:: got ->
#ifndef FAULT_COLLECTOR_STATE_BEFORE_LOCK
			atomic { seen = state } /* [SLOT] */
#endif
			if
			:: seen == ATTACHED || seen == LOCKING ->
#ifdef FAULT_GENERATION_AFTER_UNLOCK
				atomic { state = FREE } /* [SLOT] */
				atomic { lock = NOBODY }
				atomic { dead_upto = generation }
#else
				atomic { dead_upto = generation }
				atomic { state = FREE } /* [SLOT] */
#endif
			:: else
			fi;
			atomic { if :: lock == COLLECTOR -> lock = NOBODY :: else fi; got = 0 }
		:: else
		fi
	:: else
	fi;
	seen = 0
}

proctype collector()
{
	byte i, o, seen, dead_upto;
	bit c, dead, got, quiet;

	do
	:: atomic { quiet = (n_ended == N_PROCESSES) }
		pass();
		probe();
		if :: quiet -> break :: else fi
	od;
	pass();
	/* All are gone, and whoever had a lock has left nothing behind. */
	atomic {
		do
		:: i < N_PROCESSES ->
			if
			:: !g_unlocked[i] ->
				CHECK(I6_last_commit_arrives, g_delivered[i] == g_committed[i]);
				CHECK(I6_all_space_back, owner[i] == 0)
			:: else -> dead = 1
			fi;
			i++
		:: else -> break
		od;
		CHECK(slot_comes_back, dead || state == FREE)
	}
}

init {
	byte i;

	atomic {
		do
		:: i < N_PROCESSES -> g_alive[i] = 1; run process(i, i + 1 < N_PROCESSES); i++
		:: else -> break
		od;
		run collector()
	}
}

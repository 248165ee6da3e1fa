/* SPDX-License-Identifier: MIT */
/*
 * seal.pml - the gate shuts while writers claim and commit.
 *
 * Checks SEAL, FINAL, INUSE and invariant 6: each record gets one verdict, and what commit()
 * answered is what happened: 0 is delivered, -EPIPE is not, and after a -EPIPE a lane never says 0
 * again; -EAGAIN is in the sum of the lost. Stores to committed are delayed by a
 * store buffer of depth 1, as in doorbell.pml. Writers may die anywhere; then a commit that has
 * not answered may go either way.
 *
 * Faults: FAULT_NO_MEMBARRIER (c), FAULT_NO_SECOND_LOOK (g), FAULT_SCAN_BY_INUSE,
 * FAULT_DELIVER_COMMITTED, FAULT_FINAL_BY_STORE, FAULT_NO_SETTLE (a refused reserve leaves the
 * lane's final open), FAULT_LOST_NOT_SETTLED.
 */
#ifndef N_WRITERS
#define N_WRITERS 2
#endif
#ifndef N_SEGMENTS
#define N_SEGMENTS 2
#endif
#ifndef N_RECORDS
#define N_RECORDS 2 /* of each writer */
#endif
#ifndef CAP
#define CAP 1 /* records in a segment: every record claims */
#endif
#ifndef MAX_DEATHS
#define MAX_DEATHS 1
#endif
#define NONE 15

#define READY    1
#ifndef MAX_LARGER
#define MAX_LARGER 0 /* records that want another segment whatever room there is */
#endif
#define OWNED(w) (3 + (w))

byte owner[N_SEGMENTS];
bit inuse[N_SEGMENTS];
byte committed[N_SEGMENTS];
byte final[N_SEGMENTS]; /* 0: not settled, else 1 + position */
byte lost[N_SEGMENTS];
bit lost_settled[N_SEGMENTS]; /* of lost */
byte rec[N_SEGMENTS * CAP]; /* which record lies there */
byte header_lost;
bit sealed;             /* of gate */

/* The store buffers: committed of segment buffered - 1. */
byte buffered[N_WRITERS];
byte value[N_WRITERS];

/* Ghosts, a bit per record. */
byte g_yes[N_WRITERS];       /* commit() answered 0 */
byte g_no[N_WRITERS];        /* commit() answered -EPIPE */
byte g_delivered[N_WRITERS];
byte g_n_lost;               /* reserve() answered -EAGAIN */
bit g_unanswered;            /* somebody died between counting a loss and answering */
byte n_ended;
byte n_deaths;

#define CHECK(name, condition) \
	if :: (condition) :: else -> name = 1; assert(!name) fi
hidden byte I6_yes_is_delivered, I6_no_is_not_delivered, I6_lost_is_counted, I5_once, no_yes_after_no;

#define MAY_DIE if :: true :: n_deaths < MAX_DEATHS -> n_deaths++; goto died fi

inline drain(cpu)
{
	if
	:: buffered[cpu] -> committed[buffered[cpu] - 1] = value[cpu]
	:: else
	fi;
	buffered[cpu] = 0; value[cpu] = 0
}

inline set_inuse()
{
	atomic { drain(w); inuse[cur] = 1 } /* [INUSE] */
}

/* nxt: ours now, or NONE: none to be had, or shut. */
inline claim()
{
	atomic { nxt = NONE; shut = sealed; i = 0 } /* [SEAL] */
	do
	:: nxt == NONE && !shut && i < N_SEGMENTS ->
		atomic {
			MAY_DIE;
			drain(w);
			if :: owner[i] == READY -> owner[i] = OWNED(w); nxt = i :: else fi; /* [CLAIM] */
			i++
		}
	:: else -> break
	od;
	i = 0;
	if
	:: nxt != NONE ->
#ifndef FAULT_NO_SECOND_LOOK
		atomic { shut = sealed } /* [SEAL] */
#endif
		if
		:: shut -> atomic { MAY_DIE; owner[nxt] = READY; nxt = NONE } /* [FREE] */
		:: else ->
			MAY_DIE;
			atomic { drain(w); inuse[nxt] = 1 } /* [INUSE] */
			atomic { cur = nxt; nxt = NONE; head = 0; larger = 0 }
		fi
	:: else
	fi
}

/* No room for this one: refused, or lost. */
inline lose()
{
	if
	:: !shut && cur != NONE ->
		atomic {
			MAY_DIE;
			drain(w);
			shut = lost_settled[cur]; /* [FINAL] */
			if :: !shut -> lost[cur]++; g_unanswered = 1 :: else fi
		}
	:: !shut && cur == NONE -> atomic { MAY_DIE; drain(w); header_lost++; g_unanswered = 1 }
	:: else
	fi;
	if
	:: shut ->
#ifndef FAULT_NO_SETTLE
		if
		:: cur != NONE ->
			atomic {
				MAY_DIE;
				drain(w);
				if :: final[cur] == 0 -> final[cur] = head + 1 :: else fi /* [FINAL] */
			}
		:: else
		fi;
#endif
		atomic { g_no[w] = g_no[w] | (1 << n) }
	:: else -> atomic { g_n_lost++; g_unanswered = 0 }
	fi;
	shut = 0; larger = 0
}

inline commit()
{
	MAY_DIE;
	atomic { rec[cur * CAP + head] = n; drain(w); buffered[w] = cur + 1; value[w] = head + 1 } /* [COMMIT] */
	head++;
	MAY_DIE;
	atomic { gate = sealed } /* [SEAL] */
	if
	:: gate ->
		MAY_DIE;
		atomic {
			drain(w);
			if :: final[cur] == 0 -> final[cur] = head + 1 :: else fi; /* [FINAL] */
			gate = (final[cur] < head + 1)
		}
	:: else
	fi;
	atomic {
		if
		:: gate -> g_no[w] = g_no[w] | (1 << n)
		:: else -> CHECK(no_yes_after_no, g_no[w] == 0); g_yes[w] = g_yes[w] | (1 << n)
		fi;
		gate = 0
	}
}

proctype writer(byte w)
{
	byte cur = NONE, nxt = NONE, head, n, i;
	bit gate, shut, larger;
#if MAX_LARGER > 0
	byte n_larger;
#endif

	do
	:: n == N_RECORDS -> break
	:: else ->
#if MAX_LARGER > 0
		if :: true :: cur != NONE && n_larger < MAX_LARGER -> larger = 1; n_larger++ fi;
#endif
		if
		:: cur == NONE || head == CAP || larger -> claim()
		:: else
		fi;
		if
		:: cur != NONE && head < CAP && !larger && !shut -> commit()
		:: else -> lose()
		fi;
		n++
	od;
died:
	atomic {
		drain(w); n_ended++; n = 0; cur = 0; nxt = 0; head = 0; gate = 0; shut = 0; i = 0;
		larger = 0
	}
}

/* Deliver segment s up to `upto`; mine[s] is what was delivered before. */
inline deliver()
{
	atomic {
		w = owner[s] - OWNED(0);
		do
		:: mine[s] < upto ->
			CHECK(I5_once, !(g_delivered[w] & (1 << rec[s * CAP + mine[s]])));
			g_delivered[w] = g_delivered[w] | (1 << rec[s * CAP + mine[s]]);
			mine[s]++
		:: else -> break
		od;
		w = 0
	}
}

inline pass()
{
	atomic { s = 0; moved = 0 }
	do
	:: s < N_SEGMENTS ->
		atomic { seen = inuse[s] } /* [INUSE] */
		if
		:: seen ->
			atomic { upto = committed[s] } /* [COMMIT] */
#ifndef FAULT_DELIVER_COMMITTED
			if
			:: shut -> atomic { upto = final[s]; if :: upto -> upto-- :: else fi } /* [FINAL] */
			:: else
			fi;
#endif
			if :: upto > mine[s] -> moved = 1; deliver() :: else fi;
			upto = 0
		:: else
		fi;
		seen = 0; s++
	:: else -> break
	od;
	s = 0
}

inline seal()
{
	atomic { sealed = 1 } /* [SEAL] */
#ifndef FAULT_NO_MEMBARRIER
	atomic { drain(0); drain(1) }
#endif
	do
	:: s < N_SEGMENTS ->
#ifdef FAULT_SCAN_BY_INUSE
		atomic { seen = inuse[s] }
#else
		atomic { seen = (owner[s] != READY) } /* [CLAIM] */
#endif
		if
		:: seen ->
			atomic { upto = committed[s] } /* [COMMIT] */
#ifdef FAULT_FINAL_BY_STORE
			atomic { final[s] = upto + 1 }
#else
			atomic { if :: final[s] == 0 -> final[s] = upto + 1 :: else fi } /* [FINAL] */
#endif
#ifndef FAULT_LOST_NOT_SETTLED
			atomic { lost_settled[s] = 1 } /* [FINAL] */
#endif
			upto = 0
		:: else
		fi;
		seen = 0; s++
	:: else -> break
	od;
	atomic { s = 0; shut = 1 }
}

proctype collector()
{
	byte mine[N_SEGMENTS];
	byte s, w, upto, sum_lost;
	bit seen, shut, moved;

	do
	:: pass()
	:: break
	od;
	seal();
	/* The end is declared when a whole pass after the seal has found nothing. */
	do
	:: pass();
		if :: moved :: else -> break fi
	od;
	do
	:: s < N_SEGMENTS -> atomic { sum_lost = sum_lost + lost[s]; s++ }
	:: else -> break
	od;
	n_ended == N_WRITERS;
	atomic {
		CHECK(I6_lost_is_counted, g_unanswered || sum_lost + header_lost == g_n_lost);
		w = 0;
		do
		:: w < N_WRITERS ->
			CHECK(I6_yes_is_delivered, (g_yes[w] & ~g_delivered[w]) == 0);
			CHECK(I6_no_is_not_delivered, (g_no[w] & g_delivered[w]) == 0);
			w++
		:: else -> break
		od
	}
}

active proctype memory()
{
end:	do
	:: atomic { buffered[0] -> drain(0) }
	:: atomic { buffered[1] -> drain(1) }
	od
}

init {
	byte i;

	atomic {
		do
		:: i < N_SEGMENTS -> owner[i] = READY; i++
		:: else -> break
		od;
		run writer(0); run writer(1); run collector()
	}
}

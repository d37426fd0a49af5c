/*
 * One event on its way through two instances, the durable store and the fast store.
 *
 * The vendor delivers the event up to DELIVERIES times to whichever instance. Answers of the
 * durable store may be lost after it committed; instances may die at any step, lose all they
 * know, and come back; a lease may run out under a living holder too; the fast store may have
 * forgotten anything; an operator may replay a closed receipt.
 *
 * Checked for both guarantees (at-most-once by default, -DAT_LEAST_ONCE):
 *   P2  a 2xx means that the receipt is committed
 *   P3  under at-most-once the application begins the event at most once, and once more for
 *       each replay
 *   P5  the fast store says "handled" of handled events only
 *   P8  when nothing more happens no receipt is open
 * and, of the ledger, that exactly one claim is won (P1) and that an event which was
 * admitted is not gone (P9).
 *
 * Each of these plants a mistake that the check must find:
 *   -DREMEMBER_BEFORE_CLAIM    the fast store is told before the receipt is committed
 *   -DSETTLE_WITHOUT_FENCE     a holder whose lease ran out settles all the same
 *   -DBEGIN_NOT_COMMITTED      the application is asked before the begin is committed
 *   -DUNKNOWN_BEGIN_NOT_BEGUN  a begin whose answer is lost is taken as not begun
 *   -DUNKNOWN_CLAIM_IS_TAKEN   a claim whose answer is lost is answered 2xx without asking
 *   -DNO_SWEEP                 nobody takes up what a dead instance left
 */

#ifndef DELIVERIES
#define DELIVERIES 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LOSSES
#define LOSSES 1	/* answers of the durable store that are lost */
#endif
#ifndef EXPIRIES
#define EXPIRIES 1	/* leases that run out under a living holder */
#endif
#ifndef REPLAYS
#define REPLAYS 1
#endif
#define MAX_ATTEMPTS 3
#define NOBODY 2

mtype = { none, claimed, dispatching, retrying, handled, failed, lost };

/* the durable store: one row, whose unique key is the event's */
mtype row = none;
byte holder = NOBODY;
byte attempt = 0;
bool lease = false;	/* the lease of a dispatching row runs */
byte wins = 0;		/* claims that wrote the row */

/* the fast store */
bool remembered = false;

/* the world */
byte crashes = 0, losses = 0, expiries = 0, replays = 0;
byte begun = 0;		/* what the application began */
bool everHandled = false;

/* what the two instances know, and lose when they die */
bool queued[2];		/* has the event and may begin it */
byte known[2];		/* attempts begun, as it believes */
byte life[2];		/* counts lives: what an earlier life began to do is dead */

#ifdef AT_LEAST_ONCE
#define TOO_OFTEN false
#else
#define TOO_OFTEN (begun > 1 + replays)
#endif

#define open (row == claimed || row == dispatching || row == retrying)

inline die(me) {
	crashes++;
	queued[me] = false;
	life[me] = 1 - life[me];
}

inline ask() { begun++; assert(!TOO_OFTEN) }	/* P3 */

inline ack() { assert(row != none) }	/* P2 */

/* Each delivery is a process: several run at once, at either instance. */
proctype Delivery(byte me)
{
	byte born = life[me];
	bool lostAnswer = false;

	/* fast store: it may always have forgotten */
	if
	:: remembered ->
		assert(everHandled);	/* P5 */
		ack();
		goto done
	:: true
	fi;
#ifdef REMEMBER_BEFORE_CLAIM
	remembered = true;
#endif
again:
	if
	:: life[me] != born -> goto done	/* died: the vendor gets no answer */
	:: else
	fi;
	/* the claim: insert, or read the winner; its answer may be lost */
	atomic {
		if
		:: row == none ->
			row = claimed; holder = me; attempt = 0; wins++;
			assert(wins == 1);	/* P1 */
			if
			:: losses < LOSSES -> losses++; lostAnswer = true	/* applied */
			:: true -> lostAnswer = false; queued[me] = true; known[me] = 0
			fi
		:: row == none && losses < LOSSES -> losses++; lostAnswer = true	/* never arrived */
		:: row != none && lostAnswer && wins == 1 && row == claimed && holder == me ->
			/* reads back its own receipt id: the claim had been won */
			lostAnswer = false; queued[me] = true; known[me] = 0
		:: else -> lostAnswer = false	/* a duplicate */
		fi
	};
	if
	:: lostAnswer ->
#ifdef UNKNOWN_CLAIM_IS_TAKEN
		ack(); goto done
#else
		if
		:: goto again		/* found out, not guessed */
		:: goto done		/* gave up: 503. The claim may stand */
		fi
#endif
	:: else
	fi;
	if
	:: life[me] == born -> ack()
	:: else
	fi;
done:	skip
}

proctype Instance(byte me)
{
	byte mine;
	byte born;
	bool unknown;
	mtype outcome;
end:
	do
	/* begin, dispatch, settle */
	:: queued[me] ->
		born = life[me];
		atomic { queued[me] = false; mine = known[me]; unknown = false };
#ifdef BEGIN_NOT_COMMITTED
		atomic { ask() };
#endif
begin:
		if
		:: life[me] != born -> goto next
		:: else
		fi;
		atomic {
			if
			:: (row == claimed || row == retrying) && holder == me && attempt == mine ->
				row = dispatching; attempt++; lease = true;
				if
				:: losses < LOSSES -> losses++; unknown = true	/* applied */
				:: unknown = false
				fi
			:: (row == claimed || row == retrying) && holder == me && attempt == mine && losses < LOSSES ->
				losses++; unknown = true	/* never arrived */
			:: unknown && row == dispatching && holder == me && attempt == mine + 1 ->
				unknown = false		/* reads back: it is begun, by itself */
			:: else -> goto next		/* fenced */
			fi
		};
		if
		:: unknown ->
#ifdef UNKNOWN_BEGIN_NOT_BEGUN
			/* asks the application, and begins again as if nothing had been committed */
			atomic {
				ask();
				if
				:: row == dispatching && holder == me -> row = claimed; attempt = mine; queued[me] = true; known[me] = mine
				:: else
				fi
			};
			goto next
#else
			if
			:: goto begin		/* until the answer is known */
			:: goto next		/* gives up: the lease decides */
			fi
#endif
		:: else
		fi;
		mine++;
		if
		:: life[me] != born -> goto next
		:: else
		fi;
		/* the dispatch. A holder that stood still asks the application within its lease only */
		atomic {
			if
			:: outcome = retrying		/* certainly not received, or declined */
			:: lease && row == dispatching && holder == me && attempt == mine ->
#ifndef BEGIN_NOT_COMMITTED
				ask();
#endif
				if
				:: outcome = handled	/* taken */
				:: outcome = failed	/* ambiguous */
				fi
			fi
		};
		if
		:: life[me] != born -> goto next
		:: else
		fi;
		/* the settle: fenced by holder, attempt and lease */
		atomic {
			if
#ifdef SETTLE_WITHOUT_FENCE
			:: row != none ->
#else
			:: row == dispatching && holder == me && attempt == mine && lease ->
#endif
				assert(row == dispatching);	/* a closed receipt is left by replay only */
				lease = false;
				if
				:: outcome == handled -> row = handled; everHandled = true
				:: outcome == retrying && attempt < MAX_ATTEMPTS -> row = retrying
#ifdef AT_LEAST_ONCE
				:: outcome == failed && attempt < MAX_ATTEMPTS -> row = retrying
#else
				:: outcome == failed -> row = failed
#endif
				:: outcome != handled && attempt >= MAX_ATTEMPTS -> row = failed
				fi
			:: else -> outcome = lost	/* too late: nothing is changed */
			fi
		};
		/* remember, only what is committed as handled */
		if
		:: outcome == handled && everHandled -> remembered = true
		:: else
		fi;
next:		skip

#ifndef NO_SWEEP
	/* take up what waits for somebody */
	:: atomic { row == claimed && (holder != me || !queued[me]) && !queued[holder] ->
		holder = me; queued[me] = true; known[me] = attempt }
	:: atomic { row == retrying && !queued[0] && !queued[1] ->
		holder = me; queued[me] = true; known[me] = attempt }
	/* decide on what its holder let lie */
	:: atomic { row == dispatching && !lease ->
#ifdef AT_LEAST_ONCE
		if
		:: attempt < MAX_ATTEMPTS -> row = retrying
		:: else -> row = failed
		fi
#else
		row = lost
#endif
	}
#endif
	/* kill -9 */
	:: atomic { crashes < CRASHES -> die(me) }
	od
}

/*
 * Time: a lease runs out in the end, and at times while its holder is alive. When nothing more
 * can happen, no receipt is open.
 */
proctype Clock()
{
end:
	do
	:: atomic { row == dispatching && lease && expiries < EXPIRIES -> expiries++; lease = false }
	:: atomic { timeout && row == dispatching && lease -> lease = false }
	:: atomic { timeout && open && !lease -> assert(false) }	/* P8 */
	od
}

proctype Operator()
{
end:
	do
	:: atomic { replays < REPLAYS && (row == handled || row == failed || row == lost) ->
		replays++; row = retrying; lease = false;
		if
		:: attempt >= MAX_ATTEMPTS -> attempt = MAX_ATTEMPTS - 1	/* a replay is one more try */
		:: else
		fi }
	od
}

init {
	byte deliveries = 0;
	atomic {
		run Instance(0); run Instance(1); run Clock(); run Operator();
		do
		:: deliveries < DELIVERIES -> deliveries++;
			if
			:: run Delivery(0)
			:: run Delivery(1)
			fi
		:: else -> break
		od
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much more than it must a reader's range asks for. A program that starts
 * reads many small files one after the other, and each question costs a round
 * trip in which the link does nothing. Its next file often lies behind this
 * one, so a range takes along what costs as much as the question: round trip
 * times rate. A slow link gets little, for there the next reader would wait for
 * bytes that nobody wants; a near one as well, for there questions are cheap;
 * and a busy one, which does not stand still while one question travels.
 *
 * The round trip is the shortest wait seen and the rate the highest, of late,
 * because ranges that share a link make each other look slow. Both fade, so that
 * a link that changes is noticed within some ranges.
 */
#include "snapshotter/fill_priv.h"

#define RATE_LEN_MIN (32u << 10) /* less says nothing of a rate */
#define ARRIVAL_US_MIN 1000u /* what was in a socket's buffer has no rate */

void pace_note(struct link_pace *p, uint64_t asked_us, uint64_t first_us,
	       size_t n_first, uint64_t end_us, size_t len)
{
	uint64_t wait = first_us > asked_us ? first_us - asked_us : 1;
	uint64_t took = end_us > first_us ? end_us - first_us : 0;
	uint64_t rate;

	p->wait_us += p->wait_us / 8 + 1;
	if (p->wait_us > wait || p->wait_us == 1)
		p->wait_us = wait;
	if (len < n_first || len - n_first < RATE_LEN_MIN)
		return;
	if (took < ARRIVAL_US_MIN)
		took = ARRIVAL_US_MIN;
	rate = (uint64_t)(len - n_first) * 1000000 / took;
	p->rate -= p->rate / 8;
	if (p->rate < rate)
		p->rate = rate;
}

size_t pace_ahead(const struct link_pace *p, unsigned n_inflight)
{
	/* Nobody measures a wait or a rate so high that this overflows: 2^32
	 * microseconds and 2^38 bytes a second would. */
	uint64_t ahead = p->wait_us < UINT32_MAX
				 ? p->wait_us * (p->rate / 1000) / 1000
				 : AHEAD_MAX;

	/* The range before may still be on its way with what it took along;
	 * more than that, and the link is not idle at all. */
	if (n_inflight > 1)
		ahead /= n_inflight;
	if (ahead < AHEAD_MIN)
		return AHEAD_MIN;
	return ahead > AHEAD_MAX ? AHEAD_MAX : (size_t)ahead;
}

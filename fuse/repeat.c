/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timeouts of the last moment; see repeat.h.
 */
#include "fuse/repeat.h"

void repeats_note(struct repeats *rs, const struct repeat_range *at,
		  uint64_t now_ms)
{
	rs->v[rs->next++ % REPEATS_MAX] =
		(struct repeat){ .at = *at, .until_ms = now_ms + REPEAT_MS };
}

static bool overlap(const struct repeat_range *a, const struct repeat_range *b)
{
	return a->seq == b->seq && a->ino == b->ino &&
	       a->off < b->off + b->len && b->off < a->off + a->len;
}

static bool was_told(const struct repeat *r, int pid)
{
	unsigned n = r->n_told < REPEAT_THREADS ? r->n_told : REPEAT_THREADS;

	for (unsigned i = 0; i < n; i++)
		if (r->told[i] == pid)
			return true;
	return false;
}

/* Tells of all that match: several READs of one readahead expire together, and
 * what the thread asks next is a new question to each of them. */
bool repeats_tell(struct repeats *rs, const struct repeat_range *at,
		  uint64_t now_ms)
{
	bool found = false;

	for (unsigned i = 1; i <= REPEATS_MAX; i++) {
		struct repeat *r = &rs->v[(rs->next - i) % REPEATS_MAX];

		if (r->until_ms <= now_ms)
			break; /* the older ones are over, too */
		if (!overlap(&r->at, at) || was_told(r, at->pid))
			continue;
		r->told[r->n_told++ % REPEAT_THREADS] = at->pid;
		found = true;
	}
	return found;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the headers of an answer promise, held against what was asked for; see
 * registry_run.h. Not one byte is delivered on a promise of another range,
 * length or size. On the network thread.
 */
#include <string.h>

#include "snapshotter/registry_run.h"

int run_broken(struct run *run, const char *what)
{
	return err_set(&run->broken, ERR_CORRUPT, "%s", what);
}

/* The source gives bytes: this is how to reach it from now on. */
static void set_resolved(struct run *run)
{
	struct place *p = run->place;

	if (run->hops) {
		free(p->final_url);
		p->final_url = strdup(run->url.text); /* NULL: asks again */
	} else if (!run->reused_url) {
		p->direct = true;
	}
	lock_take(&run->reg->lock);
	run->blob->preferred = run->src_index;
	lock_drop(&run->reg->lock);
	run_stop_resolving(run, true);
}

/* A 206 to "bytes=-N" or to the question for the size. */
static int learn_size(struct run *run, const struct http_response *resp)
{
	uint64_t total = resp->range_total, n = run->q->suffix_len;
	bool suffix = run->phase == PHASE_SUFFIX;

	if (total == UINT64_MAX)
		return suffix ? 0
			      : run_broken(run, "206 without the blob's size");
	n = n < total ? n : total;
	if (suffix &&
	    (resp->range_first != total - n || resp->range_last != total - 1))
		return run_broken(run, "206 with another range than asked for");
	if (blob_check_size(run->blob, total) < 0)
		return run_broken(run, "the blob's size is not what it was");
	run->q->off = total - n;
	run->q->len = n;
	run->phase = PHASE_RANGE;
	run->body_is_ours = suffix;
	return 0;
}

int run_take_206(struct run *run, const struct http_response *resp)
{
	const struct blob_req *q = run->q;

	if (resp->encoded)
		return run_broken(run, "206 with an encoding");
	if (resp->range_first == UINT64_MAX)
		return run_broken(run, "206 without a usable Content-Range");
	if (run->phase != PHASE_RANGE) {
		if (learn_size(run, resp) < 0)
			return -1;
	} else {
		if (resp->range_first != q->off + run->got ||
		    resp->range_last != q->off + q->len - 1)
			return run_broken(
				run, "206 with another range than asked for");
		if (resp->range_total != UINT64_MAX &&
		    blob_check_size(run->blob, resp->range_total) < 0)
			return run_broken(run,
					  "the blob's size is not what it was");
		run->body_is_ours = true;
	}
	if (run->body_is_ours && resp->content_length != UINT64_MAX &&
	    resp->content_length != q->len - run->got)
		return run_broken(run,
				  "206 with another length than its range");
	set_resolved(run);
	return 0;
}

/* The whole blob: good only where that is what was asked for. */
int run_take_200(struct run *run, const struct http_response *resp)
{
	struct blob_req *q = run->q;
	uint64_t size = resp->content_length;

	if (resp->encoded || size == UINT64_MAX || size == 0 || run->got)
		return run_broken(run, "200 to a range: no ranges here");
	if (run->phase == PHASE_RANGE ? q->off != 0 || q->len != size
				      : q->suffix_len < size)
		return run_broken(run, "200 to a range: no ranges here");
	if (blob_check_size(run->blob, size) < 0)
		return run_broken(run, "the blob's size is not what it was");
	q->off = 0;
	q->len = size;
	run->phase = PHASE_RANGE;
	run->body_is_ours = true;
	set_resolved(run);
	return 0;
}

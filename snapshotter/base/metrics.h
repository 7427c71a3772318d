/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon counts about itself, in Prometheus' text format.
 *
 * One catalogue for the process, in metrics.c: a family is a name, a help text,
 * at most one label and the closed set of that label's values, so no image,
 * host or user can make a series, and no credential can get into one. Every
 * series is there from the start, with 0.
 *
 * Counting is one or two relaxed atomic additions: any thread, under any lock,
 * no allocation. The order among different series is not defined; a count says
 * no more than that something happened before it was read.
 */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "buf.h"

enum metric {
	METRIC_BUILD_INFO,
	/* counters */
	METRIC_RECEIVED_BYTES,
	METRIC_FETCHED_BYTES,
	METRIC_REFETCHED_BYTES,
	METRIC_SERVED_BYTES,
	METRIC_READS,
	METRIC_READ_ERRORS,
	METRIC_OPENS,
	METRIC_VERIFICATION_FAILURES,
	METRIC_FALLBACKS,
	METRIC_SEALS,
	METRIC_PROOFS,
	METRIC_REGISTRY_REQUESTS,
	METRIC_TOKEN_REQUESTS,
	METRIC_REGISTRY_FAULTS,
	/* gauges */
	METRIC_PARKED_READS,
	METRIC_FETCHES,
	METRIC_QUEUED_JOBS,
	METRIC_SEAL_QUEUE,
	/* histograms */
	METRIC_READ_DURATION,
	METRIC_PREPARE_DURATION,
	METRICS_N,
};

/* Series of each, in the order of the values in metrics.c. */
enum { METRIC_FROM_REGISTRY, METRIC_FROM_MIRROR };
enum { METRIC_FOR_READER, METRIC_FOR_PREFETCH, METRIC_FOR_BACKGROUND };
enum { METRIC_LOCAL, METRIC_FETCHED };
enum { METRIC_HIT, METRIC_MISS };
enum {
	METRIC_ERRNO_EIO,
	METRIC_ERRNO_ETIMEDOUT,
	METRIC_ERRNO_ENOSPC,
	METRIC_ERRNO_ENOMEM,
	METRIC_ERRNO_ESTALE,
	METRIC_ERRNO_EINTR,
	METRIC_ERRNO_OTHER
};
enum { METRIC_OPEN_CACHED, METRIC_OPEN_PASSTHROUGH, METRIC_OPEN_HEALED };
enum { METRIC_BAD_FETCHED, METRIC_BAD_BODY, METRIC_BAD_INDEX };
enum metric_fallback {
	METRIC_FALLBACK_NOT_ESTARGZ,
	METRIC_FALLBACK_LABELS,
	METRIC_FALLBACK_BUDGET,
	METRIC_FALLBACK_REF_HELD,
	METRIC_FALLBACK_QUARANTINE,
	METRIC_FALLBACK_NO_VIEW,
	METRIC_FALLBACK_CANNOT_SEAL,
	METRIC_FALLBACK_RACE,
	METRIC_FALLBACK_UNAVAILABLE,
	METRIC_FALLBACK_DENIED,
	METRIC_FALLBACK_CORRUPT,
	METRIC_FALLBACK_UNSUPPORTED,
	METRIC_FALLBACK_NO_SPACE,
	METRIC_FALLBACK_INTERNAL
};
enum { METRIC_SEALED, METRIC_SEAL_REJECTED, METRIC_SEAL_FAILED };
enum { METRIC_PROVEN, METRIC_PROOF_LIE, METRIC_PROOF_PUT_OFF };
enum {
	METRIC_FAULT_UNAVAILABLE,
	METRIC_FAULT_DENIED,
	METRIC_FAULT_CORRUPT,
	METRIC_FAULT_OTHER
};
enum { METRIC_PREPARE_LAZY, METRIC_PREPARE_ORDINARY, METRIC_PREPARE_FAILED };

/* A counter; a counter never goes down. */
void metrics_add(enum metric m, unsigned series, uint64_t n);
/* A gauge, up or down. */
void metrics_move(enum metric m, unsigned series, int64_t by);
/* A histogram; @ns: how long it took. */
void metrics_observe(enum metric m, unsigned series, uint64_t ns);

/* The series with this label value, or the last one, which is "other". */
unsigned metrics_series(enum metric m, const char *value);
/* The whole of a counter or gauge now; of a histogram how many were observed.
 * For status and tests. */
uint64_t metrics_get(enum metric m, unsigned series);

/* All families, sorted as in the catalogue. 0 or -ENOMEM. */
int metrics_write(struct buf *out) must_check;

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* ---- one family; outside of metrics.c for its test only ---- */

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_family {
	const char *name, *help;
	enum metric_type type;
	const char *label; /* NULL: one series without a label */
	const char *const *values; /* n_series of them, with @label */
	unsigned n_series;
	const uint64_t *bounds_ns; /* rising; histograms only */
	unsigned n_bounds;
	/* One a series; of a histogram n_bounds + 2: how many were within each
	 * bound and above the one before it, how many above all, the sum. */
	_Atomic uint64_t *cells;
};

void metrics_write_family(const struct metric_family *f, struct buf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* base/metrics: counting, and the text format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "base/metrics.h"

#define N_THREADS 4
#define N_ROUNDS 20000

static void assert_text(const struct metric_family *f, const char *want)
{
	owned(buf) struct buf b = { 0 };

	metrics_write_family(f, &b);
	assert_false(b.failed);
	assert_string_equal((const char *)b.p, want);
}

static void write_family_counter(void **state unused_arg)
{
	_Atomic uint64_t cell = UINT64_MAX;
	const struct metric_family f = { .name = "a_total",
					 .help = "A thing.",
					 .type = METRIC_COUNTER,
					 .n_series = 1,
					 .cells = &cell };

	assert_text(&f, "# HELP a_total A thing.\n# TYPE a_total counter\n"
			"a_total 18446744073709551615\n");
}

static void write_family_negative_gauge(void **state unused_arg)
{
	_Atomic uint64_t cell = (uint64_t)-3;
	const struct metric_family f = { .name = "a",
					 .help = "A thing.",
					 .type = METRIC_GAUGE,
					 .n_series = 1,
					 .cells = &cell };

	assert_text(&f, "# HELP a A thing.\n# TYPE a gauge\na -3\n");
}

static void write_family_escapes(void **state unused_arg)
{
	_Atomic uint64_t cells[2] = { 1, 2 };
	const struct metric_family f = {
		.name = "a",
		.help = "back\\slash, \"quotes\" and\nline",
		.type = METRIC_GAUGE,
		.label = "l",
		.values = (const char *const[]){ "a\\b\"c\nd", "" },
		.n_series = 2,
		.cells = cells,
	};

	/* Quotes are escaped in values only. */
	assert_text(&f, "# HELP a back\\\\slash, \"quotes\" and\\nline\n"
			"# TYPE a gauge\n"
			"a{l=\"a\\\\b\\\"c\\nd\"} 1\n"
			"a{l=\"\"} 2\n");
}

static void write_family_histogram(void **state unused_arg)
{
	static const uint64_t bounds[] = { 50000, 1500000000 };
	/* two series: below, between, above, the sum */
	_Atomic uint64_t cells[8] = { 1, 2, 3, 4000000005, 0, 0, 0, 0 };
	const struct metric_family f = {
		.name = "d_seconds",
		.help = "D.",
		.type = METRIC_HISTOGRAM,
		.label = "l",
		.values = (const char *const[]){ "x", "y" },
		.n_series = 2,
		.bounds_ns = bounds,
		.n_bounds = 2,
		.cells = cells,
	};

	assert_text(&f, "# HELP d_seconds D.\n# TYPE d_seconds histogram\n"
			"d_seconds_bucket{l=\"x\",le=\"5e-05\"} 1\n"
			"d_seconds_bucket{l=\"x\",le=\"1.5\"} 3\n"
			"d_seconds_bucket{l=\"x\",le=\"+Inf\"} 6\n"
			"d_seconds_sum{l=\"x\"} 4.000000005\n"
			"d_seconds_count{l=\"x\"} 6\n"
			"d_seconds_bucket{l=\"y\",le=\"5e-05\"} 0\n"
			"d_seconds_bucket{l=\"y\",le=\"1.5\"} 0\n"
			"d_seconds_bucket{l=\"y\",le=\"+Inf\"} 0\n"
			"d_seconds_sum{l=\"y\"} 0.000000000\n"
			"d_seconds_count{l=\"y\"} 0\n");
}

static void add_counts_its_series(void **state unused_arg)
{
	uint64_t hits = metrics_get(METRIC_READS, METRIC_HIT);
	uint64_t misses = metrics_get(METRIC_READS, METRIC_MISS);

	metrics_add(METRIC_READS, METRIC_MISS, 7);
	assert_int_equal(metrics_get(METRIC_READS, METRIC_HIT), hits);
	assert_int_equal(metrics_get(METRIC_READS, METRIC_MISS), misses + 7);
}

static void move_goes_down_again(void **state unused_arg)
{
	metrics_move(METRIC_FETCHES, 0, 2);
	metrics_move(METRIC_FETCHES, 0, -2);
	assert_int_equal(metrics_get(METRIC_FETCHES, 0), 0);
}

/* The line that begins with @series; its value. */
static uint64_t value_of(const char *series)
{
	owned(buf) struct buf b = { 0 };
	const char *at;

	assert_int_equal(metrics_write(&b), 0);
	at = strstr((const char *)b.p, series);
	assert_non_null(at);
	assert_int_equal(at[-1], '\n');
	return strtoull(at + strlen(series), NULL, 10);
}

static void observe_at_the_bounds(void **state unused_arg)
{
#define BUCKET(le)                                            \
	"verity_snapshotter_prepare_duration_seconds_bucket{" \
	"result=\"failed\",le=\"" le "\"} "
	uint64_t ms1 = value_of(BUCKET("0.001"));
	uint64_t ms2 = value_of(BUCKET("0.002"));
	uint64_t last = value_of(BUCKET("25"));
	uint64_t all = value_of(BUCKET("+Inf"));

	/* A bound belongs to its bucket: le is "less or equal". */
	metrics_observe(METRIC_PREPARE_DURATION, METRIC_PREPARE_FAILED,
			1000000);
	metrics_observe(METRIC_PREPARE_DURATION, METRIC_PREPARE_FAILED,
			1000001);
	metrics_observe(METRIC_PREPARE_DURATION, METRIC_PREPARE_FAILED,
			UINT64_C(25000000001));
	assert_int_equal(value_of(BUCKET("0.001")), ms1 + 1);
	assert_int_equal(value_of(BUCKET("0.002")), ms2 + 2);
	assert_int_equal(value_of(BUCKET("25")), last + 2);
	assert_int_equal(value_of(BUCKET("+Inf")), all + 3);
	assert_int_equal(
		metrics_get(METRIC_PREPARE_DURATION, METRIC_PREPARE_FAILED),
		all + 3);
}

static void series_of_unknown_values_is_the_last(void **state unused_arg)
{
	unsigned other = metrics_series(METRIC_QUEUED_JOBS, "nonsense");

	assert_int_equal(metrics_series(METRIC_QUEUED_JOBS, "rpc"), 0);
	assert_int_equal(metrics_series(METRIC_QUEUED_JOBS, "other"), other);
	assert_int_not_equal(metrics_series(METRIC_QUEUED_JOBS, "decode"),
			     other);
}

static void *count_main(void *arg unused_arg)
{
	for (unsigned i = 0; i < N_ROUNDS; i++) {
		metrics_add(METRIC_SERVED_BYTES, METRIC_LOCAL, 3);
		metrics_observe(METRIC_READ_DURATION, METRIC_LOCAL, i);
	}
	return NULL;
}

static void add_by_many_threads(void **state unused_arg)
{
	uint64_t bytes = metrics_get(METRIC_SERVED_BYTES, METRIC_LOCAL);
	uint64_t n = metrics_get(METRIC_READ_DURATION, METRIC_LOCAL);
	pthread_t t[N_THREADS];

	for (unsigned i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, count_main, NULL),
				 0);
	for (unsigned i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	assert_int_equal(metrics_get(METRIC_SERVED_BYTES, METRIC_LOCAL),
			 bytes + 3ull * N_THREADS * N_ROUNDS);
	assert_int_equal(metrics_get(METRIC_READ_DURATION, METRIC_LOCAL),
			 n + (uint64_t)N_THREADS * N_ROUNDS);
}

/* The label's last value has to be the last of its enum. */
static void catalogue_agrees_with_its_enums(void **state unused_arg)
{
	static const struct {
		enum metric m;
		unsigned last;
		const char *value;
	} lasts[] = {
		{ METRIC_RECEIVED_BYTES, METRIC_FROM_MIRROR, "mirror" },
		{ METRIC_FETCHED_BYTES, METRIC_FOR_BACKGROUND, "background" },
		{ METRIC_SERVED_BYTES, METRIC_FETCHED, "fetched" },
		{ METRIC_READS, METRIC_MISS, "miss" },
		{ METRIC_READ_ERRORS, METRIC_ERRNO_OTHER, "other" },
		{ METRIC_OPENS, METRIC_OPEN_HEALED, "healed" },
		{ METRIC_VERIFICATION_FAILURES, METRIC_BAD_INDEX, "index" },
		{ METRIC_FALLBACKS, METRIC_FALLBACK_INTERNAL, "internal" },
		{ METRIC_SEALS, METRIC_SEAL_FAILED, "failed" },
		{ METRIC_PROOFS, METRIC_PROOF_PUT_OFF, "put_off" },
		{ METRIC_REGISTRY_FAULTS, METRIC_FAULT_OTHER, "other" },
		{ METRIC_READ_DURATION, METRIC_FETCHED, "fetched" },
		{ METRIC_PREPARE_DURATION, METRIC_PREPARE_FAILED, "failed" },
	};

	for (size_t i = 0; i < ARRAY_LEN(lasts); i++) {
		assert_int_equal(metrics_series(lasts[i].m, lasts[i].value),
				 lasts[i].last);
		assert_int_equal(metrics_series(lasts[i].m, "nonsense"),
				 lasts[i].last);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_family_counter),
		cmocka_unit_test(write_family_negative_gauge),
		cmocka_unit_test(write_family_escapes),
		cmocka_unit_test(write_family_histogram),
		cmocka_unit_test(add_counts_its_series),
		cmocka_unit_test(move_goes_down_again),
		cmocka_unit_test(observe_at_the_bounds),
		cmocka_unit_test(series_of_unknown_values_is_the_last),
		cmocka_unit_test(add_by_many_threads),
		cmocka_unit_test(catalogue_agrees_with_its_enums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue of metrics, and how it is written; see metrics.h. Names follow
 * Prometheus' conventions: base units, _total behind counters.
 */
#include "metrics.h"

#include <inttypes.h>
#include <string.h>

#define NAME(x) "verity_snapshotter_" x
#define NS_PER_S 1000000000u
#define US(n) ((n)*UINT64_C(1000))
#define MS(n) ((n)*UINT64_C(1000000))

/*
 * Reads. What is here takes tens of microseconds from the page cache and some
 * milliseconds from a disk; what is not, a round trip and more, up to
 * read_timeout, 60 s by default. Steps of 2 to 2.5: a quantile is off by no
 * more than that factor, in 16 series.
 */
static const uint64_t read_bounds[] = {
	US(50),   US(100),   US(250),   US(500),   MS(1),   MS(5),
	MS(10),   MS(25),    MS(50),    MS(100),   MS(250), MS(1000),
	MS(2500), MS(10000), MS(30000), MS(60000),
};

/*
 * Prepare. An ordinary one is a commit of SQLite, milliseconds; a lazy one some
 * round trips to a registry; and prepare_budget, 20 s by default, ends it.
 */
static const uint64_t prepare_bounds[] = {
	MS(1),    MS(2),    MS(5),     MS(10),    MS(25),
	MS(50),   MS(100),  MS(250),   MS(500),   MS(1000),
	MS(2500), MS(5000), MS(10000), MS(20000), MS(25000),
};

#define COUNT_OF(...) (sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *))

/* The parts of an initialiser: the label with its values, and the cells. */
#define LABEL(l, n_cells, ...)                                         \
	.label = (l), .values = (const char *const[]){ __VA_ARGS__ },  \
	.n_series = COUNT_OF(__VA_ARGS__),                             \
	.cells = (_Atomic uint64_t[COUNT_OF(__VA_ARGS__) * (n_cells)]) \
	{                                                              \
	}
#define LABELS(l, ...) LABEL(l, 1, __VA_ARGS__)
#define NO_LABEL                                      \
	.n_series = 1, .cells = (_Atomic uint64_t[1]) \
	{                                             \
	}
#define BOUNDS(b) .bounds_ns = (b), .n_bounds = ARRAY_LEN(b)

#define FAMILY(t, n, h, ...)                                           \
	{                                                              \
		.name = NAME(n), .help = (h), .type = (t), __VA_ARGS__ \
	}
#define COUNTER(...) FAMILY(METRIC_COUNTER, __VA_ARGS__)
#define GAUGE(...) FAMILY(METRIC_GAUGE, __VA_ARGS__)
#define HISTOGRAM(...) FAMILY(METRIC_HISTOGRAM, __VA_ARGS__)

static const struct metric_family families[METRICS_N] = {
	[METRIC_BUILD_INFO] = GAUGE(
		"build_info", "The version of the daemon; always 1.",
		.label = "version", .values = (const char *const[]){ VERSION },
		.n_series = 1, .cells = (_Atomic uint64_t[]){ 1 }),
	[METRIC_RECEIVED_BYTES] = COUNTER(
		"registry_received_bytes_total",
		"Bytes of blobs and manifests received, by the kind of host that sent them.",
		LABELS("from", "registry", "mirror")),
	[METRIC_FETCHED_BYTES] = COUNTER(
		"fetched_bytes_total",
		"Compressed bytes of file contents fetched, by who wanted them.",
		LABELS("purpose", "reader", "prefetch", "background")),
	[METRIC_REFETCHED_BYTES] = COUNTER(
		"refetched_bytes_total",
		"Compressed bytes asked for again because they did not match their digest.",
		NO_LABEL),
	[METRIC_SERVED_BYTES] = COUNTER(
		"served_bytes_total",
		"Verified bytes given to readers, by where they were when the read came. What the kernel reads by itself is not seen here.",
		LABELS("source", "local", "fetched")),
	[METRIC_READS] = COUNTER(
		"reads_total",
		"Reads: all of it was here (hit), or had to be fetched (miss).",
		LABELS("result", "hit", "miss")),
	[METRIC_READ_ERRORS] = COUNTER(
		"read_errors_total",
		"Reads that ended with an error, by errno. EINTR: the reader was killed.",
		LABELS("errno", "EIO", "ETIMEDOUT", "ENOSPC", "ENOMEM",
		       "ESTALE", "EINTR", "other")),
	[METRIC_OPENS] = COUNTER(
		"opens_total",
		"Files opened, by how they are read: through the daemon, by the kernel, by the kernel after a repair.",
		LABELS("mode", "cached", "passthrough", "healed")),
	[METRIC_VERIFICATION_FAILURES] = COUNTER(
		"verification_failures_total",
		"Bytes that did not have the digest they must have: as fetched, or as found on the disk in contents (body), or in an index or map.",
		LABELS("where", "fetched", "body", "index")),
	[METRIC_FALLBACKS] = COUNTER(
		"fallbacks_total",
		"Layers that could not be mounted lazily, by reason; verityctl status has each.",
		LABELS("reason", "not_estargz", "labels", "budget", "ref_held",
		       "quarantine", "no_view", "cannot_seal", "race",
		       "unavailable", "denied", "corrupt", "unsupported",
		       "no_space", "internal")),
	[METRIC_SEALS] = COUNTER(
		"seals_total",
		"Files handed to fs-verity: sealed, rejected because the kernel measured something else, or failed.",
		LABELS("result", "sealed", "rejected", "failed")),
	[METRIC_PROOFS] = COUNTER(
		"proofs_total",
		"Proofs of layers: proven, a lie, or put off because something was in the way.",
		LABELS("result", "proven", "lie", "put_off")),
	[METRIC_REGISTRY_REQUESTS] =
		COUNTER("registry_requests_total",
			"HTTP requests for blobs and manifests.", NO_LABEL),
	[METRIC_TOKEN_REQUESTS] =
		COUNTER("registry_token_requests_total",
			"HTTP requests to token servers.", NO_LABEL),
	[METRIC_REGISTRY_FAULTS] = COUNTER(
		"registry_faults_total",
		"Requests that a host did not answer as it should: unreachable, silent or busy; refused; in breach of the protocol; other.",
		LABELS("kind", "unavailable", "denied", "corrupt", "other")),
	[METRIC_PARKED_READS] = GAUGE(
		"parked_reads", "Reads that wait for their bytes.", NO_LABEL),
	[METRIC_FETCHES] = GAUGE(
		"fetches", "Ranges of blobs that are being fetched.", NO_LABEL),
	[METRIC_QUEUED_JOBS] = GAUGE(
		"queued_jobs", "Jobs that wait for a thread of their pool.",
		LABELS("pool", "rpc", "layer", "decode", "cred", "hosts",
		       "other")),
	[METRIC_SEAL_QUEUE] =
		GAUGE("seal_queue_files",
		      "Files and layers that wait to be sealed, or are being.",
		      NO_LABEL),
	[METRIC_READ_DURATION] = HISTOGRAM(
		"read_duration_seconds",
		"How long reads took that were answered with bytes, by where these were when the read came.",
		BOUNDS(read_bounds),
		LABEL("source", ARRAY_LEN(read_bounds) + 2, "local",
		      "fetched")),
	[METRIC_PREPARE_DURATION] = HISTOGRAM(
		"prepare_duration_seconds",
		"How long calls of Prepare took: answered that the layer is here (lazy), with mounts (ordinary), or with an error.",
		BOUNDS(prepare_bounds),
		LABEL("result", ARRAY_LEN(prepare_bounds) + 2, "lazy",
		      "ordinary", "failed")),
};

/* ---- counting ---- */

static unsigned cells_of_series(const struct metric_family *f)
{
	return f->type == METRIC_HISTOGRAM ? f->n_bounds + 2 : 1;
}

static void cell_add(_Atomic uint64_t *cell, uint64_t n)
{
	(void)atomic_fetch_add_explicit(cell, n, memory_order_relaxed);
}

static uint64_t cell_get(const _Atomic uint64_t *cell)
{
	return atomic_load_explicit(cell, memory_order_relaxed);
}

void metrics_add(enum metric m, unsigned series, uint64_t n)
{
	cell_add(&families[m].cells[series], n);
}

void metrics_move(enum metric m, unsigned series, int64_t by)
{
	cell_add(&families[m].cells[series], (uint64_t)by);
}

void metrics_observe(enum metric m, unsigned series, uint64_t ns)
{
	const struct metric_family *f = &families[m];
	_Atomic uint64_t *cells = f->cells + series * cells_of_series(f);
	unsigned i = 0;

	while (i < f->n_bounds && ns > f->bounds_ns[i])
		i++;
	cell_add(&cells[i], 1);
	cell_add(&cells[f->n_bounds + 1], ns);
}

unsigned metrics_series(enum metric m, const char *value)
{
	const struct metric_family *f = &families[m];
	unsigned i = 0;

	while (i + 1 < f->n_series && strcmp(f->values[i], value) != 0)
		i++;
	return i;
}

uint64_t metrics_get(enum metric m, unsigned series)
{
	const struct metric_family *f = &families[m];
	const _Atomic uint64_t *cells = f->cells + series * cells_of_series(f);
	uint64_t n = cell_get(cells);

	for (unsigned i = 1; i + 1 < cells_of_series(f); i++)
		n += cell_get(&cells[i]);
	return n;
}

/* ---- the text ---- */

/* In a label's value, quotes are escaped, too. */
static void add_escaped(struct buf *out, const char *s, bool quoted)
{
	for (; *s; s++) {
		if (*s == '\n')
			(void)buf_adds(out, "\\n");
		else if (*s == '\\' || (quoted && *s == '"'))
			(void)buf_addf(out, "\\%c", *s);
		else
			(void)buf_add(out, s, 1);
	}
}

/* The labels of a series. @bound: of a bucket, or NULL. */
static void add_labels(struct buf *out, const struct metric_family *f,
		       unsigned series, const char *bound)
{
	if (!f->label && !bound)
		return;
	(void)buf_adds(out, "{");
	if (f->label) {
		(void)buf_addf(out, "%s=\"", f->label);
		add_escaped(out, f->values[series], true);
		(void)buf_adds(out, "\"");
	}
	if (bound)
		(void)buf_addf(out, "%sle=\"%s\"", f->label ? "," : "", bound);
	(void)buf_adds(out, "}");
}

static void write_value(const struct metric_family *f, unsigned series,
			struct buf *out)
{
	uint64_t n = cell_get(&f->cells[series]);

	(void)buf_adds(out, f->name);
	add_labels(out, f, series, NULL);
	if (f->type == METRIC_GAUGE)
		(void)buf_addf(out, " %" PRId64 "\n", (int64_t)n);
	else
		(void)buf_addf(out, " %" PRIu64 "\n", n);
}

/* The buckets are read once, so that the last of them is the count. */
static void write_histogram(const struct metric_family *f, unsigned series,
			    struct buf *out)
{
	const _Atomic uint64_t *cells = f->cells + series * cells_of_series(f);
	uint64_t n = 0, sum = cell_get(&cells[f->n_bounds + 1]);
	char bound[32];

	for (unsigned i = 0; i <= f->n_bounds; i++) {
		n += cell_get(&cells[i]);
		if (i < f->n_bounds)
			(void)snprintf(bound, sizeof(bound), "%.12g",
				       (double)f->bounds_ns[i] / NS_PER_S);
		else
			(void)snprintf(bound, sizeof(bound), "+Inf");
		(void)buf_addf(out, "%s_bucket", f->name);
		add_labels(out, f, series, bound);
		(void)buf_addf(out, " %" PRIu64 "\n", n);
	}
	(void)buf_addf(out, "%s_sum", f->name);
	add_labels(out, f, series, NULL);
	(void)buf_addf(out, " %" PRIu64 ".%09" PRIu64 "\n%s_count",
		       sum / NS_PER_S, sum % NS_PER_S, f->name);
	add_labels(out, f, series, NULL);
	(void)buf_addf(out, " %" PRIu64 "\n", n);
}

void metrics_write_family(const struct metric_family *f, struct buf *out)
{
	static const char *const types[] = { [METRIC_COUNTER] = "counter",
					     [METRIC_GAUGE] = "gauge",
					     [METRIC_HISTOGRAM] = "histogram" };

	(void)buf_addf(out, "# HELP %s ", f->name);
	add_escaped(out, f->help, false);
	(void)buf_addf(out, "\n# TYPE %s %s\n", f->name, types[f->type]);
	for (unsigned i = 0; i < f->n_series; i++) {
		if (f->type == METRIC_HISTOGRAM)
			write_histogram(f, i, out);
		else
			write_value(f, i, out);
	}
}

int metrics_write(struct buf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(families); i++)
		metrics_write_family(&families[i], out);
	return out->failed ? -ENOMEM : 0;
}

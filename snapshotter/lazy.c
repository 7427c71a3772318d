/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lazy half of the daemon, put together; see lazy.h. Owns the order in
 * which its parts start and stop, and the sweeper thread.
 */
#include "snapshotter/lazy.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "fuse/view.h"
#include "snapshotter/body.h"
#include "snapshotter/broken.h"
#include "snapshotter/names.h"
#include "snapshotter/seal.h"
#include "verity/stream.h"

#define UNCLAIMED_GRACE_S 600
#define SWEEP_EVERY_MS 60000
#define SWEEP_DELAY_MS 300 /* several Removes come in a row */
#define JOB_DEADLINE_S 120 /* the job goes on when a Prepare gives up */

struct lazy {
	struct lazy_opts o;
	char mountpoint[PATH_MAX];
	struct fetcher *fetcher;
	struct registry *registry;
	struct filler *filler;
	struct bodies *bodies;
	struct layers *layers;
	struct broken *broken; /* NULL: not known */
	struct view *view; /* NULL: off */
	struct names *names; /* NULL: there is no containerd to ask */
	char off_reason[200];
	struct decide_env env;

	struct lock lock; /* guards what follows */
	struct cond wake;
	bool kicked, damaged, stopping;
	bool sweeper_runs; /* not guarded */
	pthread_t sweeper;
};

/* ---- sweeping ---- */

static void layer_gone(void *ctx, uint32_t seq)
{
	struct lazy *lz = ctx;
	char path[32];
	int r;

	if (lz->view)
		view_forget_layer(lz->view, seq);
	(void)snprintf(path, sizeof(path), "layer/%u", seq);
	r = trash_add(lz->o.trash, path);
	if (r < 0)
		log_warn("folder stays until the next start: path=%s err='%s'",
			 path, strerror(-r));
}

static void sweep(struct lazy *lz)
{
	struct err e = ERR_INIT;

	if (layers_sweep(lz->layers, UNCLAIMED_GRACE_S, layer_gone, lz, &e) < 0)
		log_warn("unused layers not removed: err='%s'", e.msg);
}

static void *sweeper_main(void *arg)
{
	struct lazy *lz = arg;
	uint64_t due = now_ms() + SWEEP_EVERY_MS;
	struct err e = ERR_INIT;

	(void)pthread_setname_np(pthread_self(), "vs-sweep");
	/* What an earlier process prepared and nobody claimed goes at once. */
	sweep(lz);
	if (layers_resume(lz->layers, &e) < 0)
		log_warn("filling not resumed: err='%s'", e.msg);
	lock_take(&lz->lock);
	while (!lz->stopping) {
		if (lz->kicked && due > now_ms() + SWEEP_DELAY_MS)
			due = now_ms() + SWEEP_DELAY_MS;
		if (lz->damaged) {
			lz->damaged = false;
			lock_drop(&lz->lock);
			if (lz->view)
				view_recheck_files(lz->view);
			lock_take(&lz->lock);
		} else if (cond_wait_until(&lz->wake, &lz->lock, due) < 0) {
			lz->kicked = false;
			lock_drop(&lz->lock);
			sweep(lz);
			lock_take(&lz->lock);
			due = now_ms() + SWEEP_EVERY_MS;
		}
	}
	lock_drop(&lz->lock);
	return NULL;
}

/* Of the bodies: what the kernel reads by itself may have to change. */
static void body_damaged(void *ctx)
{
	struct lazy *lz = ctx;

	lock_take(&lz->lock);
	lz->damaged = true;
	cond_signal(&lz->wake);
	lock_drop(&lz->lock);
}

void lazy_kick(struct lazy *lz)
{
	lock_take(&lz->lock);
	lz->kicked = true;
	cond_signal(&lz->wake);
	lock_drop(&lz->lock);
}

/* ---- start ---- */

static int open_network(struct lazy *lz, struct err *e)
{
	struct fetcher_opts fo = { .http2 = lz->o.o->http2 };
	struct registry_opts ro = { .docker_config = lz->o.o->docker_config,
				    .hosts_dirs = lz->o.o->hosts_dirs };
	struct filler_opts lo = { .read_timeout_s = lz->o.o->read_timeout_s };
	int r = fetcher_new(&fo, &lz->fetcher);

	if (r < 0)
		return err_sys(e, r, "network thread");
	ro.fetcher = lz->fetcher;
	r = registry_new(&ro, &lz->registry);
	if (r < 0)
		return err_sys(e, r, "registry");
	r = filler_new(&lo, &lz->filler);
	return r < 0 ? err_sys(e, r, "filler") : 0;
}

static int open_layers(struct lazy *lz, struct err *e)
{
	struct layers_opts lo = { .rootfd = lz->o.rootfd,
				  .store = lz->o.store,
				  .registry = lz->registry,
				  .filler = lz->filler,
				  .background_fill = lz->o.o->background_fill,
				  .prove_before_run = lz->o.o->prove_before_run,
				  .unsealed_passthrough =
					  lz->o.o->unsealed_passthrough,
				  .read_timeout_s = lz->o.o->read_timeout_s,
				  .sealer = lz->o.o->sealer,
				  .scrubber = lz->o.o->scrubber,
				  .scrub_rate = lz->o.o->scrub_rate,
				  .scrub_interval_s = lz->o.o->scrub_interval_s,
				  .job_deadline_s = JOB_DEADLINE_S };
	char why[200];
	int r = bodies_new(lz->o.rootfd, &lz->bodies);

	if (r < 0)
		return err_sys(e, r, "bodies");
	bodies_on_damage(lz->bodies, body_damaged, lz);
	lo.bodies = lz->bodies;
	if (lz->o.o->verity == VERITY_OFF)
		lo.seal_off = "verity is \"off\" in the configuration";
	else if (lz->o.o->without & SNAPSHOTTER_WITHOUT_VERITY)
		lo.seal_off = "masked by --without verity";
	else if (lz->o.o->verity_error) {
		(void)snprintf(why, sizeof(why), "%s: " SEALING_NEEDS,
			       strerror(-lz->o.o->verity_error));
		lo.seal_off = why;
	}
	return layers_open(&lo, &lz->layers, e);
}

/* No view is no error: ordinary mounts still work. */
static void open_view(struct lazy *lz)
{
	unsigned without = lz->o.o->without;
	struct view_opts vo = { .mountpoint = lz->mountpoint,
				.store = store_uuid(lz->o.store),
				.read_timeout_s = lz->o.o->read_timeout_s,
				.without = without >>
					   SNAPSHOTTER_WITHOUT_VIEW_SHIFT };
	int r = broken_find(lz->o.root, &lz->broken);

	if (r < 0)
		log_warn("broken containers not looked for: err='%s'",
			 strerror(-r));
	r = view_detach_dead(lz->mountpoint);
	if (r > 0)
		log_info(
			"mounts of an earlier process detached: count=%d path='%s'",
			r, lz->mountpoint);
	if (without & SNAPSHOTTER_WITHOUT_FUSE) {
		(void)snprintf(lz->off_reason, sizeof(lz->off_reason),
			       "masked by --without fuse");
		return;
	}
	layers_source_set(lz->layers, &vo.sources);
	if (r >= 0)
		r = view_open(&vo, &lz->view);
	if (r < 0) {
		(void)snprintf(lz->off_reason, sizeof(lz->off_reason),
			       "the FUSE view cannot be mounted: %s",
			       strerror(-r));
		log_warn("no lazy layers: reason='%s'", lz->off_reason);
	}
}

static int start_sweeper(struct lazy *lz, struct err *e)
{
	int r = -pthread_create(&lz->sweeper, NULL, sweeper_main, lz);

	if (r < 0)
		return err_sys(e, r, "sweeper thread");
	lz->sweeper_runs = true;
	return 0;
}

static void set_page_cache(unsigned without)
{
	struct stream_fs fs[STREAM_FS_MAX];
	size_t n;

	if (without & SNAPSHOTTER_WITHOUT_HINTS)
		stream_limit(STREAM_PLAIN);
	else if (without & SNAPSHOTTER_WITHOUT_DONTCACHE)
		stream_limit(STREAM_FADVISE);
	/* The state directory was tried at the start. */
	n = stream_get_fs(fs);
	for (size_t i = 0; i < n; i++)
		log_info("page cache: device=%u:%u way=%s", fs[i].major,
			 fs[i].minor, stream_way_name(fs[i].way));
}

static int open_names(struct lazy *lz, struct err *e)
{
	const struct names_opts no = { .containerd = lz->o.o->containerd,
				       .store = lz->o.store };

	return no.containerd ? names_open(&no, &lz->names, e) : 0;
}

int lazy_open(const struct lazy_opts *o, struct lazy **ret, struct err *e)
{
	struct lazy *lz = calloc(1, sizeof(*lz));

	if (!lz)
		return err_sys(e, -ENOMEM, "lazy layers");
	lz->o = *o;
	lock_init(&lz->lock, RANK_LEAF);
	(void)snprintf(lz->mountpoint, sizeof(lz->mountpoint), "%s/l", o->root);
	set_page_cache(o->o->without);
	/* Written through the page cache is what will be sealed soon. */
	if (o->o->sealer)
		stream_set_cached_max(
			o->o->background_fill ? o->o->seal_from_cache : 0);
	if (cond_init(&lz->wake) < 0 || open_network(lz, e) < 0 ||
	    open_layers(lz, e) < 0) {
		lazy_close(lz);
		return -1;
	}
	open_view(lz);
	if (start_sweeper(lz, e) < 0 || open_names(lz, e) < 0) {
		lazy_close(lz);
		return -1;
	}
	lz->env = (struct decide_env){
		.owner = o->owner,
		.policy = o->o->policy,
		.off_reason = lz->view ? NULL : lz->off_reason,
		.store = o->store,
		.layers = lz->layers,
		.registry = lz->registry,
		.prove_before_run = o->o->prove_before_run,
		.require_verity = o->o->verity == VERITY_REQUIRE
	};
	lz->o.o = NULL; /* the caller's, for the start only */
	*ret = lz;
	return 0;
}

/*
 * The view first, so that no question comes any more; then the network, which
 * ends every wait of jobs and fills with ERR_CANCELLED; then who waited.
 */
void lazy_close(struct lazy *lz)
{
	if (!lz)
		return;
	if (lz->sweeper_runs) {
		lock_take(&lz->lock);
		lz->stopping = true;
		cond_broadcast(&lz->wake);
		lock_drop(&lz->lock);
		(void)pthread_join(lz->sweeper, NULL);
	}
	names_close(lz->names);
	view_close(lz->view);
	fetcher_free(lz->fetcher);
	layers_close(lz->layers);
	filler_free(lz->filler);
	bodies_free(lz->bodies);
	registry_free(lz->registry);
	broken_free(lz->broken);
	cond_release(&lz->wake);
	lock_release(&lz->lock);
	free(lz);
}

/* ---- questions ---- */

uint64_t lazy_scrub(struct lazy *lz, uint32_t seq)
{
	return layers_scrub(lz->layers, seq);
}

bool lazy_is_on(const struct lazy *lz)
{
	return lz->view != NULL;
}

uint64_t lazy_view_flags(const struct lazy *lz)
{
	struct view_stats vs;

	if (!lz->view)
		return 0;
	view_stats(lz->view, &vs);
	return vs.init_flags;
}

const struct decide_env *lazy_decide_env(const struct lazy *lz)
{
	return &lz->env;
}

void lazy_refresh_broken(struct lazy *lz)
{
	if (lz->broken)
		broken_refresh(lz->broken);
}

/* ---- status ---- */

struct status_ctx {
	struct buf *out;
	bool first;
	struct view *view; /* of layer_json(); NULL: none */
};

static void layer_json(void *ctx, const struct layer_status *st)
{
	struct status_ctx *c = ctx;
	struct buf *b = c->out;

	(void)buf_addf(b,
		       "%s{\"digest\":\"%s\",\"image\":", c->first ? "" : ",",
		       digest_str(&st->digest).s);
	(void)buf_add_json(b, st->image);
	(void)buf_addf(b, ",\"state\":\"%s\",\"reason\":", st->state);
	(void)buf_add_json(b, st->reason);
	(void)buf_addf(b,
		       ",\"bytes_total\":%llu,\"bytes_local\":%llu,"
		       "\"bytes_fetched\":%llu,\"waiting\":%u,\"waiting_for\":",
		       (unsigned long long)st->bytes_total,
		       (unsigned long long)st->bytes_local,
		       (unsigned long long)st->bytes_fetched, st->waiting);
	(void)buf_add_json(b, st->waiting_for);
	(void)buf_addf(b,
		       ",\"repositories\":%u,\"proven\":%s,\"proof\":\"%s\","
		       "\"bytes_refetched\":%llu",
		       st->n_repos, st->proven ? "true" : "false", st->proof,
		       (unsigned long long)st->bytes_refetched);
	if (st->seq != NO_LAYER)
		(void)buf_addf(b, ",\"seq\":%u,\"old_files\":%u", st->seq,
			       c->view ? view_n_healed(c->view, st->seq) : 0);
	(void)buf_adds(b, "}");
	c->first = false;
}

static void pair_json(void *ctx, uint32_t seq, uint32_t below)
{
	struct status_ctx *c = ctx;

	(void)buf_addf(c->out, "%s[%u,%u]", c->first ? "" : ",", seq, below);
	c->first = false;
}

/* Without it status still has everything else. */
static void below_json(struct lazy *lz, struct buf *b)
{
	struct status_ctx c = { .out = b, .first = true };
	struct err e = ERR_INIT;

	(void)buf_adds(b, "\"below\":[");
	if (store_layers_below(lz->o.store, pair_json, &c, &e) < 0)
		log_warn("status without order of layers: err='%s'", e.msg);
	(void)buf_adds(b, "]");
}

/* Files that the kernel holds open, and who reads them. */
static void opens_json(struct view *v, const struct view_stats *vs,
		       struct buf *b)
{
	(void)buf_addf(b,
		       "\"opens\":{\"cached\":%u,\"passthrough\":%u,"
		       "\"healed\":%u,\"changeable\":%u,"
		       "\"backing_files\":%u,"
		       "\"passthrough_total\":%llu,\"refused\":",
		       vs->n_open - vs->n_passthrough - vs->n_healed,
		       vs->n_passthrough, vs->n_healed, view_n_changeable(v),
		       vs->n_backing,
		       (unsigned long long)vs->n_passthrough_total);
	(void)buf_add_json(b, vs->passthrough_error
				      ? strerror(vs->passthrough_error)
				      : "");
	(void)buf_adds(b, "}");
}

static void view_json(struct lazy *lz, struct buf *b)
{
	struct view_stats vs;

	if (!lz->view) {
		(void)buf_adds(b, "\"view\":{\"mounted\":false,\"reason\":");
		(void)buf_add_json(b, lz->off_reason);
		(void)buf_adds(b, "}");
		return;
	}
	view_stats(lz->view, &vs);
	(void)buf_addf(b,
		       "\"view\":{\"mounted\":%s,\"protocol\":\"7.%u\","
		       "\"init_flags\":\"0x%llx\",\"requests\":%llu,"
		       "\"reads\":%llu,\"parked\":%u,\"parked_total\":%llu,"
		       "\"locked_bytes\":%llu,",
		       vs.mounted ? "true" : "false", vs.proto_minor,
		       (unsigned long long)vs.init_flags,
		       (unsigned long long)vs.n_requests,
		       (unsigned long long)vs.n_reads, vs.n_parked,
		       (unsigned long long)vs.n_parked_total,
		       (unsigned long long)vs.locked_bytes);
	opens_json(lz->view, &vs, b);
	(void)buf_adds(b, "}");
}

static void page_cache_json(struct buf *out)
{
	struct stream_fs fs[STREAM_FS_MAX];
	size_t n = stream_get_fs(fs);

	(void)buf_adds(out, ",\"page_cache\":[");
	for (size_t i = 0; i < n; i++)
		(void)buf_addf(out, "%s{\"device\":\"%u:%u\",\"way\":\"%s\"}",
			       i ? "," : "", fs[i].major, fs[i].minor,
			       stream_way_name(fs[i].way));
	(void)buf_adds(out, "]");
}

/* What is refused or kept waiting because there is enough of it already. */
static void limits_json(struct lazy *lz, struct buf *b)
{
	struct fetcher_stats ns;
	struct filler_stats fs;

	fetcher_stats(lz->fetcher, &ns);
	filler_stats(lz->filler, &fs);
	(void)buf_addf(b,
		       ",\"limits\":{\"connections\":%u,"
		       "\"connections_max\":%u,"
		       "\"connections_per_host_max\":%u,"
		       "\"requests_queued\":%u,"
		       "\"readers_of_a_registry\":%u,"
		       "\"readers_of_a_registry_max\":%u,"
		       "\"readers_refused\":%llu,"
		       "\"repositories_of_a_layer_max\":%u}",
		       ns.n_running, ns.max_total, ns.max_per_host, ns.n_queued,
		       fs.n_waiters, fs.max_waiters,
		       (unsigned long long)fs.n_refused, LAYER_REPOS_MAX);
}

int lazy_names_json(struct lazy *lz, struct buf *out)
{
	if (lz->names)
		return names_json(lz->names, out);
	(void)buf_adds(out,
		       "{\"containerd\":{\"address\":\"\",\"connected\":false,"
		       "\"reason\":\"none is configured\"},\"images\":[]}\n");
	return out->failed ? -ENOMEM : 0;
}

int lazy_status_json(struct lazy *lz, struct buf *out)
{
	struct status_ctx c = { .out = out, .first = true, .view = lz->view };
	struct registry_stats rs;

	(void)buf_adds(out, "\"layers\":[");
	layers_status(lz->layers, layer_json, &c);
	(void)buf_adds(out, "],");
	below_json(lz, out);
	(void)buf_adds(out, ",");
	layers_sealing_json(lz->layers, out);
	(void)buf_adds(out, ",");
	layers_scrub_json(lz->layers, out);
	(void)buf_adds(out, ",");
	view_json(lz, out);
	(void)buf_adds(out, ",");
	broken_json(lz->broken, out);
	registry_stats(lz->registry, &rs);
	(void)buf_addf(
		out,
		",\"registry\":{\"requests\":%llu,\"token_requests\":%llu,"
		"\"bytes\":%llu}",
		(unsigned long long)rs.n_requests,
		(unsigned long long)rs.n_token_requests,
		(unsigned long long)rs.bytes);
	page_cache_json(out);
	limits_json(lz, out);
	(void)buf_adds(out, ",\"registries\":");
	return registry_status_json(lz->registry, out);
}

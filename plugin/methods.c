/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods of containerd.services.snapshots.v1; see methods.h. Each turns a
 * checked request into one call of snapshotter/ and its result into bytes. No
 * snapshot semantics here: only what can be said of the request alone.
 */
#include "plugin/methods.h"

#include <string.h>

#include "base/log.h"
#include "proto/snapshots.pb-c.h"
#include "rpc/wire.h"
#include "snapshotter/snapshotter.h"

#define PREFIX "/containerd.services.snapshots.v1.Snapshots/"
#define NAME_MAX_BYTES 4096u
#define LABELS_MAX 1024u
#define PAGE_SOFT_MAX (1u << 20) /* bytes; a page of List ends there */

#define PB(x) Containerd__Services__Snapshots__V1__##x
#define PB_KIND(x) CONTAINERD__SERVICES__SNAPSHOTS__V1__KIND__##x
#define pb_type(x) (&containerd__services__snapshots__v1__##x##__descriptor)
#define pb_init(x, p) containerd__services__snapshots__v1__##x##__init(p)

struct method {
	const char *name;
	const ProtobufCMessageDescriptor *request;
	/* enum method_next, or -1 */
	int (*step)(struct method_call *c, struct err *e);
};

/*
 * What a client is told. containerd up to 1.7 turns every code but 1, 3, 4, 5,
 * 6, 9, 12 and 14 into "unknown", with our text.
 * Source: containerd errdefs pkg/errgrpc/grpc.go.
 *
 * DENIED is PermissionDenied, not Unavailable: nobody should hope that a retry
 * with the same credentials helps. UNSUPPORTED is a matter of this machine or
 * image, not of a missing method, so not Unimplemented (which containerd takes
 * as "never call this again" for Cleanup).
 */
enum grpc_code grpc_code_of(enum err_kind kind)
{
	switch (kind) {
	case ERR_NONE:
		return GRPC_OK;
	case ERR_INVALID:
		return GRPC_INVALID_ARGUMENT;
	case ERR_NOT_FOUND:
		return GRPC_NOT_FOUND;
	case ERR_EXISTS:
		return GRPC_ALREADY_EXISTS;
	case ERR_PRECONDITION:
	case ERR_UNSUPPORTED:
		return GRPC_FAILED_PRECONDITION;
	case ERR_CORRUPT:
		return GRPC_DATA_LOSS;
	case ERR_UNAVAILABLE:
		return GRPC_UNAVAILABLE;
	case ERR_DENIED:
		return GRPC_PERMISSION_DENIED;
	case ERR_NO_SPACE:
		return GRPC_RESOURCE_EXHAUSTED;
	case ERR_CANCELLED:
		return GRPC_CANCELLED;
	case ERR_INTERNAL:
		return GRPC_INTERNAL;
	}
	return GRPC_INTERNAL;
}

/* ---- requests ---- */

/* "key", "name" and the like: at most 4 KiB. */
static int check_name(const char *what, const char *s, struct err *e)
{
	if (strlen(s) > NAME_MAX_BYTES)
		return err_set(e, ERR_INVALID, "%s is longer than %u bytes",
			       what, NAME_MAX_BYTES);
	return 0;
}

static int check_key(const char *what, const char *s, struct err *e)
{
	if (!*s)
		return err_set(e, ERR_INVALID, "%s is empty", what);
	return check_name(what, s, e);
}

static int check_sn_key(const char *sn, const char *key, struct err *e)
{
	if (check_name("snapshotter", sn, e) < 0)
		return -1;
	return check_key("key", key, e);
}

static int add_label(struct labels *l, const char *key, const char *value,
		     struct err *e)
{
	int r;

	if (check_key("label", key, e) < 0)
		return -1;
	if (labels_get(l, key))
		return err_set(e, ERR_INVALID, "label '%.100s' occurs twice",
			       key);
	if (l->n >= LABELS_MAX)
		return err_set(e, ERR_INVALID, "more than %u labels",
			       LABELS_MAX);
	r = labels_set(l, key, value); /* drops an empty value */
	return r < 0 ? err_sys(e, r, "copy labels") : 0;
}

/* Each message with a map has a type of its own for the map's entries. */
#define take_labels(l, m, e)                                             \
	__extension__({                                                  \
		int r_ = 0;                                              \
		for (size_t i_ = 0; i_ < (m)->n_labels && r_ == 0; i_++) \
			r_ = add_label(l, (m)->labels[i_]->key,          \
				       (m)->labels[i_]->value, e);       \
		r_;                                                      \
	})

/* ---- answers ---- */

static int put_message(struct method_call *c, const ProtobufCMessage *m,
		       struct err *e)
{
	size_t begin, n = protobuf_c_message_get_packed_size(m);

	if (n > GRPC_MESSAGE_MAX)
		return err_set(e, ERR_NO_SPACE,
			       "answer of %zu bytes exceeds the limit of %u", n,
			       GRPC_MESSAGE_MAX);
	begin = grpc_frame_begin(&c->out);
	if (buf_reserve(&c->out, n) < 0)
		return err_sys(e, -ENOMEM, "pack the answer");
	c->out.len += protobuf_c_message_pack(m, c->out.p + c->out.len);
	if (grpc_frame_end(&c->out, begin) < 0)
		return err_sys(e, -ENOMEM, "pack the answer");
	return METHOD_END;
}

static int put_empty(struct method_call *c, struct err *e)
{
	Google__Protobuf__Empty m = GOOGLE__PROTOBUF__EMPTY__INIT;

	return put_message(c, &m.base, e);
}

/* The answers of Prepare, View and Mounts are the same bytes. */
static int put_mounts(struct method_call *c, const struct mount_list *l,
		      struct err *e)
{
	PB(MountsResponse) m;
	owned(mem) Containerd__Types__Mount *v = calloc(l->n + 1, sizeof(*v));
	owned(mem) Containerd__Types__Mount **pv =
		calloc(l->n + 1, sizeof(*pv));

	if (!v || !pv)
		return err_sys(e, -ENOMEM, "pack mounts");
	for (size_t i = 0; i < l->n; i++) {
		containerd__types__mount__init(&v[i]);
		v[i].type = l->v[i].type;
		v[i].source = l->v[i].source;
		v[i].options = l->v[i].options;
		v[i].n_options = l->v[i].n_options;
		pv[i] = &v[i];
	}
	pb_init(mounts_response, &m);
	m.mounts = pv;
	m.n_mounts = l->n;
	return put_message(c, &m.base, e);
}

/* An Info whose strings are those of a struct snap. */
struct info {
	PB(Info) pb;
	Google__Protobuf__Timestamp created, updated;
	PB(Info__LabelsEntry) * entries, **pointers;
};

static void info_release(struct info *in)
{
	free(in->entries);
	free(in->pointers);
}

static PB(Kind) kind_of(enum snap_kind kind)
{
	switch (kind) {
	case SNAP_KIND_VIEW:
		return PB_KIND(VIEW);
	case SNAP_KIND_ACTIVE:
		return PB_KIND(ACTIVE);
	case SNAP_KIND_COMMITTED:
		return PB_KIND(COMMITTED);
	}
	return PB_KIND(UNKNOWN);
}

static int info_init(struct info *in, const struct snap *sp)
{
	size_t n = sp->labels.n;

	pb_init(info, &in->pb);
	google__protobuf__timestamp__init(&in->created);
	google__protobuf__timestamp__init(&in->updated);
	in->entries = calloc(n + 1, sizeof(*in->entries));
	in->pointers = calloc(n + 1, sizeof(*in->pointers));
	if (!in->entries || !in->pointers) {
		info_release(in);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		pb_init(info__labels_entry, &in->entries[i]);
		in->entries[i].key = sp->labels.v[i].key;
		in->entries[i].value = sp->labels.v[i].value;
		in->pointers[i] = &in->entries[i];
	}
	in->pb.name = sp->name;
	in->pb.parent = sp->parent;
	in->pb.kind = kind_of(sp->kind);
	in->created.seconds = sp->created.sec;
	in->created.nanos = sp->created.nsec;
	in->updated.seconds = sp->updated.sec;
	in->updated.nanos = sp->updated.nsec;
	in->pb.created_at = &in->created;
	in->pb.updated_at = &in->updated;
	in->pb.labels = in->pointers;
	in->pb.n_labels = n;
	return 0;
}

/* The answers of Stat and Update are the same bytes. Releases @sp. */
static int put_info(struct method_call *c, struct snap *sp, struct err *e)
{
	PB(StatSnapshotResponse) m;
	struct info in;
	int r = info_init(&in, sp);

	if (r < 0) {
		(void)err_sys(e, r, "pack the answer");
	} else {
		pb_init(stat_snapshot_response, &m);
		m.info = &in.pb;
		r = put_message(c, &m.base, e);
		info_release(&in);
	}
	snap_release(sp);
	return r < 0 ? -1 : r;
}

/* ---- Prepare and View ---- */

static int prepare(struct method_call *c, const char *sn, const char *key,
		   const char *parent, bool view, struct err *e)
{
	struct prepare_req rq = { .sn = sn,
				  .key = key,
				  .parent = parent,
				  .labels = &c->labels,
				  .view = view };
	struct mount_list mounts = { 0 };
	int r;

	if (check_sn_key(sn, key, e) < 0 || check_name("parent", parent, e) < 0)
		return -1;
	r = snapshotter_prepare(c->snapshotter, &rq, c->ready, c->ready_ctx,
				&mounts, &c->op, e);
	if (r < 0)
		return -1;
	if (r > 0)
		return METHOD_PARKED;
	r = put_mounts(c, &mounts, e);
	mount_list_release(&mounts);
	return r;
}

static int prepare_finish(struct method_call *c, struct err *e)
{
	struct mount_list mounts = { 0 };
	int r;

	if (snapshotter_prepare_finish(take_ptr(&c->op), &mounts, e) < 0)
		return -1;
	r = put_mounts(c, &mounts, e);
	mount_list_release(&mounts);
	return r;
}

static int step_prepare(struct method_call *c, struct err *e)
{
	const PB(PrepareSnapshotRequest) *rq = (const void *)c->msg;

	if (take_labels(&c->labels, rq, e) < 0)
		return -1;
	return prepare(c, rq->snapshotter, rq->key, rq->parent, false, e);
}

static int step_view(struct method_call *c, struct err *e)
{
	const PB(ViewSnapshotRequest) *rq = (const void *)c->msg;

	if (take_labels(&c->labels, rq, e) < 0)
		return -1;
	return prepare(c, rq->snapshotter, rq->key, rq->parent, true, e);
}

/* ---- the other methods ---- */

static int step_mounts(struct method_call *c, struct err *e)
{
	const PB(MountsRequest) *rq = (const void *)c->msg;
	struct mount_list mounts = { 0 };
	int r;

	if (check_sn_key(rq->snapshotter, rq->key, e) < 0 ||
	    snapshotter_mounts(c->snapshotter, rq->snapshotter, rq->key,
			       &mounts, e) < 0)
		return -1;
	r = put_mounts(c, &mounts, e);
	mount_list_release(&mounts);
	return r;
}

static int step_commit(struct method_call *c, struct err *e)
{
	const PB(CommitSnapshotRequest) *rq = (const void *)c->msg;

	if (check_sn_key(rq->snapshotter, rq->key, e) < 0 ||
	    check_key("name", rq->name, e) < 0 ||
	    check_name("parent", rq->parent, e) < 0 ||
	    take_labels(&c->labels, rq, e) < 0)
		return -1;
	if (snapshotter_commit(c->snapshotter, rq->snapshotter, rq->name,
			       rq->key, *rq->parent ? rq->parent : NULL,
			       &c->labels, e) < 0)
		return -1;
	return put_empty(c, e);
}

static int step_remove(struct method_call *c, struct err *e)
{
	const PB(RemoveSnapshotRequest) *rq = (const void *)c->msg;

	if (check_sn_key(rq->snapshotter, rq->key, e) < 0 ||
	    snapshotter_remove(c->snapshotter, rq->snapshotter, rq->key, e) < 0)
		return -1;
	return put_empty(c, e);
}

static int step_stat(struct method_call *c, struct err *e)
{
	const PB(StatSnapshotRequest) *rq = (const void *)c->msg;
	struct snap sp = { 0 };

	if (check_sn_key(rq->snapshotter, rq->key, e) < 0 ||
	    snapshotter_stat(c->snapshotter, rq->snapshotter, rq->key, &sp, e) <
		    0)
		return -1;
	return put_info(c, &sp, e);
}

static int step_update(struct method_call *c, struct err *e)
{
	const PB(UpdateSnapshotRequest) *rq = (const void *)c->msg;
	const Google__Protobuf__FieldMask *mask = rq->update_mask;
	struct snap sp = { 0 };

	if (!rq->info)
		return err_set(e, ERR_INVALID, "info is missing");
	if (check_name("snapshotter", rq->snapshotter, e) < 0 ||
	    check_key("name", rq->info->name, e) < 0 ||
	    take_labels(&c->labels, rq->info, e) < 0)
		return -1;
	if (snapshotter_update(c->snapshotter, rq->snapshotter, rq->info->name,
			       &c->labels,
			       mask ? (const char *const *)mask->paths : NULL,
			       mask ? mask->n_paths : 0, &sp, e) < 0)
		return -1;
	return put_info(c, &sp, e);
}

static int step_usage(struct method_call *c, struct err *e)
{
	const PB(UsageRequest) *rq = (const void *)c->msg;
	PB(UsageResponse) m;
	uint64_t size = 0, inodes = 0;

	if (check_sn_key(rq->snapshotter, rq->key, e) < 0 ||
	    snapshotter_usage(c->snapshotter, rq->snapshotter, rq->key, &size,
			      &inodes, e) < 0)
		return -1;
	pb_init(usage_response, &m);
	m.size = size > INT64_MAX ? INT64_MAX : (int64_t)size;
	m.inodes = inodes > INT64_MAX ? INT64_MAX : (int64_t)inodes;
	return put_message(c, &m.base, e);
}

static int step_cleanup(struct method_call *c, struct err *e)
{
	const PB(CleanupRequest) *rq = (const void *)c->msg;

	if (check_name("snapshotter", rq->snapshotter, e) < 0 ||
	    snapshotter_cleanup(c->snapshotter, rq->snapshotter, e) < 0)
		return -1;
	return put_empty(c, e);
}

/* ---- List ---- */

/* A page under construction: one message, or two when the last snapshot has a
 * lot of labels. A repeated field is the concatenation of its elements, so
 * each snapshot is packed as it comes. */
struct page {
	struct buf *out;
	size_t begin; /* of the message */
	unsigned n;
	int error;
};

static int page_open(struct page *pg)
{
	pg->begin = grpc_frame_begin(pg->out);
	return pg->out->failed ? -ENOMEM : 0;
}

static int page_add(struct page *pg, PB(Info) * info)
{
	PB(ListSnapshotsResponse) m;
	size_t n, used = pg->out->len - pg->begin - GRPC_PREFIX_LEN;
	int r;

	pb_init(list_snapshots_response, &m);
	m.info = &info;
	m.n_info = 1;
	n = protobuf_c_message_get_packed_size(&m.base);
	if (n > GRPC_MESSAGE_MAX) {
		/* It grew by many Updates. Without its labels it can at least
		 * be seen, and removed; an error would end all of List. */
		log_warn(
			"snapshot listed without labels: name='%.100s' bytes=%zu",
			info->name, n);
		info->n_labels = 0;
		n = protobuf_c_message_get_packed_size(&m.base);
	}
	if (used && used + n > PAGE_SOFT_MAX) {
		r = grpc_frame_end(pg->out, pg->begin);
		if (r == 0)
			r = page_open(pg);
		if (r < 0)
			return r;
	}
	r = buf_reserve(pg->out, n);
	if (r < 0)
		return r;
	pg->out->len +=
		protobuf_c_message_pack(&m.base, pg->out->p + pg->out->len);
	pg->n++;
	return 0;
}

static int on_snap(void *ctx, const struct snap *sp)
{
	struct page *pg = ctx;
	struct info in;
	int r = info_init(&in, sp);

	if (r == 0) {
		r = page_add(pg, &in.pb);
		info_release(&in);
	}
	if (r < 0)
		pg->error = r;
	return r < 0 || pg->out->len >= PAGE_SOFT_MAX;
}

static int step_list(struct method_call *c, struct err *e)
{
	const PB(ListSnapshotsRequest) *rq = (const void *)c->msg;
	struct page pg = { .out = &c->out };
	int n = 1, r;

	if (check_name("snapshotter", rq->snapshotter, e) < 0)
		return -1;
	pg.error = page_open(&pg);
	while (n > 0 && pg.n < METHOD_PAGE && !pg.error &&
	       c->out.len < PAGE_SOFT_MAX) {
		n = snapshotter_list(c->snapshotter, rq->snapshotter,
				     (const char *const *)rq->filters,
				     rq->n_filters, &c->cursor,
				     METHOD_PAGE - pg.n, on_snap, &pg, e);
	}
	if (pg.error)
		return err_sys(e, pg.error, "pack a page");
	if (n < 0)
		return -1;
	if (pg.n == 0) {
		buf_release(&c->out);
		return METHOD_END;
	}
	r = grpc_frame_end(&c->out, pg.begin);
	if (r < 0)
		return err_sys(e, r, "pack a page");
	return n > 0 ? METHOD_MORE : METHOD_END;
}

/* ---- the table ---- */

static const struct method methods[] = {
	{ "Prepare", pb_type(prepare_snapshot_request), step_prepare },
	{ "View", pb_type(view_snapshot_request), step_view },
	{ "Mounts", pb_type(mounts_request), step_mounts },
	{ "Commit", pb_type(commit_snapshot_request), step_commit },
	{ "Remove", pb_type(remove_snapshot_request), step_remove },
	{ "Stat", pb_type(stat_snapshot_request), step_stat },
	{ "Update", pb_type(update_snapshot_request), step_update },
	{ "List", pb_type(list_snapshots_request), step_list },
	{ "Usage", pb_type(usage_request), step_usage },
	{ "Cleanup", pb_type(cleanup_request), step_cleanup },
};

const struct method *method_find(const char *path)
{
	if (strncmp(path, PREFIX, sizeof(PREFIX) - 1) != 0)
		return NULL;
	path += sizeof(PREFIX) - 1;
	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (strcmp(path, methods[i].name) == 0)
			return &methods[i];
	return NULL;
}

const char *method_name(const struct method *m)
{
	return m->name;
}

enum method_next method_step(struct method_call *c)
{
	struct err e = ERR_INIT;
	int r = 0;

	if (!c->msg) {
		r = wire_unpack(c->method->request, c->request.p,
				c->request.len, &c->msg, &e);
		buf_release(&c->request);
	}
	if (r == 0)
		r = c->op ? prepare_finish(c, &e) : c->method->step(c, &e);
	if (r >= 0)
		return (enum method_next)r;
	buf_release(&c->out);
	c->status.code =
		grpc_code_of(e.kind == ERR_NONE ? ERR_INTERNAL : e.kind);
	(void)snprintf(c->status.msg, sizeof(c->status.msg), "%s", e.msg);
	return METHOD_END;
}

void method_call_release(struct method_call *c)
{
	if (c->msg)
		protobuf_c_message_free_unpacked(c->msg, NULL);
	c->msg = NULL;
	labels_release(&c->labels);
	buf_release(&c->request);
	buf_release(&c->out);
}

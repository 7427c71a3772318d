/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to containerd, as messages; see ctd.h. */
#include "snapshotter/ctd.h"

#include <string.h>

#include "proto/containerd.pb-c.h"
#include "rpc/client.h"
#include "rpc/wire.h"
#include "verity/sha256.h"

#define CALL_MS 10000

#define SERVICE "/containerd.services."
#define ANSWER(x) &containerd__##x##__descriptor

static const struct rpc_method list_namespaces = {
	SERVICE "namespaces.v1.Namespaces/List",
	ANSWER(list_namespaces_response)
};
static const struct rpc_method list_images = { SERVICE "images.v1.Images/List",
					       ANSWER(list_images_response) };
static const struct rpc_method get_image = { SERVICE "images.v1.Images/Get",
					     ANSWER(get_image_response) };
static const struct rpc_method read_content = { SERVICE
						"content.v1.Content/Read",
						ANSWER(read_content_response) };
static const struct rpc_method subscribe = { SERVICE
					     "events.v1.Events/Subscribe",
					     ANSWER(envelope) };

struct ctd {
	struct rpc_client *client;
	const struct ctd_ops *ops;
	void *ctx;
};

/* ---- events ---- */

static bool image_event(struct ctd *c, const Containerd__Envelope *ev)
{
	ProtobufCMessage *m = NULL;
	const Containerd__ImageEvent *ie;
	struct err e = ERR_INIT;

	if (strncmp(ev->topic, "/images/", 8) != 0 || !ev->namespace_[0] ||
	    !ev->event ||
	    wire_unpack(&containerd__image_event__descriptor,
			ev->event->value.data, ev->event->value.len, &m,
			&e) < 0)
		return false;
	ie = (const Containerd__ImageEvent *)m;
	if (ie->name[0])
		c->ops->image_changed(c->ctx, ev->namespace_, ie->name);
	else
		c->ops->all_changed(c->ctx);
	protobuf_c_message_free_unpacked(m, NULL);
	return true;
}

static int on_event(void *ctx, const ProtobufCMessage *m,
		    struct err *e unused_arg)
{
	struct ctd *c = ctx;

	if (!image_event(c, (const Containerd__Envelope *)m))
		c->ops->all_changed(c->ctx);
	return 0;
}

int ctd_open(const char *path, int stop_fd, const struct ctd_ops *ops,
	     void *ctx, struct ctd **ret, struct err *e)
{
	static char images[] = "topic~=\"^/images/\"";
	static char namespaces[] = "topic~=\"^/namespaces/\"";
	char *filters[] = { images, namespaces };
	Containerd__SubscribeRequest rq = CONTAINERD__SUBSCRIBE_REQUEST__INIT;
	struct ctd *c = calloc(1, sizeof(*c));

	if (!c)
		return err_sys(e, -ENOMEM, "containerd");
	c->ops = ops;
	c->ctx = ctx;
	rq.n_filters = ARRAY_LEN(filters);
	rq.filters = filters;
	if (rpc_client_open(path, stop_fd, &c->client, e) < 0 ||
	    rpc_subscribe(c->client, &subscribe, &rq.base, on_event, c, e) <
		    0) {
		ctd_close(c);
		return -1;
	}
	*ret = c;
	return 0;
}

void ctd_close(struct ctd *c)
{
	if (!c)
		return;
	rpc_client_close(c->client);
	free(c);
}

bool ctd_is_broken(const struct ctd *c)
{
	return rpc_client_is_broken(c->client);
}

int ctd_wait(struct ctd *c, int fd, unsigned timeout_ms, struct err *e)
{
	return rpc_client_wait(c->client, fd, timeout_ms, e);
}

/* ---- names ---- */

struct listing {
	int (*ns)(void *ctx, const char *ns, struct err *e);
	int (*image)(void *ctx, const struct ctd_image *im, struct err *e);
	void *ctx;
};

static int on_namespaces(void *ctx, const ProtobufCMessage *m, struct err *e)
{
	const Containerd__ListNamespacesResponse *rs =
		(const Containerd__ListNamespacesResponse *)m;
	const struct listing *l = ctx;

	for (size_t i = 0; i < rs->n_namespaces; i++)
		if (l->ns(l->ctx, rs->namespaces[i]->name, e) < 0)
			return -1;
	return 0;
}

int ctd_namespaces(struct ctd *c,
		   int (*fn)(void *ctx, const char *ns, struct err *e),
		   void *ctx, struct err *e)
{
	Containerd__ListNamespacesRequest rq =
		CONTAINERD__LIST_NAMESPACES_REQUEST__INIT;
	struct listing l = { .ns = fn, .ctx = ctx };

	return rpc_call(c->client, &list_namespaces, NULL, &rq.base,
			on_namespaces, &l, CALL_MS, e);
}

static int give_image(const struct listing *l, const Containerd__Image *im,
		      struct err *e)
{
	const struct ctd_image ci = { .name = im->name,
				      .target = im->target ? im->target->digest
							   : "" };

	return *ci.name ? l->image(l->ctx, &ci, e) : 0;
}

static int on_images(void *ctx, const ProtobufCMessage *m, struct err *e)
{
	const Containerd__ListImagesResponse *rs =
		(const Containerd__ListImagesResponse *)m;

	for (size_t i = 0; i < rs->n_images; i++)
		if (give_image(ctx, rs->images[i], e) < 0)
			return -1;
	return 0;
}

int ctd_images(struct ctd *c, const char *ns,
	       int (*fn)(void *ctx, const struct ctd_image *im, struct err *e),
	       void *ctx, struct err *e)
{
	Containerd__ListImagesRequest rq =
		CONTAINERD__LIST_IMAGES_REQUEST__INIT;
	struct listing l = { .image = fn, .ctx = ctx };

	return rpc_call(c->client, &list_images, ns, &rq.base, on_images, &l,
			CALL_MS, e);
}

static int on_image(void *ctx, const ProtobufCMessage *m, struct err *e)
{
	const Containerd__GetImageResponse *rs =
		(const Containerd__GetImageResponse *)m;

	return rs->image ? give_image(ctx, rs->image, e) : 0;
}

int ctd_image(struct ctd *c, const char *ns, const char *name,
	      int (*fn)(void *ctx, const struct ctd_image *im, struct err *e),
	      void *ctx, struct err *e)
{
	Containerd__GetImageRequest rq = CONTAINERD__GET_IMAGE_REQUEST__INIT;
	struct listing l = { .image = fn, .ctx = ctx };

	/* protobuf-c has no const strings; it only reads this one. */
	rq.name = (char *)(uintptr_t)name;
	return rpc_call(c->client, &get_image, ns, &rq.base, on_image, &l,
			CALL_MS, e);
}

/* ---- contents ---- */

struct reading {
	struct buf *to;
	size_t max;
};

static int on_content(void *ctx, const ProtobufCMessage *m, struct err *e)
{
	const Containerd__ReadContentResponse *rs =
		(const Containerd__ReadContentResponse *)m;
	const struct reading *r = ctx;

	if (rs->data.len > r->max - r->to->len)
		return err_set(e, ERR_INVALID, "larger than %zu bytes", r->max);
	if (buf_add(r->to, rs->data.data, rs->data.len) < 0)
		return err_sys(e, -ENOMEM, "content");
	return 0;
}

int ctd_read(struct ctd *c, const char *ns, const struct digest *d, size_t max,
	     struct buf *ret, struct err *e)
{
	Containerd__ReadContentRequest rq =
		CONTAINERD__READ_CONTENT_REQUEST__INIT;
	struct reading r = { .to = ret, .max = max };
	struct digest_str text = digest_str(d);
	struct digest got;
	int res;

	rq.digest = text.s;
	if (rpc_call(c->client, &read_content, ns, &rq.base, on_content, &r,
		     CALL_MS, e) < 0)
		return -1;
	res = sha256_buf(ret->p, ret->len, &got);
	if (res < 0)
		return err_sys(e, res, "hash of content");
	if (!digest_equal(&got, d))
		return err_set(e, ERR_CORRUPT,
			       "containerd's content %s has another digest",
			       text.s);
	return 0;
}

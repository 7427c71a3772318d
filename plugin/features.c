/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel features by name; see features.h. */
#include "plugin/features.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "fuse/abi.h"
#include "verity/probe.h"

#define VIEW(bit) ((bit) << SNAPSHOTTER_WITHOUT_VIEW_SHIFT)

static const struct feature {
	const char *name;
	unsigned bit;
	uint64_t init_flag; /* what INIT answers when it is there, or 0 */
	const char *cost; /* of its absence */
} features[] = {
	/* the order of struct features.errnos first */
	{ "fuse", SNAPSHOTTER_WITHOUT_FUSE, 0,
	  "no image is mounted lazily, all are unpacked as by overlayfs" },
	{ "dontcache", SNAPSHOTTER_WITHOUT_DONTCACHE, 0,
	  "downloads pass through the page cache and are dropped behind" },
	{ "verity", SNAPSHOTTER_WITHOUT_VERITY, 0,
	  "complete content is checked by the daemon at each read, not by the kernel" },
	{ "page-cache-hints", SNAPSHOTTER_WITHOUT_HINTS, 0,
	  "downloads push applications out of the page cache" },
	{ "readdirplus", VIEW(VIEW_WITHOUT_READDIRPLUS), ABI_DO_READDIRPLUS,
	  "listing a directory asks once more for each entry" },
	{ "resend", VIEW(VIEW_WITHOUT_RESEND), ABI_HAS_RESEND,
	  "requests in flight cannot outlive the daemon" },
	{ "passthrough", FEATURES_PASSTHROUGH, ABI_PASSTHROUGH,
	  "reads of complete files go through the daemon" },
	{ "big-reads", VIEW(VIEW_WITHOUT_BIG_READS), ABI_MAX_PAGES,
	  "reads are cut to 128 KiB" },
};

size_t features_names(char *out, size_t size)
{
	size_t len = 0;

	out[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(features) && len < size; i++)
		len += (size_t)snprintf(out + len, size - len, "%s%s",
					i ? ", " : "", features[i].name);
	return len;
}

static const struct feature *find(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(features); i++)
		if (strlen(features[i].name) == len &&
		    !memcmp(features[i].name, name, len))
			return &features[i];
	return NULL;
}

int features_parse(const char *list, unsigned *mask, struct err *e)
{
	unsigned found = 0;
	char known[128];

	for (;;) {
		size_t len = strcspn(list, ",");
		const struct feature *f = find(list, len);

		if (!f) {
			(void)features_names(known, sizeof(known));
			return err_set(e, ERR_INVALID,
				       "unknown feature '%.*s'; known are: %s",
				       (int)(len < 40 ? len : 40), list, known);
		}
		found |= f->bit;
		if (!list[len])
			break;
		list += len + 1;
	}
	*mask |= found;
	return 0;
}

void features_probe(int rootfd, unsigned without, struct features *ret)
{
	struct probe probe = { 0 };
	owned(fd) int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	int r = probe_dir(rootfd, &probe);

	ret->without = without;
	ret->errnos[2] = r < 0 ? -r : -probe.verity_error;
	ret->errnos[0] = fuse < 0 ? errno : 0;
	ret->errnos[1] = r < 0 ? -r : probe.dontcache ? 0 : EOPNOTSUPP;
}

static void one_json(const struct features *f, size_t i, uint64_t view_flags,
		     struct buf *out)
{
	const struct feature *ft = &features[i];
	bool probed = i < ARRAY_LEN(f->errnos);
	bool settled = ft->init_flag && view_flags;
	bool agreed = settled && (view_flags & ft->init_flag);
	const char *state = probed || agreed ? "on" : "auto";
	char why[160] = "";

	if (f->without & ft->bit) {
		state = "off";
		(void)snprintf(why, sizeof(why), "masked by --without: %s",
			       ft->cost);
	} else if (f->off & ft->bit) {
		state = "off";
		(void)snprintf(why, sizeof(why),
			       "switched off in the configuration: %s",
			       ft->cost);
	} else if (probed && f->errnos[i]) {
		state = "absent";
		(void)snprintf(why, sizeof(why), "%s: %s",
			       strerror(f->errnos[i]), ft->cost);
	} else if (settled && !agreed) {
		state = "absent";
		(void)snprintf(why, sizeof(why), "this kernel lacks it: %s",
			       ft->cost);
	}
	(void)buf_adds(out, "{\"name\":");
	(void)buf_add_json(out, ft->name);
	(void)buf_adds(out, ",\"state\":");
	(void)buf_add_json(out, state);
	(void)buf_adds(out, ",\"why\":");
	(void)buf_add_json(out, why);
	(void)buf_adds(out, "}");
}

void features_json(const struct features *f, uint64_t view_flags,
		   struct buf *out)
{
	(void)buf_adds(out, "[");
	for (size_t i = 0; i < ARRAY_LEN(features); i++) {
		if (i)
			(void)buf_adds(out, ",");
		one_json(f, i, view_flags, out);
	}
	(void)buf_adds(out, "]");
}

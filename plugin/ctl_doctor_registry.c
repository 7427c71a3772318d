/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor's look at the registry of an image. The daemon asks it, in its own
 * environment: its credentials, proxies and hosts.toml are what counts.
 */
#include <string.h>

#include "plugin/ctl_client.h"
#include "plugin/ctl_doctor.h"
#include "plugin/ctl_text.h"

static const char why[] =
	"images from there are not lazy: containerd downloads them whole, if it can reach it";

static void report_failure(struct doctor *d, struct json_object *doc)
{
	char kind[64], host[256], reason[CTL_CELL_MAX * 2], fix[1024];

	ctl_get_text(doc, "error_kind", kind, sizeof(kind));
	ctl_get_text(doc, "host", host, sizeof(host));
	ctl_get_text(doc, "reason", reason, sizeof(reason));
	if (!strcmp(kind, "denied"))
		(void)snprintf(
			fix, sizeof(fix),
			"nerdctl login %s    # as root: the daemon reads /root/.docker/config.json\n"
			"or check the name: registries deny what does not exist",
			host);
	else
		(void)snprintf(
			fix, sizeof(fix),
			"check the name and the tag\n"
			"curl -v https://%s/v2/    # from this machine\n"
			"cat /etc/containerd/certs.d/%s/hosts.toml    # mirrors, certificates\n"
			"systemctl edit verity-snapshotter    # [Service] Environment=HTTPS_PROXY=..., where there is a proxy",
			host, host);
	doctor_add(d,
		   &(struct finding){ FINDING_PROBLEM, "registry.answer", why,
				      fix },
		   "'%s' does not give '%s' to the daemon (%s): %s", host,
		   d->o->image, kind, reason);
}

void doctor_check_registry(struct doctor *d)
{
	owned(json) struct json_object *doc = NULL;
	owned(buf) struct buf answer = { 0 };
	owned(mem) char *request = NULL;
	struct err e = ERR_INIT;
	char by[CTL_CELL_MAX];

	if (!d->status) {
		doctor_add(d,
			   &(struct finding){
				   FINDING_UNKNOWN, "registry.answer",
				   "only the daemon has its credentials",
				   NULL },
			   "no registry is asked while the daemon is away");
		return;
	}
	if (asprintf(&request, "registry %s\n", d->o->image) < 0) {
		request = NULL;
		d->failed = true;
		return;
	}
	if (ctl_ask(d->o->run, request, &answer, &doc, &e) < 0) {
		doctor_add(d,
			   &(struct finding){ FINDING_UNKNOWN,
					      "registry.answer", why, NULL },
			   "the registry of '%s' is not asked: %s", d->o->image,
			   e.msg);
		return;
	}
	if (!json_object_get_boolean(ctl_get(doc, "ok"))) {
		report_failure(d, doc);
		return;
	}
	ctl_get_text(doc, "by", by, sizeof(by));
	doctor_ok(d, "registry.answer",
		  "'%s' gives '%s' to the daemon, in %llu ms", by, d->o->image,
		  (unsigned long long)ctl_get_num(doc, "ms"));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What hosts.c (texts) and hosts_load.c (files) share. Nobody else. */
#ifndef SNAPSHOTTER_HOSTS_PRIV_H
#define SNAPSHOTTER_HOSTS_PRIV_H

#include <sys/types.h>
#include <time.h>

#include "snapshotter/hosts.h"

/* A file or folder as it was when it was looked at. */
struct host_stamp {
	char *path;
	bool exists;
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime, ctime;
};

struct host_list *host_list_new(void);
void host_list_clear(struct host_list *l); /* of hosts */

/* Another string behind a NULL-terminated list. 0 or -ENOMEM. */
int strings_add(char ***list, const char *s) must_check;
void strings_free(char **list);

/* An entry for the registry itself at the end of @l. */
int hosts_add_registry(struct host_list *l, const char *registry,
		       struct host **ret) must_check;

/*
 * A host that is configured for http *and* for TLS is asked in https first, as
 * containerd does: an entry before the one at @i. 0 or -ENOMEM.
 */
int hosts_try_tls_first(struct host_list *l, size_t i) must_check;

#endif

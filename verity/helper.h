/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helper processes: this program once more, as --helper=ROLE:BYTES, for what
 * must not happen in the daemon. Its page cache is charged to a cgroup of its
 * own, and what kills it (a fault in a mapping, the OOM killer) kills only it.
 *
 * A helper inherits a socket (SOCK_SEQPACKET, HELPER_FD) and stderr, nothing
 * else. Messages are structs of a fixed size that begin with struct helper_msg;
 * both ends are the same file on disk (/proc/self/exe), so layout and version
 * agree, and are checked all the same. It ends when the socket does.
 */
#ifndef VERITY_HELPER_H
#define VERITY_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define HELPER_FD 3
#define HELPER_VERSION 1
#define HELPER_MSG_MAX 512

struct helper_msg {
	uint32_t version; /* HELPER_VERSION */
	uint32_t type; /* HELPER_HELLO, or from HELPER_FIRST on the role's */
};

#define HELPER_HELLO 0u
#define HELPER_FIRST 1u

/* ---- in the daemon ---- */

struct helper_opts {
	const char *role; /* static; see helper_main() */
	uint64_t memory; /* bytes of its cgroup */
	/* A message of its role. The helper's thread, no lock held. */
	void (*message)(void *ctx, const struct helper_msg *m, size_t len);
	/* It has died: what was asked will not be answered. As above. */
	void (*lost)(void *ctx);
	void *ctx;
};

struct helper;

/*
 * helper_new() - start the process, and a thread that listens to it
 *
 * Whoever calls this first thing in main() gives it a process with nothing
 * open. A helper that dies is started again, at once and then with a pause that
 * doubles up to HELPER_PAUSE_MAX_MS. 0; -errno: not even begun.
 */
#define HELPER_PAUSE_MAX_MS 60000u
int helper_new(const struct helper_opts *o, struct helper **ret) must_check;
/* Ends the process and the thread. lost() is not called any more. */
void helper_free(struct helper *h);

/* Never blocks. @fd: borrowed; -1: none. 0; -EPIPE: there is no process just
 * now; -EAGAIN: it has not read what was sent before. Any thread. */
int helper_send(struct helper *h, const struct helper_msg *m, size_t len,
		int fd) must_check;

struct helper_status {
	int pid; /* 0: not running */
	unsigned n_starts;
	bool has_cgroup;
	char cgroup[256]; /* its folder; or why it has none */
};
void helper_get_status(struct helper *h, struct helper_status *ret);
/* As a JSON object. */
void helper_status_json(const struct helper_status *st, struct buf *out);

/* ---- in the process ---- */

/*
 * helper_main() - the life of a helper
 *
 * @spec: "ROLE:BYTES". Idle I/O priority, nice, its cgroup; then its role until
 * the socket ends. An exit code.
 */
int helper_main(const char *spec) must_check;

/* One message, and the fd that may come with it (-1: none; the caller's). Its
 * length; 0: the end; -errno; -EPROTO: another version, or too short. */
int helper_receive(int sock, void *m, size_t size, int *ret_fd) must_check;

DEFINE_OWNED(helper, struct helper *, helper_free)

#endif

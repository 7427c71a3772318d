/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop thread: one sd-event loop for sockets, timers and signals. It never
 * blocks; whatever may block goes to the workers (worker.h) and comes back as
 * a posted callback.
 */
#ifndef PLUGIN_LOOP_H
#define PLUGIN_LOOP_H

#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/err.h"
#include "base/list.h"

struct loop;

/* Blocks SIGTERM, SIGINT and SIGHUP in the calling (main) thread, so that all
 * later threads inherit it, and handles them in the loop; SIGHUP does nothing.
 * SIGPIPE is ignored. */
int loop_new(struct loop **ret, struct err *e) must_check;
void loop_free(struct loop *l);

sd_event *loop_event(struct loop *l);

/* Runs until loop_quit() or SIGTERM/SIGINT. 0, or -1 with *e. */
int loop_run(struct loop *l, struct err *e) must_check;
void loop_quit(struct loop *l); /* loop thread only */
/* One turn, waiting at most @timeout_ms for something to do; also after
 * loop_run() has returned, which is how things that need the loop are closed.
 * Loop thread, not from a callback. 0 or -errno. */
int loop_turn(struct loop *l, unsigned timeout_ms) must_check;
/* The signal that ended loop_run(), or 0. */
int loop_signal(const struct loop *l);

/* A message to the loop thread. Embedded; free again when fn() is called. */
struct loop_post {
	struct list node;
	void (*fn)(struct loop_post *p);
};
/* Any thread; never blocks, never fails (an eventfd and a locked list). */
void loop_post(struct loop *l, struct loop_post *p);

#endif

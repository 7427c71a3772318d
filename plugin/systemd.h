/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a service manager gives and wants: the journal, sockets, readiness.
 * Everything works without one, too; then these functions do nothing.
 */
#ifndef PLUGIN_SYSTEMD_H
#define PLUGIN_SYSTEMD_H

#include <systemd/sd-event.h>

#include "base/err.h"

/* When stderr is a stream to the journal, log lines go there as structured
 * entries: each pair key=value also as the field VS_KEY. */
void systemd_log_to_journal(void);

/*
 * From here on without fields: a structured entry is matched to its unit by
 * the process that sent it, which the journal may find gone when it reads the
 * entry. The stream was matched when it was opened.
 */
void systemd_log_last_lines(void);

/**
 * systemd_take_socket() - the listening socket that came with the process
 * @ret_fd: out: -1 when there is none
 * @e:      ERR_INVALID: what came is no listening unix stream socket
 *
 * Call it once, before threads start: it removes the variables from the
 * environment. Only the first socket is used; others are closed.
 */
int systemd_take_socket(int *ret_fd, struct err *e) must_check;

/* READY=1 and a status line; answers watchdog pings from @ev if asked to. */
printf_like(2, 3) void systemd_ready(sd_event *ev, const char *fmt, ...);
void systemd_stopping(const char *why);

#endif

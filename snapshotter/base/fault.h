/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named places where tests make the daemon die, fail or wait.
 *
 *	VS_FAULT="NAME:kill[@N][,...]"   SIGKILL at the Nth passage (default 1)
 *	VS_FAULT="NAME:fail=ERRNO[@N]"   fault_point() returns -ERRNO once
 *	VS_FAULT="NAME:sleep=MS[@N]"     waits, then goes on
 *
 * Read once, at the first call. Without the variable a passage costs one load.
 * Names are unique in the tree and describe the effect just reached:
 * "layer_renamed", "row_committed".
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

/* 0, or -errno where a test asked for it. Ignoring it is right where the
 * place cannot fail. */
int fault_point(const char *name);

#endif

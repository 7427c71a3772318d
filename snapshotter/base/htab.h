/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash tables: uthash, with the one setting that makes it safe here. Without
 * HASH_NONFATAL_OOM it calls exit() when memory runs out. After HASH_ADD the
 * caller checks elt->hh.tbl: NULL means out of memory and not added (the macro
 * HTAB_ADDED says so by name).
 */
#ifndef BASE_HTAB_H
#define BASE_HTAB_H

#define HASH_NONFATAL_OOM 1
/* uthash's default (Jenkins) falls through its switch without saying so. */
#define HASH_FUNCTION HASH_SAX
#define uthash_nonfatal_oom(elt) ((elt)->hh.tbl = NULL)
#include <uthash.h>

#define HTAB_ADDED(elt) ((elt)->hh.tbl != NULL)
#define htab_each(head, el, tmp) HASH_ITER(hh, head, el, tmp)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which folders the daemon may take: a mistyped --root must not close a folder
 * of others, and a socket must not lie where it is covered or deleted.
 */
#ifndef PLUGIN_PATHS_H
#define PLUGIN_PATHS_H

#include "base/err.h"

/**
 * path_absolute() - @path from "/", without "//" and "."
 * @ret: out, heap. Text only: ".." and links stay as they are.
 *
 * -errno.
 */
int path_absolute(const char *path, char **ret) must_check;

/**
 * paths_check_root() - is this folder ours, or may it become ours?
 * @fd:   of the folder
 * @root: its canonical path
 * @run, @address: what may lie in it besides; @address may be NULL
 * @e:    ERR_INVALID; the text names the folder and what is in it
 *
 * Yes if it is empty, has our lock and our database, or has nothing but names
 * that we make. Changes nothing.
 */
int paths_check_root(int fd, const char *root, const char *run,
		     const char *address, struct err *e) must_check;

/**
 * paths_check_outside() - @path must not lie at or below a name of ours in @root
 * @root:   absolute
 * @option: "--run" or "--address"
 * @e:      ERR_INVALID
 */
int paths_check_outside(const char *root, const char *path, const char *option,
			struct err *e) must_check;

#endif

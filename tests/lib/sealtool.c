/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: our idea of fs-verity beside the kernel's and the fsverity
 * program's, in the form that the latter prints.
 *
 *	sealtool digest FILE...     what follows from the leaves
 *	sealtool seal FILE...       makes it a verity file; what the kernel measures
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "verity/kernel.h"
#include "verity/leaves.h"

static int of_leaves(int fd, struct digest *ret)
{
	owned(leaf_tree) struct leaf_tree *t = NULL;
	uint8_t block[LEAF_BLOCK];
	struct digest leaf;
	struct stat st;
	ssize_t n;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	r = leaf_tree_new((uint64_t)st.st_size, &t);
	while (r == 0 && (n = read(fd, block, sizeof(block))) != 0) {
		r = n < 0 ? -errno : leaf_hash(block, (size_t)n, &leaf);
		if (r == 0)
			r = leaf_tree_add(t, &leaf, 1);
	}
	return r == 0 ? leaf_tree_end(t, ret) : r;
}

static int sealed(int fd, struct digest *ret)
{
	int r = kernel_enable(fd);

	return r == 0 ? kernel_measure(fd, ret) : r;
}

int main(int argc, char **argv)
{
	int (*digest_of)(int, struct digest *) = NULL;

	if (argc > 1 && !strcmp(argv[1], "digest"))
		digest_of = of_leaves;
	else if (argc > 1 && !strcmp(argv[1], "seal"))
		digest_of = sealed;
	if (!digest_of) {
		(void)fprintf(stderr, "usage: sealtool digest|seal FILE...\n");
		return 2;
	}
	for (int i = 2; i < argc; i++) {
		owned(fd) int fd = open(argv[i], O_RDONLY | O_CLOEXEC);
		struct digest d;
		int r = fd < 0 ? -errno : digest_of(fd, &d);

		if (r < 0) {
			(void)fprintf(stderr, "sealtool: %s: %s\n", argv[i],
				      strerror(-r));
			return 1;
		}
		(void)printf("%s %s\n", digest_str(&d).s, argv[i]);
	}
	return 0;
}

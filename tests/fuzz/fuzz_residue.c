/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Residue files of any bytes. Digests of the records are repaired on one of two
 * inputs, or the fuzzer would never get past them. What is found is read back
 * the same, before and after a record is added, and nothing else appears.
 */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>

#include "base/io.h"
#include "snapshotter/residue.h"
#include "tests/lib/fuzz_dir.h"
#include "verity/sha256.h"

#define N_UNITS 16u
#define ADDED "added by the fuzzer"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* The lengths decide where the next record begins: residue.h. */
static void repair(uint8_t *p, size_t len)
{
	struct digest d;

	while (len >= 16 + DIGEST_LEN) {
		uint64_t n = 16 + (uint64_t)get_le32(p + 8);

		if (n + DIGEST_LEN > len)
			return;
		must(sha256_buf(p, n, &d) == 0);
		memcpy(p + n, d.b, DIGEST_LEN);
		p += n + DIGEST_LEN;
		len -= n + DIGEST_LEN;
	}
}

static void put_file(int dirfd, const uint8_t *p, size_t len)
{
	owned(fd) int fd =
		openat(dirfd, "residue",
		       O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && pwrite_full(fd, p, len, 0) == 0);
}

/* Every unit's bytes, in turn; a digest of all of them. */
static void read_all(struct residue *r, struct digest *ret, uint32_t skip)
{
	owned(residue_reader) struct residue_reader *rd = NULL;
	owned(sha256) struct sha256 *h = NULL;
	owned(buf) struct buf buf = { 0 };

	must(residue_reader_new(r, &rd) == 0 && sha256_new(&h) == 0);
	for (uint32_t i = 0; i < N_UNITS; i++) {
		bool has = residue_has(r, i);

		if (i == skip)
			continue;
		must(residue_read(rd, i, &buf) == has);
		must(residue_has(r, i) == has);
		must(sha256_update(h, &i, has ? sizeof(i) : 1) == 0);
		if (has)
			must(sha256_update(h, buf.p, buf.len) == 0);
	}
	must(!residue_has(r, N_UNITS) && residue_read(rd, N_UNITS, &buf) == 0);
	must(sha256_end(h, ret) == 0);
}

static void must_have_added(struct residue *r, uint32_t unit)
{
	owned(residue_reader) struct residue_reader *rd = NULL;
	owned(buf) struct buf buf = { 0 };

	must(residue_reader_new(r, &rd) == 0);
	must(residue_read(rd, unit, &buf) == 1 && buf.len == sizeof(ADDED) &&
	     !memcmp(buf.p, ADDED, buf.len));
}

static void add_and_reopen(int dirfd, struct residue *r, uint32_t unit)
{
	struct digest before, after;

	read_all(r, &before, unit);
	must(residue_add(r, unit, ADDED, sizeof(ADDED)) == 0);
	residue_close(r);
	must(residue_open(dirfd, N_UNITS, &r) == 0);
	read_all(r, &after, unit);
	must(digest_equal(&before, &after));
	must_have_added(r, unit);
	residue_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int dirfd = fuzz_dir();
	struct residue *r = NULL;
	struct digest d;
	uint32_t unit = 0;

	if (size < 1 || size > 1 << 16)
		return 0;
	owned(mem) uint8_t *copy = malloc(size);

	must(copy != NULL);
	memcpy(copy, data, size);
	if (copy[0] & 1)
		repair(copy + 1, size - 1);
	put_file(dirfd, copy + 1, size - 1);
	must(residue_open(dirfd, N_UNITS, &r) == 0);
	while (unit < N_UNITS && residue_has(r, unit))
		unit++;
	if (unit < N_UNITS) {
		add_and_reopen(dirfd, r, unit);
	} else {
		read_all(r, &d, N_UNITS);
		residue_close(r);
	}
	must(unlinkat(dirfd, "residue", 0) == 0);
	return 0;
}

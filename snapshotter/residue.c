/* SPDX-License-Identifier: Apache-2.0 */
/* The residue file; see residue.h. Owns one append-mode fd and a bitmap. */
#include "snapshotter/residue.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/lock.h"
#include "verity/sha256.h"
#include "verity/stream.h"

#define RECORD_MAGIC 0x31525356u /* "VSR1" */
#define HEADER_LEN 16u
#define RECORD_BYTES_MAX (64u << 20)

struct residue {
	struct lock lock; /* guards have and torn */
	int fd;
	atomic_uint n_part_bytes; /* see stream_count_part() */
	uint32_t n_units;
	uint8_t *have;
	bool torn; /* ends in half a record: nothing behind it would count */
};

static bool bit_get(const struct residue *r, uint32_t unit)
{
	return r->have[unit / 8] >> unit % 8 & 1;
}

static void bit_set(struct residue *r, uint32_t unit)
{
	r->have[unit / 8] |= (uint8_t)(1u << unit % 8);
}

/* Is the record that begins at @off complete, and for a unit that we have?
 * 1: then *ret_len is its length; 0; -errno. */
static int check_header(struct residue *r, uint64_t off, uint64_t size,
			uint32_t *ret_unit, uint64_t *ret_len)
{
	uint8_t h[HEADER_LEN];
	uint64_t len;
	int res;

	if (size - off < HEADER_LEN + DIGEST_LEN)
		return 0;
	res = stream_read_part(r->fd, h, sizeof(h), off);
	if (res < 0)
		return res;
	if (get_le32(h) != RECORD_MAGIC || get_le32(h + 4) >= r->n_units ||
	    get_le32(h + 8) > RECORD_BYTES_MAX || get_le32(h + 12) != 0)
		return 0;
	len = HEADER_LEN + (uint64_t)get_le32(h + 8) + DIGEST_LEN;
	if (len > size - off)
		return 0;
	*ret_unit = get_le32(h + 4);
	*ret_len = len;
	return 1;
}

/* The bytes of a record, and whether their digest is right: 1, 0, -errno. */
static int load_record(struct residue *r, uint64_t off, uint64_t len,
		       struct buf *buf)
{
	struct digest d;
	int res;

	buf->len = 0;
	res = buf_reserve(buf, len);
	if (res < 0)
		return res;
	res = stream_read_part(r->fd, buf->p, len, off);
	stream_count_part(r->fd, &r->n_part_bytes, len);
	if (res == 0)
		res = sha256_buf(buf->p, len - DIGEST_LEN, &d);
	if (res < 0)
		return res;
	return !memcmp(d.b, buf->p + len - DIGEST_LEN, DIGEST_LEN);
}

/* As check_header(), with its bytes. @buf grows as needed. */
static int check_record(struct residue *r, uint64_t off, uint64_t size,
			struct buf *buf, uint64_t *ret_len)
{
	uint32_t unit;
	uint64_t len;
	int res = check_header(r, off, size, &unit, &len);

	if (res > 0)
		res = load_record(r, off, len, buf);
	if (res <= 0)
		return res;
	bit_set(r, unit);
	*ret_len = len;
	return 1;
}

/* Cuts behind the last good record; but what merely cannot be read now is no
 * reason to cut. */
static int scan(struct residue *r)
{
	owned(buf) struct buf buf = { 0 };
	uint64_t off = 0, size, len;
	struct stat st;
	int res = 1;

	if (fstat(r->fd, &st) < 0)
		return -errno;
	size = (uint64_t)st.st_size;
	while (off < size) {
		res = check_record(r, off, size, &buf, &len);
		if (res <= 0)
			break;
		off += len;
	}
	if (res == 0 && ftruncate(r->fd, (off_t)off) < 0)
		return -errno;
	return res < 0 ? res : 0;
}

int residue_open(int dirfd, uint32_t n_units, struct residue **ret)
{
	struct residue *r = calloc(1, sizeof(*r));
	int res;

	if (!r)
		return -ENOMEM;
	lock_init(&r->lock, RANK_LEAF);
	r->n_units = n_units;
	r->have = calloc(1, n_units / 8 + 1);
	r->fd = openat(dirfd, "residue",
		       O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
		       0600);
	res = !r->have ? -ENOMEM : r->fd < 0 ? -errno : 0;
	if (res == 0) {
		stream_hint(r->fd);
		res = scan(r);
	}
	if (res < 0) {
		residue_close(r);
		return res;
	}
	*ret = r;
	return 0;
}

void residue_close(struct residue *r)
{
	if (!r)
		return;
	if (r->fd >= 0) {
		stream_drop(r->fd);
		(void)close(r->fd);
	}
	lock_release(&r->lock);
	free(r->have);
	free(r);
}

bool residue_has(struct residue *r, uint32_t unit)
{
	bool has;

	lock_take(&r->lock);
	has = unit < r->n_units && bit_get(r, unit);
	lock_drop(&r->lock);
	return has;
}

static bool is_torn(struct residue *r)
{
	bool torn;

	lock_take(&r->lock);
	torn = r->torn;
	lock_drop(&r->lock);
	return torn;
}

static void set_torn(struct residue *r)
{
	lock_take(&r->lock);
	r->torn = true;
	lock_drop(&r->lock);
}

int residue_add(struct residue *r, uint32_t unit, const void *p, size_t len)
{
	owned(mem) uint8_t *rec = NULL;
	struct digest d;
	int res;

	if (unit >= r->n_units || len > RECORD_BYTES_MAX)
		return -EINVAL;
	if (residue_has(r, unit))
		return 0;
	if (is_torn(r))
		return -EIO;
	rec = malloc(HEADER_LEN + len + DIGEST_LEN);
	if (!rec)
		return -ENOMEM;
	put_le32(rec, RECORD_MAGIC);
	put_le32(rec + 4, unit);
	put_le32(rec + 8, (uint32_t)len);
	put_le32(rec + 12, 0);
	if (len)
		memcpy(rec + HEADER_LEN, p, len);
	res = sha256_buf(rec, HEADER_LEN + len, &d);
	if (res < 0)
		return res;
	memcpy(rec + HEADER_LEN + len, d.b, DIGEST_LEN);
	res = stream_append(r->fd, rec, HEADER_LEN + len + DIGEST_LEN,
			    &r->n_part_bytes);
	if (res < 0) {
		set_torn(r);
		return res;
	}
	(void)fault_point("residue_written");
	lock_take(&r->lock);
	bit_set(r, unit);
	lock_drop(&r->lock);
	return 0;
}

void residue_end(struct residue *r)
{
	set_torn(r);
}

/* ---- reading ---- */

struct residue_reader {
	struct residue *r;
	uint64_t *off; /* of each unit's record, plus 1; 0: none */
};

/* Headers only; the last record of a unit counts. */
static int find_records(struct residue_reader *rd)
{
	struct residue *r = rd->r;
	struct stat st;
	uint64_t off = 0, size, len = 0;
	uint32_t unit = 0;
	int res;

	if (fstat(r->fd, &st) < 0)
		return -errno;
	size = (uint64_t)st.st_size;
	while (off < size) {
		res = check_header(r, off, size, &unit, &len);
		if (res <= 0)
			return res;
		rd->off[unit] = off + 1;
		off += len;
	}
	return 0;
}

int residue_reader_new(struct residue *r, struct residue_reader **ret)
{
	owned(residue_reader) struct residue_reader *rd =
		calloc(1, sizeof(*rd));
	int res;

	if (!rd)
		return -ENOMEM;
	rd->r = r;
	rd->off = calloc(r->n_units + 1ul, sizeof(*rd->off));
	res = rd->off ? find_records(rd) : -ENOMEM;
	if (res < 0)
		return res;
	*ret = take_ptr(&rd);
	return 0;
}

void residue_reader_free(struct residue_reader *rd)
{
	if (!rd)
		return;
	stream_drop(rd->r->fd);
	free(rd->off);
	free(rd);
}

static void forget(struct residue *r, uint32_t unit)
{
	lock_take(&r->lock);
	r->have[unit / 8] &= (uint8_t) ~(1u << unit % 8);
	lock_drop(&r->lock);
}

int residue_read(struct residue_reader *rd, uint32_t unit, struct buf *buf)
{
	struct residue *r = rd->r;
	uint64_t off, len = 0;
	struct stat st;
	uint32_t found = 0;
	int res = 0;

	buf->len = 0;
	if (unit >= r->n_units || !rd->off[unit])
		return 0;
	off = rd->off[unit] - 1;
	if (fstat(r->fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size > off)
		res = check_header(r, off, (uint64_t)st.st_size, &found, &len);
	if (res > 0 && found == unit)
		res = load_record(r, off, len, buf);
	else if (res > 0)
		res = 0;
	if (res == 0)
		forget(r, unit);
	if (res <= 0)
		return res;
	buf->len = len - HEADER_LEN - DIGEST_LEN;
	memmove(buf->p, buf->p + HEADER_LEN, buf->len);
	return 1;
}

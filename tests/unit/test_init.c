/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/init: what is negotiated, with kernels old and new. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fuse/init.h"
#include "fuse/view.h"

struct request {
	struct abi_in_header head;
	struct abi_init_in in;
};

static struct request request(uint32_t minor, uint64_t flags)
{
	return (struct request){
		.head = { .len = sizeof(struct request),
			  .opcode = ABI_INIT,
			  .unique = 2 },
		.in = { .major = 7,
			.minor = minor,
			.max_readahead = 131072,
			.flags = (uint32_t)flags,
			.flags2 = (uint32_t)(flags >> 32) },
	};
}

static void init_takes_only_what_is_offered(void **state)
{
	uint64_t offer = ABI_ASYNC_READ | ABI_MAX_PAGES | ABI_INIT_EXT |
			 ABI_HAS_RESEND | UINT64_C(1) << 63;
	struct request rq = request(44, offer);
	struct init_record rec;

	(void)state;
	assert_int_equal(init_negotiate(&rq, sizeof(rq), 0, &rec), 0);
	assert_true(init_flags(&rec) == (offer & ~(UINT64_C(1) << 63)));
	assert_int_equal(rec.reply.out.minor, 44);
	assert_int_equal(rec.reply.head.unique, 2);
	assert_int_equal(rec.reply.head.len, sizeof(rec.reply));
	assert_int_equal(rec.reply.head.error, 0);
	assert_int_equal(rec.reply.out.max_write, 4096);
	assert_true(rec.reply.out.max_background >= 4096);
	assert_true(rec.reply.out.congestion_threshold >= 4096);
}

/* flags2 is padding to a kernel that does not say INIT_EXT. */
static void init_ignores_flags2_without_ext(void **state)
{
	struct request rq = request(36, ABI_MAX_PAGES);
	struct init_record rec;

	(void)state;
	rq.in.flags2 = 0xffffffff;
	assert_int_equal(init_negotiate(&rq, sizeof(rq), 0, &rec), 0);
	assert_true(init_flags(&rec) == ABI_MAX_PAGES);
}

static void init_never_asks_for_what_would_break(void **state)
{
	struct request rq = request(45, ~UINT64_C(0));
	struct init_record rec;
	uint64_t f;

	(void)state;
	assert_int_equal(init_negotiate(&rq, sizeof(rq), 0, &rec), 0);
	f = init_flags(&rec);
	assert_false(f & UINT64_C(1) << 16); /* WRITEBACK_CACHE */
	assert_false(f & UINT64_C(1) << 12); /* AUTO_INVAL_DATA */
	assert_false(f & UINT64_C(1) << 42); /* REQUEST_TIMEOUT */
	assert_false(f & UINT64_C(1) << 41); /* OVER_IO_URING */
	assert_true(f & ABI_POSIX_ACL);
	assert_true(f & ABI_EXPORT_SUPPORT);
	assert_int_equal(rec.reply.out.request_timeout, 0);
	assert_int_equal(rec.reply.out.max_pages * 4096, INIT_READ_BYTES);
	/* 2 would leave no room for a container's overlay */
	assert_true(f & ABI_PASSTHROUGH);
	assert_int_equal(rec.reply.out.max_stack_depth, 1);
}

static void init_masks_features_for_tests(void **state)
{
	struct request rq = request(45, ~UINT64_C(0));
	struct init_record rec;

	(void)state;
	assert_int_equal(init_negotiate(&rq, sizeof(rq),
					VIEW_WITHOUT_READDIRPLUS |
						VIEW_WITHOUT_RESEND |
						VIEW_WITHOUT_PASSTHROUGH |
						VIEW_WITHOUT_BIG_READS,
					&rec),
			 0);
	assert_false(init_flags(&rec) &
		     (ABI_DO_READDIRPLUS | ABI_READDIRPLUS_AUTO |
		      ABI_HAS_RESEND | ABI_PASSTHROUGH | ABI_MAX_PAGES));
	assert_int_equal(rec.reply.out.max_stack_depth, 0);
	assert_int_equal(rec.reply.out.max_pages, 0);
}

static void init_caps_a_newer_minor(void **state)
{
	struct request rq = request(99, ABI_INIT_EXT);
	struct init_record rec;

	(void)state;
	assert_int_equal(init_negotiate(&rq, sizeof(rq), 0, &rec), 0);
	assert_int_equal(rec.reply.out.minor, ABI_MINOR);
}

static void init_accepts_the_short_form(void **state)
{
	struct request rq = request(31, ABI_ASYNC_READ);
	struct init_record rec;

	(void)state;
	assert_int_equal(
		init_negotiate(&rq, sizeof(rq.head) + ABI_INIT_IN_MIN, 0, &rec),
		0);
	assert_true(init_flags(&rec) == ABI_ASYNC_READ);
}

static void init_refuses_what_it_cannot_read(void **state)
{
	struct request rq = request(45, 0);
	struct init_record rec;
	uint8_t big[sizeof(rec.req) + 1] = { 0 };

	(void)state;
	assert_int_equal(init_negotiate(&rq, sizeof(rq.head) + 15, 0, &rec),
			 -EPROTO);
	rq.head.opcode = 1;
	assert_int_equal(init_negotiate(&rq, sizeof(rq), 0, &rec), -EPROTO);
	rq = request(45, 0);
	rq.in.major = 8;
	assert_int_equal(init_negotiate(&rq, sizeof(rq), 0, &rec), -EPROTO);
	rq = request(30, 0);
	assert_int_equal(init_negotiate(&rq, sizeof(rq), 0, &rec), -EPROTO);
	memcpy(big, &rq, sizeof(rq));
	assert_int_equal(init_negotiate(big, sizeof(big), 0, &rec), -EMSGSIZE);
}

static void init_feed_changes_nothing_but_the_unique(void **state)
{
	struct request rq = request(45, ABI_INIT_EXT), fed;
	struct init_record rec;
	uint8_t buf[sizeof(rec.req)];

	(void)state;
	assert_int_equal(init_negotiate(&rq, sizeof(rq), 0, &rec), 0);
	assert_int_equal(init_feed(&rec, buf), sizeof(rq));
	memcpy(&fed, buf, sizeof(fed));
	assert_true(fed.head.unique > UINT32_MAX && fed.head.unique % 2 == 0);
	fed.head.unique = rq.head.unique;
	assert_memory_equal(&fed, &rq, sizeof(rq));
	assert_memory_equal(rec.req, &rq, sizeof(rq));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(init_takes_only_what_is_offered),
		cmocka_unit_test(init_ignores_flags2_without_ext),
		cmocka_unit_test(init_never_asks_for_what_would_break),
		cmocka_unit_test(init_masks_features_for_tests),
		cmocka_unit_test(init_caps_a_newer_minor),
		cmocka_unit_test(init_accepts_the_short_form),
		cmocka_unit_test(init_refuses_what_it_cannot_read),
		cmocka_unit_test(init_feed_changes_nothing_but_the_unique),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

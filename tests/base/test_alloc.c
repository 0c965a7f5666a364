/* Tests of src/base: allocation and its failures, strings, growing buffers, arena, map. */
#include "arena.h"
#include "base_int.h"
#include "ck.h"
#include "hash.h"
#include "map.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HAVE_ASAN 1
#endif

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
    ctx = NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

START_TEST(alloc_is_zeroed_aligned_counted)
{
    uint64_t before = kvf__ctx_allocations(ctx);

    for (size_t bytes = 0; bytes < 300; bytes += 7) {
        unsigned char *p = NULL;
        ck_assert_int_eq(kvf__alloc(ctx, bytes, &p), KVF_OK);
        ck_assert_ptr_nonnull(p);
        ck_assert_uint_eq((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < (bytes ? bytes : 64); i++)
            ck_assert_uint_eq(p[i], 0);
        memset(p, 0xff, bytes); /* a reused block must be zeroed again */
        kvf__free(p);
    }
    ck_assert_uint_eq(kvf__ctx_allocations(ctx), before + 43);
    kvf__free(NULL);
}
END_TEST

START_TEST(alloc_without_context)
{
    char *p = NULL;
    ck_assert_int_eq(kvf__alloc(NULL, 10, &p), KVF_OK);
    kvf__free(p);
}
END_TEST

START_TEST(impossible_sizes)
{
    char *p = NULL;

    ck_assert_int_eq(kvf__alloc(ctx, SIZE_MAX, &p), KVF_ENOMEM);
    ck_assert_int_eq(kvf__alloc(ctx, (size_t)PTRDIFF_MAX + 1, &p), KVF_ENOMEM);
    ck_assert_int_eq(kvf__alloc_array(ctx, SIZE_MAX / 4 + 1, 4, &p), KVF_ENOMEM);
    ck_assert_int_eq(kvf__alloc_array(ctx, (size_t)1 << 33, (size_t)1 << 33, &p), KVF_ENOMEM);
    ck_assert_int_eq(kvf__strndup(ctx, "x", SIZE_MAX, &p), KVF_ENOMEM);
    ck_assert_ptr_null(p);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "out of memory"));
}
END_TEST

START_TEST(checked_sizes)
{
    size_t out = 42;

    ck_assert(kvf__mul(0, SIZE_MAX, &out));
    ck_assert_uint_eq(out, 0);
    ck_assert(kvf__mul(SIZE_MAX, 0, &out));
    ck_assert_uint_eq(out, 0);
    ck_assert(kvf__mul(SIZE_MAX, 1, &out));
    ck_assert_uint_eq(out, SIZE_MAX);
    ck_assert(kvf__mul(SIZE_MAX / 3, 3, &out));
    ck_assert_uint_eq(out, SIZE_MAX / 3 * 3);
    ck_assert(!kvf__mul(SIZE_MAX / 3 + 1, 3, &out));
    ck_assert_uint_eq(out, SIZE_MAX / 3 * 3);
    ck_assert(kvf__add(SIZE_MAX, 0, &out));
    ck_assert_uint_eq(out, SIZE_MAX);
    ck_assert(!kvf__add(SIZE_MAX, 1, &out));
    ck_assert(!kvf__add(1, SIZE_MAX, &out));
    ck_assert_uint_eq(out, SIZE_MAX);
}
END_TEST

START_TEST(fail_allocation_hook)
{
    char *p = NULL, *q = NULL;
    uint64_t before = kvf__ctx_allocations(ctx);

    kvf__ctx_fail_allocation(ctx, 1);
    ck_assert_int_eq(kvf__alloc(ctx, 8, &p), KVF_OK);
    ck_assert_int_eq(kvf__alloc(ctx, 8, &q), KVF_ENOMEM);
    ck_assert_ptr_null(q);
    ck_assert_int_eq(kvf__alloc(ctx, 8, &q), KVF_OK); /* once */
    ck_assert_uint_eq(kvf__ctx_allocations(ctx), before + 2);
    kvf__free(q);
    kvf__ctx_fail_allocation(ctx, 0);
    kvf__ctx_fail_allocation(ctx, -1);
    q = NULL;
    ck_assert_int_eq(kvf__alloc(ctx, 8, &q), KVF_OK);
    kvf__free(q);
    kvf__free(p);
}
END_TEST

START_TEST(grow_keeps_contents)
{
    int *items = NULL;

    ck_assert_int_eq(kvf__grow(ctx, &items, 0, 4 * sizeof *items), KVF_OK);
    for (int i = 0; i < 4; i++)
        items[i] = i * 11;
    ck_assert_int_eq(kvf__grow(ctx, &items, 4 * sizeof *items, 4000 * sizeof *items), KVF_OK);
    ck_assert_uint_eq((uintptr_t)items % 64, 0);
    items[3999] = 1;
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(items[i], i * 11);
    int *before = items;
    kvf__ctx_fail_allocation(ctx, 0);
    ck_assert_int_eq(kvf__grow(ctx, &items, 16000, 32000), KVF_ENOMEM);
    ck_assert_ptr_eq(items, before);
    ck_assert_int_eq(items[2], 22);
    kvf__free(items);
}
END_TEST

START_TEST(strings)
{
    char *text = NULL;
    char big[3000];

    ck_assert_int_eq(kvf__strdup(ctx, "", &text), KVF_OK);
    ck_assert_str_eq(text, "");
    kvf__free(text);
    ck_assert_int_eq(kvf__strndup(ctx, "abcdef", 3, &text), KVF_OK);
    ck_assert_str_eq(text, "abc");
    kvf__free(text);
    ck_assert_int_eq(kvf__strndup(ctx, NULL, 0, &text), KVF_OK);
    ck_assert_str_eq(text, "");
    kvf__free(text);
    memset(big, 'y', sizeof big);
    big[sizeof big - 1] = '\0';
    ck_assert_int_eq(kvf__asprintf(ctx, &text, "%s/%d", big, 12), KVF_OK);
    ck_assert_uint_eq(strlen(text), sizeof big - 1 + 3);
    ck_assert_str_eq(text + sizeof big - 1, "/12");
    kvf__free(text);
}
END_TEST

/* ---- buffers --------------------------------------------------------------------------------- */

START_TEST(buffer_grows)
{
    kvf__buf buf = {0};

    ck_assert_int_eq(kvf__buf_add(ctx, &buf, NULL, 0), KVF_OK);
    ck_assert_str_eq(buf.data, "");
    for (int i = 0; i < 10000; i++)
        ck_assert_int_eq(kvf__buf_addc(ctx, &buf, (char)('a' + i % 26)), KVF_OK);
    ck_assert_int_eq(kvf__buf_printf(ctx, &buf, "%05d", 42), KVF_OK);
    ck_assert_uint_eq(buf.n, 10005);
    ck_assert_str_eq(buf.data + 10000, "00042");
    for (size_t i = 0; i < 10000; i++)
        ck_assert_int_eq(buf.data[i], 'a' + (int)(i % 26));
    kvf__buf_done(&buf);
    ck_assert_ptr_null(buf.data);
    kvf__buf_done(&buf);
}
END_TEST

START_TEST(buffer_holds_nul_bytes)
{
    kvf__buf buf = {0};

    ck_assert_int_eq(kvf__buf_add(ctx, &buf, "a\0b", 3), KVF_OK);
    ck_assert_int_eq(kvf__buf_add(ctx, &buf, "\0", 1), KVF_OK);
    ck_assert_uint_eq(buf.n, 4);
    ck_assert_mem_eq(buf.data, "a\0b\0", 5);
    kvf__buf_done(&buf);
}
END_TEST

START_TEST(buffer_refuses_overflow)
{
    kvf__buf buf = {0};

    ck_assert_int_eq(kvf__buf_add(ctx, &buf, "abc", 3), KVF_OK);
    ck_assert_int_eq(kvf__buf_add(ctx, &buf, "abc", SIZE_MAX), KVF_ENOMEM);
    ck_assert_int_eq(kvf__buf_add(ctx, &buf, "abc", SIZE_MAX - 3), KVF_ENOMEM);
    ck_assert_int_eq(kvf__buf_add(ctx, &buf, "abc", SIZE_MAX / 2 + 1), KVF_ENOMEM);
    ck_assert_str_eq(buf.data, "abc");
    kvf__buf_done(&buf);
}
END_TEST

START_TEST(ids_grow)
{
    kvf__ids ids = {0};
    const int32_t more[] = {-1, -2, -3};

    for (int32_t i = 0; i < 5000; i++)
        ck_assert_int_eq(kvf__ids_add(ctx, &ids, i * 3), KVF_OK);
    ck_assert_int_eq(kvf__ids_append(ctx, &ids, more, 3), KVF_OK);
    ck_assert_int_eq(kvf__ids_append(ctx, &ids, NULL, 0), KVF_OK);
    ck_assert_uint_eq(ids.n, 5003);
    for (int32_t i = 0; i < 5000; i++)
        ck_assert_int_eq(ids.data[i], i * 3);
    ck_assert_int_eq(ids.data[5002], -3);
    ck_assert_int_eq(kvf__ids_append(ctx, &ids, more, SIZE_MAX / 4), KVF_ENOMEM);
    ck_assert_uint_eq(ids.n, 5003);
    kvf__ids_done(&ids);
}
END_TEST

/* ---- arena ----------------------------------------------------------------------------------- */

START_TEST(arena_pieces)
{
    const size_t sizes[] = {0, 1, 63, 64, 65, 1000};
    const size_t n = sizeof sizes / sizeof sizes[0];
    kvf__arena arena = {0};
    size_t plan = 0;
    char *last_end = NULL;

    for (size_t i = 0; i < n; i++)
        plan += kvf__arena_round(sizes[i]);
    ck_assert_int_eq(kvf__arena_init(ctx, &arena, plan), KVF_OK);
    for (size_t i = 0; i < n; i++) {
        char *piece = kvf__arena_alloc(&arena, sizes[i]);
        ck_assert_uint_eq((uintptr_t)piece % 64, 0);
        if (last_end) ck_assert(piece >= last_end);
        memset(piece, (int)i, sizes[i]);
        last_end = piece + sizes[i];
    }
    ck_assert_uint_eq(arena.used, plan); /* the plan was exact */
    kvf__arena_done(&arena);
    kvf__arena_done(&arena);
    ck_assert_uint_eq(kvf__arena_round(SIZE_MAX), SIZE_MAX);
}
END_TEST

START_TEST(arena_is_reused)
{
    kvf__arena arena = {0};
    size_t plan = 4 * kvf__arena_round(256);
    uint64_t before;

    ck_assert_int_eq(kvf__arena_init(ctx, &arena, plan), KVF_OK);
    before = kvf__ctx_allocations(ctx);
    for (int round = 0; round < 3; round++) { /* other cuts each time */
        arena.used = 0;
        for (int i = 0; i < 4 - round; i++)
            memset(kvf__arena_alloc(&arena, 256 - 64 * (size_t)round), 1, 256 - 64 * (size_t)round);
    }
    ck_assert_uint_eq(kvf__ctx_allocations(ctx), before);
    kvf__arena_done(&arena);
}
END_TEST

typedef struct carved {
    int64_t n;
    char *bytes;
    double *numbers;
} carved;

static void lay_carved(void *object, kvf__carver *carver)
{
    carved *c = object;
    c->bytes = kvf__carve(carver, c->n, 1, 1);
    c->numbers = kvf__carve(carver, c->n, 3, sizeof(double));
}

static void check_carved(const carved *c)
{
    ck_assert_uint_eq((uintptr_t)c->bytes % 64, 0);
    ck_assert_uint_eq((uintptr_t)c->numbers % 64, 0);
    ck_assert((char *)c->numbers >= c->bytes + c->n);
    for (int64_t i = 0; i < c->n; i++)
        ck_assert(c->bytes[i] == 0 && c->numbers[3 * i + 2] == 0);
    memset(c->bytes, 1, (size_t)c->n);
    memset(c->numbers, 1, (size_t)c->n * 3 * sizeof(double));
}

START_TEST(one_block_for_an_object)
{
    carved made = {.n = 100}, *whole = NULL, large = {.n = INT64_MAX / 2};
    void *memory = NULL;
    uint64_t before = kvf__ctx_allocations(ctx);

    ck_assert_int_eq(kvf__carve_block(ctx, lay_carved, &made, &memory), KVF_OK);
    ck_assert_uint_eq(kvf__ctx_allocations(ctx), before + 1);
    check_carved(&made);
    kvf__free(memory);

    made = (carved){.n = 7};
    ck_assert_int_eq(kvf__carve_object(ctx, lay_carved, &made, sizeof made, &whole), KVF_OK);
    ck_assert_uint_eq(kvf__ctx_allocations(ctx), before + 2);
    ck_assert_int_eq(whole->n, 7);
    ck_assert((char *)whole + sizeof *whole <= whole->bytes);
    check_carved(whole);
    kvf__free(whole);

    ck_assert_int_eq(kvf__carve_block(ctx, lay_carved, &large, &memory), KVF_ENOMEM);
    kvf__ctx_fail_allocation(ctx, 0);
    whole = NULL;
    ck_assert_int_eq(kvf__carve_object(ctx, lay_carved, &made, sizeof made, &whole), KVF_ENOMEM);
    ck_assert_ptr_null(whole);
}
END_TEST

START_TEST(arena_gaps_are_poisoned)
{
#ifdef HAVE_ASAN
    kvf__arena arena = {0};
    char *piece;

    ck_assert_int_eq(kvf__arena_init(ctx, &arena, 1024), KVF_OK);
    piece = kvf__arena_alloc(&arena, 64);
    ck_assert(!__asan_address_is_poisoned(piece + 63));
    ck_assert(__asan_address_is_poisoned(piece + 64));
    kvf__arena_alloc(&arena, 10);
    ck_assert(__asan_address_is_poisoned(piece + 64));
    kvf__arena_done(&arena);
#else
    ck_assert_uint_eq(kvf__arena_round(64), 64); /* and no space is lost to red zones */
#endif
}
END_TEST

START_TEST(arena_overrun_is_our_bug)
{
    kvf__arena arena = {0};
    ck_assert_int_eq(kvf__arena_init(ctx, &arena, kvf__arena_round(64)), KVF_OK);
    kvf__arena_alloc(&arena, 64);
    kvf__arena_alloc(&arena, 1);
}
END_TEST

/* ---- map ------------------------------------------------------------------------------------- */

/* 9 bytes with NULs inside; different for every i. */
static void make_key(char key[9], uint32_t i)
{
    memset(key, 0, 9);
    memcpy(key + 3, &i, sizeof i);
}

START_TEST(map_100k_keys)
{
    enum { N = 100000 };
    kvf__map map = {0};
    char key[9];
    int64_t value = -7;

    for (uint32_t i = 0; i < N; i++) {
        make_key(key, i);
        ck_assert_int_eq(kvf__map_put(ctx, &map, key, sizeof key, i), KVF_OK);
    }
    ck_assert_uint_eq(map.n, N);
    for (uint32_t i = 0; i < N; i += 2) { /* last wins */
        make_key(key, i);
        ck_assert_int_eq(kvf__map_put(ctx, &map, key, sizeof key, -(int64_t)i), KVF_OK);
    }
    ck_assert_uint_eq(map.n, N);
    for (uint32_t i = 0; i < N; i++) {
        make_key(key, i);
        ck_assert(kvf__map_get(&map, key, sizeof key, &value));
        ck_assert_int_eq(value, i % 2 ? (int64_t)i : -(int64_t)i);
    }
    value = -7;
    make_key(key, N);
    ck_assert(!kvf__map_get(&map, key, sizeof key, &value));
    ck_assert(!kvf__map_get(&map, key, 8, &value));
    ck_assert_int_eq(value, -7);
    kvf__map_done(&map);
}
END_TEST

START_TEST(map_edge_keys)
{
    kvf__map map = {0};
    int64_t value = 0;

    ck_assert(!kvf__map_get(&map, "a", 1, &value));
    ck_assert_int_eq(kvf__map_put(ctx, &map, NULL, 0, 1), KVF_OK); /* the empty key */
    ck_assert_int_eq(kvf__map_put(ctx, &map, "\0", 1, INT64_MIN), KVF_OK);
    ck_assert_int_eq(kvf__map_put(ctx, &map, "\0\0", 2, INT64_MAX), KVF_OK);
    ck_assert(kvf__map_get(&map, "", 0, &value));
    ck_assert_int_eq(value, 1);
    ck_assert(kvf__map_get(&map, "\0", 1, &value));
    ck_assert(value == INT64_MIN);
    ck_assert(kvf__map_get(&map, "\0\0", 2, &value));
    ck_assert(value == INT64_MAX);
    ck_assert(!kvf__map_get(&map, "\0\0\0", 3, &value));
    kvf__map_done(&map);
    ck_assert(!kvf__map_get(&map, "", 0, &value));
    kvf__map_done(&map);
}
END_TEST

/* ---- every allocation fails once ------------------------------------------------------------- */

static kvf_status build_text(void)
{
    char *a = NULL, *b = NULL;
    kvf_status st = kvf__strdup(ctx, "some", &a);
    if (!st) st = kvf__asprintf(ctx, &b, "%s %d", a, 5);
    kvf__free(a);
    kvf__free(b);
    return st;
}

static kvf_status build_buffers(void)
{
    kvf__buf buf = {0};
    kvf__ids ids = {0};
    kvf_status st = KVF_OK;

    for (int i = 0; i < 500 && !st; i++) {
        st = kvf__buf_printf(ctx, &buf, "%d,", i);
        if (!st) st = kvf__ids_add(ctx, &ids, i);
    }
    ck_assert(st || buf.n == 1890);
    ck_assert(!buf.data || buf.data[buf.n] == '\0');
    kvf__buf_done(&buf);
    kvf__ids_done(&ids);
    return st;
}

static kvf_status build_map(void)
{
    kvf__map map = {0};
    int64_t value, n = 0;
    kvf_status st = KVF_OK;

    while (n < 200) {
        st = kvf__map_put(ctx, &map, &n, sizeof n, n);
        if (st) break;
        n++;
    }
    ck_assert_uint_eq(map.n, (size_t)n); /* a failed put leaves no trace */
    ck_assert(!kvf__map_get(&map, &n, sizeof n, &value));
    for (int64_t i = 0; i < n; i++)
        ck_assert(kvf__map_get(&map, &i, sizeof i, &value) && value == i);
    kvf__map_done(&map);
    return st;
}

static kvf_status build_arena(void)
{
    kvf__arena arena = {0};
    kvf_status st = kvf__arena_init(ctx, &arena, 1000);
    kvf__arena_done(&arena);
    return st;
}

static kvf_status build_hash(void)
{
    kvf__hash *hash = NULL;
    kvf_status st = kvf__hash_create(ctx, &hash);
    kvf__hash_free(hash);
    return st;
}

static const struct {
    kvf_status (*build)(void);
    int at_least; /* allocations it makes */
} BUILDS[] = {
    {build_text, 2}, {build_buffers, 8}, {build_map, 8}, {build_arena, 1}, {build_hash, 1}};

START_TEST(every_allocation_fails_once)
{
    int n = 0;

    for (;; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        kvf_status st = BUILDS[_i].build();
        if (!st) break;
        ck_assert_int_eq(st, KVF_ENOMEM);
        ck_assert_int_lt(n, 1000);
    }
    ck_assert_int_ge(n, BUILDS[_i].at_least);
    kvf__ctx_fail_allocation(ctx, -1);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
    Suite *suite = suite_create("alloc");
    TCase *core = ck_case(suite, "core", setup, teardown, 30);
    TCase *limits = ck_case(suite, "limits", setup, teardown, 30);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 30);
    const char *fork = getenv("CK_FORK");

    tcase_add_test(core, alloc_is_zeroed_aligned_counted);
    tcase_add_test(core, grow_keeps_contents);
    tcase_add_test(core, strings);
    tcase_add_test(core, buffer_grows);
    tcase_add_test(core, buffer_holds_nul_bytes);
    tcase_add_test(core, ids_grow);
    tcase_add_test(core, arena_pieces);
    tcase_add_test(core, arena_is_reused);
    tcase_add_test(core, one_block_for_an_object);
    tcase_add_test(core, arena_gaps_are_poisoned);
    tcase_add_test(core, map_100k_keys);

    tcase_add_test(limits, impossible_sizes);
    tcase_add_test(limits, checked_sizes);
    tcase_add_test(limits, buffer_refuses_overflow);
    tcase_add_test(limits, map_edge_keys);

    tcase_add_test(errors, alloc_without_context);
    tcase_add_test(errors, fail_allocation_hook);
    tcase_add_loop_test(errors, every_allocation_fails_once, 0, COUNT(BUILDS));
    if (!fork || strcmp(fork, "no") != 0) /* it ends the process it runs in */
        tcase_add_test_raise_signal(errors, arena_overrun_is_our_bug, SIGABRT);
    return ck_main(suite);
}

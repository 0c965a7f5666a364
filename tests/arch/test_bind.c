/* Tests of binding weights to roles: names with and without prefix, shapes, tied heads, surplus
 * tensors. Also tests reading of rows (undone GGUF permutation, partial rows of block types) and
 * the fingerprint of a base. */
#include "slot.h"
#include "toy_table.h"

static kvf_ctx *ctx;
static char warning[512];
static int n_warnings;

static void keep_warning(void *user, kvf_log_level level, const char *line)
{
    (void)user;
    if (level != KVF_LOG_WARN) return;
    snprintf(warning, sizeof warning, "%s", line);
    n_warnings++;
}

static void setup(void)
{
    kvf_ctx_options options = {.threads = 2, .log = keep_warning};

    n_warnings = 0;
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static kvf__slots bind_ok(const kvf__desc *desc, const toy_table *t)
{
    kvf__slots slots = {0};
    ck_assert_msg(!kvf__bind(ctx, "toy", desc, &t->table, &slots), "%s", kvf_ctx_error(ctx));
    return slots;
}

static kvf_status bind_fails(const kvf__desc *desc, const toy_table *t)
{
    kvf__slots slots = {.n = 99};
    kvf_status st = kvf__bind(ctx, "toy", desc, &t->table, &slots);
    ck_assert_uint_eq(slots.n, 99); /* untouched */
    return st;
}

/* ---- core ------------------------------------------------------------------------------------ */

static const char *const name_prefixes[] = {"model.", "", "transformer."};

START_TEST(llama_under_any_prefix)
{
    toy_table t = toy_begin(ctx, name_prefixes[_i]);
    kvf__desc desc = toy_desc(ctx, TOY_UNTIED);

    toy_llama(&t, true, false);
    kvf__slots slots = bind_ok(&desc, &t);
    ck_assert_uint_eq(slots.n, 1 + 2 * 9 + 2);
    ck_assert_str_eq(slots.items[0].name, "model.embed_tokens.weight");
    ck_assert_str_eq(slots.items[1].name, "model.layers.0.input_layernorm.weight");
    ck_assert_str_eq(slots.items[18].name, "model.layers.1.mlp.down_proj.weight");
    ck_assert_str_eq(slots.items[20].name, "lm_head.weight");
    for (size_t i = 0; i < slots.n; i++) {
        ck_assert_ptr_eq(slots.items[i].view.data, t.data[i]);
        ck_assert_ptr_eq(kvf__slots_find(&slots, slots.items[i].name), &slots.items[i]);
    }
    ck_assert_ptr_null(kvf__slots_find(&slots, "model.layers.2.mlp.down_proj.weight"));
    ck_assert_int_eq(n_warnings, 0);
    kvf__slots_done(&slots);
    kvf__desc_done(&desc);
    toy_end(&t);
}
END_TEST

START_TEST(gpt2_with_buffers)
{
    toy_table t = toy_begin(ctx, name_prefixes[_i]);
    kvf__desc desc = toy_desc(ctx, TOY_GPT2);

    toy_gpt2(&t);
    toy_weight(&t, "h.#.attn.bias", 0, 4, 4);
    toy_weight(&t, "h.#.attn.masked_bias", 1, 1, 0);
    kvf__slots slots = bind_ok(&desc, &t);
    ck_assert_uint_eq(slots.n, 2 + 2 * 12 + 2);
    const kvf__slot *qkv = kvf__slots_find(&slots, "transformer.h.1.attn.c_attn.weight");
    ck_assert_ptr_nonnull(qkv);
    ck_assert(qkv->conv1d && !qkv->permuted_heads);
    ck_assert(!kvf__slots_find(&slots, "transformer.wte.weight")->conv1d);
    ck_assert_int_eq(n_warnings, 0); /* buffers are not surplus */
    kvf__slots_done(&slots);
    kvf__desc_done(&desc);
    toy_end(&t);
}
END_TEST

START_TEST(surplus_is_logged_once)
{
    toy_table t = toy_begin(ctx, "model.");
    kvf__desc desc = toy_desc(ctx, TOY_UNTIED);

    toy_llama(&t, true, true); /* biases not listed in the config */
    toy_put(&t, "score.weight", 2, 24);
    kvf__slots slots = bind_ok(&desc, &t);
    ck_assert_int_eq(n_warnings, 1);
    ck_assert_str_eq(warning, "toy: 15 tensors are not used by architecture llama, first "
                              "model.layers.0.self_attn.q_proj.bias");
    kvf__slots_done(&slots);
    kvf__desc_done(&desc);
    toy_end(&t);
}
END_TEST

/* ---- tied heads ------------------------------------------------------------------------------ */

START_TEST(tied_copy_is_dropped)
{
    toy_table t = toy_begin(ctx, "model.");
    kvf__desc desc = toy_desc(ctx, TOY_TIED);

    toy_llama(&t, true, false);
    memcpy(t.data[20], t.data[0], 50 * 24 * sizeof(float));
    kvf__slots slots = bind_ok(&desc, &t);
    ck_assert_ptr_null(kvf__slots_find(&slots, "lm_head.weight"));
    ck_assert_int_eq(n_warnings, 0);
    kvf__slots_done(&slots);
    kvf__desc_done(&desc);
    toy_end(&t);
}
END_TEST

/* Weights that differ are not tied, even if the config ties them; transformers 5 does the same. */
START_TEST(different_head_unties)
{
    toy_table t = toy_begin(ctx, "model.");
    kvf__desc desc = toy_desc(ctx, TOY_TIED);

    toy_llama(&t, true, false);
    kvf__slots slots = bind_ok(&desc, &t);
    ck_assert_ptr_nonnull(kvf__slots_find(&slots, "lm_head.weight"));
    ck_assert_int_eq(n_warnings, 1);
    ck_assert_ptr_nonnull(strstr(warning, "lm_head.weight differs from model.embed_tokens.weight"));
    kvf__slots_done(&slots);
    kvf__desc_done(&desc);
    toy_end(&t);
}
END_TEST

START_TEST(head_lends_itself_to_the_embedding)
{
    toy_table t = toy_begin(ctx, "model.");
    kvf__desc desc = toy_desc(ctx, TOY_TIED);

    toy_llama(&t, true, false);
    kvf__table less = {0};
    for (size_t i = 1; i < t.table.n; i++)
        ck_assert_int_eq(kvf__table_add(ctx, &less, t.table.items[i].name, t.table.items[i].view),
                         KVF_OK);
    kvf__slots slots = {0};
    ck_assert_int_eq(kvf__bind(ctx, "toy", &desc, &less, &slots), KVF_OK);
    ck_assert_str_eq(slots.items[0].name, "model.embed_tokens.weight");
    ck_assert_ptr_eq(slots.items[0].view.data, t.data[20]);
    ck_assert_int_eq(n_warnings, 0);
    kvf__slots_done(&slots);
    kvf__table_done(&less);
    kvf__desc_done(&desc);
    toy_end(&t);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(each_missing_tensor_is_named)
{
    toy_table t = toy_begin(ctx, "model.");
    kvf__desc desc = toy_desc(ctx, TOY_UNTIED);
    kvf__table less = {0};
    kvf__slots slots = {0};
    char want[160];

    toy_llama(&t, true, false);
    for (size_t i = 0; i < t.table.n; i++)
        if (i != (size_t)_i)
            ck_assert_int_eq(
                kvf__table_add(ctx, &less, t.table.items[i].name, t.table.items[i].view), KVF_OK);
    ck_assert_int_eq(kvf__bind(ctx, "toy", &desc, &less, &slots), KVF_EFORMAT);
    snprintf(want, sizeof want, "toy: tensor %s is missing", t.table.items[_i].name);
    ck_assert_str_eq(kvf_ctx_error(ctx), want);
    kvf__table_done(&less);
    kvf__desc_done(&desc);
    toy_end(&t);
}
END_TEST

START_TEST(each_wrong_shape_is_named)
{
    toy_table t = toy_begin(ctx, "model.");
    kvf__desc desc = toy_desc(ctx, TOY_UNTIED);
    char found[128], want[64];

    toy_llama(&t, true, false);
    kvf__view *view = &t.table.items[_i].view;
    view->dim[0] -= 8;
    ck_assert_int_eq(bind_fails(&desc, &t), KVF_ESHAPE);
    snprintf(want, sizeof want, "%s is %s, expected [", t.table.items[_i].name,
             kvf__shape_text(found, view->rank, view->dim));
    ck_assert_msg(strstr(kvf_ctx_error(ctx), t.table.items[_i].name) != NULL &&
                      strstr(kvf_ctx_error(ctx), found) != NULL,
                  "%s", kvf_ctx_error(ctx));
    view->dim[0] += 8;
    view->rank = 3 - view->rank; /* a vector becomes a matrix, and vice versa */
    ck_assert_int_eq(bind_fails(&desc, &t), KVF_ESHAPE);
    kvf__desc_done(&desc);
    toy_end(&t);
}
END_TEST

START_TEST(integers_and_unknown_types_are_refused)
{
    toy_table t = toy_begin(ctx, "model.");
    kvf__desc desc = toy_desc(ctx, TOY_UNTIED);

    toy_llama(&t, true, false);
    t.table.items[3].view.dtype = KVF__I8;
    ck_assert_int_eq(bind_fails(&desc, &t), KVF_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "k_proj.weight has type i8"));
    t.table.items[3].view.dtype = KVF__OTHER;
    t.table.items[3].view.other_name = "iq2_xs";
    ck_assert_int_eq(bind_fails(&desc, &t), KVF_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "has type iq2_xs"));
    t.table.items[3].view.dtype = KVF__Q8_0; /* 24 columns are not a whole block of 32 */
    ck_assert_int_eq(bind_fails(&desc, &t), KVF_EFORMAT);
    kvf__desc_done(&desc);
    toy_end(&t);
}
END_TEST

START_TEST(every_allocation_can_fail)
{
    toy_table t = toy_begin(ctx, "model.");
    kvf__desc desc = toy_desc(ctx, TOY_UNTIED);
    kvf__slots slots = {0};
    char hex[33];
    int64_t n;

    toy_llama(&t, true, false);
    for (n = 0;; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        kvf_status st = kvf__bind(ctx, "toy", &desc, &t.table, &slots);
        if (!st) break;
        ck_assert_int_eq(st, KVF_ENOMEM);
    }
    ck_assert_int_gt(n, 2);
    for (n = 0;; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        kvf_status st = kvf__slots_hash(ctx, &desc, &slots, NULL, NULL, hex);
        if (!st) break;
        ck_assert_int_eq(st, KVF_ENOMEM);
    }
    ck_assert_int_gt(n, 1);
    kvf__ctx_fail_allocation(ctx, -1);
    kvf__slots_done(&slots);
    kvf__desc_done(&desc);
    toy_end(&t);
}
END_TEST

/* ---- rows ------------------------------------------------------------------------------------ */

START_TEST(gguf_permutation_is_undone)
{
    toy_table hf = toy_begin(ctx, "model."), gguf = toy_begin(ctx, "");
    float row[40];

    gguf.gguf = true;
    toy_llama(&hf, true, true);
    toy_llama(&gguf, true, true);
    kvf__desc hf_desc = toy_desc(ctx, TOY_BIASED);
    kvf__desc gguf_desc = toy_desc_gguf(ctx, &gguf.table);
    kvf__slots hf_slots = bind_ok(&hf_desc, &hf), gguf_slots = bind_ok(&gguf_desc, &gguf);
    ck_assert_uint_eq(hf_slots.n, gguf_slots.n);
    int permuted = 0;
    for (size_t i = 0; i < hf_slots.n; i++) {
        const kvf__slot *a = &hf_slots.items[i], *b = &gguf_slots.items[i];
        float *want = NULL, *got = NULL;
        size_t n = (size_t)kvf__view_count(&a->view);

        ck_assert_str_eq(a->name, b->name);
        permuted += memcmp(a->view.data, b->view.data, n * sizeof(float)) != 0;
        ck_assert_int_eq(kvf__slot_f32(ctx, a, &want), KVF_OK);
        ck_assert_int_eq(kvf__slot_f32(ctx, b, &got), KVF_OK);
        ck_assert_mem_eq(want, a->view.data, n * sizeof(float));
        ck_assert_mem_eq(got, want, n * sizeof(float));
        int64_t last = kvf__slot_rows(b) - 1, cols = kvf__slot_columns(b);
        kvf__slot_row(b, last, row);
        ck_assert_mem_eq(row, want + last * cols, (size_t)cols * sizeof(float));
        kvf__free(want);
        kvf__free(got);
    }
    ck_assert_int_eq(permuted, 2 * 4); /* q, k and their biases in two layers */
    kvf__slots_done(&hf_slots);
    kvf__slots_done(&gguf_slots);
    kvf__desc_done(&hf_desc);
    kvf__desc_done(&gguf_desc);
    toy_end(&hf);
    toy_end(&gguf);
}
END_TEST

/* Blocks with finite scales and random contents, read from an odd address. */
static uint8_t *random_blocks(kvf__dtype dtype, int64_t n)
{
    size_t size = kvf__dtype_block_bytes(dtype), bytes = (size_t)n * size;
    uint8_t *memory = malloc(bytes + 1);
    kvf__rng rng = kvf__rng_make(8, 0);

    for (size_t i = 0; i <= bytes; i++)
        memory[i] = (uint8_t)kvf__rng_below(&rng, 256);
    for (size_t i = 0; i < bytes; i++) /* no f16 exponent of all ones at any position of a scale */
        memory[1 + i] &= 0x3f;
    return memory;
}

START_TEST(parts_of_rows_equal_whole_rows)
{
    static const kvf__dtype dtypes[] = {KVF__F16,  KVF__BF16, KVF__Q8_0,
                                        KVF__Q4_1, KVF__Q4_K, KVF__Q6_K};
    static const int64_t cuts[][2] = {{0, 512}, {0, 256}, {256, 256},
                                      {16, 80}, {511, 1}, {100, 300}};
    kvf__dtype dtype = dtypes[_i];
    uint8_t *memory = random_blocks(dtype, 4 * 512 / kvf__dtype_block(dtype));
    kvf__slot slot = {.view = {.data = memory + 1, .dtype = dtype, .rank = 2, .dim = {4, 512}}};
    float whole[512], part[512], scratch[512 + KVF__SLOT_SLACK];

    for (int64_t row = 0; row < 4; row++) {
        kvf__slot_row(&slot, row, whole);
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            kvf__slot_row_part(&slot, row, cuts[i][0], cuts[i][1], part, scratch);
            ck_assert_mem_eq(part, whole + cuts[i][0], (size_t)cuts[i][1] * sizeof(float));
        }
    }
    free(memory);
}
END_TEST

/* ---- hash ------------------------------------------------------------------------------------ */

static void hash_of(const char *config, const kvf__table *table, char hex[33])
{
    kvf__desc desc = toy_desc(ctx, config);
    kvf__slots slots = {0};

    ck_assert_msg(!kvf__bind(ctx, "toy", &desc, table, &slots), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf__slots_hash(ctx, &desc, &slots, NULL, NULL, hex), KVF_OK);
    ck_assert_uint_eq(strlen(hex), 32);
    kvf__slots_done(&slots);
    kvf__desc_done(&desc);
}

START_TEST(hash_ignores_order_prefix_buffers_and_tied_copies)
{
    toy_table t = toy_begin(ctx, "model."), bare = toy_begin(ctx, "");
    kvf__table reversed = {0};
    char want[33], got[33];

    toy_llama(&t, false, false);
    toy_llama(&bare, false, false);
    hash_of(TOY_TIED, &t.table, want);
    for (size_t i = t.table.n; i-- > 0;)
        ck_assert_int_eq(
            kvf__table_add(ctx, &reversed, t.table.items[i].name, t.table.items[i].view), KVF_OK);
    hash_of(TOY_TIED, &reversed, got);
    ck_assert_str_eq(got, want);
    hash_of(TOY_TIED, &bare.table, got);
    ck_assert_str_eq(got, want);
    toy_weight(&t, "layers.#.self_attn.rotary_emb.inv_freq", 0, 4, 0);
    float *head = toy_put(&t, "lm_head.weight", 50, 24);
    memcpy(head, t.data[0], 50 * 24 * sizeof(float));
    hash_of(TOY_TIED, &t.table, got);
    ck_assert_str_eq(got, want);
    hash_of(TOY_LLAMA ",\"tie_word_embeddings\":true,\"dtype\":\"float32\",\"eos_token_id\":9}",
            &t.table, got);
    ck_assert_str_eq(got, want);
    kvf__table_done(&reversed);
    toy_end(&t);
    toy_end(&bare);
}
END_TEST

START_TEST(hash_sees_every_difference)
{
    toy_table t = toy_begin(ctx, "model.");
    char want[33], got[33];

    toy_llama(&t, false, false);
    hash_of(TOY_TIED, &t.table, want);
    for (size_t i = 0; i < t.table.n; i++) { /* the last bit of the last element of each tensor */
        uint8_t *last = (uint8_t *)t.data[i] + kvf__view_bytes(&t.table.items[i].view) - 4;
        *last ^= 1;
        hash_of(TOY_TIED, &t.table, got);
        ck_assert_str_ne(got, want);
        *last ^= 1;
    }
    hash_of(TOY_LLAMA ",\"tie_word_embeddings\":true,\"rope_theta\":10001}", &t.table, got);
    ck_assert_str_ne(got, want);
    hash_of(TOY_LLAMA ",\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-5}", &t.table, got);
    ck_assert_str_ne(got, want);
    hash_of(TOY_LLAMA ",\"tie_word_embeddings\":true,\"hidden_act\":\"gelu\"}", &t.table, got);
    ck_assert_str_ne(got, want);
    hash_of(TOY_TIED, &t.table, got);
    ck_assert_str_eq(got, want);
    toy_end(&t);
}
END_TEST

/* The fingerprint is stored in every run and prefix file; it must not change between versions. */
START_TEST(hash_is_this_constant)
{
    toy_table t = toy_begin(ctx, "model."), g = toy_begin(ctx, "transformer.");
    char hex[33];

    toy_llama(&t, false, false);
    hash_of(TOY_TIED, &t.table, hex);
    ck_assert_str_eq(hex, "142fd7d26e91b29b14cd57cb583b234b");
    toy_gpt2(&g);
    hash_of(TOY_GPT2, &g.table, hex);
    ck_assert_str_eq(hex, "93f6c84e2545285b6fa72ad292a0e604");
    toy_end(&t);
    toy_end(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bind");
    TCase *tc = tcase_create("core");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, llama_under_any_prefix, 0, 3);
    tcase_add_loop_test(tc, gpt2_with_buffers, 0, 3);
    tcase_add_test(tc, surplus_is_logged_once);
    tcase_add_test(tc, tied_copy_is_dropped);
    tcase_add_test(tc, different_head_unties);
    tcase_add_test(tc, head_lends_itself_to_the_embedding);
    tcase_add_test(tc, gguf_permutation_is_undone);
    tcase_add_test(tc, hash_ignores_order_prefix_buffers_and_tied_copies);
    tcase_add_test(tc, hash_sees_every_difference);
    suite_add_tcase(suite, tc);

    tc = tcase_create("errors");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, each_missing_tensor_is_named, 0, 21);
    tcase_add_loop_test(tc, each_wrong_shape_is_named, 0, 21);
    tcase_add_test(tc, integers_and_unknown_types_are_refused);
    tcase_add_test(tc, every_allocation_can_fail);
    suite_add_tcase(suite, tc);

    tc = tcase_create("parity");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, parts_of_rows_equal_whole_rows, 0, 6);
    suite_add_tcase(suite, tc);

    tc = tcase_create("golden");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, hash_is_this_constant);
    suite_add_tcase(suite, tc);
    return ck_main(suite);
}

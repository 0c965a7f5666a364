/* Generation steps from the file's own weights, against passes over packed weights. The toys have
 * plain rows, GGUF-ordered rows, and GPT-2's blocks (layer norms, biases, learned positions) with
 * transposed matrices. Every golden model is compared too, or its refusal is. */
#include "golden_model.h"
#include "model_priv.h"
#include "toy_model.h"

#include <dirent.h>

enum { ROWS = 3, PROMPT = 9, STEPS = 4, CAPACITY = 24, P = 5 };

/* Differences between the decoder's slots and those the model was made for. */
typedef enum change { AS_THEY_ARE, PERMUTED, TURNED } change;
static const struct {
    const char *const *config;
    change how;
    kvf__dtype act;
    double tolerance; /* relative, over all logits of a step */
} CASES[] = {{&toy_llama, AS_THEY_ARE, KVF__F32, 2e-6},
             {&toy_llama, PERMUTED, KVF__F32, 2e-6},
             {&toy_gpt2, TURNED, KVF__F32, 2e-6},
             {&toy_qwen3, AS_THEY_ARE, KVF__F32, 2e-6},
             {&toy_olmo2, AS_THEY_ARE, KVF__F32, 2e-6},
             {&toy_neox, AS_THEY_ARE, KVF__F32, 2e-6},
             {&toy_neox_serial, AS_THEY_ARE, KVF__F32, 2e-6},
             {&toy_phi3, AS_THEY_ARE, KVF__F32, 2e-6},
             {&toy_gemma, AS_THEY_ARE, KVF__F32, 2e-6},
             {&toy_lfm2, AS_THEY_ARE, KVF__F32, 2e-6},
             {&toy_qwen3_5, AS_THEY_ARE, KVF__F32, 4e-6},
             {&toy_llama, AS_THEY_ARE, KVF__BF16, 2e-2},
             {&toy_gpt2, TURNED, KVF__BF16, 2e-2}};
enum { N_CASES = sizeof CASES / sizeof CASES[0] };

/* Folders tests/golden/model_NAME. */
static char goldens[64][64];
static int n_goldens;

static toy t;
static golden g; /* views of t in a golden case */
static kvf__pass *pass;
static kvf__prefix prefix;
static float *copies[64]; /* of weights that were rearranged */
static int n_copies;

static void list_goldens(void)
{
    DIR *folder = opendir(KVF_SOURCE_ROOT "/tests/golden");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (n_goldens < 64 && sscanf(entry->d_name, "model_%63s", goldens[n_goldens]) == 1)
            n_goldens++;
    if (folder) closedir(folder);
}

static void prepare(void)
{
    pass = toy_pass(&t);
    toy_prefix(&t, &prefix, P, 0.5);
    ck_assert(!kvf__prefix_weigh(t.ctx, &prefix));
    for (size_t w = 0; w < kvf__prefix_weights(&prefix); w++)
        prefix.log_weight[w] = (float)(w % 5) - 2;
}

static bool open_case(int i)
{
    if (CASES[i].act == KVF__BF16 && !kvf__cpu_has_bf16()) return false;
    toy_create(&t, *CASES[i].config, CASES[i].act);
    prepare();
    return true;
}

static bool open_golden(const char *name, kvf__dtype act)
{
    if (act == KVF__BF16 && !kvf__cpu_has_bf16()) return false;
    golden_load(&g, name, act);
    t = (toy){.ctx = g.ctx, .slots = g.slots, .model = g.model};
    if (!kvf__model_desc(g.model)->encoder) prepare();
    return true;
}

static void close_case(void)
{
    while (n_copies)
        kvf__free(copies[--n_copies]);
    kvf__prefix_done(&prefix);
    kvf__pass_free(pass);
    if (g.ctx)
        golden_unload(&g);
    else
        toy_free(&t);
}

/* Row i of the file is the permuted row i of Hugging Face. */
static void permute(kvf__slot *slot, float *to, int64_t heads)
{
    const int64_t rows = slot->view.dim[0], cols = slot->view.dim[1], D = rows / heads;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t in = i % D, from = i - in + in / 2 + in % 2 * (D / 2);
        kvf__slot_row(slot, from, to + i * cols);
    }
    slot->permuted_heads = heads;
}

static void turn(kvf__slot *slot, float *to)
{
    const int64_t rows = slot->view.dim[0], cols = slot->view.dim[1];
    float *from = NULL;
    ck_assert_int_eq(kvf__slot_f32(t.ctx, slot, &from), KVF_OK);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            to[j * rows + i] = from[i * cols + j];
    kvf__free(from);
    slot->view.dim[0] = cols;
    slot->view.dim[1] = rows;
    slot->view.dtype = KVF__F32;
    slot->conv1d = false;
}

/* After the model has been packed. */
static void rearrange(change how)
{
    const kvf__desc *d = kvf__model_desc(t.model);
    for (size_t i = 0; i < t.slots.n; i++) {
        kvf__slot *slot = &t.slots.items[i];
        const bool q = strstr(slot->name, "q_proj"), k = strstr(slot->name, "k_proj");
        const bool moved = how == PERMUTED ? q || k
                                           : how == TURNED && slot->conv1d && slot->view.rank == 2;
        if (!moved) continue;
        float *to = NULL;
        ck_assert_int_eq(
            kvf__alloc_array(t.ctx, (size_t)kvf__view_count(&slot->view), sizeof(float), &to),
            KVF_OK);
        if (how == PERMUTED)
            permute(slot, to, q ? d->H : d->G);
        else
            turn(slot, to);
        slot->view.data = copies[n_copies++] = to;
    }
}

static kvf__cache *filled_cache(void)
{
    static const int64_t lengths[] = {PROMPT, PROMPT - 4, PROMPT - 1, 0};
    kvf__cache *cache = NULL;
    toy_batch batch;
    toy_batch_make(&batch, kvf__model_desc(t.model), lengths, 0, 4);
    ck_assert_int_eq(kvf__cache_create(t.ctx, t.model, ROWS, CAPACITY, &cache), KVF_OK);
    const kvf__input input = {.batch = &batch.b,
                              .condition.prefix = &prefix,
                              .condition.position_start = P,
                              .cache = cache};
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, &input), KVF_OK);
    return cache;
}

static kvf__decoder *decoder_of(kvf_ctx *ctx, kvf__cache *cache)
{
    kvf__decoder *decoder = NULL;
    ck_assert_msg(!kvf__decoder_create(ctx, t.model, &t.slots, cache, ROWS, P, 0, &decoder), "%s",
                  kvf_ctx_error(ctx));
    return decoder;
}

static kvf__step step_of(int i, int64_t n, int32_t *ids, const int32_t *slots)
{
    const int64_t V = kvf__model_desc(t.model)->V;
    for (int64_t r = 0; r < n; r++)
        ids[r] = (int32_t)((7 * i + 13 * r + 1) % V);
    return (kvf__step){.n = n,
                       .ids = ids,
                       .slot = slots,
                       .condition.prefix = &prefix,
                       .condition.position_start = P};
}

static float *logits_for(int64_t n)
{
    float *out = NULL;
    ck_assert_int_eq(
        kvf__alloc_array(t.ctx, (size_t)(n * kvf__model_desc(t.model)->V), sizeof *out, &out),
        KVF_OK);
    return out;
}

/* The same step computed as a pass. */
static void step_by_pass(const kvf__step *step, kvf__cache *cache, float *logits)
{
    const int64_t start[] = {0, 1, 2, 3}, example[ROWS] = {0};
    const int32_t label[] = {0, 1, 2};
    const kvf__batch batch = {.n_rows = step->n,
                              .n_tokens = step->n,
                              .n_labels = step->n,
                              .start = start,
                              .ids = step->ids,
                              .label_at = label,
                              .label_id = label,
                              .example = example};
    const kvf__input input = {.batch = &batch,
                              .condition.prefix = step->condition.prefix,
                              .condition.position_start = step->condition.position_start,
                              .cache = cache,
                              .slot = step->slot};
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
    ck_assert_int_eq(kvf__pass_lm_logits(t.ctx, pass, logits), KVF_OK);
}

/* ---- parity ---------------------------------------------------------------------------------- */

/* All rows, then two of them in other slots, then one. */
static void compare_steps(change how, double tolerance)
{
    static const int32_t slots[] = {2, 0, 1};
    const size_t V = (size_t)kvf__model_desc(t.model)->V;
    kvf__cache *a = filled_cache(), *b = filled_cache();
    rearrange(how);
    kvf__decoder *decoder = decoder_of(t.ctx, a);
    float *got = logits_for(ROWS), *want = logits_for(ROWS);
    int32_t ids[ROWS];

    for (int i = 0; i < STEPS; i++) {
        const int64_t n = i < 2 ? ROWS : STEPS - i;
        const kvf__step step = step_of(i, n, ids, i ? slots : NULL);
        step_by_pass(&step, b, want);
        ck_assert_msg(!kvf__decoder_step(t.ctx, decoder, &step, got), "%s", kvf_ctx_error(t.ctx));
        ck_assert_double_le(ck_rel_l2(got, want, (size_t)n * V), tolerance);
        for (int s = 0; s < ROWS; s++)
            ck_assert_int_eq(kvf__cache_length(a, s), kvf__cache_length(b, s));
    }
    kvf__free(got);
    kvf__free(want);
    kvf__decoder_free(decoder);
    kvf__cache_free(a);
    kvf__cache_free(b);
}

START_TEST(steps_are_those_of_a_pass)
{
    ck_need(open_case(_i), "this CPU has no bf16 products");
    compare_steps(CASES[_i].how, CASES[_i].tolerance);
    close_case();
}
END_TEST

static void check_refusal(const char *why)
{
    kvf__cache *cache = NULL;
    kvf__decoder *decoder = NULL;
    ck_assert_int_eq(kvf__cache_create(t.ctx, t.model, ROWS, CAPACITY, &cache), KVF_OK);
    ck_assert_int_eq(kvf__decoder_create(t.ctx, t.model, &t.slots, cache, ROWS, P, 0, &decoder),
                     KVF_EUSAGE);
    ck_assert_msg(strstr(kvf_ctx_error(t.ctx), why) != NULL, "%s", kvf_ctx_error(t.ctx));
    kvf__cache_free(cache);
}

/* Matrices of GPT-2 are transposed, because storage order is independent of the block. In bf16,
 * pass and decoder both differ from the f32 logits by up to 4e-2 (Gemma 3), and by 5e-2 from each
 * other. */
START_TEST(steps_of_golden_models_are_those_of_a_pass)
{
    const bool bf16 = _i >= n_goldens;
    ck_need(open_golden(goldens[_i % n_goldens], bf16 ? KVF__BF16 : KVF__F32),
            "this CPU has no bf16 products");
    const kvf__desc *d = kvf__model_desc(t.model);
    const char *why = kvf__block_refused(&d->block, KVF__BLOCK_DECODER);
    /* dividing queries and keys by their length amplifies rounding */
    const double delta = d->mixer.kind == KVF__MIXER_DELTA ? 2 : 1;
    if (why || d->encoder)
        check_refusal(why ? why : "has an encoder");
    else
        compare_steps(TURNED, delta * (bf16 ? 8e-2 : 2e-6));
    close_case();
}
END_TEST

#define INDEX(type, name, ...)  FIELD_##name,
#define IS_SET(type, name, ...) seen[FIELD_##name] |= d.block.name != 0;
#define TAKEN_IS_SEEN(type, name, ...)                                                             \
    alone = (kvf__block){.causal = true};                                                          \
    alone.name = (type)1;                                                                          \
    if (!kvf__block_refused(&alone, user))                                                         \
        ck_assert_msg(seen[FIELD_##name], "no golden model has " #name);
enum { KVF__BLOCK(INDEX) N_FIELDS };

/* Each supported field of pass or decoder is set in a golden model that it runs. */
START_TEST(fields_that_are_taken_are_in_golden_models)
{
    const kvf__block_user user = _i ? KVF__BLOCK_DECODER : KVF__BLOCK_PASS;
    bool seen[N_FIELDS] = {false};
    kvf__block alone;

    for (int i = 0; i < n_goldens; i++) {
        kvf__desc d = golden_open(&g, goldens[i]);
        if (!kvf__block_refused(&d.block, user)) {
            KVF__BLOCK(IS_SET)
        }
        kvf__desc_done(&d);
        golden_unload(&g);
    }
    KVF__BLOCK(TAKEN_IS_SEEN)
}
END_TEST

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(threads_change_no_bit)
{
    static const int counts[] = {1, 2, 3, 7};
    ck_need(open_case(_i), "this CPU has no bf16 products");
    const size_t bytes = ROWS * (size_t)kvf__model_desc(t.model)->V * sizeof(float);
    float *first = logits_for(ROWS), *next = logits_for(ROWS);
    kvf__cache *caches[4];
    for (int i = 0; i < 4; i++)
        caches[i] = filled_cache();
    rearrange(CASES[_i].how);
    for (int i = 0; i < 4; i++) {
        const kvf_ctx_options options = {.threads = counts[i]};
        kvf_ctx *ctx = NULL;
        int32_t ids[ROWS];
        ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
        kvf__decoder *decoder = decoder_of(ctx, caches[i]);
        const kvf__step step = step_of(0, ROWS, ids, NULL);
        ck_assert_int_eq(kvf__decoder_step(ctx, decoder, &step, i ? next : first), KVF_OK);
        if (i) ck_assert(!memcmp(first, next, bytes));
        kvf__decoder_free(decoder);
        kvf_ctx_free(ctx);
        kvf__cache_free(caches[i]);
    }
    kvf__free(first);
    kvf__free(next);
    close_case();
}
END_TEST

START_TEST(a_masked_layer_has_no_prefix)
{
    open_case(0);
    kvf__cache *a = filled_cache(), *b = filled_cache();
    kvf__decoder *decoder = decoder_of(t.ctx, a);
    float *got = logits_for(1), *want = logits_for(1);
    int32_t id;
    const kvf__step step = step_of(0, 1, &id, NULL);

    prefix.layer_mask[1] = 0;
    step_by_pass(&step, b, want);
    ck_assert_int_eq(kvf__decoder_step(t.ctx, decoder, &step, got), KVF_OK);
    ck_assert_double_le(ck_rel_l2(got, want, (size_t)kvf__model_desc(t.model)->V), 2e-6);
    kvf__free(got);
    kvf__free(want);
    kvf__decoder_free(decoder);
    kvf__cache_free(a);
    kvf__cache_free(b);
    close_case();
}
END_TEST

/* Rows after prefixes of unequal length, and one row without prefix, equal the rows alone. */
START_TEST(company_changes_no_bit)
{
    ck_need(open_case(_i), "this CPU has no bf16 products");
    const size_t V = (size_t)kvf__model_desc(t.model)->V;
    float *together = logits_for(ROWS), *alone = logits_for(1);
    kvf__cache *a = filled_cache(), *b = filled_cache();
    kvf__prefix shorter;
    int32_t ids[ROWS];
    toy_prefix(&t, &shorter, P - 3, 0.7);
    rearrange(CASES[_i].how);
    kvf__decoder *many = decoder_of(t.ctx, a), *one = decoder_of(t.ctx, b);
    const kvf__step_row rows[ROWS] = {{{.prefix = &shorter, .position_start = 2}, NULL},
                                      {{.prefix = NULL, .position_start = 0}, NULL},
                                      {{.prefix = &prefix, .position_start = P}, NULL}};

    for (int i = 0; i < STEPS; i++) {
        kvf__step step = step_of(i, ROWS, ids, NULL);
        step.row = rows;
        step.as_one = true;
        ck_assert_msg(!kvf__decoder_step(t.ctx, many, &step, together), "%s", kvf_ctx_error(t.ctx));
        for (int32_t r = 0; r < ROWS; r++) {
            const kvf__step single = {
                .n = 1, .ids = ids + r, .slot = &r, .condition = rows[r].condition};
            ck_assert_int_eq(kvf__decoder_step(t.ctx, one, &single, alone), KVF_OK);
            ck_assert(!memcmp(together + (size_t)r * V, alone, V * sizeof *alone));
        }
    }
    kvf__prefix_done(&shorter);
    kvf__free(together);
    kvf__free(alone);
    kvf__decoder_free(many);
    kvf__decoder_free(one);
    kvf__cache_free(a);
    kvf__cache_free(b);
    close_case();
}
END_TEST

/* Two tokens of one slot and one of another in a step, compared with three steps. */
START_TEST(a_run_has_the_bits_of_steps)
{
    static const int32_t slots[ROWS] = {2, 2, 0};
    ck_need(open_case(_i), "this CPU has no bf16 products");
    const size_t V = (size_t)kvf__model_desc(t.model)->V;
    float *together = logits_for(ROWS), *alone = logits_for(1);
    kvf__cache *a = filled_cache(), *b = filled_cache();
    rearrange(CASES[_i].how);
    kvf__decoder *many = decoder_of(t.ctx, a), *one = decoder_of(t.ctx, b);
    int32_t ids[ROWS];

    for (int i = 0; i < STEPS / 2; i++) {
        kvf__step step = step_of(i, ROWS, ids, slots);
        step.runs = step.as_one = true;
        ck_assert_msg(!kvf__decoder_step(t.ctx, many, &step, together), "%s", kvf_ctx_error(t.ctx));
        for (int r = 0; r < ROWS; r++) {
            kvf__step single = step;
            single.n = 1;
            single.ids = ids + r;
            single.slot = slots + r;
            single.runs = false;
            ck_assert_int_eq(kvf__decoder_step(t.ctx, one, &single, alone), KVF_OK);
            ck_assert(!memcmp(together + (size_t)r * V, alone, V * sizeof *alone));
        }
        for (int s = 0; s < ROWS; s++)
            ck_assert_int_eq(kvf__cache_length(a, s), kvf__cache_length(b, s));
    }
    kvf__free(together);
    kvf__free(alone);
    kvf__decoder_free(many);
    kvf__decoder_free(one);
    kvf__cache_free(a);
    kvf__cache_free(b);
    close_case();
}
END_TEST

/* A slot with less room than the others, and a slot that loses its room. */
START_TEST(a_slot_has_room_of_its_own)
{
    enum { ROOM = 7 };
    open_case(0);
    kvf__cache *a = NULL, *b = NULL;
    float *got = logits_for(1), *want = logits_for(1);
    int32_t id = 5;
    ck_assert_int_eq(kvf__cache_create_empty(t.ctx, t.model, 2, CAPACITY, &a), KVF_OK);
    ck_assert_int_eq(kvf__cache_create(t.ctx, t.model, 2, CAPACITY, &b), KVF_OK);
    ck_assert_int_eq(kvf__cache_reserve(t.ctx, a, 1, ROOM), KVF_OK);
    kvf__decoder *of_a = decoder_of(t.ctx, a), *of_b = decoder_of(t.ctx, b);
    const int32_t slot = 1, other = 0;
    kvf__step step = {.n = 1,
                      .ids = &id,
                      .slot = &slot,
                      .condition.prefix = &prefix,
                      .condition.position_start = P};
    for (int i = 0; i < ROOM; i++) {
        ck_assert_int_eq(kvf__decoder_step(t.ctx, of_a, &step, got), KVF_OK);
        ck_assert_int_eq(kvf__decoder_step(t.ctx, of_b, &step, want), KVF_OK);
        ck_assert(!memcmp(got, want, (size_t)kvf__model_desc(t.model)->V * sizeof *got));
    }
    ck_assert_int_eq(kvf__decoder_step(t.ctx, of_a, &step, got), KVF_ESHAPE);
    step.slot = &other;
    ck_assert_int_eq(kvf__decoder_step(t.ctx, of_a, &step, got), KVF_ESHAPE);
    ck_assert_int_eq(kvf__cache_reserve(t.ctx, a, 1, 0), KVF_OK);
    ck_assert_int_eq(kvf__cache_length(a, 1), 0);
    kvf__free(got);
    kvf__free(want);
    kvf__decoder_free(of_a);
    kvf__decoder_free(of_b);
    kvf__cache_free(a);
    kvf__cache_free(b);
    close_case();
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static void refused(kvf__decoder *decoder, const kvf__step *step, const char *text)
{
    ck_assert_int_eq(kvf__decoder_step(t.ctx, decoder, step, NULL), KVF_ESHAPE);
    ck_assert_msg(strstr(kvf_ctx_error(t.ctx), text) != NULL, "%s", kvf_ctx_error(t.ctx));
}

START_TEST(misuse_is_refused)
{
    open_case(0);
    const int32_t twice[] = {1, 1}, beyond[] = {0, 3};
    kvf__cache *cache = filled_cache();
    kvf__decoder *decoder = decoder_of(t.ctx, cache);
    int32_t ids[ROWS + 1];
    kvf__step step = step_of(0, 2, ids, twice);
    refused(decoder, &step, "rows 0 and 1 both use slot 1");
    step.slot = beyond;
    refused(decoder, &step, "row 1 in slot 3, but the cache has 3");
    step.slot = NULL;
    step.n = ROWS + 1;
    refused(decoder, &step, "4 rows, the decoder was made for 1 to 3");
    step.n = 1;
    ids[0] = 61;
    refused(decoder, &step, "id 61, the vocabulary ends at 60");
    ids[0] = 0;
    step.condition.position_start = 300;
    refused(decoder, &step, "position 309");
    kvf__prefix longer;
    toy_prefix(&t, &longer, P + 1, 1);
    step.condition.prefix = &longer;
    refused(decoder, &step, "at most 5");
    ck_assert_int_eq(kvf__cache_length(cache, 0), PROMPT);
    kvf__prefix_done(&longer);
    kvf__decoder_free(decoder);
    kvf__cache_free(cache);
    close_case();
}
END_TEST

START_TEST(weights_by_inputs_do_not_fit)
{
    open_case(2);
    kvf__decoder *decoder = NULL;
    kvf__cache *cache = filled_cache();
    ck_assert_str_eq(kvf__decoder_refuses(t.model, &t.slots), "stores transposed weights");
    ck_assert_int_eq(kvf__decoder_create(t.ctx, t.model, &t.slots, cache, 1, 0, 0, &decoder),
                     KVF_EUSAGE);
    ck_assert_ptr_null(decoder);
    kvf__cache_free(cache);
    close_case();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("decoder");
    TCase *core = tcase_create("core"), *parity = tcase_create("parity"),
          *errors = tcase_create("errors");
    tcase_set_timeout(core, 30);
    tcase_set_timeout(parity, 30);
    list_goldens();
    tcase_add_loop_test(parity, steps_are_those_of_a_pass, 0, N_CASES);
    tcase_add_loop_test(parity, steps_of_golden_models_are_those_of_a_pass, 0, 2 * n_goldens);
    tcase_add_loop_test(parity, fields_that_are_taken_are_in_golden_models, 0, 2);
    tcase_add_loop_test(core, threads_change_no_bit, 0, N_CASES);
    tcase_add_test(core, a_masked_layer_has_no_prefix);
    tcase_add_loop_test(core, company_changes_no_bit, 0, N_CASES);
    tcase_add_loop_test(core, a_run_has_the_bits_of_steps, 0, N_CASES);
    tcase_add_test(core, a_slot_has_room_of_its_own);
    tcase_add_test(errors, misuse_is_refused);
    tcase_add_test(errors, weights_by_inputs_do_not_fit);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, parity);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}

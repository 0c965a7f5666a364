/* Weights packed just before use, from a copy in memory or from the file. Passes, generation steps
 * and adapters give the bits of a model that keeps the same values packed. */
#include "ctx_int.h"
#include "names.h"
#include "products.h"
#include "stored.h"
#include "toy_model.h"

/* Rows of whole blocks of 32, so that int8 applies, and an untied head. */
static const char *const WIDE =
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":64,\"intermediate_size\":96,"
    "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,"
    "\"max_position_embeddings\":300,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false,"
    "\"hidden_act\":\"silu\",\"rope_theta\":1000.0}";

static const struct {
    const char *const *config;
    kvf__dtype act;
    kvf__keep keep;
    kvf__dtype stored;
} CASES[] = {
    {&toy_llama, KVF__F32, KVF__KEEP_MAPPED, KVF__F32},
    {&toy_llama, KVF__F32, KVF__KEEP_STORED, KVF__F32},
    {&toy_llama, KVF__F32, KVF__KEEP_STORED, KVF__Q8_0}, /* rows of 24: bf16 */
    {&toy_gpt2, KVF__F32, KVF__KEEP_MAPPED, KVF__F32},
    {&toy_gpt2, KVF__F32, KVF__KEEP_STORED, KVF__BF16},
    {&toy_gpt2, KVF__F32, KVF__KEEP_STORED, KVF__Q8_0}, /* stored by inputs */
    {&toy_qwen3, KVF__F32, KVF__KEEP_MAPPED, KVF__F32},
    {&toy_qwen3, KVF__F32, KVF__KEEP_STORED, KVF__BF16},
    {&WIDE, KVF__F32, KVF__KEEP_MAPPED, KVF__F32},
    {&WIDE, KVF__F32, KVF__KEEP_STORED, KVF__Q8_0},
    {&WIDE, KVF__BF16, KVF__KEEP_MAPPED, KVF__F32},
    {&WIDE, KVF__BF16, KVF__KEEP_STORED, KVF__BF16},
    {&WIDE, KVF__BF16, KVF__KEEP_STORED, KVF__Q8_0},
    {&toy_gpt2, KVF__BF16, KVF__KEEP_MAPPED, KVF__F32},
    {&toy_phi3, KVF__F32, KVF__KEEP_MAPPED, KVF__F32},
    {&toy_phi3, KVF__F32, KVF__KEEP_STORED, KVF__F32},
    {&toy_neox, KVF__F32, KVF__KEEP_STORED, KVF__F32},
    {&toy_olmo2, KVF__F32, KVF__KEEP_STORED, KVF__BF16},
    {&toy_lfm2, KVF__F32, KVF__KEEP_MAPPED, KVF__F32},
    {&toy_qwen3_5, KVF__F32, KVF__KEEP_STORED, KVF__F32},
};
enum { N_CASES = sizeof CASES / sizeof CASES[0], N_EQUAL = N_CASES - 2 /* layers differ */, P = 6 };

/* ---- models ---------------------------------------------------------------------------------- */

/* Values of the matrix as read from the stored type. */
static void round_matrix(toy *t, const kvf__slot *slot, kvf__dtype stored)
{
    const int64_t columns = slot->view.dim[1];
    const kvf__dtype dtype = kvf__stored_dtype(stored, columns);
    float *row = t->weights + ((const float *)slot->view.data - t->weights);
    uint8_t bytes[8192];

    for (int64_t r = 0; r < slot->view.dim[0]; r++, row += columns) {
        kvf__from_f32(dtype, row, bytes, columns);
        kvf__to_f32(dtype, bytes, row, columns);
    }
}

static void round_matrices(toy *t, const kvf__desc *desc, kvf__dtype stored)
{
    const kvf__slot *slot;
    kvf__product p;

    for (int64_t l = 0; l < desc->L; l++)
        for (size_t i = 0; kvf__product_at(desc, l, i, &p) && !p.plane; i++)
            for (int part = 0; (slot = kvf__product_slot(desc, &t->slots, &p, part, NULL)); part++)
                round_matrix(t, slot, stored);
    const kvf__slot *head = kvf__slot_of(desc, &t->slots, KVF__W_HEAD, 0);
    if (head) round_matrix(t, head, stored);
}

/* toy_create_as, but with a separate head if it is not tied. rounded: every matrix is first rounded
 * to its stored type. A tied head cannot be rounded without its embedding. */
static void make(toy *t, const char *config, const kvf__model_options *o, kvf__dtype rounded)
{
    const kvf_ctx_options options = {.threads = 2};
    kvf_json *json = NULL;
    kvf__desc desc = {0};

    *t = (toy){.rng = kvf__rng_make(11, 0), .cap = 200000};
    ck_assert_int_eq(kvf_ctx_create(&options, &t->ctx), KVF_OK);
    ck_assert_int_eq(kvf__alloc_array(t->ctx, t->cap, sizeof(float), &t->weights), KVF_OK);
    ck_assert_int_eq(kvf_json_parse(t->ctx, "toy", config, strlen(config), &json), KVF_OK);
    ck_assert_int_eq(kvf__desc_from_hf(t->ctx, "toy", json, &desc), KVF_OK);
    if (!toy_weights(t, &desc) && !desc.tied) toy_add(t, "lm_head.weight", 2, desc.V, desc.C);
    ck_assert_int_eq(kvf__bind(t->ctx, "toy", &desc, &t->table, &t->slots), KVF_OK);
    if (rounded != KVF__F32) round_matrices(t, &desc, rounded);
    ck_assert_msg(!kvf__model_create(t->ctx, &desc, &t->slots, o, &t->model), "%s",
                  kvf_ctx_error(t->ctx));
    kvf__desc_done(&desc);
    kvf_json_free(json);
}

/* The same values kept packed, and packed just before use. */
typedef struct pair {
    toy packed, reached;
    bool same_head; /* otherwise that of `packed` is not rounded */
} pair;

static bool make_pair(pair *p, int i, const kvf__train *train, bool backward)
{
    kvf__model_options o = {.act = CASES[i].act, .backward = backward};
    const kvf__dtype stored = CASES[i].keep == KVF__KEEP_STORED ? CASES[i].stored : KVF__F32;

    if (o.act == KVF__BF16 && !kvf__cpu_has_bf16()) return false;
    if (train) o.train = *train;
    make(&p->packed, *CASES[i].config, &o, stored);
    o.keep = CASES[i].keep;
    o.stored = CASES[i].stored;
    make(&p->reached, *CASES[i].config, &o, KVF__F32);
    p->same_head = stored == KVF__F32 || !kvf__model_desc(p->packed.model)->tied;
    return true;
}

static void free_pair(pair *p)
{
    toy_free(&p->packed);
    toy_free(&p->reached);
}

static kvf__pass *pass_of(const toy *t, bool recompute)
{
    const kvf__pass_limits limits = {.rows = TOY_ROWS,
                                     .tokens = TOY_TOKENS,
                                     .row_len = 290,
                                     .labels = TOY_TOKENS,
                                     .P = 12,
                                     .cache_len = 64,
                                     .backward = t->model->backward,
                                     .recompute = recompute};
    kvf__pass *pass = NULL;
    ck_assert_msg(!kvf__pass_create(t->ctx, t->model, &limits, &pass), "%s", kvf_ctx_error(t->ctx));
    return pass;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static const int64_t LENGTHS[][8] = {{17, 1, 64, 9, 30}, {280, 29}, {1}};
enum { N_BATCHES = sizeof LENGTHS / sizeof LENGTHS[0] };

typedef struct outcome {
    double loss;
    float token_loss[TOY_TOKENS], *hidden;
    kvf__prefix gradient;
    size_t n_hidden;
} outcome;

/* Without a head of the same values, the loss is the sum of the hidden states. */
static void run(const toy *t, kvf__pass *pass, const kvf__batch *batch, bool head, outcome *out)
{
    const kvf__desc *d = kvf__model_desc(t->model);
    kvf__prefix prefix = {0};
    const float *hidden = NULL;

    toy_prefix(t, &prefix, P, 0.7);
    toy_prefix(t, &out->gradient, P, 0);
    toy_fwd(t, pass, batch, &prefix);
    ck_assert_int_eq(kvf__pass_hidden(t->ctx, pass, &hidden), KVF_OK);
    out->n_hidden = (size_t)(batch->n_labels * d->C);
    out->hidden = malloc((out->n_hidden + 1) * sizeof *out->hidden);
    memcpy(out->hidden, hidden, out->n_hidden * sizeof *hidden);
    if (head)
        ck_assert_msg(
            !kvf__pass_loss(
                t->ctx, pass,
                &(kvf__loss){.gradient = true, .scale = 0.25f, .token_loss = out->token_loss},
                &out->loss),
            "%s", kvf_ctx_error(t->ctx));
    else
        ck_assert_int_eq(kvf__pass_hidden_grad(t->ctx, pass, out->hidden), KVF_OK);
    ck_assert_msg(!kvf__pass_bwd(t->ctx, pass, &(kvf__grads){.prefix = &out->gradient}), "%s",
                  kvf_ctx_error(t->ctx));
    kvf__prefix_done(&prefix);
}

static void outcome_done(outcome *o)
{
    free(o->hidden);
    kvf__prefix_done(&o->gradient);
}

static void same_outcome(int i, const outcome *want, const outcome *got, size_t labels)
{
    ck_assert_msg(want->loss == got->loss, "case %d: loss %.17g, want %.17g", i, got->loss,
                  want->loss);
    ck_assert_msg(!memcmp(want->token_loss, got->token_loss, labels * sizeof(float)),
                  "case %d: losses of tokens differ", i);
    ck_assert_msg(!memcmp(want->hidden, got->hidden, want->n_hidden * sizeof(float)),
                  "case %d: hidden states are %g away", i,
                  ck_rel_l2(got->hidden, want->hidden, want->n_hidden));
    const size_t n = kvf__prefix_count(&want->gradient);
    ck_assert_msg(!memcmp(want->gradient.kv, got->gradient.kv, n * sizeof(float)),
                  "case %d: the gradient is %g away", i,
                  ck_rel_l2(got->gradient.kv, want->gradient.kv, n));
}

START_TEST(passes_have_the_same_bits)
{
    pair p;
    ck_need(make_pair(&p, _i, NULL, true), "this CPU has no bf16 products");
    kvf__pass *want = pass_of(&p.packed, false), *keeping = pass_of(&p.reached, false),
              *again = pass_of(&p.reached, true);
    for (int b = 0; b < N_BATCHES; b++) {
        toy_batch batch;
        outcome a = {0}, x = {0}, y = {0};
        toy_batch_make(&batch, kvf__model_desc(p.packed.model), LENGTHS[b], 0.6, 3);
        const size_t labels = p.same_head ? (size_t)batch.b.n_labels : 0;
        run(&p.packed, want, &batch.b, p.same_head, &a);
        run(&p.reached, keeping, &batch.b, p.same_head, &x);
        run(&p.reached, again, &batch.b, p.same_head, &y);
        same_outcome(_i, &a, &x, labels);
        same_outcome(_i, &a, &y, labels);
        outcome_done(&a);
        outcome_done(&x);
        outcome_done(&y);
    }
    kvf__pass_free(want);
    kvf__pass_free(keeping);
    kvf__pass_free(again);
    free_pair(&p);
}
END_TEST

/* An intermediate pass of another size must not leave its layer in place of the first pass's
 * layer. */
START_TEST(passes_take_turns)
{
    pair p;
    toy_batch batch, between;
    kvf__prefix prefix = {0}, want = {0}, got = {0};
    double loss = 0;
    ck_assert(make_pair(&p, 0, NULL, true));
    kvf__pass *packed = pass_of(&p.packed, false), *one = pass_of(&p.reached, false),
              *other = pass_of(&p.reached, false);
    toy_batch_make(&batch, kvf__model_desc(p.packed.model), LENGTHS[0], 0.5, 3);
    toy_batch_make(&between, kvf__model_desc(p.packed.model), LENGTHS[1], 0.5, 4);
    toy_prefix(&p.packed, &prefix, P, 0.7);
    toy_prefix(&p.packed, &want, P, 0);
    toy_prefix(&p.packed, &got, P, 0);

    toy_gradient(&p.packed, packed, &batch.b, &prefix, 1, &want);
    toy_fwd(&p.reached, one, &batch.b, &prefix);
    toy_fwd(&p.reached, other, &between.b, &prefix);
    ck_assert_int_eq(
        kvf__pass_loss(p.reached.ctx, one, &(kvf__loss){.gradient = true, .scale = 1}, &loss),
        KVF_OK);
    toy_fwd(&p.reached, other, &between.b, NULL);
    ck_assert_int_eq(kvf__pass_bwd(p.reached.ctx, one, &(kvf__grads){.prefix = &got}), KVF_OK);
    ck_assert_mem_eq(want.kv, got.kv, kvf__prefix_count(&want) * sizeof(float));

    kvf__prefix_done(&prefix);
    kvf__prefix_done(&want);
    kvf__prefix_done(&got);
    kvf__pass_free(packed);
    kvf__pass_free(one);
    kvf__pass_free(other);
    free_pair(&p);
}
END_TEST

START_TEST(a_step_allocates_nothing)
{
    pair p;
    toy_batch batch;
    kvf__prefix prefix = {0}, gradient = {0};
    ck_need(make_pair(&p, _i, NULL, true), "this CPU has no bf16 products");
    kvf__pass *pass = pass_of(&p.reached, true);
    toy_batch_make(&batch, kvf__model_desc(p.reached.model), LENGTHS[0], 0.5, 3);
    toy_prefix(&p.reached, &prefix, P, 0.7);
    toy_prefix(&p.reached, &gradient, P, 0);
    ck_assert_int_eq(kvf__pass_prepare(p.reached.ctx, pass, batch.b.n_tokens, batch.b.n_labels),
                     KVF_OK);
    const uint64_t before = kvf__ctx_allocations(p.reached.ctx);
    toy_gradient(&p.reached, pass, &batch.b, &prefix, 1, &gradient);
    ck_assert_uint_eq(kvf__ctx_allocations(p.reached.ctx), before);
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&gradient);
    kvf__pass_free(pass);
    free_pair(&p);
}
END_TEST

/* ---- generation ------------------------------------------------------------------------------ */

enum { ROWS = 2, STEPS = 3 };

static void generate(const toy *t, const kvf__slots *slots, float *logits)
{
    static const int64_t lengths[] = {9, 4, 0};
    const kvf__desc *d = kvf__model_desc(t->model);
    kvf__pass *pass = pass_of(t, false);
    kvf__cache *cache = NULL;
    kvf__decoder *decoder = NULL;
    toy_batch batch;

    toy_batch_make(&batch, d, lengths, 0, 4);
    ck_assert_int_eq(kvf__cache_create(t->ctx, t->model, ROWS, 24, &cache), KVF_OK);
    const kvf__input input = {.batch = &batch.b, .cache = cache};
    ck_assert_int_eq(kvf__pass_fwd(t->ctx, pass, &input), KVF_OK);
    ck_assert_int_eq(kvf__decoder_create(t->ctx, t->model, slots, cache, ROWS, 0, 0, &decoder),
                     KVF_OK);
    for (int i = 0; i < STEPS; i++) {
        const int32_t ids[ROWS] = {3 + i, 40 - i};
        const kvf__step step = {.n = ROWS, .ids = ids};
        ck_assert_int_eq(kvf__decoder_step(t->ctx, decoder, &step, logits + i * ROWS * d->V),
                         KVF_OK);
    }
    kvf__decoder_free(decoder);
    kvf__cache_free(cache);
    kvf__pass_free(pass);
}

/* Products read matrices as stored. Here that gives equal bits; sums of f32 products in another
 * order would be allowed. */
START_TEST(steps_of_generation_agree)
{
    pair p;
    ck_need(make_pair(&p, _i, NULL, false), "this CPU has no bf16 products");
    const size_t n = (size_t)(STEPS * ROWS * kvf__model_desc(p.packed.model)->V);
    float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
    if (p.same_head) {
        generate(&p.packed, &p.packed.slots, want);
        generate(&p.reached, &p.reached.slots, got);
        ck_assert_double_le(ck_rel_l2(got, want, n), 2e-6);
    }
    free(want);
    free(got);
    free_pair(&p);
}
END_TEST

/* ---- adapters -------------------------------------------------------------------------------- */

/* In this case norms are trained and matrices are not; matrices may still be accessed. */
START_TEST(adapters_have_the_same_bits)
{
    const kvf__train train = {.what = KVF__TRAIN_ADAPTERS, .adapters = {.size = 4}};
    pair p;
    double loss[2] = {0};
    toy_batch batch;
    ck_need(make_pair(&p, _i, &train, true), "this CPU has no bf16 products");
    const toy *each[] = {&p.packed, &p.reached};
    toy_batch_make(&batch, kvf__model_desc(p.packed.model), LENGTHS[0], 0.5, 3);
    for (int k = 0; p.same_head && k < 2; k++) {
        kvf__params *params = kvf__model_params(each[k]->model);
        kvf__pass *pass = pass_of(each[k], k == 1);
        for (size_t i = 0; i < params->n; i++)
            for (int64_t j = 0; j < params->item[i].n; j++)
                params->item[i].value[j] += 0.01f * (float)((i + (size_t)j) % 7);
        ck_assert_int_eq(kvf__model_refresh(each[k]->ctx, each[k]->model), KVF_OK);
        toy_fwd(each[k], pass, &batch.b, NULL);
        ck_assert_int_eq(kvf__pass_loss(each[k]->ctx, pass,
                                        &(kvf__loss){.gradient = true, .scale = 1}, &loss[k]),
                         KVF_OK);
        ck_assert_int_eq(kvf__pass_bwd(each[k]->ctx, pass, &(kvf__grads){.block = true}), KVF_OK);
        kvf__pass_free(pass);
    }
    ck_assert_msg(loss[0] == loss[1], "loss %.17g, want %.17g", loss[1], loss[0]);
    const kvf__params *a = kvf__model_params(p.packed.model),
                      *b = kvf__model_params(p.reached.model);
    for (size_t i = 0; i < a->n; i++)
        ck_assert_msg(
            !memcmp(a->item[i].grad, b->item[i].grad, (size_t)a->item[i].n * sizeof(float)),
            "the gradient of %s differs", a->item[i].name);
    free_pair(&p);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

typedef struct advice {
    const toy *t;
    size_t soon, done, outside;
} advice;

static void note(void *user, const void *at, size_t bytes, bool soon)
{
    advice *a = user;
    const float *from = at, *to = (const float *)((const char *)at + bytes);
    a->outside += from < a->t->weights || to > a->t->weights + a->t->used;
    *(soon ? &a->soon : &a->done) += bytes;
}

/* Every layer and plane is released once packed, and all but the first are requested in advance. */
START_TEST(pages_are_asked_for_and_let_go)
{
    advice a = {0};
    const kvf__model_options o = {.keep = KVF__KEEP_MAPPED, .advise = note, .user = &a};
    toy t;
    toy_batch batch;
    a.t = &t;
    make(&t, WIDE, &o, KVF__F32);
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = pass_of(&t, false);
    const size_t layer = sizeof(float) *
                         (size_t)(d->C * d->D * 2 * (d->H + d->G) + 3 * d->C * d->F),
                 table = sizeof(float) * (size_t)(d->V * d->C);
    toy_batch_make(&batch, d, LENGTHS[0], 0.5, 3);
    toy_loss(&t, pass, &batch.b, NULL); /* ends at the last layer */
    a.soon = a.done = 0;
    toy_loss(&t, pass, &batch.b, NULL);
    ck_assert_uint_eq(a.outside, 0);
    ck_assert_uint_eq(a.soon, (size_t)(d->L - 1) * layer);
    ck_assert_uint_eq(a.done, (size_t)d->L * layer + table); /* the embedding; one plane stays */
    kvf__pass_free(pass);
    toy_free(&t);
}
END_TEST

START_TEST(memory_does_not_grow_with_layers)
{
    pair p;
    ck_assert(make_pair(&p, 8, NULL, true));
    const size_t all = p.packed.model->packed_bytes, one = p.reached.model->packed_bytes;
    const int64_t L = kvf__model_desc(p.packed.model)->L;
    const size_t head = kvf__packed_bytes(p.packed.model->lm.planes[0].fwd) +
                        kvf__packed_bytes(p.packed.model->lm.planes[0].bwd);
    ck_assert_uint_eq((all - head) / (size_t)L, one - head);
    free_pair(&p);
}
END_TEST

/* For matrices of whole blocks, which oneDNN does not pad. */
START_TEST(the_footprint_is_foretold)
{
    static const char *const SQUARE =
        "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":64,\"intermediate_size\":128,"
        "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":"
        "8,"
        "\"max_position_embeddings\":300,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,"
        "\"hidden_act\":\"silu\",\"rope_theta\":1000.0}";
    const kvf__model_options o = {.backward = true, .keep = (kvf__keep)_i, .stored = KVF__Q8_0};
    toy t;
    make(&t, SQUARE, &o, KVF__F32);
    const kvf__desc *d = kvf__model_desc(t.model);
    const kvf__footprint f = kvf__model_footprint(d, &o, KVF__BF16);
    const double layer = (double)(d->C * (d->D * 2 * (d->H + d->G) + 3 * d->F));
    /* elements of matrices only: oneDNN pads, which is 1.6 % of so small a model */
    ck_assert_double_eq_tol(f.packed, (double)t.model->packed_bytes, 0.03 * f.packed);
    ck_assert_double_eq(f.mapped, o.keep == KVF__KEEP_MAPPED ? 2 * layer : 0);
    if (o.keep == KVF__KEEP_STORED)
        ck_assert_double_eq(f.stored, (double)t.model->store.from->bytes);
    else
        ck_assert_double_eq(f.stored, 0);
    toy_free(&t);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(trained_weights_stay_packed)
{
    toy t;
    kvf__desc desc = {0};
    kvf_json *json = NULL;
    kvf__model *model = NULL;
    kvf__model_options o = {.keep = _i ? KVF__KEEP_MAPPED : KVF__KEEP_STORED,
                            .train = {.what = KVF__TRAIN_EVERYTHING}};
    toy_create(&t, toy_llama, KVF__F32);
    ck_assert_int_eq(kvf_json_parse(t.ctx, "toy", toy_llama, strlen(toy_llama), &json), KVF_OK);
    ck_assert_int_eq(kvf__desc_from_hf(t.ctx, "toy", json, &desc), KVF_OK);
    ck_assert_int_eq(kvf__model_create(t.ctx, &desc, &t.slots, &o, &model), KVF_EUSAGE);
    ck_assert_ptr_null(model);
    ck_assert_str_eq(kvf_ctx_error(t.ctx), "trained weights must be kept packed");
    kvf__desc_done(&desc);
    kvf_json_free(json);
    toy_free(&t);
}
END_TEST

/* The n-th allocation fails, for every n. */
START_TEST(creation_survives_lack_of_memory)
{
    toy t;
    const kvf__model_options o = {
        .backward = true, .keep = _i ? KVF__KEEP_MAPPED : KVF__KEEP_STORED, .stored = KVF__BF16};
    kvf__model *model = NULL;
    kvf_status st = KVF_ENOMEM;
    toy_create(&t, toy_llama, KVF__F32);
    for (int64_t n = 0; st; n++) {
        kvf__desc desc = {0};
        kvf_json *json = NULL;
        ck_assert_int_eq(kvf_json_parse(t.ctx, "toy", toy_llama, strlen(toy_llama), &json), KVF_OK);
        ck_assert_int_eq(kvf__desc_from_hf(t.ctx, "toy", json, &desc), KVF_OK);
        t.ctx->fail_in = n;
        st = kvf__model_create(t.ctx, &desc, &t.slots, &o, &model);
        t.ctx->fail_in = -1;
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert_int_eq(st == KVF_OK, model != NULL);
        kvf__desc_done(&desc);
        kvf_json_free(json);
    }
    kvf__model_free(model);
    toy_free(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pack_on_demand");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits"),
          *errors = tcase_create("errors");
    tcase_set_timeout(core, 60);
    tcase_set_timeout(errors, 60);
    tcase_add_loop_test(core, passes_have_the_same_bits, 0, N_CASES);
    tcase_add_test(core, passes_take_turns);
    for (int i = 0; i < N_CASES; i++) /* gpt2 is stored by inputs: steps do not read it directly */
        if (CASES[i].config != &toy_gpt2)
            tcase_add_loop_test(core, steps_of_generation_agree, i, i + 1);
    tcase_add_loop_test(core, adapters_have_the_same_bits, 0, N_EQUAL);
    suite_add_tcase(suite, core);
    tcase_add_loop_test(limits, a_step_allocates_nothing, 0, 2);
    tcase_add_test(limits, pages_are_asked_for_and_let_go);
    tcase_add_test(limits, memory_does_not_grow_with_layers);
    tcase_add_loop_test(limits, the_footprint_is_foretold, 0, 3);
    suite_add_tcase(suite, limits);
    tcase_add_loop_test(errors, trained_weights_stay_packed, 0, 2);
    tcase_add_loop_test(errors, creation_survives_lack_of_memory, 0, 2);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}

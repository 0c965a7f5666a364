/* Rows that join and leave, each with its own prefix, sampling and stop texts, generate the result
 * of kvf_generate for each prompt alone. Bits do not depend on the other rows. */
#include "ctx_int.h"
#include "engine.h"
#include "generate.h"
#include "tok_json.h"
#include "toy_base.h"

enum { ROOMS = 5, CAPACITY = 60, N_PREFIXES = 5, INFIX = 4, N_ORDERS = 23, LONGEST = 296 };

static kvf_ctx *ctx;
static kvf_base *base;
static kvf__ends ends[2];               /* without a prefix, with one */
static kvf_prefix prefixes[N_PREFIXES]; /* the first is never used: no prefix */

static void make_prefix(kvf_prefix *p, int64_t P, uint64_t seed)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    kvf__rng rng = kvf__rng_make(seed, 7);
    ck_assert_int_eq(kvf__prefix_init(ctx, &p->file.prefix, d->L, d->G, P, d->D), KVF_OK);
    for (size_t i = 0; i < kvf__prefix_count(&p->file.prefix); i++)
        p->file.prefix.kv[i] = (float)(0.7 * kvf__rng_normal(&rng));
    p->file.id.P = P;
    p->file.id.position_start = P;
    p->file.id.chat_template = NULL;
    p->task = KVF__TASK_LM;
}

static bool open_base(kvf_precision precision)
{
    const kvf_ctx_options options = {.threads = 2};
    const kvf_base_options how = {.precision = precision};
    const char *dir = ck_tmpdir();
    char config[1024];
    if (precision == KVF_PRECISION_BF16 && !kvf__cpu_has_bf16()) return false;
    toy_folder(dir, 5, 0);
    snprintf(config, sizeof config, "%s", toy_llama);
    memcpy(strstr(config, ":300,"), ":900,", 5); /* positions */
    toy_write(dir, "config.json", config);
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    ck_assert_msg(!kvf_base_open(ctx, dir, &how, &base), "%s", kvf_ctx_error(ctx));
    for (int i = 0; i < 2; i++)
        ends[i] = kvf__completion_ends(base, i ? &prefixes[1] : NULL, &(kvf__chat){0});
    for (int i = 1; i < N_PREFIXES; i++)
        make_prefix(&prefixes[i], i == INFIX ? 5 : 3 * i * i - 2, (uint64_t)i);
    prefixes[INFIX].file.id.infix = true;
    prefixes[INFIX].file.id.position_start = 0;
    return true;
}

static void close_base(void)
{
    for (int i = 1; i < N_PREFIXES; i++)
        kvf__prefix_done(&prefixes[i].file.prefix);
    kvf_base_free(base);
    kvf_ctx_free(ctx);
}

/* ---- orders ---------------------------------------------------------------------------------- */

static const char *const PROMPTS[] = {"the answer is a b", "x", "nothing like it at all",
                                      "1+1=", "a longer prompt, of some thirty letters"};
static const char *const STOPS[] = {"q", "zz", "ab"};

typedef struct client {
    kvf__row_request order;
    kvf__ids prompt;
    const char *text; /* of the prompt */
    kvf__buf got;
    kvf__finish finish;
    int64_t new_tokens, calls;
} client;

static void take(void *user, const char *text, size_t n, int64_t new_tokens, kvf__finish finish)
{
    client *c = user;
    ck_assert_int_eq(c->finish, KVF__GOES_ON);
    ck_assert_int_eq(kvf__buf_add(ctx, &c->got, text, n), KVF_OK);
    c->finish = finish;
    c->new_tokens = new_tokens;
    c->calls++;
}

static void make_client(client *c, int i)
{
    const int which = i % N_PREFIXES;
    *c = (client){.text = PROMPTS[i % 5]};
    ck_assert_int_eq(kvf__encode(ctx, base->tokenizer, c->text, strlen(c->text), true, &c->prompt),
                     KVF_OK);
    c->order = (kvf__row_request){
        .prefix = which ? &prefixes[which] : NULL,
        .prompt = c->prompt.data,
        .n = (int64_t)c->prompt.n,
        .max_tokens = 1 + i % 7 * 3,
        .sampling = {.temperature = i % 3 ? 0.9 : 0, .top_p = i % 2 ? 0.8 : 1, .top_k = i % 4},
        .seed = (uint64_t)i,
        .stop = STOPS,
        .n_stop = i % 4,
        .ends = &ends[which > 0],
        .text = take};
    c->order.user = c;
}

static void check_client(client *c)
{
    kvf_generate_options options = kvf_generate_defaults();
    kvf_generate_stats stats;
    char *want = NULL;
    options.max_tokens = c->order.max_tokens;
    options.temperature = c->order.sampling.temperature;
    options.top_p = c->order.sampling.top_p;
    options.top_k = c->order.sampling.top_k;
    options.seed = c->order.seed;
    options.stop = c->order.stop;
    options.n_stop = c->order.n_stop;
    options.chat_template = "none";
    ck_assert_msg(!kvf_generate(ctx, base, c->order.prefix, &c->text, 1, &options, &want, &stats),
                  "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(c->got.data ? c->got.data : "", want);
    ck_assert_int_eq(c->finish,
                     c->new_tokens == c->order.max_tokens && c->finish != KVF__FINISH_STOP
                         ? KVF__FINISH_LENGTH
                         : KVF__FINISH_STOP);
    kvf_texts_free(&want, 1);
}

/* Joins when a row is free, so that rows begin while others are far advanced. */
START_TEST(company_changes_no_answer)
{
    ck_need(open_base(_i ? KVF_PRECISION_BF16 : KVF_PRECISION_F32),
            "this CPU has no bf16 products");
    kvf__engine *engine = NULL;
    client clients[N_ORDERS];
    int joined = 0;
    int64_t row, steps = 0;
    ck_assert_int_eq(kvf__engine_create(ctx, base, ROOMS, CAPACITY, &engine), KVF_OK);
    for (int i = 0; i < N_ORDERS; i++)
        make_client(&clients[i], i);
    for (; steps < 500; steps++) {
        while (joined < N_ORDERS && !kvf__engine_full(engine)) {
            ck_assert_int_eq(kvf__engine_add(ctx, engine, &clients[joined].order, &row), KVF_OK);
            joined++;
        }
        ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
        kvf__engine_stats stats = kvf__engine_stats_of(engine);
        if (joined == N_ORDERS && stats.rows + stats.waiting == 0) break;
    }
    ck_assert_int_lt(steps, 500);
    for (int i = 0; i < N_ORDERS; i++)
        check_client(&clients[i]);
    for (int i = 0; i < N_ORDERS; i++) {
        kvf__ids_done(&clients[i].prompt);
        kvf__buf_done(&clients[i].got);
    }
    kvf__engine_free(engine);
    close_base();
}
END_TEST

START_TEST(a_row_that_leaves_disturbs_nobody)
{
    open_base(KVF_PRECISION_F32);
    kvf__engine *engine = NULL;
    client stays, leaves, late;
    int64_t row, other;
    ck_assert_int_eq(kvf__engine_create(ctx, base, 2, CAPACITY, &engine), KVF_OK);
    make_client(&stays, 6);
    make_client(&leaves, 12);
    make_client(&late, 13);
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &leaves.order, &other), KVF_OK);
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &stays.order, &row), KVF_OK);
    ck_assert(kvf__engine_full(engine));
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
    kvf__engine_remove(ctx, engine, other);
    ck_assert_int_eq(leaves.finish, KVF__GOES_ON);
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &late.order, &other), KVF_OK);
    while (!stays.finish || !late.finish)
        ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
    check_client(&stays);
    check_client(&late);
    client *all[] = {&stays, &leaves, &late};
    for (int i = 0; i < 3; i++) {
        kvf__ids_done(&all[i]->prompt);
        kvf__buf_done(&all[i]->got);
    }
    kvf__engine_free(engine);
    close_base();
}
END_TEST

/* Fails each allocation while a row joins, with or without new memory for a longer prefix. Running
 * rows are not affected, and the row can join when memory is available again. */
START_TEST(a_row_that_finds_no_memory_disturbs_nobody)
{
    open_base(KVF_PRECISION_F32);
    kvf__engine *engine = NULL;
    client stays, late;
    int64_t row, failed = 0;
    kvf_status st = KVF_ENOMEM;
    ck_assert_int_eq(kvf__engine_create(ctx, base, 2, CAPACITY, &engine), KVF_OK);
    make_client(&stays, 6);
    make_client(&late, _i ? INFIX : 3);
    stays.order.max_tokens = CAPACITY - stays.order.n;
    stays.order.n_stop = 0;
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &stays.order, &row), KVF_OK);
    ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
    for (int64_t n = 0; st; n++) {
        ctx->fail_in = n;
        st = kvf__engine_add(ctx, engine, &late.order, &row);
        ctx->fail_in = -1;
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        failed += st == KVF_ENOMEM;
        if (n % 16 == 0) ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
    }
    ck_assert_int_gt(failed, 4); /* the memory for steps is among them */
    ck_assert_int_eq(stays.finish, KVF__GOES_ON);
    while (!stays.finish || !late.finish)
        ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
    check_client(&stays);
    check_client(&late);
    kvf__ids_done(&stays.prompt);
    kvf__buf_done(&stays.got);
    kvf__ids_done(&late.prompt);
    kvf__buf_done(&late.got);
    kvf__engine_free(engine);
    close_base();
}
END_TEST

/* An allocation failure for the text of one row ends only that row. */
START_TEST(a_text_that_finds_no_memory_ends_its_row_alone)
{
    open_base(KVF_PRECISION_F32);
    kvf__engine *engine = NULL;
    client two[2];
    int64_t row;
    ck_assert_int_eq(kvf__engine_create(ctx, base, 2, CAPACITY, &engine), KVF_OK);
    for (int i = 0; i < 2; i++) {
        make_client(&two[i], 6);
        two[i].order.max_tokens = 30;
        two[i].order.n_stop = 0;
        ck_assert_int_eq(kvf__engine_add(ctx, engine, &two[i].order, &row), KVF_OK);
    }
    ctx->fail_in = 0; /* memory needed for the first token */
    ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
    ctx->fail_in = -1;
    ck_assert_int_eq(two[0].finish, KVF__FINISH_FAILED);
    ck_assert_int_eq(two[1].finish, KVF__GOES_ON);
    while (!two[1].finish)
        ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
    check_client(&two[1]);
    for (int i = 0; i < 2; i++) {
        kvf__ids_done(&two[i].prompt);
        kvf__buf_done(&two[i].got);
    }
    kvf__engine_free(engine);
    close_base();
}
END_TEST

/* tokens of prompts around the length of a part, and the prefix before (or inside) them */
static const struct {
    int64_t n;
    int prefix;
} LONG[] = {{257, 0}, {270, 2}, {257, INFIX}, {256, INFIX}};
enum { N_LONG = sizeof LONG / sizeof LONG[0] };

static void make_long(client *c, int i)
{
    static char texts[N_LONG][LONGEST];
    for (int64_t k = 0; k < LONG[i].n; k++)
        texts[i][k] = (char)('a' + (k * k + i) % 23);
    make_client(c, LONG[i].prefix);
    kvf__ids_done(&c->prompt);
    c->text = texts[i];
    ck_assert_int_eq(
        kvf__encode(ctx, base->tokenizer, c->text, (size_t)LONG[i].n, true, &c->prompt), KVF_OK);
    ck_assert_int_eq((int64_t)c->prompt.n, LONG[i].n);
    c->order.prompt = c->prompt.data;
    c->order.n = LONG[i].n;
    c->order.max_tokens = 4;
    c->order.n_stop = 0;
}

/* A long prompt delays neither running rows nor short prompts after it. */
START_TEST(long_prompts_are_read_between_steps)
{
    ck_need(open_base(_i ? KVF_PRECISION_BF16 : KVF_PRECISION_F32),
            "this CPU has no bf16 products");
    kvf__engine *engine = NULL;
    client began, all[N_LONG], late;
    int64_t row;
    ck_assert_int_eq(kvf__engine_create(ctx, base, N_LONG + 2, LONGEST, &engine), KVF_OK);
    make_client(&began, 6);
    make_client(&late, 13);
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &began.order, &row), KVF_OK);
    ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
    for (int i = 0; i < N_LONG; i++) {
        make_long(&all[i], i);
        ck_assert_int_eq(kvf__engine_add(ctx, engine, &all[i].order, &row), KVF_OK);
    }
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &late.order, &row), KVF_OK);
    const int64_t calls = began.calls;
    ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
    ck_assert_int_eq(began.calls, calls + 1);
    ck_assert_int_ge(late.calls, 1);
    ck_assert_int_eq(all[1].calls, 0);
    ck_assert_int_le(kvf__engine_stats_of(engine).prompt_tokens,
                     (int64_t)began.prompt.n + 2 * KVF__PROMPT_PART);
    for (int64_t waiting = 1, steps = 0; waiting; steps++) {
        ck_assert_int_lt(steps, 100);
        ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
        waiting = kvf__engine_stats_of(engine).rows + kvf__engine_stats_of(engine).waiting;
    }
    check_client(&began);
    check_client(&late);
    for (int i = 0; i < N_LONG; i++) {
        check_client(&all[i]);
        kvf__ids_done(&all[i].prompt);
        kvf__buf_done(&all[i].got);
    }
    kvf__ids_done(&began.prompt);
    kvf__buf_done(&began.got);
    kvf__ids_done(&late.prompt);
    kvf__buf_done(&late.got);
    kvf__engine_free(engine);
    close_base();
}
END_TEST

/* ---- prompts that are kept ------------------------------------------------------------------- */

static const struct {
    int64_t same, n; /* tokens that begin as those of the first row; tokens in all */
    int prefix;
    uint64_t owner;
    int64_t cached; /* tokens from a cache of four parts */
} KEPT[] = {
    {600, 600, 0, 0, 0},   {600, 600, 0, 0, 512},   {300, 600, 0, 0, 256},
    {200, 600, 0, 0, 0},   {600, 600, 0, 1, 0},     {600, 600, 2, 0, 0},
    {600, 600, 2, 0, 512}, {513, 513, 2, 0, 512},   {512, 512, 2, 0, 256},
    {600, 600, 0, 0, 0},   {600, 600, INFIX, 0, 0}, {600, 600, INFIX, 0, 512},
};
enum { N_KEPT = sizeof KEPT / sizeof KEPT[0], MOST_KEPT = 600 };

static void make_kept(client *c, int i, char text[MOST_KEPT + 1])
{
    for (int64_t k = 0; k < KEPT[i].n; k++)
        text[k] = (char)('a' + (k * k + (k < KEPT[i].same ? 0 : i)) % 23);
    text[KEPT[i].n] = 0;
    make_client(c, KEPT[i].prefix);
    kvf__ids_done(&c->prompt);
    c->text = text;
    ck_assert_int_eq(kvf__encode(ctx, base->tokenizer, c->text, strlen(text), true, &c->prompt),
                     KVF_OK);
    c->order.prompt = c->prompt.data;
    c->order.n = (int64_t)c->prompt.n;
    c->order.max_tokens = 4;
    c->order.n_stop = 0;
    c->order.origin = (kvf__part_key){KEPT[i].owner, {(uint64_t)KEPT[i].prefix, 0}};
}

/* Text is read once for each prefix and owner, with the bits of reading it. */
START_TEST(kept_prompts_change_no_answer)
{
    ck_need(open_base(_i ? KVF_PRECISION_BF16 : KVF_PRECISION_F32),
            "this CPU has no bf16 products");
    kvf__engine *engine = NULL;
    char text[MOST_KEPT + 1];
    const kvf__desc *d = kvf__model_desc(base->model);
    const size_t part = (size_t)(d->L * 2 * d->G * KVF__PROMPT_PART * d->D) * (_i ? 2 : 4);
    ck_assert_int_eq(kvf__engine_create(ctx, base, 2, MOST_KEPT + 8, &engine), KVF_OK);
    ck_assert_int_eq(kvf__engine_keep(ctx, engine, 100), KVF_EUSAGE);
    ck_assert_int_eq(kvf__engine_keep(ctx, engine, 4 * (part + 64)), KVF_OK);
    for (int i = 0; i < N_KEPT; i++) {
        client c;
        int64_t row, cached = 0;
        make_kept(&c, i, text);
        c.order.cached = &cached;
        ck_assert_int_eq(kvf__engine_add(ctx, engine, &c.order, &row), KVF_OK);
        while (!c.finish)
            ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
        check_client(&c);
        ck_assert_msg(cached == KEPT[i].cached, "row %d: %lld tokens from the cache", i,
                      (long long)cached);
        kvf__ids_done(&c.prompt);
        kvf__buf_done(&c.got);
    }
    kvf__engine_free(engine);
    close_base();
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
    open_base(KVF_PRECISION_F32);
    kvf__engine *engine = NULL;
    int32_t ids[CAPACITY] = {0};
    int64_t row = -5;
    kvf_prefix classifier = prefixes[1];
    kvf__row_request order = {.prompt = ids, .n = CAPACITY, .max_tokens = 1, .text = take};
    ck_assert_int_eq(kvf__engine_create(ctx, base, 1, CAPACITY, &engine), KVF_OK);
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &order, &row), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx),
                     "the prompt has 60 tokens, more than the 59 that leave room for an answer");
    order.n = 0;
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &order, &row), KVF_EDATA);
    order.n = 1;
    classifier.task = KVF__TASK_SEQ_CLS;
    order.prefix = &classifier;
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &order, &row), KVF_EUSAGE);
    classifier.task = KVF__TASK_LM;
    classifier.file.values.params.n = 1;
    classifier.file.id.method = (char *)"adapter";
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &order, &row), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx),
                     "adapter: changes the base itself, which other prefixes share");
    ck_assert_int_eq(row, -5);
    ck_assert(!kvf__engine_full(engine));
    kvf__engine_free(engine);
    close_base();
}
END_TEST

/* ---- text that can be shown ------------------------------------------------------------------ */

/* a, b, and the two bytes of "e with acute accent" as tokens of their own. */
static const char BYTES[] =
    "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":"
    "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
    "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
    "\"merges\":[],\"vocab\":{\"a\":0,\"b\":1,\"\xC3\x83\":2,\"\xC2\xA9\":3}}}";

START_TEST(only_what_is_settled_is_ready)
{
    /* tokens, bytes of text that may be shown after each; stop text: "bab" */
    static const int32_t tokens[] = {0, 2, 3, 1, 0, 0, 1, 0, 1};
    static const size_t ready[] = {1, 1, 3, 3, 3, 6, 6, 6, 6};
    static const char *const stop = "bab";
    open_base(KVF_PRECISION_F32);
    const kvf__ends none = {0};
    kvf__tokenizer *own = base->tokenizer;
    kvf__completion answer = {.limit = 100, .stop = &stop, .n_stop = 1, .ends = &none};
    ck_assert_msg(
        !tokenizer_from_json(ctx, "bytes", BYTES, strlen(BYTES), NULL, 0, &base->tokenizer), "%s",
        kvf_ctx_error(ctx));
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        ck_assert_int_eq(kvf__completion_add(ctx, base, &answer, tokens[i]), KVF_OK);
        ck_assert_msg(kvf__completion_ready(&answer) == ready[i],
                      "after %zu tokens %zu bytes, not %zu", i + 1, kvf__completion_ready(&answer),
                      ready[i]);
    }
    ck_assert_int_eq(answer.finish, KVF__FINISH_STOP);
    ck_assert_str_eq(answer.text.data, "a\xC3\xA9"
                                       "baa");
    kvf__completion_done(&answer);
    kvf__tokenizer_free(base->tokenizer);
    base->tokenizer = own;
    close_base();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_set_timeout(core, 60);
    tcase_add_loop_test(core, company_changes_no_answer, 0, 2);
    tcase_add_loop_test(core, long_prompts_are_read_between_steps, 0, 2);
    tcase_add_loop_test(core, kept_prompts_change_no_answer, 0, 2);
    tcase_add_test(core, a_row_that_leaves_disturbs_nobody);
    tcase_add_test(core, only_what_is_settled_is_ready);
    tcase_add_test(errors, what_does_not_fit_is_refused);
    tcase_add_loop_test(errors, a_row_that_finds_no_memory_disturbs_nobody, 0, 2);
    tcase_add_test(errors, a_text_that_finds_no_memory_ends_its_row_alone);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}

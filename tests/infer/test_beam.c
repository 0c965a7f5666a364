/* Beam search finds the sequences of transformers (tests/golden/sampling.json), with a prefix
 * before or inside rows, and with stop texts. One beam equals the greedy completion. */
#include "generate.h"
#include "golden_base.h"
#include "session.h"

#include <math.h>

enum { N_MODELS = 2, N_CASES = 24, ROOM = 256 };

static kvf_ctx *ctx;
static const char *dir;

static void setup(void)
{
    const kvf_ctx_options options = {.threads = 2};
    dir = ck_tmpdir();
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static kvf_base *open_base(const char *path)
{
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    kvf_base *base = NULL;
    ck_assert_msg(!kvf_base_open(ctx, path, &exact, &base), "%s", kvf_ctx_error(ctx));
    return base;
}

static void complete(kvf_base *base, const kvf_prefix *prefix, const char *prompt,
                     const kvf_generate_options *options, char out[ROOM])
{
    char *said = NULL;
    ck_assert_msg(!kvf_generate(ctx, base, prefix, &prompt, 1, options, &said, NULL), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_uint_lt(strlen(said), ROOM);
    strcpy(out, said);
    kvf_texts_free(&said, 1);
}

static kvf_generate_options with_beams(int64_t beams, int64_t max_tokens)
{
    kvf_generate_options o = kvf_generate_defaults();
    o.beams = beams;
    o.max_tokens = max_tokens;
    o.chat_template = "none";
    return o;
}

/* ---- golden ---------------------------------------------------------------------------------- */

static void read_golden(kvf_json **out)
{
    kvf__mapfile file = {0};
    ck_assert_int_eq(kvf__mapfile_open(ctx, ck_source("tests/golden/sampling.json"), &file),
                     KVF_OK);
    ck_assert_int_eq(kvf_json_parse(ctx, "golden", (const char *)file.data, file.n, out), KVF_OK);
    kvf__mapfile_close(&file);
}

/* The letters of ids, as the toy tokenizer has them. */
static void text_of(const kvf_json *ids, char out[ROOM])
{
    size_t n = 0;
    for (size_t i = 0; i < kvf_json_size(ids); i++) {
        const int64_t id = kvf_json_int(kvf_json_at(ids, i), -1);
        if (id < 59) out[n++] = id ? toy_letters[id - 1] : ' ';
        if (id > 60) n += (size_t)sprintf(out + n, "\xEF\xBF\xBD"); /* no token has this id */
    }
    out[n] = 0;
}

static double real(const kvf_json *c, const char *name)
{
    return kvf_json_real(kvf_json_get(c, name), 0);
}

static void is_golden(const kvf_json *c)
{
    char path[512], config[200], want[ROOM], got[ROOM];
    char *ends = kvf_json_text(kvf_json_get(c, "ends"), KVF_JSON_COMPACT);
    kvf_generate_options o = with_beams(kvf_json_int(kvf_json_get(c, "beams"), 0),
                                        kvf_json_int(kvf_json_get(c, "max_tokens"), 0));
    const char *name = kvf_json_str(kvf_json_get(c, "model"), NULL),
               *prompt = kvf_json_str(kvf_json_get(c, "prompt"), NULL);
    o.length_penalty = real(c, "length_penalty");
    o.repetition_penalty = real(c, "repetition");
    golden_base(ctx, ck_tmpdir(), name, path);
    snprintf(config, sizeof config, "{\"eos_token_id\":%s}", ends);
    toy_write(path, "generation_config.json", config);
    kvf_base *base = open_base(path);
    text_of(kvf_json_get(c, "ids"), want);
    complete(base, NULL, prompt, &o, got);
    ck_assert_msg(!strcmp(got, want), "%s, \"%s\", %d beams: %s, want %s", name, prompt,
                  (int)o.beams, got, want);
    kvf_json_text_free(ends);
    kvf_base_free(base);
}

START_TEST(completions_are_transformers)
{
    kvf_json *golden = NULL;
    read_golden(&golden);
    const kvf_json *cases = kvf_json_get(golden, "beams");
    ck_assert_uint_eq(kvf_json_size(cases), N_CASES);
    is_golden(kvf_json_at(cases, (size_t)_i));
    kvf_json_free(golden);
}
END_TEST

/* ---- prefixes, stops ------------------------------------------------------------------------- */

static void make_prefix(const kvf_base *base, kvf_prefix *p, bool infix)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    kvf__rng rng = kvf__rng_make(3, 7);
    ck_assert_int_eq(kvf__prefix_init(ctx, &p->file.prefix, d->L, d->G, 4, d->D), KVF_OK);
    for (size_t i = 0; i < kvf__prefix_count(&p->file.prefix); i++)
        p->file.prefix.kv[i] = (float)(1.5 * kvf__rng_normal(&rng));
    p->file.id.P = 4;
    p->file.id.infix = infix;
    p->file.id.position_start = infix ? 0 : 4;
    p->task = KVF__TASK_LM;
}

/* log-probabilities [V] of the next token after the ids, with a prefix. */
static void log_probabilities(kvf_base *base, const kvf_prefix *prefix, const int32_t *ids,
                              int64_t n, double *out)
{
    const int64_t V = kvf__model_desc(base->model)->V;
    const kvf__session_limits limits = {.rows = 1, .capacity = n + 1, .prompt_tokens = n};
    int32_t slot = 0, copy[ROOM];
    int64_t start[2] = {0, n};
    const kvf__tokens tokens = {&slot, start, copy, 1};
    const float *logits = NULL;
    kvf__session *session = NULL;
    double sum = 0;
    memcpy(copy, ids, (size_t)n * sizeof *ids);
    ck_assert_int_eq(kvf__session_create(ctx, base, prefix, &limits, &session), KVF_OK);
    ck_assert_int_eq(kvf__session_feed(ctx, session, &tokens, &logits), KVF_OK);
    for (int64_t v = 0; v < V; v++)
        sum += exp((double)logits[v]);
    for (int64_t v = 0; v < V; v++)
        out[v] = (double)logits[v] - log(sum);
    kvf__session_free(session);
}

/* With as many beams as tokens, no pair is pruned: the best of all pairs is found. An infix prefix
 * precedes the prompt's last token. Pairs are therefore scored with the same infix, placed by a
 * session that reads only the prompt, then the first token. */
static void best_pair(kvf_base *base, const kvf_prefix *prefix, const int32_t *prompt, int64_t n,
                      char out[ROOM])
{
    enum { V = 64 };
    const kvf__session_limits limits = {.rows = 1, .capacity = n + 2, .prompt_tokens = n};
    double first[V], best = -INFINITY;
    int32_t pair[2] = {0, 0};
    kvf__session *session = NULL;
    log_probabilities(base, prefix, prompt, n, first);
    ck_assert_int_eq(kvf__session_create(ctx, base, prefix, &limits, &session), KVF_OK);
    for (int32_t a = 0; a < V; a++) {
        int32_t slot = 0, ids[ROOM], one = a;
        int64_t whole[2] = {0, n}, single[2] = {0, 1};
        const kvf__tokens read = {&slot, whole, ids, 1}, next = {&slot, single, &one, 1};
        const float *logits = NULL;
        double sum = 0;
        if (a == 2 || a == 60) { /* ends */
            if (first[a] > best) pair[0] = pair[1] = a;
            if (first[a] > best) best = first[a];
            continue;
        }
        memcpy(ids, prompt, (size_t)n * sizeof *ids);
        kvf__session_reset(session);
        ck_assert_int_eq(kvf__session_feed(ctx, session, &read, &logits), KVF_OK);
        ck_assert_int_eq(kvf__session_feed(ctx, session, &next, &logits), KVF_OK);
        for (int v = 0; v < V; v++)
            sum += exp((double)logits[v]);
        for (int32_t b = 0; b < V; b++) {
            const double mean = (first[a] + (double)logits[b] - log(sum)) / 2;
            if (mean > best) pair[0] = a, pair[1] = b;
            if (mean > best) best = mean;
        }
    }
    kvf__session_free(session);
    size_t k = 0;
    for (int i = 0; i < 2 && pair[i] != 2 && pair[i] != 60; i++)
        if (pair[i] < 59) out[k++] = pair[i] ? toy_letters[pair[i] - 1] : ' ';
    out[k] = 0;
}

/* A beam's slot is copied from others, with the prefix before rows and inside them. */
START_TEST(the_best_of_all_is_found)
{
    static const char *const prompts[] = {"the answer is", "x1", "under"};
    char path[512], got[ROOM], want[ROOM];
    kvf_base *base = open_base(golden_base(ctx, dir, "llama_tied", path));
    kvf_prefix prefix = {0};
    make_prefix(base, &prefix, _i);
    const kvf_generate_options o = with_beams(64, 2);
    for (int i = 0; i < 3; i++) {
        int32_t ids[ROOM];
        int64_t n = 0;
        for (const char *c = prompts[i]; *c; c++)
            ids[n++] = *c == ' ' ? 0 : (int32_t)(strchr(toy_letters, *c) - toy_letters) + 1;
        best_pair(base, &prefix, ids, n, want);
        complete(base, &prefix, prompts[i], &o, got);
        ck_assert_str_eq(got, want);
    }
    kvf__prefix_done(&prefix.file.prefix);
    kvf_base_free(base);
}
END_TEST

static bool note_text(void *user, size_t prompt, const char *text, size_t n)
{
    ck_assert_uint_eq(prompt, 0);
    snprintf(user, ROOM, "%.*s", (int)n, text);
    return true;
}

/* A completion ends before a stop text, and is passed to the callback as a whole. */
START_TEST(stop_texts_end_beams)
{
    char path[512], whole[ROOM], cut[ROOM], shown[ROOM] = "", stop[3];
    kvf_base *base = open_base(golden_base(ctx, dir, "qwen3", path));
    kvf_generate_options o = with_beams(1, 16);
    complete(base, NULL, "1+1=", &o, whole);
    snprintf(stop, sizeof stop, "%.2s", whole + 5);
    const char *const stops[] = {stop};
    o = with_beams(3, 16);
    o.stop = stops;
    o.n_stop = 1;
    o.token = note_text;
    o.token_user = shown;
    complete(base, NULL, "1+1=", &o, cut);
    ck_assert_ptr_null(strstr(cut, stop));
    ck_assert_str_eq(shown, cut);
    kvf_base_free(base);
}
END_TEST

static const struct {
    int64_t beams;
    double temperature, length_penalty;
    const char *line;
} BAD[] = {
    {2, 0.5, 1, "beams and a temperature exclude each other"},
    {-1, 0, 1, "beams -1: want a number from 0 to 1024"},
    {2, 0, 1000, "length-penalty 1000: want a number from -100 to 100"},
};

START_TEST(bad_values_are_refused)
{
    char path[512];
    char *said = NULL;
    const char *prompt = "x";
    kvf_base *base = open_base(golden_base(ctx, dir, "qwen3", path));
    kvf_generate_options o = with_beams(BAD[_i].beams, 4);
    o.temperature = BAD[_i].temperature;
    o.length_penalty = BAD[_i].length_penalty;
    ck_assert_int_eq(kvf_generate(ctx, base, NULL, &prompt, 1, &o, &said, NULL), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx), BAD[_i].line);
    ck_assert_ptr_null(said);
    kvf_base_free(base);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("beam");
    TCase *golden = tcase_create("golden"), *core = tcase_create("core"),
          *errors = tcase_create("errors");
    TCase *all[] = {golden, core, errors};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tcase_set_timeout(all[i], 60);
        tcase_add_checked_fixture(all[i], setup, teardown);
        suite_add_tcase(suite, all[i]);
    }
    tcase_add_loop_test(golden, completions_are_transformers, 0, N_CASES);
    tcase_add_loop_test(core, the_best_of_all_is_found, 0, 2);
    tcase_add_test(core, stop_texts_end_beams);
    tcase_add_loop_test(errors, bad_values_are_refused, 0, 3);
    return ck_main(suite);
}

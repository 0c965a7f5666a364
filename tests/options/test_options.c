/* Every option of train with every method and task: it changes the files of a run, or it is
 * refused. The rows below are checked against the table of options, so that a new option needs a
 * row. */
#include <kvfold/kvfold.h>

#include "artifact.h"
#include "hash.h"
#include "toy_base.h"
#include "trainer.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

typedef enum expectation {
    EFFECT,    /* another run, or the option is refused as misuse */
    ANSWER,    /* the same, but an unsuitable file may be refused with any status */
    SOMEWHERE, /* acts on features that not all data has: it must change at least one task */
    EXACT,     /* the same bits by contract: the option saves memory or time */
    ELSEWHERE, /* paths and additional outputs of a run; `with` names the test */
} expectation;

static const struct row {
    const char *name, *value;
    expectation expectation;
    const char *with; /* "name=value;..." in both runs */
    const char *own;  /* methods and tasks that have this value by default, between bars; NULL:
                       * none */
} ROWS[] = {
    {"base", "", ELSEWHERE, "every run here", NULL},
    {"lora", "", ELSEWHERE, "cli_lora", NULL},
    {"data", "", ELSEWHERE, "every run here", NULL},
    {"valid", "", ELSEWHERE, "every run here", NULL},
    {"out", "", ELSEWHERE, "every run here", NULL},
    {"resume", "", ELSEWHERE, "train", NULL},
    {"force", "", ELSEWHERE, "train", NULL},
    {"dry-run", "", ELSEWHERE, "cli_forecast", NULL},
    {"allow-other-base", "", ELSEWHERE, "unmerge", NULL},
    {"approximate", "", ELSEWHERE, "unmerge", NULL},
    {"task", "", ELSEWHERE, "every run here", NULL},
    {"method", "", ELSEWHERE, "every run here", NULL},
    {"prefix-length", "3", EFFECT, "", NULL},
    {"encoder-hidden", "6", EFFECT, "", NULL},
    {"ffn-length", "2", EFFECT, "", NULL},
    {"ffn-lr", "0.1", EFFECT, "ffn-length=2", NULL},
    {"layers", "0-0", EFFECT, "", NULL},
    {"p-encoder", "mlp", EFFECT, "", NULL},
    {"unfreeze", "base", EFFECT, "", NULL},
    {"base-lr", "0.1", EFFECT, "unfreeze=base", NULL},
    {"p-template", "{p:1} {text} {p:1}", ANSWER, "", NULL},
    {"class-weights", "nothing.txt", ANSWER, "", NULL},
    {"verbalizer", "low=a,high=b", EFFECT, "p-template={p:1} {text} [MASK] {p:1}", NULL},
    {"init", "random", EFFECT, "", "projected"},
    {"init", "zero", EFFECT, "", NULL},
    {"init-text", "abcd", EFFECT, "", NULL},
    {"init-kv", "prefix.h5", ANSWER, "", NULL},
    {"init-scheme", "ptuning-v2", EFFECT, "init=random", NULL},
    {"init-scheme", "ptuning-v2", EFFECT, "", NULL},
    {"init-encoder", "nothing.safetensors", ANSWER, "", NULL},
    {"init-from", "prefix.h5", ANSWER, "", NULL},
    {"log-weight", "train", EFFECT, "", NULL},
    {"start-mass", "-3", EFFECT, "log-weight=train", NULL},
    {"log-weight-lr", "2", EFFECT, "log-weight=train", NULL},
    {"state-lr", "0.1", EFFECT, "", NULL},
    {"lr", "0.2", EFFECT, "", NULL},
    {"train-head", NULL, EFFECT, "", NULL},
    {"head-lr", "0.2", EFFECT, "", NULL},
    {"head-lr", "0.2", EFFECT, "train-head=true", NULL},
    {"head-dropout", "0.4", EFFECT, "", NULL},
    {"lr-units", "parameter", EFFECT, "", "direct|prompt|p-tuning"},
    {"lr-units", "prefix", EFFECT, "", "mlp|direct|projected"},
    {"steps", "2", EFFECT, "", NULL},
    {"epochs", "1", EFFECT, "", NULL},
    {"batch-size", "2", EFFECT, "", NULL},
    {"batch-tokens", "20", EFFECT, "", NULL},
    {"batch-tokens", "auto", EFFECT, "", NULL},
    {"format", "csv", ANSWER, "", NULL},
    {"no-header", NULL, EFFECT, "", NULL},
    {"columns", "a,b", EFFECT, "", NULL},
    {"delimiter", ";", EFFECT, "", NULL},
    {"regression", "on", ANSWER, "", NULL},
    {"labels", "O,high,low,B-n", EFFECT, "", NULL},
    {"doc-stride", "1", EFFECT, "max-length=20;overlong=skip", NULL},
    {"share-prefixes", "off", EXACT, "", NULL},
    {"group-by", "prefix", SOMEWHERE, "", NULL},
    {"task-prefix", "low-rank", EFFECT, "", NULL},
    {"mix", "equal", EFFECT, "", NULL},
    {"grad-accum", "3", EXACT, "head-dropout=0", NULL},
    {"recompute", "on", EXACT, "", NULL},
    {"keep-states", "1M", EXACT, "layers=1-2", NULL},
    {"weight-dtype", "bf16", EFFECT, "", NULL},
    {"stream-layers", "on", EXACT, "", NULL},
    {"max-length", "8", EFFECT, "overlong=truncate", NULL},
    {"overlong", "skip", EFFECT, "max-length=30;overlong=truncate", NULL},
    {"overlong", "truncate", EFFECT, "max-length=30;overlong=skip", NULL},
    {"limit", "7", EFFECT, "", NULL},
    {"split-text", "9", ANSWER, "", NULL},
    {"rows", "5", EFFECT, "", NULL},
    {"valid-split", "0.25", EFFECT, "", NULL},
    {"shuffle", "off", EFFECT, "", NULL},
    {"schedule", "cosine", EFFECT, "", NULL},
    {"schedule-steps", "9", EFFECT, "schedule=linear", NULL},
    {"warmup", "2", EFFECT, "", NULL},
    {"weight-decay", "0.5", EFFECT, "", NULL},
    {"optimizer", "adamw", EFFECT, "", NULL},
    {"value-optimizer", "muon", EFFECT, "", NULL},
    {"beta1", "0.7", EFFECT, "", NULL},
    {"beta2", "0.5", EFFECT, "", NULL},
    {"eps", "0.1", EFFECT, "", NULL},
    {"clip", "0.001", EFFECT, "eps=1", NULL},
    {"skip-nonfinite", "", ELSEWHERE, "train", NULL},
    {"spike-guard", "", ELSEWHERE, "cli_not_finite", NULL},
    {"prefix-dropout", "0.5", EFFECT, "", NULL},
    {"prefix-dropout-per-row", NULL, EFFECT, "prefix-dropout=0.5", NULL},
    {"places", "", ELSEWHERE, "cli_seq2seq", NULL},
    {"adapter-size", "3", EFFECT, "", NULL},
    {"adapter-activation", "tanh", EFFECT, "", NULL},
    {"adapter-norms", "off", EFFECT, "", NULL},
    {"adapter-placement", "attn", EFFECT, "", NULL},
    {"base-dropout", "0.3", EFFECT, "", NULL},
    {"eval-every", "1", EFFECT, "", NULL},
    {"save-every", "", ELSEWHERE, "train", NULL},
    {"metric", "loss", EFFECT, "", "lm"},
    {"metric", "perplexity", EFFECT, "", NULL},
    {"retain", "retain.jsonl", EFFECT, "", NULL},
    {"kl-to-base", "3", EFFECT, "retain=retain.jsonl", NULL},
    {"early-stop", "1", EFFECT, "eval-every=1;lr=1e-30;head-lr=1e-30;base-lr=1e-30", NULL},
    {"position-start", "0", EFFECT, "", NULL},
    {"infix", NULL, EFFECT, "", NULL},
    {"chat-template", "chatml", EFFECT, "", NULL},
    {"map", "prompt=completion,text=label,question=context,tokens=tags", ANSWER, "", NULL},
    {"precision", "", ELSEWHERE, "bf16_acts, where the CPU has it", NULL},
    {"seed", "5", EFFECT, "", NULL},
    {"log", "", ELSEWHERE, "cli_log", NULL},
    {"forecast", "", ELSEWHERE, "forecast", NULL},
    {"tensorboard", "", ELSEWHERE, "journal", NULL},
};
enum { N_ROWS = sizeof ROWS / sizeof ROWS[0] };

static const char *const TASKS[] = {"lm", "seq-cls", "token-cls", "qa", "multiple-choice"};
enum { N_TASKS = 5, N_METHODS = 7 };

static kvf_ctx *ctx;
static char data[512], out[512], base[512];

/* Every fourth row is long. */
static void write_row(FILE *file, const char *task, int i)
{
    const char *a = i % 2 ? "abc" : "xyz", *b = i % 2 ? "xyz" : "abc";
    const char *more = i % 4 == 3 ? " and so on until there is no room" : "";
    if (!strcmp(task, "lm"))
        fprintf(file, "{\"prompt\": \"w%d %s%s:\", \"completion\": \" %s%s\"}\n", i % 4, a, more, b,
                a);
    else if (!strcmp(task, "seq-cls"))
        fprintf(file, "{\"text\": \"w%d and %s so%s\", \"label\": \"%s\"}\n", i % 4, a, more,
                i % 2 ? "low" : "high");
    else if (!strcmp(task, "token-cls"))
        fprintf(file,
                "{\"tokens\": [\"wow\", \"n%d\", \"is\", \"not\", \"%s%s\"], \"tags\": [\"O\", "
                "\"B-n\", \"O\", \"O\", \"O\"]}\n",
                i % 4, a, more);
    else if (!strcmp(task, "qa"))
        fprintf(file,
                "{\"context\": \"it was %d %s then\", \"question\": \"who%s\", \"answers\": "
                "[{\"text\": \"%s\", \"start\": 9}]}\n",
                i % 8, a, more, a);
    else
        fprintf(file,
                "{\"text\": \"w%d of%s\", \"choices\": [\"is %s\", \"or %s\"], \"label\": %d}\n",
                i % 4, more, a, b, i % 2);
}

static kvf_train_options plain(const char *method, const char *task)
{
    kvf_train_options o = kvf_train_defaults();
    o.base = base;
    o.data = o.valid = data;
    o.out = out;
    o.force = true;
    o.method = method;
    o.task = task;
    o.prefix_length = 2;
    o.encoder_hidden = 4;
    o.steps = 3;
    o.batch_size = 4;
    o.precision = KVF_PRECISION_F32;
    o.schedule = KVF_SCHEDULE_CONSTANT;
    o.eval_every = 2;
    return o;
}

/* A folder of its own for relative paths: the base, the retention set's text, a prefix file. */
static void setup(void)
{
    kvf_ctx_options options = {.threads = 1};
    const char *dir = ck_tmpdir();
    toy_path(base, dir, "base");
    toy_path(data, dir, "data.jsonl");
    toy_path(out, dir, "run.h5");
    ck_assert_int_eq(mkdir(base, 0777), 0);
    toy_folder(base, 5, 0);
    toy_rows(dir, "retain.jsonl", 4, 40);
    ck_assert_int_eq(chdir(dir), 0);
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    toy_rows(dir, "data.jsonl", 4, 0);
    kvf_train_options start = plain("direct", "lm");
    start.out = "prefix.h5"; /* a run file is a prefix file too */
    kvf_train_result result;
    ck_assert_msg(!kvf_train(ctx, &start, &result), "%s", kvf_ctx_error(ctx));
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

/* ---- the files of a run ---------------------------------------------------------------------- */

static void add_params(kvf__hash *hash, const kvf__params *params)
{
    for (size_t i = 0; i < params->n; i++)
        kvf__hash_add(hash, params->item[i].value, (size_t)params->item[i].n * sizeof(float));
}

static void add_run(kvf__hash *hash, const kvf__artifact *run)
{
    char *state = kvf_json_text(run->state, KVF_JSON_COMPACT);
    add_params(hash, &run->values.params);
    add_params(hash, &run->head.params.params);
    add_params(hash, &run->best.params);
    add_params(hash, &run->best_head.params);
    add_params(hash, &run->m.params);
    kvf__hash_add(hash, state, strlen(state));
    kvf__hash_add(hash, run->history.train_loss,
                  (size_t)run->history.n * sizeof *run->history.train_loss);
    for (int64_t i = 0; i < run->history.n; i++) {
        bool measured = !isnan(run->history.valid_loss[i]);
        kvf__hash_add(hash, &measured, sizeof measured);
    }
    kvf__hash_add(hash, &run->best_value, sizeof run->best_value);
    kvf__hash_add(hash, &run->id.position_start, sizeof run->id.position_start);
    kvf_json_text_free(state);
}

/* Trains; returns the hash of the run file without its options. */
static kvf_status run(kvf_train_options *o, char hex[33], double *loss)
{
    kvf_train_result r;
    kvf__artifact file;
    kvf__hash *hash = NULL;
    kvf_status st = kvf_train(ctx, o, &r);
    if (st) return st;
    ck_assert_int_eq(kvf__hash_create(ctx, &hash), KVF_OK);
    ck_assert_msg(!kvf__artifact_read_all(ctx, out, KVF__KIND_RUN, &file), "%s",
                  kvf_ctx_error(ctx));
    add_run(hash, &file);
    kvf__hash_add(hash, &r.steps, sizeof r.steps);
    kvf__hash_add(hash, &r.valid_loss, sizeof r.valid_loss);
    kvf__hash_add(hash, &r.retention_loss, sizeof r.retention_loss);
    kvf__hash_add(hash, &r.trainable_parameters, sizeof r.trainable_parameters);
    kvf__hash_add(hash, r.precision, strlen(r.precision));
    kvf__hash_hex(hash, hex);
    kvf__hash_free(hash);
    kvf__artifact_done(&file);
    *loss = r.train_loss;
    return KVF_OK;
}

/* Sets "name=value;..." in *o; texts are kept in `kept`. */
static kvf_status set_all(kvf_train_options *o, const char *with, char kept[256])
{
    kvf_status st = KVF_OK;
    snprintf(kept, 256, "%s", with);
    for (char *at = kept; !st && *at;) {
        char *value = strchr(at, '='), *end = strchr(at, ';');
        *value++ = 0;
        if (end) *end = 0;
        st = kvf_train_set(ctx, o, at, value);
        at = end ? end + 1 : value + strlen(value);
    }
    return st;
}

static kvf_status run_with(const char *method, const char *task, const struct row *row, bool given,
                           char hex[33], double *loss)
{
    char kept[256];
    kvf_train_options o = plain(method, task);
    if (!strcmp(row->name, "epochs")) o.steps = 0;
    kvf_status st = set_all(&o, row->with, kept);
    if (!st && given) st = kvf_train_set(ctx, &o, row->name, row->value);
    return st ? st : run(&o, hex, loss);
}

/* ---- tests ----------------------------------------------------------------------------------- */

START_TEST(every_option_has_a_row)
{
    const kvf__option_row *option;
    for (size_t i = 0; (option = kvf__train_option_row(i)) != NULL; i++) {
        bool found = false;
        for (size_t k = 0; k < N_ROWS && !found; k++)
            found = !strcmp(ROWS[k].name, option->name);
        ck_assert_msg(found, "--%s: no row says how its effect is seen", option->name);
    }
}
END_TEST

/* Refuses a run without a required option. */
START_TEST(runs_have_every_option)
{
    kvf_train_options o = kvf_train_defaults();
    kvf_json *stored = NULL, *fewer = NULL;
    o.init = "vocab"; /* decided for every run */
    ck_assert_int_eq(kvf__options_store(ctx, &o, &stored), KVF_OK);
    char *text = kvf_json_text(stored, KVF_JSON_COMPACT);
    memcpy(strstr(text, "weight-dtype"), "unknown-name", 12);
    ck_assert_int_eq(kvf_json_parse(ctx, "run", text, strlen(text), &fewer), KVF_OK);
    ck_assert_int_eq(kvf__options_resume(ctx, "run", &o, stored), KVF_OK);
    ck_assert_int_eq(kvf__options_resume(ctx, "run", &o, fewer), KVF_EFORMAT);
    ck_assert_str_eq(kvf_ctx_error(ctx), "run: /options has no valid \"weight-dtype\"");
    kvf_json_text_free(text);
    kvf_json_free(fewer);
    kvf_json_free(stored);
}
END_TEST

/* Conditions in a column name existing options and values. */
static void check_conditions(const char *option, const char *conditions)
{
    const char *at;
    size_t n = 0;
    for (int i = 0; conditions && (at = kvf__choice_at(conditions, i, &n)) != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        char *value = strchr(name, '=');
        if (value) *value++ = 0;
        const kvf__option *other = kvf__option_find(name);
        ck_assert_msg(other != NULL, "--%s: no option %s", option, name);
        ck_assert_msg(!value || kvf__choice_index(other->row.argument, value) >= 0,
                      "--%s: %s has no value %s", option, name, value ? value : "");
    }
}

/* Every default is a valid value of its option, and every column names methods, tasks and
 * options. */
START_TEST(columns_hold_known_words)
{
    const char *tasks = kvf__option_find("task")->row.argument, *at;
    const kvf__option *r;
    size_t n = 0;
    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++) {
        kvf_train_options o = {0};
        const char *name = r->row.name;
        const bool has_default = !(r->rules & KVF__UNSET) && *r->row.initial;
        const char *want = has_default ? kvf__option_set(&r->row, r->row.initial, &o) : NULL;
        ck_assert_msg(!want, "--%s: default %s: want %s", name, r->row.initial, want);
        ck_assert_msg(!r->decide || r->rules & KVF__UNSET, "--%s: decided, but has a default",
                      name);
        for (int k = 0; r->methods && (at = kvf__choice_at(r->methods, k, &n)) != NULL; k++) {
            char method[64];
            snprintf(method, sizeof method, "%.*s", (int)n, at);
            ck_assert_msg(kvf__method_find(method) != NULL, "--%s: method %s", name, method);
        }
        for (int k = 0; r->tasks && (at = kvf__choice_at(r->tasks, k, &n)) != NULL; k++) {
            char task[64];
            snprintf(task, sizeof task, "%.*s", (int)n, at);
            ck_assert_msg(kvf__choice_index(tasks, task) >= 0, "--%s: task %s", name, task);
        }
        check_conditions(name, r->needs);
        check_conditions(name, r->excludes);
    }
}
END_TEST

/* A default shown by help equals the field's default. */
START_TEST(defaults_are_those_of_the_rows)
{
    const kvf_train_options o = kvf_train_defaults();
    ck_assert_str_eq(o.method, "mlp");
    ck_assert_ptr_null(o.init);
    ck_assert_str_eq(o.warmup, "5%");
    ck_assert_str_eq(o.position_start, "P");
    ck_assert_int_eq(o.encoder_hidden, 512);
    ck_assert_int_eq(o.max_length, 0);
    ck_assert(o.shuffle && !o.recompute);
    ck_assert(o.base_lr == 2e-5 && o.eps == 1e-8 && o.head_dropout == -1 && o.head_lr == 0);
}
END_TEST

/* Open defaults are decided by method, task and rows in a step; P of tags by the base. */
START_TEST(defaults_of_tasks)
{
    static const struct {
        const char *method, *task;
        bool per_parameter;
        int64_t rows, P;
        double lr;
    } OPEN[] = {
        {"mlp", "seq-cls", false, 8, 20, 0.03},     {"mlp", "token-cls", false, 8, 0, 0.05},
        {"direct", "seq-cls", false, 32, 20, 0.06}, {"mlp", "token-cls", false, 200, 0, 0.1},
        {"direct", "qa", false, 2, 20, 0.015},      {"direct", "lm", false, 32, 64, 0.03},
        {"mlp", "seq-cls", true, 32, 20, 0.03},     {"prompt", "token-cls", false, 32, 20, 0.3},
        {"mlp", "token-cls", true, 32, 20, 0.03},
    };
    for (size_t i = 0; i < sizeof OPEN / sizeof OPEN[0]; i++) {
        kvf_train_options o = kvf_train_defaults();
        o.steps = 1;
        o.method = OPEN[i].method;
        o.task = OPEN[i].task;
        o.lr_per_parameter = OPEN[i].per_parameter;
        o.batch_size = OPEN[i].rows;
        ck_assert_int_eq(kvf__options_check(ctx, &o), KVF_OK);
        ck_assert_int_eq(o.prefix_length, OPEN[i].P);
        ck_assert(o.lr == OPEN[i].lr);
    }
}
END_TEST

/* The result of a row, compared with the same run without the option. */
typedef struct outcome {
    kvf_status without, st;
    bool same, close; /* the whole file; the loss */
} outcome;

/* A run without the tested option. */
typedef struct bare {
    kvf_status st;
    char hex[33];
    double loss;
} bare;

static bare run_bare(const char *method, const char *task, const struct row *row)
{
    bare b = {0};
    b.st = run_with(method, task, row, false, b.hex, &b.loss);
    return b;
}

/* plain: only rows that need no other option. */
static outcome try_row(const char *method, const char *task, const struct row *row,
                       const bare *plain)
{
    char hex[33] = "";
    double loss = 0;
    bool alone = !*row->with && strcmp(row->name, "epochs") != 0;
    const bare b = alone ? *plain : run_bare(method, task, row);
    outcome o = {.without = b.st, .st = run_with(method, task, row, true, hex, &loss)};
    o.same = !o.st && !strcmp(hex, b.hex);
    o.close = fabs(loss - b.loss) < 1e-3;
    return o;
}

/* NULL: as expected. */
static const char *judge(const char *method, const char *task, const struct row *row, outcome o)
{
    bool own = kvf__choice_index(row->own, method) >= 0 || kvf__choice_index(row->own, task) >= 0;
    if (o.without) return o.st ? NULL : "is taken, but not what it needs";
    if (o.st) return o.st == KVF_EUSAGE || row->expectation == ANSWER ? NULL : kvf_ctx_error(ctx);
    if (row->expectation == EXACT) return o.close ? NULL : "changes the loss";
    return o.same && !own && row->expectation != SOMEWHERE ? "is ignored" : NULL;
}

static void write_data(const char *task)
{
    FILE *file = fopen(data, "w");
    for (int i = 0; i < 12; i++)
        write_row(file, task, i);
    ck_assert_int_eq(fclose(file), 0);
}

/* Rows of the table with one method: every task. */
static void try_rows(const char *method, const struct row *rows, size_t n_rows)
{
    char *failures = NULL;
    size_t n = 0;
    FILE *text = open_memstream(&failures, &n);
    bool acts[N_ROWS] = {false};
    for (int t = 0; t < N_TASKS; t++) {
        write_data(TASKS[t]);
        const bare plain = run_bare(method, TASKS[t], &(struct row){"", NULL, EFFECT, "", NULL});
        for (size_t k = 0; k < n_rows; k++) {
            if (rows[k].expectation == ELSEWHERE) continue;
            const outcome o = try_row(method, TASKS[t], &rows[k], &plain);
            const char *bad = judge(method, TASKS[t], &rows[k], o);
            acts[k] |= !o.same;
            if (bad)
                fprintf(text, "--%s %s, %s, %s: %s\n", rows[k].name,
                        rows[k].value ? rows[k].value : "", method, TASKS[t], bad);
        }
    }
    for (size_t k = 0; k < n_rows; k++)
        if (rows[k].expectation == SOMEWHERE && !acts[k])
            fprintf(text, "--%s, %s: is ignored by every task\n", rows[k].name, method);
    fclose(text);
    ck_assert_msg(!n, "\n%s", failures);
    free(failures);
}

START_TEST(options_act_or_are_refused)
{
    try_rows(kvf__method_at((size_t)_i)->name, ROWS, N_ROWS);
}
END_TEST

START_TEST(bf16_acts)
{
    const struct row row = {"precision", "bf16", EFFECT, "", NULL};
    ck_need(kvf__cpu_has_bf16(), "this CPU has no bf16 products");
    try_rows(kvf__method_at((size_t)_i)->name, &row, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *core = tcase_create("core"), *first = tcase_create("first_methods"),
          *others = tcase_create("other_methods");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, every_option_has_a_row);
    tcase_add_test(core, runs_have_every_option);
    tcase_add_test(core, columns_hold_known_words);
    tcase_add_test(core, defaults_are_those_of_the_rows);
    tcase_add_test(core, defaults_of_tasks);
    tcase_add_checked_fixture(first, setup, teardown);
    tcase_add_checked_fixture(others, setup, teardown);
    tcase_add_loop_test(first, options_act_or_are_refused, 0, N_METHODS / 2);
    tcase_add_loop_test(others, options_act_or_are_refused, N_METHODS / 2, N_METHODS);
    tcase_add_loop_test(core, bf16_acts, 0, N_METHODS);
    tcase_set_timeout(core, 60);
    tcase_set_timeout(first, 60);
    tcase_set_timeout(others, 60);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, first);
    suite_add_tcase(suite, others);
    return ck_main(suite);
}

/* Many runs in one pass. Each run takes the steps it takes alone, and a sweep with one run at a
 * time writes the files of train. A stopped sweep continues bit for bit, and invalid grids get one
 * error line. */
#include "sweep_int.h"
#include "toy_run.h"
#include "trainer.h"

static char grid[512], folder[512], words[512], classes[512], tags[512];

/* Rows of the tasks with heads. */
static void write_tasks(void)
{
    char text[4096] = "", tagged[4096] = "";
    for (int i = 0; i < 20; i++) {
        size_t n = strlen(text), m = strlen(tagged);
        snprintf(text + n, sizeof text - n, "{\"text\": \"w%d %s\", \"label\": \"%s\"}\n", i,
                 i % 3 ? "abc" : "xyz", i % 3 ? "low" : "high");
        snprintf(tagged + m, sizeof tagged - m,
                 "{\"tokens\": [\"w\", \"n%d\", \"z\"], \"tags\": [\"O\", \"B-n\", \"O\"]}\n", i);
    }
    toy_write(dir, "classes.jsonl", text);
    toy_write(dir, "tags.jsonl", tagged);
}

static void setup(void)
{
    toy_run_setup();
    toy_path(grid, dir, "grid.txt");
    toy_path(folder, dir, "runs");
    toy_path(words, dir, "words.jsonl");
    toy_path(classes, dir, "classes.jsonl");
    toy_path(tags, dir, "tags.jsonl");
    toy_rows(dir, "words.jsonl", 17, 40);
    write_tasks();
}

static kvf_train_options options_for(const char *path)
{
    kvf_train_options o = toy_run_options(path);
    o.prefix_length = 4;
    o.encoder_hidden = 16;
    o.lr = 0.03;
    return o;
}

/* ---- parity ---------------------------------------------------------------------------------- */

/* Runs of one group: settings added to those of options_for; data by name. */
typedef struct member {
    const char *data, *settings[10]; /* the value of retention set is a data file, too */
} member;

static const member BY_BASE[] = {
    {"train.jsonl", {"method", "mlp", "seed", "3"}},
    {"words.jsonl", {"method", "direct", "prefix-length", "7", "lr", "0.01", "batch-size", "3"}},
    {"train.jsonl", {"method", "projected", "prefix-length", "3", "position-start", "0"}},
    {"words.jsonl", {"method", "prompt", "prefix-length", "5", "lr", "0.1"}},
    {"train.jsonl", {"method", "p-tuning", "p-encoder", "mlp", "lr", "0.001"}},
    {"train.jsonl", {"method", "mlp", "grad-accum", "2", "share-prefixes", "off"}},
    {"words.jsonl", {"method", "direct", "prefix-dropout", "0.2", "layers", "0,2", "seed", "9"}},
    {"train.jsonl", {"method", "mlp", "prefix-length", "2", "init", "random", "steps", "2"}},
    {"train.jsonl", {"method", "direct", "retain", "words.jsonl", "kl-to-base", "0.5"}},
};
static const member BY_HEADS[] = {
    {"classes.jsonl", {"method", "mlp", "task", "seq-cls"}},
    {"tags.jsonl", {"method", "direct", "task", "token-cls", "prefix-length", "6"}},
    {"classes.jsonl", {"method", "prompt", "task", "seq-cls", "seed", "5", "batch-size", "2"}},
    {"train.jsonl", {"method", "mlp", "train-head", "true", "grad-accum", "3"}},
};
static const struct {
    const member *members;
    size_t n;
} GROUPS[] = {{BY_BASE, sizeof BY_BASE / sizeof BY_BASE[0]},
              {BY_HEADS, sizeof BY_HEADS / sizeof BY_HEADS[0]}};
enum { MOST = 9, STEPS = 5 };

/* A trainer of one member; its files are never written. */
static void open_member(const member *m, size_t index, const char *kind, kvf_base *on,
                        kvf__reads *reads, kvf__trainer **t)
{
    static char paths[2 * MOST][512], outs[2 * MOST][512], retention[512];
    size_t at = index + (on ? MOST : 0);
    char name[64];
    snprintf(name, sizeof name, "%s%zu.h5", kind, index);
    toy_path(outs[at], dir, name);
    toy_path(paths[at], dir, m->data);
    kvf_train_options o = options_for(outs[at]);
    o.data = paths[at];
    o.valid = NULL;
    o.steps = STEPS;
    for (size_t i = 0; m->settings[i]; i += 2) {
        const char *value = m->settings[i + 1];
        if (!strcmp(m->settings[i], "retain")) {
            toy_path(retention, dir, value);
            value = retention;
        }
        ck_assert_msg(!kvf_train_set(ctx, &o, m->settings[i], value), "%s", kvf_ctx_error(ctx));
    }
    ck_assert_msg(!kvf__trainer_open(ctx, &o, &(kvf__trainer_uses){.base = on, .reads = reads}, t),
                  "member %zu: %s", index, kvf_ctx_error(ctx));
}

static double gradient_difference(const kvf__trainer *a, const kvf__trainer *b)
{
    if (a->tuned.emitted.prefix)
        return ck_rel_l2(a->tuned.dprefix.kv, b->tuned.dprefix.kv,
                         kvf__prefix_count(&b->tuned.dprefix));
    return ck_rel_l2(a->tuned.dvectors.x, b->tuned.dvectors.x,
                     (size_t)(b->tuned.dvectors.P * b->tuned.dvectors.C));
}

START_TEST(members_step_as_alone)
{
    kvf__trainer *alone[MOST], *joined[MOST];
    const member *members = GROUPS[_i].members;
    size_t n = GROUPS[_i].n;
    kvf__run_group group;
    kvf__states *states = NULL;
    for (size_t i = 0; i < n; i++) {
        open_member(&members[i], i, "alone", NULL, NULL, &alone[i]);
        ck_assert(!kvf__trainer_prepare(alone[i]));
        open_member(&members[i], i, "joined", alone[0]->run.base, NULL, &joined[i]);
    }
    ck_assert_msg(!kvf__run_group_init(ctx, joined, n, &states, &group), "%s", kvf_ctx_error(ctx));
    for (int64_t step = 0; step < STEPS; step++) {
        ck_assert_msg(!kvf__run_group_step(&group), "%s", kvf_ctx_error(ctx));
        for (size_t i = 0; i < n; i++) {
            if (!group.member[i].trainer) continue;
            ck_assert_msg(!group.member[i].status, "member %zu: %s", i, group.member[i].line);
            ck_assert_msg(!kvf__trainer_step(alone[i]), "%s", kvf_ctx_error(ctx));
            double got = joined[i]->run.progress.train_loss,
                   want = alone[i]->run.progress.train_loss;
            ck_assert_msg(fabs(got - want) <= 1e-5 * want,
                          "member %zu, step %lld: %.8g, alone %.8g", i, (long long)step + 1, got,
                          want);
            ck_assert_int_eq(joined[i]->run.progress.tokens, alone[i]->run.progress.tokens);
            if (joined[i]->run.progress.step == joined[i]->run.progress.steps)
                group.member[i].trainer = NULL; /* it ends */
            if (step) continue;
            double off = gradient_difference(joined[i], alone[i]);
            ck_assert_msg(off <= 1e-5, "member %zu: gradient off by %g", i, off);
            got = joined[i]->stepper.grad_norm;
            want = alone[i]->stepper.grad_norm;
            ck_assert_msg(fabs(got - want) <= 1e-5 * want, "member %zu: norm %g, alone %g", i, got,
                          want);
        }
    }
    kvf__run_group_done(&group);
    for (size_t i = n; i-- > 0;) {
        kvf__trainer_free(joined[i]);
        kvf__trainer_free(alone[i]);
    }
}
END_TEST

START_TEST(a_step_allocates_nothing)
{
    kvf__trainer *joined[MOST];
    const member *members = GROUPS[_i].members;
    kvf_base *shared = NULL;
    kvf__run_group group;
    kvf__states *states = NULL;
    for (size_t i = 0; i < GROUPS[_i].n; i++) {
        open_member(&members[i], i, "joined", shared, NULL, &joined[i]);
        if (!i) shared = joined[0]->run.base;
    }
    ck_assert(!kvf__run_group_init(ctx, joined, GROUPS[_i].n, &states, &group));
    ck_assert(!kvf__run_group_step(&group));
    uint64_t before = kvf__ctx_allocations(ctx);
    ck_assert(!kvf__run_group_step(&group));
    ck_assert_uint_eq(kvf__ctx_allocations(ctx), before);
    kvf__run_group_done(&group);
    for (size_t i = GROUPS[_i].n; i-- > 0;)
        kvf__trainer_free(joined[i]);
}
END_TEST

/* Runs, and whether they share the rows of the first one. */
static const struct {
    member run;
    bool same;
} READERS[] = {
    {{"words.jsonl", {"seed", "3"}}, true},
    {{"words.jsonl", {"seed", "4", "prefix-length", "9", "method", "direct"}}, true},
    {{"words.jsonl", {"max-length", "60"}}, true}, /* longer than any row */
    {{"words.jsonl", {"max-length", "8", "overlong", "truncate"}}, false},
    {{"words.jsonl", {"chat-template", "chatml"}}, false},
    {{"words.jsonl", {"method", "prompt"}}, false}, /* virtual tokens are in the rows */
    {{"train.jsonl", {"seed", "3"}}, false},
};
enum { N_READERS = sizeof READERS / sizeof READERS[0] };

START_TEST(equal_rows_are_read_once)
{
    kvf__trainer *runs[N_READERS];
    kvf__reads *reads = NULL;
    ck_assert(!kvf__reads_create(ctx, &reads));
    for (size_t i = 0; i < N_READERS; i++) {
        open_member(&READERS[i].run, i, "reader", i ? runs[0]->run.base : NULL, reads, &runs[i]);
        bool same = runs[i]->rows.task->data.ids == runs[0]->rows.task->data.ids;
        ck_assert_msg(same == READERS[i].same, "run %zu: its rows are %s", i,
                      same ? "the first one's" : "its own");
    }
    ck_assert_int_eq(runs[3]->rows.task->data.truncated > 0, 1);
    kvf__reads_free(reads); /* before its readers */
    for (size_t i = N_READERS; i-- > 0;) {
        ck_assert_int_ge(runs[i]->rows.task->data.ids[0], -9);
        kvf__trainer_free(runs[i]);
    }
}
END_TEST

/* ---- core ------------------------------------------------------------------------------------ */

static const char *const TWO_BY_TWO = "# a grid\n"
                                      "lr = 0.01, 0.05\n"
                                      "prefix-length=4 , 6\n"
                                      "\n"
                                      "[short]\n"
                                      "steps = 2\n"
                                      "method = direct\n";
static const char *const NAMES[] = {"lr-0.01_prefix-length-4", "lr-0.01_prefix-length-6",
                                    "lr-0.05_prefix-length-4", "lr-0.05_prefix-length-6", "short"};
enum { N_NAMES = sizeof NAMES / sizeof NAMES[0] };

typedef struct watch {
    int stop;
    int64_t stop_at;
    const char *run; /* at whose step */
} watch;

static void on_event(void *user, const char *run, const kvf_event *event)
{
    watch *w = user;
    if (event->kind == KVF_EVENT_STEP && w->stop_at == event->step && !strcmp(run, w->run))
        w->stop = 1;
}

static kvf_sweep_options sweep_for(const char *text, const char *name)
{
    toy_write(dir, "grid.txt", text);
    toy_path(folder, dir, name);
    kvf_train_options o = options_for(NULL);
    return (kvf_sweep_options){.grid = grid, .out = folder, .train = o};
}

static const char *text_at(const kvf_json *object, const char *key)
{
    return kvf_json_str(kvf_json_get(object, key), NULL);
}

/* The struct has the members of the JSON object. */
static void expect_same(const kvf_sweep_result *r, const kvf_json *report)
{
    const kvf_json *runs = kvf_json_get(report, "runs"), *names = kvf_json_get(report, "options");
    ck_assert(r->n == kvf_json_size(runs) && r->n_options == kvf_json_size(names));
    ck_assert_str_eq(r->metric, text_at(report, "metric"));
    ck_assert_int_eq(r->failed, kvf_json_int(kvf_json_get(report, "failed"), -1));
    for (size_t i = 0; i < r->n; i++) {
        const kvf_json *row = kvf_json_at(runs, i), *settings = kvf_json_get(row, "options");
        const kvf_sweep_run *run = &r->runs[i];
        ck_assert_str_eq(run->name, text_at(row, "name"));
        ck_assert_str_eq(run->file, text_at(row, "file"));
        ck_assert_str_eq(run->status, text_at(row, "status"));
        ck_assert_int_eq(!run->line, !text_at(row, "line"));
        ck_assert_int_eq(run->rank, kvf_json_int(kvf_json_get(row, "rank"), 0));
        ck_assert_int_eq(run->result.steps, kvf_json_int(kvf_json_get(row, "steps"), -1));
        const double value = kvf_json_real(kvf_json_get(row, "value"), NAN);
        ck_assert(run->value == value || (isnan(run->value) && isnan(value)));
        for (size_t k = 0; k < r->n_options; k++) {
            ck_assert_str_eq(r->options[k], kvf_json_str(kvf_json_at(names, k), NULL));
            ck_assert_str_eq(run->options[k], text_at(settings, r->options[k]));
        }
    }
}

static kvf_json *sweep(const kvf_sweep_options *o)
{
    kvf_json *report = NULL;
    kvf_sweep_result result;
    ck_assert_msg(!kvf_sweep(ctx, o, &result, &report), "%s", kvf_ctx_error(ctx));
    expect_same(&result, report);
    kvf_sweep_result_done(&result);
    return report;
}

static void file_of(char path[512], const char *name, const char *run)
{
    char file[128];
    snprintf(file, sizeof file, "%s/%s.h5", name, run);
    toy_path(path, dir, file);
}

/* Best run first, with the figures of train. */
START_TEST(report_ranks_the_runs)
{
    kvf_sweep_options o = sweep_for(TWO_BY_TWO, "runs");
    kvf_json *report = sweep(&o);
    const kvf_json *runs = kvf_json_get(report, "runs"), *names = kvf_json_get(report, "options");
    char path[512];
    double before = 0;
    ck_assert_uint_eq(kvf_json_size(runs), N_NAMES);
    ck_assert_uint_eq(kvf_json_size(names), 3);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(report, "metric"), NULL), "loss");
    ck_assert_int_eq(kvf_json_int(kvf_json_get(report, "passes"), 0), 6);
    for (size_t i = 0; i < N_NAMES; i++) {
        const kvf_json *run = kvf_json_at(runs, i), *settings = kvf_json_get(run, "options");
        const char *name = kvf_json_str(kvf_json_get(run, "name"), NULL);
        double value = kvf_json_real(kvf_json_get(run, "value"), NAN);
        ck_assert_int_eq(kvf_json_int(kvf_json_get(run, "rank"), 0), (int64_t)i + 1);
        ck_assert(value >= before);
        before = value;
        bool is_short = !strcmp(name, "short");
        ck_assert_int_eq(kvf_json_int(kvf_json_get(run, "steps"), 0), is_short ? 2 : 6);
        ck_assert_str_eq(kvf_json_str(kvf_json_get(settings, "method"), NULL),
                         is_short ? "direct" : "mlp");
        file_of(path, "runs", name);
        kvf_train_options alone = options_for(out);
        alone.force = true;
        alone.steps = is_short ? 2 : 6;
        alone.method = is_short ? "direct" : "mlp";
        alone.prefix_length = strstr(name, "length-6") ? 6 : 4;
        alone.lr = strstr(name, "lr-0.01") ? 0.01 : strstr(name, "lr-0.05") ? 0.05 : 0.03;
        double want = train(&alone).best.value;
        ck_assert_msg(fabs(value - want) <= 1e-4 * want, "%s: %g, alone %g", name, value, want);
        kvf_prefix *prefix = NULL;
        ck_assert_msg(!kvf_prefix_open(ctx, path, KVF_CHECKPOINT_BEST, &prefix), "%s",
                      kvf_ctx_error(ctx));
        kvf_prefix_free(prefix);
    }
    kvf_json_free(report);
    toy_path(path, dir, "runs/sweep.csv");
    kvf__buf table = {0};
    ck_assert(!kvf__read_file(ctx, path, 1 << 20, &table));
    ck_assert(strstr(table.data, "rank,name,lr,prefix-length,method,metric,value,"));
    kvf__buf_done(&table);
}
END_TEST

/* A sweep with one run at a time equals train. */
START_TEST(one_at_a_time_is_train)
{
    kvf_sweep_options o = sweep_for("seed = 1, 2\n", "runs");
    char path[512];
    o.max_runs = 1;
    kvf_json_free(sweep(&o));
    kvf_train_options alone = options_for(out);
    ck_assert(!kvf_train_set(ctx, &alone, "seed", "2"));
    train(&alone);
    file_of(path, "runs", "seed-2");
    ck_assert(equal_files(path, out));
}
END_TEST

static void same_runs(const char *a, const char *b)
{
    char one[512], two[512];
    for (size_t i = 0; i < N_NAMES; i++) {
        file_of(one, a, NAMES[i]);
        file_of(two, b, NAMES[i]);
        ck_assert_msg(equal_files(one, two), "%s and %s differ", one, two);
    }
}

/* Stopped at a step of the middle run; also in groups. */
START_TEST(resume_equals_no_stop)
{
    char whole_dir[512];
    kvf_json *report = NULL;
    watch w = {.stop_at = 3, .run = NAMES[2]};
    kvf_sweep_options o = sweep_for(TWO_BY_TWO, "whole");
    o.max_runs = _i ? 3 : 0;
    kvf_json_free(sweep(&o));
    memcpy(whole_dir, folder, sizeof folder);
    o = sweep_for(TWO_BY_TWO, "runs");
    o.max_runs = _i ? 3 : 0;
    kvf_ctx_set_stop(ctx, &w.stop);
    o.event = on_event;
    o.event_user = &w;
    ck_assert_int_eq(kvf_sweep(ctx, &o, NULL, &report), KVF_ESTOPPED);
    ck_assert(strstr(kvf_ctx_error(ctx), "--resume"));
    size_t stopped = 0;
    for (size_t i = 0; i < N_NAMES; i++) {
        const kvf_json *run = kvf_json_at(kvf_json_get(report, "runs"), i);
        stopped += !strcmp(kvf_json_str(kvf_json_get(run, "status"), NULL), "stopped");
    }
    ck_assert_uint_eq(stopped, _i ? 3 : 4); /* the short run is finished, or has not started */
    kvf_json_free(report);
    kvf_ctx_set_stop(ctx, NULL);
    o.train.resume = true;
    w.stop_at = 0;
    report = sweep(&o);
    kvf_json_free(report);
    same_runs("whole", "runs");
    report = sweep(&o); /* nothing is left to do */
    ck_assert_int_eq(kvf_json_int(kvf_json_get(report, "passes"), -1), 0);
    const kvf_json *first = kvf_json_at(kvf_json_get(report, "runs"), 0);
    ck_assert(kvf_json_bool(kvf_json_get(first, "finished_before"), false));
    kvf_json_free(report);
    same_runs("whole", "runs");
}
END_TEST

/* A learning rate that ruins one run does not affect the others. */
START_TEST(a_failing_run_fails_alone)
{
    kvf_sweep_options o = sweep_for("method = direct\nlr = 0.01, 1e38, 0.02\n", "runs");
    kvf_json *report = sweep(&o);
    const kvf_json *runs = kvf_json_get(report, "runs");
    ck_assert_int_eq(kvf_json_int(kvf_json_get(report, "failed"), 0), 1);
    const kvf_json *bad = kvf_json_at(runs, 2);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(bad, "name"), NULL), "lr-1e38");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(bad, "status"), NULL), "failed");
    ck_assert(strstr(kvf_json_str(kvf_json_get(bad, "line"), NULL), "step "));
    for (size_t i = 0; i < 2; i++)
        ck_assert_str_eq(kvf_json_str(kvf_json_get(kvf_json_at(runs, i), "status"), NULL), "done");
    kvf_json_free(report);
}
END_TEST

/* Runs with and without heads take their passes in turn. */
START_TEST(kinds_of_heads_take_turns)
{
    char text[2048];
    snprintf(text, sizeof text, "[words]\nlr = 0.01\n[classes]\ntask = seq-cls\ndata = %s\n",
             classes);
    kvf_sweep_options o = sweep_for(text, "runs");
    o.train.valid = NULL;
    kvf_json *report = sweep(&o);
    ck_assert_int_eq(kvf_json_int(kvf_json_get(report, "passes"), 0), 12);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(report, "metric"), NULL), "last_train_loss");
    kvf_json_free(report);
}
END_TEST

/* With equal accuracy, the run with the lower loss comes first, wherever it is in the grid. */
START_TEST(equal_scores_rank_by_loss)
{
    kvf_sweep_options o = sweep_for(_i ? "lr = 0.0001, 0.03\n" : "lr = 0.03, 0.0001\n", "runs");
    o.train.data = o.train.valid = classes;
    o.train.task = "seq-cls";
    o.train.method = "direct";
    o.train.steps = 30;
    kvf_json *report = sweep(&o);
    const kvf_json *runs = kvf_json_get(report, "runs");
    const kvf_json *first = kvf_json_at(runs, 0), *second = kvf_json_at(runs, 1);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(report, "metric"), NULL), "accuracy");
    ck_assert_double_eq(kvf_json_real(kvf_json_get(first, "value"), NAN),
                        kvf_json_real(kvf_json_get(second, "value"), NAN));
    ck_assert_double_lt(kvf_json_real(kvf_json_get(first, "best_valid_loss"), NAN),
                        kvf_json_real(kvf_json_get(second, "best_valid_loss"), NAN));
    kvf_json_free(report);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *text, *line;
} BAD[] = {
    {"lr 0.1\n", ":1: want \"option = value\" or \"[NAME]\", found \"lr 0.1\""},
    {"\n\nlearning-rate = 1\n", ":3: option \"learning-rate\" is not known"},
    {"lr = 0.1, fast\n", ":1: --lr \"fast\": want a number above 0"},
    {"lr = 0.1,, 0.2\n", ":1: lr has an empty value"},
    {"lr =\n", ":1: lr has no value"},
    {"lr = 0.1, 0.1\n", ":1: lr has the value 0.1 twice"},
    {"lr = 0.1\nseed = 1\nlr = 2\n", ":3: lr is already set on line 1"},
    {"[a]\nlr = 1\nlr = 2\n", ":3: lr is already set on line 2"},
    {"[a]\nlr = 1\n[a]\n", ":3: run \"a\" is already defined on line 1"},
    {"seed = 1, 2\n[seed-2]\nlr = 1\n", ":2: run \"seed-2\" is already defined on line 1"},
    {"[a/b]\n", ":1: run name \"a/b\": want letters, digits and . _ + -"},
    {"[]\n", ":1: run name \"\": want"},
    {"[a\n", ":1: want [NAME], found \"[a\""},
    {"base = a, b\n",
     ":1: base cannot differ between the runs of a sweep: the runs of a sweep share the base"},
    {"precision = f32\n", ":1: precision cannot differ"},
    {"weight-dtype = bf16, int8\n", ":1: weight-dtype cannot differ"},
    {"forecast = on\n", ":1: --forecast: not available in a sweep"},
    {"mix = equal\n", ":1: --mix: not available in a sweep"},
    {"out = a.h5\n", ":1: --out: sweep names each run file"},
    {"init-text = \"a, b\n", ":1: init-text: a quote is not closed"},
    {"init-text = \"a\" b\n", ":1: init-text: want a comma after a quote"},
    {"data = x=a.jsonl\n", ":1: data = x=a.jsonl: a sweep does not support runs on several tasks"},
    {"# nothing\n", ": defines no runs"},
    {"method = mlp, full\n",
     ":1: run method-full: --method full: the runs of a sweep share the base"},
    {"[x]\nmethod = adapter\n", ":1: run x: --method adapter: the runs of a sweep share the base"},
    {"infix = true\n", ":1: --infix: not available in a sweep"},
    {"base-dropout = 0.1\n", "--base-dropout: not available in a sweep"},
    {"layers = 7-9, 0-1\n", "run layers-7-9: --layers 7-9: the base has layers 0 to 2"},
    {"seed = "
     "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,"
     "33\nlr = 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,"
     "32\n",
     ":2: more than 1024 runs"},
};

static void expect_line(const kvf_sweep_options *o, kvf_status want, const char *line)
{
    kvf_json *report = NULL;
    kvf_status st = kvf_sweep(ctx, o, NULL, &report);
    ck_assert_msg(st == want && strstr(kvf_ctx_error(ctx), line),
                  "status %s, line \"%s\", want \"%s\"", kvf_status_name(st), kvf_ctx_error(ctx),
                  line);
    ck_assert_ptr_null(report);
}

START_TEST(bad_grids_are_refused)
{
    kvf_sweep_options o = sweep_for(BAD[_i].text, "runs");
    expect_line(&o, KVF_EUSAGE, BAD[_i].line);
}
END_TEST

START_TEST(what_is_there_is_kept)
{
    kvf_sweep_options o = sweep_for("seed = 1, 2\n", "runs");
    o.train.steps = 2;
    kvf_json_free(sweep(&o));
    expect_line(&o, KVF_EEXIST,
                "runs/seed-1.h5: exists (--force replaces it, --resume continues it)");
    toy_write(dir, "grid.txt", "seed = 3, 4\n");
    expect_line(&o, KVF_EEXIST, "runs/sweep.csv: exists");
    o.train.force = true;
    kvf_json_free(sweep(&o));
    o.train.force = false;
    o.train.log = "log.jsonl";
    expect_line(&o, KVF_EUSAGE, "--log: the runs would write to one file");
    o.train.log = NULL;
    o.grid = "missing.txt";
    expect_line(&o, KVF_EIO, "missing.txt");
}
END_TEST

/* Offered options can be set; each other option has a reason. */
START_TEST(rows_are_those_of_train_that_it_takes)
{
    const kvf__option_row *row, *own;
    size_t n = 0;
    for (size_t i = 0; (row = kvf__train_option_row(i)) != NULL; i++) {
        if (kvf__sweep_refusal(row->name)) continue;
        own = kvf__sweep_option_row(n++);
        ck_assert_str_eq(own->name, row->name);
        if (!strcmp(row->name, "method"))
            ck_assert_str_eq(own->argument, "mlp|direct|projected|prompt|p-tuning");
    }
    ck_assert_ptr_null(kvf__sweep_option_row(n));
    ck_assert_ptr_null(kvf__sweep_refusal("lr"));
    ck_assert_ptr_null(kvf__sweep_refusal("no-such"));
    kvf_sweep_options o = sweep_for("lr = 1\n", "runs");
    o.train.infix = true;
    expect_line(&o, KVF_EUSAGE, "--infix: not available in a sweep");
    o = sweep_for("lr = 1\n", "runs");
    o.train.method = "full";
    expect_line(&o, KVF_EUSAGE, "--method full: the runs of a sweep share the base");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sweep");
    TCase *parity = tcase_create("parity"), *core = tcase_create("core"),
          *errors = tcase_create("errors");
    tcase_add_checked_fixture(parity, setup, toy_run_teardown);
    tcase_add_checked_fixture(core, setup, toy_run_teardown);
    tcase_add_checked_fixture(errors, setup, toy_run_teardown);
    tcase_set_timeout(parity, 60);
    tcase_set_timeout(core, 60);
    tcase_set_timeout(errors, 60);
    tcase_add_loop_test(parity, members_step_as_alone, 0, 2);
    tcase_add_loop_test(parity, a_step_allocates_nothing, 0, 2);
    tcase_add_test(core, equal_rows_are_read_once);
    tcase_add_test(core, report_ranks_the_runs);
    tcase_add_test(core, one_at_a_time_is_train);
    tcase_add_loop_test(core, resume_equals_no_stop, 0, 2);
    tcase_add_test(core, a_failing_run_fails_alone);
    tcase_add_test(core, kinds_of_heads_take_turns);
    tcase_add_loop_test(core, equal_scores_rank_by_loss, 0, 2);
    tcase_add_loop_test(errors, bad_grids_are_refused, 0, sizeof BAD / sizeof BAD[0]);
    tcase_add_test(errors, what_is_there_is_kept);
    tcase_add_test(core, rows_are_those_of_train_that_it_takes);
    suite_add_tcase(suite, parity);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}

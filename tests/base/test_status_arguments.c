/* Calls every function of src/libkvfold.map with wrong arguments: each pointer NULL where the
 * header does not allow it, each enum 77, options of zeros, an enum of options 77. Functions with a
 * status return EUSAGE with an error line; others return. The caller's OpenMP thread count is the
 * same after each call, including those with valid arguments.
 *
 * Functions are called through one type: the calling convention of x86-64 passes integers and
 * pointers alike. Those with results in memory (structs) have tests of their own. */
#include "toy_run.h"

#undef kvf_ctx_create /* the public one */

#include <omp.h>

enum { MOST = 9, HOST_THREADS = 5, WRONG = 77 };

typedef uintptr_t (*any)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                         uintptr_t, uintptr_t, uintptr_t);

static kvf_base *opened;
static kvf_prefix *prefix;
static kvf_rows *rows, *more_rows; /* the latter grow */
static kvf_json *tree;
static kvf_history *history;
static kvf_train_options *by_name;
static kvf_session *session;
static kvf_bench *bench;
static char run[512], fresh[512];
static const char *rows_path, *text = "w1";
static const int32_t ids[] = {1, 2};
static int64_t shape[6], layers[3], number;
static float values[4096];
static uint8_t mask[8];
static char *texts[4];
static const kvf_message message = {"user", "w1"};
static _Alignas(64) char result[1 << 16];

static kvf_eval_options eval_o;
static kvf_score_options score_o;
static kvf_predict_options predict_o;
static kvf_generate_options generate_o;
static kvf_train_options train_o, memory_o;
static kvf_merge_options merge_o;
static kvf_import_options import_o;
static kvf_export_options export_o, open_export_o;
static kvf_compose_options compose_o;
static kvf_convert_position_options convert_o;
static kvf_quantize_options quantize_o;
static kvf_unmerge_options unmerge_o;
static kvf_new_base_options new_base_o;
static kvf_bench_options bench_o;
static kvf_distill_options distill_o;
static kvf_prune_options prune_o;
static kvf_report_options report_o;
static kvf_sweep_options sweep_o;
static kvf_words_options words_o;
static kvf_serve_options serve_o;
static kvf_base_options base_o;
static kvf_session_options session_o;
static const void *const zeros[1024];

/* ---- the table ------------------------------------------------------------------------------- */

/* The kind of an argument: required, optional (NULL), number, enum, or options that must not be all
 * zeros. */
typedef enum kind { END, NEED, MAY, NUMBER, ENUM, OPTIONS } kind;
typedef struct argument {
    kind kind;
    const void *value; /* its address, or NULL */
    uintptr_t number;
    bool indirect; /* value points at the pointer, which setup sets */
} argument;

#define HAS(pointer)                                                                               \
    {                                                                                              \
        .kind = NEED, .value = &(pointer), .indirect = true                                        \
    }
#define OPT(pointer)                                                                               \
    {                                                                                              \
        .kind = MAY, .value = &(pointer), .indirect = true                                         \
    }
#define AT(object)                                                                                 \
    {                                                                                              \
        .kind = NEED, .value = (object)                                                            \
    }
#define OUT                                                                                        \
    {                                                                                              \
        .kind = NEED, .value = result                                                              \
    }
#define NIL                                                                                        \
    {                                                                                              \
        .kind = MAY                                                                                \
    }
#define O(object)                                                                                  \
    {                                                                                              \
        .kind = OPTIONS, .value = &(object)                                                        \
    }
#define N(n)                                                                                       \
    {                                                                                              \
        .kind = NUMBER, .number = (n)                                                              \
    }
#define E                                                                                          \
    {                                                                                              \
        .kind = ENUM                                                                               \
    }
#define C HAS(ctx)
#define B HAS(opened)
#define P HAS(prefix)

typedef enum returns { STATUS, OTHER } returns;
typedef struct row {
    const char *name;
    any function;
    returns returns;
    argument arg[MOST];
    void (*undo)(void *made); /* a success stores the pointer in `result`, */
    bool in_place;            /* or the struct there */
    bool fails;               /* no object here makes it succeed */
    bool no_valid_call;       /* no argument, or a run of its own */
} row;

#define FN(f)   .name = #f, .function = (any)(void (*)(void))f
#define UNDO(f) .undo = (void (*)(void *))(void (*)(void))f
#define FREES(f)                                                                                   \
    {                                                                                              \
        FN(f), OTHER,                                                                              \
        {                                                                                          \
            NIL, N(0)                                                                              \
        }                                                                                          \
    }
#define ASKS(f, handle)                                                                            \
    {                                                                                              \
        FN(f), OTHER,                                                                              \
        {                                                                                          \
            HAS(handle)                                                                            \
        }                                                                                          \
    }

static const char *const paths[] = {run, run};
static const char *grid_path = run;

static const row ROWS[] = {
    {FN(kvf_ctx_create), STATUS, {NIL, OUT}, UNDO(kvf_ctx_free)},
    {FN(kvf_ctx_error), OTHER, {C}},
    {FN(kvf_ctx_set_stop), OTHER, {C, NIL}},
    ASKS(kvf_ctx_threads, ctx),
    FREES(kvf_ctx_free),
    {FN(kvf_status_name), OTHER, {E}},
    {FN(kvf_status_text), OTHER, {E}},
    {FN(kvf_version), OTHER, {{0}}},
    {FN(kvf_version_string), OTHER, {{0}}},
    {FN(kvf_library_versions), STATUS, {OUT, N(200)}},
    /* base */
    {FN(kvf_base_open), STATUS, {C, AT(base), NIL, OUT}, UNDO(kvf_base_free)},
    {FN(kvf_base_open_for), STATUS, {C, AT(base), NIL, NIL, OUT}, UNDO(kvf_base_free)},
    {FN(kvf_base_drop_layers), STATUS, {C, B, AT("0")}, .fails = true},
    ASKS(kvf_base_architecture, opened),
    ASKS(kvf_base_hash, opened),
    ASKS(kvf_base_name, opened),
    ASKS(kvf_base_precision, opened),
    FREES(kvf_base_free),
    /* prefix */
    {FN(kvf_prefix_open), STATUS, {C, AT(run), E, OUT}, UNDO(kvf_prefix_free)},
    {FN(kvf_prefix_open_on), STATUS, {C, AT(run), NIL, E, OUT}, UNDO(kvf_prefix_free)},
    {FN(kvf_prefix_use_head), STATUS, {C, P, AT("a")}, .fails = true},
    {FN(kvf_prefix_check), STATUS, {C, P, B, N(0)}},
    {FN(kvf_prefix_from_array),
     STATUS,
     {C, B, AT(values), AT(shape), N(0), OUT},
     UNDO(kvf_prefix_free)},
    {FN(kvf_prefix_save), STATUS, {C, P, AT(fresh), E, N(1)}},
    {FN(kvf_prefix_set_log_weights), STATUS, {C, P, AT(values), AT(layers)}},
    {FN(kvf_prefix_set_layer_mask), STATUS, {C, P, AT(mask), N(3)}},
    {FN(kvf_prefix_set_relative_bias), STATUS, {C, P, N(0)}, .fails = true},
    {FN(kvf_prefix_kv), OTHER, {P, NIL}},
    {FN(kvf_prefix_layer), OTHER, {P, N(0), NIL}},
    {FN(kvf_prefix_layer_mask), OTHER, {P, NIL}},
    {FN(kvf_prefix_log_weights), OTHER, {P, NIL}},
    {FN(kvf_prefix_neurons), OTHER, {P, AT("key"), NIL}},
    ASKS(kvf_prefix_base_hash, prefix),
    ASKS(kvf_prefix_changes_base, prefix),
    ASKS(kvf_prefix_length, prefix),
    ASKS(kvf_prefix_position_start, prefix),
    ASKS(kvf_prefix_relative_bias, prefix),
    ASKS(kvf_prefix_task, prefix),
    {FN(kvf_prefix_head), OTHER, {P, N(0)}},
    {FN(kvf_prefix_label), OTHER, {P, N(0)}},
    FREES(kvf_prefix_free),
    {FN(kvf_dtype_name), OTHER, {E}},
    /* session, tokens */
    {FN(kvf_session_open), STATUS, {C, AT(base), NIL, NIL, OUT}, UNDO(kvf_session_close)},
    ASKS(kvf_session_base, session),
    ASKS(kvf_session_prefix, session),
    {FN(kvf_session_prefixes), OTHER, {HAS(session), OUT}},
    FREES(kvf_session_close),
    {FN(kvf_tokenize), STATUS, {C, B, HAS(text), N(2), N(0), OUT, AT(&number)}, UNDO(kvf_ids_free)},
    {FN(kvf_detokenize), STATUS, {C, B, AT(ids), N(2), N(0), OUT, NIL}, UNDO(kvf_string_free)},
    FREES(kvf_ids_free),
    FREES(kvf_string_free),
    /* rows */
    {FN(kvf_rows_create), STATUS, {C, OUT}, UNDO(kvf_rows_free)},
    {FN(kvf_rows_add_ids), STATUS, {C, HAS(more_rows), AT(ids), NIL, N(2)}},
    {FN(kvf_rows_add_json), STATUS, {C, HAS(more_rows), AT("{\"text\":\"w\"}"), N(12)}},
    {FN(kvf_rows_add_messages), STATUS, {C, HAS(more_rows), AT(&message), N(1)}},
    {FN(kvf_rows_add_pair), STATUS, {C, HAS(more_rows), HAS(text), HAS(text)}},
    {FN(kvf_rows_add_text), STATUS, {C, HAS(more_rows), HAS(text)}},
    {FN(kvf_rows_read), STATUS, {HAS(rows), OUT, NIL}, .no_valid_call = true},
    ASKS(kvf_rows_count, rows),
    ASKS(kvf_rows_path, rows),
    FREES(kvf_rows_free),
    /* computing */
    {FN(kvf_generate), STATUS, {C, B, NIL, AT(&text), N(1), O(generate_o), AT(texts), NIL}},
    {FN(kvf_generate_file),
     STATUS,
     {C, B, NIL, HAS(rows_path), NIL, O(generate_o), OUT, AT(&number), NIL},
     .no_valid_call = true},
    {FN(kvf_generate_defaults), OTHER, {{0}}, .no_valid_call = true},
    {FN(kvf_text_bytes), OTHER, {NIL}},
    FREES(kvf_texts_free),
    FREES(kvf_text_list_free),
    {FN(kvf_logits), STATUS, {C, B, NIL, AT(ids), N(2), AT(values)}},
    {FN(kvf_eval),
     STATUS,
     {C, B, AT(&prefix), N(1), O(eval_o), OUT},
     UNDO(kvf_eval_result_done),
     .in_place = true},
    {FN(kvf_predict), STATUS, {C, B, AT(&prefix), N(1), O(predict_o), NIL}, .fails = true},
    {FN(kvf_score), STATUS, {C, B, NIL, O(score_o), NIL}},
    FREES(kvf_eval_result_done),
    FREES(kvf_predict_result_done),
    FREES(kvf_score_result_done),
    /* training */
    {FN(kvf_train), STATUS, {C, O(train_o), OUT}},
    {FN(kvf_train_prefix), STATUS, {C, O(memory_o), E, OUT, OUT}, UNDO(kvf_prefix_free)},
    {FN(kvf_train_defaults), OTHER, {{0}}, .no_valid_call = true},
    {FN(kvf_train_option), OTHER, {N(0), OUT}},
    {FN(kvf_train_options_create), STATUS, {C, OUT}, UNDO(kvf_train_options_free)},
    {FN(kvf_train_set), STATUS, {C, HAS(by_name), AT("steps"), AT("3")}},
    {FN(kvf_train_set_base), OTHER, {HAS(by_name), NIL}},
    {FN(kvf_train_set_event), OTHER, {HAS(by_name), NIL, NIL}},
    {FN(kvf_train_rank), OTHER, {C}},
    FREES(kvf_train_options_free),
    /* files */
    {FN(kvf_merge), STATUS, {C, O(merge_o), OUT}},
    {FN(kvf_import), STATUS, {C, O(import_o), OUT}},
    {FN(kvf_export), STATUS, {C, O(export_o)}},
    {FN(kvf_prefix_export), STATUS, {C, P, O(open_export_o)}, .fails = true},
    {FN(kvf_inspect), STATUS, {C, AT(run), OUT}, UNDO(kvf_json_free)},
    {FN(kvf_history_open), STATUS, {C, AT(run), OUT}, UNDO(kvf_history_free)},
    ASKS(kvf_history_steps, history),
    {FN(kvf_history_column), OTHER, {HAS(history), N(0), OUT}},
    FREES(kvf_history_free),
    /* JSON */
    {FN(kvf_json_parse), STATUS, {C, AT("x"), AT("{}"), N(2), OUT}, UNDO(kvf_json_free)},
    {FN(kvf_json_load), STATUS, {C, AT(run), OUT}, .fails = true},
    {FN(kvf_json_add), OTHER, {HAS(tree), NIL}},
    {FN(kvf_json_set), OTHER, {HAS(tree), HAS(text), NIL}},
    {FN(kvf_json_at), OTHER, {HAS(tree), N(0)}},
    {FN(kvf_json_bool), OTHER, {HAS(tree), N(0)}},
    {FN(kvf_json_get), OTHER, {HAS(tree), HAS(text)}},
    {FN(kvf_json_int), OTHER, {HAS(tree), N(0)}},
    ASKS(kvf_json_iter, tree),
    {FN(kvf_json_iter_key), OTHER, {NIL}},
    {FN(kvf_json_iter_value), OTHER, {NIL}},
    {FN(kvf_json_next), OTHER, {HAS(tree), NIL}},
    ASKS(kvf_json_real, tree),
    {FN(kvf_json_remove), OTHER, {HAS(tree), HAS(text)}},
    ASKS(kvf_json_size, tree),
    {FN(kvf_json_str), OTHER, {HAS(tree), NIL}},
    {FN(kvf_json_text), OTHER, {NIL, N(0)}},
    ASKS(kvf_json_typeof, tree),
    {FN(kvf_json_new_str), OTHER, {NIL}},
    {FN(kvf_json_new_strn), OTHER, {NIL, N(2)}},
    {FN(kvf_json_new_bool), OTHER, {{0}}, .no_valid_call = true},
    {FN(kvf_json_new_int), OTHER, {{0}}, .no_valid_call = true},
    {FN(kvf_json_new_null), OTHER, {{0}}, .no_valid_call = true},
    {FN(kvf_json_new_real), OTHER, {{0}}, .no_valid_call = true},
    {FN(kvf_json_array), OTHER, {{0}}, .no_valid_call = true},
    {FN(kvf_json_object), OTHER, {{0}}, .no_valid_call = true},
    FREES(kvf_json_free),
    FREES(kvf_json_text_free),
    /* experimental */
    {FN(kvf_bench_open), STATUS, {C, O(bench_o), OUT}, UNDO(kvf_bench_close)},
    {FN(kvf_bench_step), STATUS, {HAS(bench), N(1), NIL}},
    {FN(kvf_bench_summary), OTHER, {HAS(bench), OUT}},
    {FN(kvf_bench_run), STATUS, {C, O(bench_o), OUT}},
    {FN(kvf_bench_shape), OTHER, {N(1000)}},
    {FN(kvf_bench_defaults), OTHER, {{0}}, .no_valid_call = true},
    FREES(kvf_bench_close),
    {FN(kvf_compose), STATUS, {C, O(compose_o), OUT}},
    {FN(kvf_convert_position), STATUS, {C, O(convert_o), OUT, AT(&number)}, .fails = true},
    {FN(kvf_diff), STATUS, {C, AT(run), AT(run), N(0), NIL, NIL}},
    FREES(kvf_diff_result_done),
    {FN(kvf_distill), STATUS, {C, O(distill_o), OUT}, .no_valid_call = true},
    {FN(kvf_distill_defaults), OTHER, {{0}}, .no_valid_call = true},
    {FN(kvf_new_base), STATUS, {C, O(new_base_o), OUT}, .fails = true},
    {FN(kvf_prune), STATUS, {C, O(prune_o), NIL, NIL}},
    FREES(kvf_prune_result_done),
    {FN(kvf_quantize), STATUS, {C, O(quantize_o), OUT}},
    {FN(kvf_report), STATUS, {C, O(report_o), NIL}},
    {FN(kvf_report_defaults), OTHER, {{0}}, .no_valid_call = true},
    {FN(kvf_serve), STATUS, {C, B, O(serve_o), NIL}, .no_valid_call = true},
    {FN(kvf_serve_defaults), OTHER, {{0}}, .no_valid_call = true},
    {FN(kvf_sweep), STATUS, {C, O(sweep_o), NIL, NIL}, .fails = true},
    FREES(kvf_sweep_result_done),
    {FN(kvf_unmerge), STATUS, {C, O(unmerge_o), OUT}, .fails = true},
    {FN(kvf_words), STATUS, {C, B, P, AT(&words_o), NIL, NIL}},
    FREES(kvf_words_result_done),
    {FN(kvf_base_shape), OTHER, {{0}}, .no_valid_call = true},
};
enum { N_ROWS = sizeof ROWS / sizeof ROWS[0] };

/* Enums of options, by the function that takes them. */
#define OF(function, options, member)                                                              \
    {                                                                                              \
#function, &(options), sizeof(options), (int *)(void *)&(options).member                   \
    }
static const struct enum_member {
    const char *function;
    void *options;
    size_t bytes;
    int *member;
} MEMBERS[] = {
    OF(kvf_eval, eval_o, overlong),
    OF(kvf_score, score_o, eval.overlong),
    OF(kvf_predict, predict_o, eval.overlong),
    OF(kvf_predict, predict_o, out_format),
    OF(kvf_train, train_o, overlong),
    OF(kvf_train, train_o, schedule),
    OF(kvf_train, train_o, forecast),
    OF(kvf_train, train_o, log_weight),
    OF(kvf_train, train_o, precision),
    OF(kvf_train, train_o, weight_dtype),
    OF(kvf_merge, merge_o, dtype),
    OF(kvf_merge, merge_o, checkpoint),
    OF(kvf_export, export_o, format),
    OF(kvf_export, export_o, checkpoint),
    OF(kvf_prefix_export, open_export_o, format),
    OF(kvf_prefix_export, open_export_o, checkpoint),
    OF(kvf_compose, compose_o, mode),
    OF(kvf_compose, compose_o, dtype),
    OF(kvf_compose, compose_o, checkpoint),
    OF(kvf_quantize, quantize_o, dtype),
    OF(kvf_quantize, quantize_o, checkpoint),
    OF(kvf_bench_open, bench_o, weight_dtype),
    OF(kvf_bench_open, bench_o, precision),
    OF(kvf_distill, distill_o, train.overlong),
    OF(kvf_prune, prune_o, score),
    OF(kvf_prune, prune_o, dtype),
    OF(kvf_prune, prune_o, precision),
    OF(kvf_prune, prune_o, checkpoint),
    OF(kvf_prune, prune_o, eval.overlong),
    OF(kvf_report, report_o, checkpoint),
    OF(kvf_report, report_o, precision),
    OF(kvf_report, report_o, overlong),
    OF(kvf_serve, serve_o, checkpoint),
};

static const row *find(const char *name, size_t n)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strlen(ROWS[i].name) == n && !memcmp(ROWS[i].name, name, n)) return &ROWS[i];
    return NULL;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static uintptr_t value_of(const argument *a)
{
    if (a->kind == NUMBER || a->kind == ENUM) return a->number;
    if (a->indirect) return (uintptr_t) * (const void *const *)a->value;
    return (uintptr_t)a->value;
}

static kvf_status call(const row *r, const uintptr_t v[MOST])
{
    memset(result, 0, sizeof result);
    omp_set_num_threads(HOST_THREADS);
    const uintptr_t got = r->function(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]);
    ck_assert_msg(omp_get_max_threads() == HOST_THREADS, "%s leaves %d threads", r->name,
                  omp_get_max_threads());
    return (kvf_status)(unsigned)got;
}

static void values_of(const row *r, uintptr_t v[MOST])
{
    for (int i = 0; i < MOST; i++)
        v[i] = value_of(&r->arg[i]);
}

/* what: named in a failure's line. */
static void refused(const row *r, const uintptr_t v[MOST], const char *what, int at)
{
    const bool has_line = v[0] == (uintptr_t)ctx;
    kvf__fail(ctx, KVF_OK, "none");
    const kvf_status st = call(r, v);
    if (r->returns != STATUS) return;
    ck_assert_msg(st == KVF_EUSAGE, "%s, %s %d: %s, %s", r->name, what, at, kvf_status_name(st),
                  kvf_ctx_error(ctx));
    ck_assert_msg(!has_line || strcmp(kvf_ctx_error(ctx), "none"), "%s, %s %d: no line", r->name,
                  what, at);
}

static void call_wrongly(const row *r)
{
    uintptr_t right[MOST], v[MOST];
    values_of(r, right);
    for (int i = 0; i < MOST; i++) {
        const kind is = r->arg[i].kind;
        memcpy(v, right, sizeof v);
        v[i] = is == ENUM ? WRONG : 0;
        if (is == NEED || is == OPTIONS) refused(r, v, "NULL at", i);
        if (is == ENUM) refused(r, v, "77 at", i);
        v[i] = (uintptr_t)zeros;
        if (is == OPTIONS) refused(r, v, "zeros at", i);
    }
}

static void call_rightly(const row *r)
{
    uintptr_t v[MOST];
    void *made;
    values_of(r, v);
    const kvf_status st = call(r, v);
    ck_assert_msg(r->returns == OTHER || !st == !r->fails, "%s: %s %s", r->name,
                  kvf_status_name(st), kvf_ctx_error(ctx));
    memcpy(&made, result, sizeof made);
    if (!st && r->undo) r->undo(r->in_place ? result : made);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void fill_options(void)
{
    eval_o.data = score_o.eval.data = predict_o.eval.data = prune_o.eval.data = rows_path;
    generate_o = kvf_generate_defaults();
    generate_o.max_tokens = 2;
    train_o = toy_run_options(fresh);
    train_o.steps = 1;
    train_o.force = true;
    memory_o = train_o;
    memory_o.out = NULL;
    distill_o = kvf_distill_defaults();
    distill_o.train.base = base;
    distill_o.train.out = fresh;
    distill_o.document = run;
    merge_o = (kvf_merge_options){.run = run, .out = other, .force = true};
    import_o = (kvf_import_options){.path = base, .out = other, .from = "base", .force = true};
    export_o = (kvf_export_options){
        .path = run, .out = other, .format = KVF_EXPORT_SAFETENSORS, .force = true};
    open_export_o = (kvf_export_options){
        .out = other, .format = KVF_EXPORT_SAFETENSORS, .force = true};
    compose_o = (kvf_compose_options){
        .parts = paths, .n = 2, .out = other, .base = base, .force = true};
    convert_o = (kvf_convert_position_options){
        .prefix = run, .out = other, .base = base, .position_start = "0", .force = true};
    quantize_o = (kvf_quantize_options){.prefix = run, .out = other, .force = true};
    unmerge_o = (kvf_unmerge_options){.prefix = run, .out = other, .force = true};
    new_base_o = (kvf_new_base_options){.config = run, .tokenizer = base, .out = other};
    bench_o = kvf_bench_defaults();
    bench_o.shape = "tiny";
    bench_o.batch = bench_o.steps = bench_o.warmup = 1;
    bench_o.length = 8;
    bench_o.prefix_length = 2;
    report_o.out = fresh;
    report_o.path = run;
    prune_o.prefix = run;
    prune_o.base = base;
    prune_o.out = fresh;
    prune_o.keep = 1;
    prune_o.force = report_o.force = true;
    sweep_o.grid = grid_path;
    sweep_o.out = other;
    sweep_o.train = train_o;
    serve_o = kvf_serve_defaults();
}

static void setup(void)
{
    toy_run_setup();
    kvf_train_options o = toy_run_options(out);
    toy_path(run, dir, "run.h5");
    toy_path(fresh, dir, "fresh.h5");
    o.method = "direct";
    o.prefix_length = 3;
    o.steps = 1;
    train(&o);
    opened = open_base();
    ck_assert_int_eq(kvf_prefix_open(ctx, run, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    ck_assert_int_eq(kvf_rows_create(ctx, &rows), KVF_OK);
    ck_assert_int_eq(kvf_rows_add_pair(ctx, rows, "w1:", " abc"), KVF_OK);
    rows_path = kvf_rows_path(rows);
    ck_assert_int_eq(kvf_rows_create(ctx, &more_rows), KVF_OK);
    tree = kvf_json_object();
    ck_assert_int_eq(kvf_history_open(ctx, run, &history), KVF_OK);
    ck_assert_int_eq(kvf_train_options_create(ctx, &by_name), KVF_OK);
    ck_assert_int_eq(kvf_session_open(ctx, base, NULL, NULL, &session), KVF_OK);
    kvf_prefix_kv(prefix, shape);
    memset(mask, 1, sizeof mask);
    memcpy(layers, (const int64_t[]){shape[0], shape[3], shape[4]}, sizeof layers);
    fill_options();
    ck_assert_msg(!kvf_bench_open(ctx, &bench_o, &bench), "%s", kvf_ctx_error(ctx));
}

static void teardown(void)
{
    kvf_bench_close(bench);
    kvf_session_close(session);
    kvf_train_options_free(by_name);
    kvf_history_free(history);
    kvf_json_free(tree);
    kvf_rows_free(rows);
    kvf_rows_free(more_rows);
    kvf_prefix_free(prefix);
    kvf_base_free(opened);
    toy_run_teardown();
}

START_TEST(wrong_arguments_are_refused)
{
    for (size_t i = 0; i < N_ROWS; i++)
        call_wrongly(&ROWS[i]);
    ck_assert_int_eq(kvf_base_shape(NULL).L, 0);
    kvf_texts_free(NULL, 3);
}
END_TEST

START_TEST(enums_of_options_are_checked)
{
    for (size_t i = 0; i < sizeof MEMBERS / sizeof MEMBERS[0]; i++) {
        const struct enum_member *m = &MEMBERS[i];
        const row *r = find(m->function, strlen(m->function));
        uintptr_t v[MOST];
        const int before = *m->member;
        values_of(r, v);
        *m->member = WRONG;
        refused(r, v, "member", (int)i);
        *m->member = before;
    }
    base_o.precision = (kvf_precision)WRONG;
    ck_assert_int_eq(kvf_base_open(ctx, base, &base_o, &opened), KVF_EUSAGE);
    session_o.checkpoint = (kvf_checkpoint)WRONG;
    ck_assert_int_eq(kvf_session_open(ctx, base, NULL, &session_o, &session), KVF_EUSAGE);
}
END_TEST

START_TEST(the_callers_thread_count_stays)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (!ROWS[i].no_valid_call) call_rightly(&ROWS[i]);
    if (texts[0]) kvf_texts_free(texts, 1);
}
END_TEST

START_TEST(the_table_has_every_function)
{
    char line[256], name[128];
    FILE *map = fopen(ck_source("src/libkvfold.map"), "r");
    int n = 0;
    ck_assert_ptr_nonnull(map);
    while (fgets(line, sizeof line, map))
        if (sscanf(line, " kvf_%120[a-z0-9_];", name) == 1 && *name != '_') { /* no hook */
            char whole[140];
            snprintf(whole, sizeof whole, "kvf_%s", name);
            ck_assert_msg(find(whole, strlen(whole)) != NULL, "%s has no row", whole);
            n++;
        }
    fclose(map);
    ck_assert_int_eq(n, N_ROWS);
}
END_TEST

/* Another file that gets the descriptor of freed rows is not read through their path. */
START_TEST(freed_rows_have_no_file)
{
    kvf_rows *gone = NULL;
    char path[128];
    kvf_eval_result measured;
    ck_assert_int_eq(kvf_rows_create(ctx, &gone), KVF_OK);
    ck_assert_int_eq(kvf_rows_add_pair(ctx, gone, "w1:", " abc"), KVF_OK);
    snprintf(path, sizeof path, "%s", kvf_rows_path(gone));
    kvf_rows_free(gone);
    FILE *file = fopen(data, "r");
    kvf_eval_options o = {.data = path};
    ck_assert_int_eq(kvf_eval(ctx, opened, NULL, 0, &o, &measured), KVF_EIO);
    fclose(file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status_arguments");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, wrong_arguments_are_refused);
    tcase_add_test(core, enums_of_options_are_checked);
    tcase_add_test(core, the_callers_thread_count_stays);
    tcase_add_test(core, the_table_has_every_function);
    tcase_add_test(core, freed_rows_have_no_file);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}

/* --verbalizer: classes as words of a language model. Whole runs on a tiny BertForMaskedLM (weights
 * of tests/golden/masked_lm_bert.safetensors) and on a causal toy. Training learns without a head,
 * and a resumed run equals an unbroken one. Run and merged file answer alike, and unsupported cases
 * are refused. */
#include <kvfold/kvfold.h>

#include "toy_run.h"

#include <math.h>
#include <unistd.h>

static const char CONFIG[] =
    "{\"model_type\":\"bert\",\"vocab_size\":40,\"hidden_size\":12,\"intermediate_size\":16,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"max_position_embeddings\":24,"
    "\"hidden_act\":\"gelu_new\",\"layer_norm_eps\":1e-12}";
static const char PATTERN[] = "{p:2} {text} {p:2} [MASK]";

/* Five special tokens, letters, words: 40 in all. */
static void write_vocab(void)
{
    char text[512];
    size_t n = (size_t)snprintf(text, sizeof text, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    for (char c = 'a'; c <= 'z'; c++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%c\n", c);
    snprintf(text + n, sizeof text - n, "good\nbad\nfine\npoor\n##ish\nmovie\nit\nwas\nof\n");
    toy_write(base, "vocab.txt", text);
}

static void write_rows(void)
{
    char text[4096];
    size_t n = 0;
    for (int i = 0; i < 24; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "{\"text\": \"%c %s\", \"label\": \"%s\"}\n", 'a' + i,
                              i % 2 ? "movie movie movie" : "was was was", i % 2 ? "pos" : "neg");
    toy_write(dir, "train.jsonl", text);
}

static void setup(void)
{
    kvf_ctx_options options = {.threads = 2};
    char weights[600];
    dir = ck_tmpdir();
    toy_path(base, dir, "base");
    toy_path(data, dir, "train.jsonl");
    toy_path(out, dir, "run.h5");
    toy_path(other, dir, "other.h5");
    ck_assert_int_eq(mkdir(base, 0777), 0);
    snprintf(weights, sizeof weights, "%s/model.safetensors", base);
    ck_assert_int_eq(symlink(ck_source("tests/golden/masked_lm_bert.safetensors"), weights), 0);
    toy_write(base, "config.json", CONFIG);
    write_vocab();
    write_rows();
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static kvf_train_options options_for(const char *path, const char *method)
{
    kvf_train_options o = toy_run_options(path);
    o.valid = data;
    o.task = "seq-cls";
    o.method = method;
    o.p_template = PATTERN;
    o.verbalizer = "neg=bad,pos=good";
    o.lr = strcmp(method, "prompt") ? 0.01 : 0.3;
    o.prefix_length = 4;
    o.encoder_hidden = 16;
    o.steps = 8;
    o.batch_size = 8;
    o.eval_every = 4;
    return o;
}

static kvf_eval_result eval(const char *path)
{
    const kvf_session_options how = {.base.precision = KVF_PRECISION_F32,
                                     .checkpoint = KVF_CHECKPOINT_LAST};
    const kvf_eval_options options = {.data = data};
    kvf_eval_result result = {0};
    kvf_session *session = NULL;
    size_t n = 0;
    ck_assert_msg(!kvf_session_open(ctx, base, path, &how, &session), "%s", kvf_ctx_error(ctx));
    kvf_prefix *const *prefixes = kvf_session_prefixes(session, &n);
    ck_assert_msg(!kvf_eval(ctx, kvf_session_base(session), prefixes, n, &options, &result), "%s",
                  kvf_ctx_error(ctx));
    kvf_session_close(session);
    return result;
}

static const char *const METHODS[] = {"prompt", "p-tuning"};

/* Prefixes, multi-token classes, and training with the base: first on the masked base, then on a
 * causal one. */
static const struct {
    const char *method, *pattern, *verbalizer;
    bool causal, with_base;
} FORMS[] = {
    {"mlp", "{text} It was [MASK]", "neg=bad,pos=good", false, false},
    {"direct", "{text} It was [MASK]", "neg=bad,pos=good", false, false},
    {"direct", "{text} [MASK] movie", "neg=badish,pos=fine", false, false},
    {"prompt", "{p:2} {text} {p:2} [MASK]", "neg=badish,pos=fineish", false, false},
    {"p-tuning", PATTERN, "neg=bad,pos=good", false, true},
    {"p-tuning", PATTERN, "neg=badish,pos=good", false, true},
    {"mlp", "{text} is [MASK]", "neg=bad,pos=good", true, false},
    {"direct", "{text} is [MASK]", "neg=no,pos=wonderful", true, false},
    {"projected", "{text} is [MASK]", "neg=no,pos=yes", true, false},
    {"prompt", "{p:4} {text} is [MASK]", "neg=no,pos=yes", true, false},
    {"p-tuning", PATTERN, "neg=no,pos=wonderful", true, true},
};
enum { N_FORMS = sizeof FORMS / sizeof FORMS[0] };

static kvf_train_options form_options(int i, const char *path)
{
    kvf_train_options o = options_for(path, FORMS[i].method);
    static char causal[600];
    o.p_template = FORMS[i].pattern;
    o.verbalizer = FORMS[i].verbalizer;
    o.unfreeze_base = FORMS[i].with_base;
    if (!FORMS[i].causal) return o;
    toy_path(causal, dir, "causal");
    if (!kvf__exists(causal)) {
        ck_assert_int_eq(mkdir(causal, 0777), 0);
        toy_folder(causal, 5, 0);
    }
    strcpy(base, causal);
    return o;
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(words_are_learnt_and_folded)
{
    const kvf_merge_options fold = {.run = out, .out = other, .checkpoint = KVF_CHECKPOINT_LAST};
    kvf_merge_result folded;
    kvf_json *json = NULL;
    kvf_train_options o = options_for(out, METHODS[_i]);
    o.verbalizer = "neg=was,pos=movie";
    o.steps = 1;
    double before = train(&o).valid_loss;
    o.force = true;
    o.steps = o.eval_every = 150;
    double after = train(&o).valid_loss;
    ck_assert_msg(after < before && after < 0.6, "loss %g, at first %g", after, before);
    ck_assert_msg(!kvf_merge(ctx, &fold, &folded), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq(eval(out).loss, after);
    ck_assert_double_eq(eval(other).loss, after);
    ck_assert_str_eq(eval(other).scores[0].name, "accuracy");
    ck_assert_double_gt(eval(other).scores[0].value, 0.7);
    ck_assert_msg(!kvf_inspect(ctx, other, &json), "%s", kvf_ctx_error(ctx));
    const kvf_json *words = kvf_json_get(kvf_json_get(json, "attributes"), "words");
    ck_assert_uint_eq(kvf_json_size(words), 2);
    kvf_json_free(json);
}
END_TEST

START_TEST(forms_are_learnt_and_folded)
{
    char folded_base[512];
    kvf_merge_result folded;
    kvf_train_options o = form_options(_i, out);
    kvf_merge_options fold = {
        .run = out, .out = other, .base = base, .checkpoint = KVF_CHECKPOINT_LAST};
    o.steps = 1;
    double before = train(&o).valid_loss;
    o.force = true;
    o.steps = o.eval_every = 30;
    if (strcmp(o.method, "p-tuning") && strcmp(o.method, "prompt")) o.lr = 0.1;
    if (o.unfreeze_base) o.base_lr = 0.003;
    double after = train(&o).valid_loss;
    ck_assert_msg(after < before - 0.02, "loss %g, at first %g", after, before);
    ck_assert_double_eq(eval(out).loss, after);
    toy_path(folded_base, dir, "base.h5");
    if (o.unfreeze_base) fold.out_base = folded_base;
    if (!strcmp(o.method, "mlp")) fold.probe = data;
    ck_assert_msg(!kvf_merge(ctx, &fold, &folded), "%s", kvf_ctx_error(ctx));
    if (fold.probe) ck_assert_double_eq(folded.probe_max_abs_diff, 0);
    if (!o.unfreeze_base) {
        ck_assert_double_eq(eval(other).loss, after);
        return;
    }
    strcpy(base, folded_base);
    ck_assert_double_eq_tol(eval(other).loss, after, 1e-4 * after);
}
END_TEST

START_TEST(forms_resume)
{
    kvf_train_options whole = form_options(_i, out), part = form_options(_i, other);
    expect_resume_equals_no_stop(whole, part);
}
END_TEST

/* On a causal base, the probability of a class is that of its word as a completion of the row's
 * text, normalised over the classes. kvf_score computes it under the same prefix. */
START_TEST(classes_are_completions)
{
    static const char *const WORDS[] = {"no", "wonderful"};
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    char lines[8192], scored[512];
    size_t n = 0;
    int64_t shape[6];
    kvf_prefix *prefix = NULL, *as_lm = NULL;
    kvf_base *opened = NULL;
    kvf_predict_result answers;
    kvf_score_result scores;
    kvf_train_options o = form_options(7, out);
    train(&o);
    for (int i = 0; i < 24; i++)
        for (int c = 0; c < 2; c++)
            n += (size_t)snprintf(lines + n, sizeof lines - n,
                                  "{\"prompt\": \"%c %s is\", \"completion\": \" %s\"}\n", 'a' + i,
                                  i % 2 ? "movie movie movie" : "was was was", WORDS[c]);
    toy_write(dir, "scored.jsonl", lines);
    toy_path(scored, dir, "scored.jsonl");
    ck_assert_msg(!kvf_base_open(ctx, base, &exact, &opened), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf_prefix_open(ctx, out, KVF_CHECKPOINT_LAST, &prefix), KVF_OK);
    const float *kv = kvf_prefix_kv(prefix, shape);
    ck_assert_int_eq(
        kvf_prefix_from_array(ctx, opened, kv, shape, kvf_prefix_position_start(prefix), &as_lm),
        KVF_OK);
    const kvf_predict_options ask = {.eval.data = data};
    const kvf_score_options score = {.eval.data = scored};
    ck_assert_msg(!kvf_predict(ctx, opened, &prefix, 1, &ask, &answers), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_score(ctx, opened, as_lm, &score, &scores), "%s", kvf_ctx_error(ctx));
    ck_assert_uint_eq(answers.n, 24);
    ck_assert_uint_eq(scores.n, 48);
    ck_assert_uint_gt(scores.rows[1].n, 1); /* of several tokens */
    for (size_t i = 0; i < 24; i++) {
        double no = scores.rows[2 * i].loglikelihood, yes = scores.rows[2 * i + 1].loglikelihood;
        ck_assert_uint_eq(answers.rows[i].n, 2);
        ck_assert_double_eq_tol(answers.rows[i].probabilities[0], 1 / (1 + exp(yes - no)), 1e-5);
    }
    kvf_predict_result_done(&answers);
    kvf_score_result_done(&scores);
    kvf_prefix_free(prefix);
    kvf_prefix_free(as_lm);
    kvf_base_free(opened);
}
END_TEST

START_TEST(resumed_is_unbroken)
{
    expect_resume_equals_no_stop(options_for(out, METHODS[_i]), options_for(other, METHODS[_i]));
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *name, *value, *line;
} REFUSED[] = {
    {"verbalizer", "neg=badly,pos=good", "\"badly\" is not a word of the base's vocabulary"},
    {"verbalizer", "neg=badish,pos=badish", "\"badish\" and \"badish\" are the same tokens"},
    {"verbalizer", "neg=badish,neg=good", "label \"neg\" is given twice"},
    {"verbalizer", "neg=bad", "label \"pos\" of the data has no word"},
    {"verbalizer", "neg=bad,pos=good,x=fine", "no row of the data has the label \"x\""},
    {"verbalizer", "neg=bad,neg=good", "label \"neg\" is given twice"},
    {"verbalizer", "neg=bad,pos=bad", "\"bad\" and \"bad\" are one token"},
    {"verbalizer", "neg=bad,pos", "\"pos\", want label=word"},
    {"p-template", "{p:2} {text} {p:2}", "--p-template needs [MASK]"},
    {"method", "mlp", "without {p} for prefixes of --task seq-cls"},
    {"method", "adapter", "--verbalizer: not for method adapter"},
    {"task", "token-cls", "--p-template is for --task lm|seq-cls"},
    {"head-lr", "0.1", "--verbalizer: not with --head-lr"},
};

START_TEST(what_cannot_be_is_refused)
{
    kvf_train_options o = options_for(out, "p-tuning");
    kvf_train_result result;
    if (strcmp(REFUSED[_i].name, "verbalizer"))
        ck_assert_int_eq(kvf_train_set(ctx, &o, "verbalizer", "neg=bad,pos=good"), KVF_OK);
    ck_assert_msg(!kvf_train_set(ctx, &o, REFUSED[_i].name, REFUSED[_i].value), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_EUSAGE);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), REFUSED[_i].line), "%s", kvf_ctx_error(ctx));
}
END_TEST

/* A causal base with text after [MASK], or without a head to read it; and a masked base whose file
 * has no such head. */
START_TEST(bases_without_the_head_are_refused)
{
    kvf_train_options o = options_for(out, "prompt");
    kvf_train_result result;
    char path[600];
    snprintf(path, sizeof path, "%s/model.safetensors", base);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink(ck_source("tests/golden/model_bert/model.safetensors"), path), 0);
    snprintf(path, sizeof path, "%s/config.json", base);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink(ck_source("tests/golden/model_bert/config.json"), path), 0);
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_EUNSUPPORTED);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), "has no masked-language-model head"), "%s",
                  kvf_ctx_error(ctx));
    toy_path(path, dir, "causal");
    ck_assert_int_eq(mkdir(path, 0777), 0);
    toy_folder(path, 5, 0);
    o.base = path;
    o.p_template = "{p:4} {text} [MASK] of";
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_EUSAGE);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), "[MASK] must come last"), "%s", kvf_ctx_error(ctx));
    o.verbalizer = NULL;
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_EUSAGE);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), "the base has no mask token"), "%s",
                  kvf_ctx_error(ctx));
}
END_TEST

START_TEST(peft_has_no_form)
{
    kvf_train_options o = options_for(out, "prompt");
    const kvf_export_options options = {.path = out, .out = other, .format = KVF_EXPORT_PEFT};
    o.p_template = "{p:4} {text} [MASK]";
    train(&o);
    ck_assert_int_ne(kvf_export(ctx, &options), KVF_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verbalizer");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, toy_run_teardown);
    tcase_add_checked_fixture(errors, setup, toy_run_teardown);
    tcase_set_timeout(core, 180);
    tcase_set_timeout(errors, 60);
    tcase_add_loop_test(core, words_are_learnt_and_folded, 0, 2);
    tcase_add_loop_test(core, forms_are_learnt_and_folded, 0, N_FORMS);
    tcase_add_loop_test(core, forms_resume, 0, N_FORMS);
    tcase_add_test(core, classes_are_completions);
    tcase_add_loop_test(core, resumed_is_unbroken, 0, 2);
    tcase_add_loop_test(errors, what_cannot_be_is_refused, 0,
                        (int)(sizeof REFUSED / sizeof REFUSED[0]));
    tcase_add_test(errors, bases_without_the_head_are_refused);
    tcase_add_test(errors, peft_has_no_form);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}

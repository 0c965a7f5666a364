/* distill on the toy base: a document or a system prompt becomes a prefix. The prefix's held-out
 * loss lies between those of the bare base and of the base that reads the document. The run is an
 * ordinary run file, resumable bit for bit. Also tests refusals. */
#include <kvfold/distill.h>

#include "distill_int.h"
#include "toy_run.h"

#include <math.h>

static char document[512];

/* About 110 tokens: words of single letters. */
static void setup(void)
{
    char text[1024];
    size_t n = 0;
    toy_run_setup();
    toy_path(document, dir, "document.txt");
    for (int i = 0; i < 22; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%.*s%s", 2 + i % 5, &"qzqzkxqzk"[i % 4],
                              i % 10 == 9 ? ".\n" : " ");
    toy_write(dir, "document.txt", text);
}

static kvf_distill_options options(const char *path)
{
    kvf_distill_options o = kvf_distill_defaults();
    o.train = toy_run_options(path);
    o.train.data = o.train.valid = NULL;
    o.train.prefix_length = 8;
    o.document = document;
    o.self_study = 12;
    o.answer_tokens = 24;
    o.chunk = 32;
    o.top_k = 12;
    return o;
}

/* The toy base with a template that adds a system turn by default, and a system prompt. */
static kvf_distill_options system_options(const char *path)
{
    kvf_distill_options o = options(path);
    toy_write(base, "chat_template.jinja",
              "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' "
              "%}{{ '<|im_start|>system\nabc<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + "
              "message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
    toy_write(dir, "document.txt", "zqkxz qqzkx zxqkz qkzxq kzqxz\n");
    o.system_prompt = o.document;
    o.document = NULL;
    o.chunk = -1;
    return o;
}

static kvf_distill_result distill(const kvf_distill_options *o)
{
    kvf_distill_result result = {0};
    ck_assert_msg(!kvf_distill(ctx, o, &result), "%s", kvf_ctx_error(ctx));
    return result;
}

/* ---- core ------------------------------------------------------------------------------------ */

static void between(const kvf_distill_result *r)
{
    ck_assert_msg(r->loss_document < r->loss_prefix && r->loss_prefix < r->loss_base,
                  "bare %.4f, prefix %.4f, document %.4f", r->loss_base, r->loss_prefix,
                  r->loss_document);
    ck_assert_msg(r->kl_prefix > 0 && r->kl_prefix < 0.7 * r->kl_base,
                  "KL of the prefix %.4f, of the bare base %.4f", r->kl_prefix, r->kl_base);
}

static const char *const METHODS[] = {"direct", "mlp", "projected"};

START_TEST(loss_lies_between)
{
    kvf_distill_options o = options(out);
    o.train.steps = 40;
    o.train.eval_every = 40;
    o.self_study = 24;
    ck_assert(!kvf_train_set(ctx, &o.train, "method", METHODS[_i]));
    kvf_distill_result r = distill(&o);
    ck_assert_int_eq(r.prefix_length, 8);
    ck_assert_int_gt(r.document_tokens, 100);
    ck_assert_int_gt(r.held_out_rows, 1);
    between(&r);
}
END_TEST

/* Rows of a file, and of a held-out file: the merged prefix has the reported loss. */
START_TEST(run_folds_to_an_ordinary_prefix)
{
    kvf_distill_options o = options(out);
    const kvf_merge_options merge = {.run = out, .out = other};
    kvf_merge_result merged;
    kvf_base *loaded = NULL;
    kvf_prefix *prefix = NULL;
    kvf_eval_result eval;
    const kvf_base_options f32 = {.precision = KVF_PRECISION_F32};
    o.train.data = data;
    o.train.valid = valid;
    o.self_study = o.chunk = -1;
    kvf_distill_result r = distill(&o);
    ck_assert_int_eq(r.train.examples, 24);
    ck_assert_int_eq(r.held_out_rows, 6);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert(!kvf_base_open(ctx, base, &f32, &loaded));
    ck_assert(!kvf_prefix_open(ctx, other, KVF_CHECKPOINT_DEFAULT, &prefix));
    const kvf_eval_options how = {.data = valid};
    ck_assert_msg(!kvf_eval(ctx, loaded, &prefix, 1, &how, &eval), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq(eval.loss, r.loss_prefix);
    ck_assert(!kvf_eval(ctx, loaded, NULL, 0, &how, &eval));
    ck_assert_double_eq(eval.loss, r.loss_base);
    kvf_prefix_free(prefix);
    kvf_base_free(loaded);
}
END_TEST

/* The document as a prefix of all its tokens equals the document in context. */
START_TEST(whole_document_is_the_teacher)
{
    kvf_distill_options o = options(out);
    kvf_distill_result r = distill(&o);
    o.train.out = other;
    o.train.prefix_length = r.document_tokens;
    o.train.steps = 1;
    o.train.lr = 1e-12;
    r = distill(&o);
    ck_assert_double_eq_tol(r.loss_prefix, r.loss_document, 1e-6);
    ck_assert_double_le(fabs(r.kl_prefix), 1e-5);
    ck_assert_double_le(fabs(r.train.train_loss), 1e-5);
}
END_TEST

START_TEST(same_command_same_bytes)
{
    kvf_distill_options o = options(out);
    distill(&o);
    o.train.out = other;
    distill(&o);
    ck_assert(equal_files(out, other));
    o.train.seed = 1;
    o.train.force = true;
    distill(&o);
    ck_assert(!equal_files(out, other));
}
END_TEST

/* Options given when the run was made need not be repeated, except for the document. */
START_TEST(resume_equals_no_stop)
{
    kvf_distill_options o = options(out);
    o.temperature = 0.8;
    o.train.schedule_steps = 6;
    distill(&o);
    o.train.out = other;
    o.train.steps = 3;
    distill(&o);
    kvf_distill_options again = kvf_distill_defaults();
    again.document = document;
    again.train.base = base;
    again.train.out = other;
    again.train.resume = true;
    again.train.steps = 6;
    distill(&again);
    ck_assert(equal_files(out, other));
    kvf_distill_result r = distill(&again);
    ck_assert(r.train.finished_before);
    ck_assert(isfinite(r.loss_prefix));
}
END_TEST

/* Beside another prefix, which is not stored and is named again. The bytes repeat. A distractor of
 * another form is refused. */
START_TEST(distractors)
{
    static const char *paths[2];
    kvf_distill_options o = options(out);
    char folded[512];
    const kvf_merge_options merge = {.run = out, .out = folded, .force = true};
    kvf_merge_result merged;
    kvf_distill_result result;
    toy_path(folded, dir, "folded.h5");
    paths[0] = paths[1] = folded;
    distill(&o);
    ck_assert(!kvf_merge(ctx, &merge, &merged));
    o.distractors = paths;
    o.n_distractors = 2;
    o.train.out = folded;
    o.train.force = true;
    ck_assert_int_eq(kvf_distill(ctx, &o, &result), KVF_EUSAGE);
    o.train.out = other;
    o.train.schedule_steps = 6;
    distill(&o);
    ck_assert(!equal_files(out, other));
    o.train.out = out;
    o.train.steps = 3;
    distill(&o);
    o.train.force = false;
    o.train.resume = true;
    o.train.steps = 6;
    o.n_distractors = 1;
    ck_assert_int_eq(kvf_distill(ctx, &o, &result), KVF_EMISMATCH);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "a different data file"));
    o.n_distractors = 2;
    distill(&o);
    ck_assert(equal_files(out, other));

    o = options(out);
    o.train.force = true;
    ck_assert(!kvf_train_set(ctx, &o.train, "ffn-length", "3"));
    distill(&o);
    ck_assert(!kvf_merge(ctx, &merge, &merged));
    o.distractors = paths;
    o.n_distractors = 1;
    ck_assert_int_eq(kvf_distill(ctx, &o, &result), KVF_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "folded.h5: a distractor has keys and "));
    toy_write(dir, "folded.h5", "\x89HDF\r\n\x1a\n");
    ck_assert_int_eq(kvf_distill(ctx, &o, &result), KVF_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "folded.h5: "));
}
END_TEST

/* Without training steps, the prefix is nearer to the document than the bare base is, with text
 * after the document or after the prefix. The file's bytes repeat. Training then starts from
 * there. */
static const char *const STARTS[][2] = {
    {"seed", "0"}, {"position-start", "P"}, {"log-weight", "fixed"}};

START_TEST(start_by_matching)
{
    kvf_distill_options o = options(out);
    ck_assert(!kvf_train_set(ctx, &o.train, "init", "match"));
    ck_assert(!kvf_train_set(ctx, &o.train, "steps", "0"));
    ck_assert(!kvf_train_set(ctx, &o.train, STARTS[_i][0], STARTS[_i][1]));
    kvf_distill_result r = distill(&o);
    ck_assert_msg(r.kl_prefix < 0.7 * r.kl_base, "KL of the prefix %.4f, of the bare base %.4f",
                  r.kl_prefix, r.kl_base);
    o.train.out = other;
    distill(&o);
    ck_assert(equal_files(out, other));
    o = options(other);
    o.train.resume = true;
    ck_assert(!kvf_train_set(ctx, &o.train, "steps", "20"));
    const double at_start = r.kl_prefix;
    r = distill(&o);
    ck_assert_msg(r.kl_prefix < at_start, "KL %.4f, at the start %.4f", r.kl_prefix, at_start);
}
END_TEST

/* A prefix as long as the document answers as the document does. */
START_TEST(matching_all_of_it)
{
    kvf_distill_options o = options(out);
    ck_assert(!kvf_train_set(ctx, &o.train, "init", "match"));
    ck_assert(!kvf_train_set(ctx, &o.train, "steps", "0"));
    kvf_distill_result r = distill(&o);
    o.train.prefix_length = r.document_tokens;
    o.train.force = true;
    r = distill(&o);
    ck_assert_msg(r.kl_prefix < 0.05 * r.kl_base, "KL of the prefix %.4f, of the bare base %.4f",
                  r.kl_prefix, r.kl_base);
}
END_TEST

/* A document in windows, by option or because it is longer than the base's 300 positions. The
 * prefix is nearer to the windows than the bare base is, and training resumes. */
static const int64_t WINDOWS[] = {40, 0};

START_TEST(windows)
{
    kvf_distill_options o = options(out);
    char text[1024] = "";
    for (int i = 0; i < (WINDOWS[_i] ? 10 : 40); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s ", 4 + i % 6,
                 &"qzqzkxqzkab"[i % 3]);
    toy_write(dir, "document.txt", text);
    o.window = WINDOWS[_i];
    ck_assert(!kvf_train_set(ctx, &o.train, "init", "match"));
    ck_assert(!kvf_train_set(ctx, &o.train, "steps", "0"));
    kvf_distill_result r = distill(&o);
    ck_assert_int_gt(r.document_tokens, WINDOWS[_i] ? 40 : 200);
    ck_assert_msg(r.kl_prefix < 0.8 * r.kl_base, "KL of the prefix %.4f, of the bare base %.4f",
                  r.kl_prefix, r.kl_base);
    o = options(out);
    o.train.resume = true;
    ck_assert(!kvf_train_set(ctx, &o.train, "steps", "2"));
    distill(&o);
}
END_TEST

/* The prefix is nearer to the base with the prompt than the initial prefix is, with either model
 * generating and in both directions of the KL. It replaces the system turn, and its file records
 * the gain. */
static const struct {
    const char *kl;
    bool on_policy, from_file;
} POLICIES[] = {{NULL, false, false},
                {"reverse", false, true},
                {"forward", true, true},
                {"reverse", true, false}};

START_TEST(system_prompt)
{
    kvf_distill_options o = system_options(out);
    const kvf_merge_options merge = {.run = out, .out = other};
    kvf_merge_result merged;
    kvf_prefix *prefix = NULL;
    o.kl = POLICIES[_i].kl;
    o.on_policy = POLICIES[_i].on_policy;
    if (POLICIES[_i].from_file) o.train.data = o.train.valid = data;
    o.train.steps = 24;
    o.train.prefix_length = 4;
    kvf_distill_result r = distill(&o);
    ck_assert_msg(r.kl_prefix > 0 && r.kl_prefix < 0.9 * r.kl_start && r.kl_prefix < r.kl_base,
                  "KL %.4f, at the start %.4f, bare %.4f", r.kl_prefix, r.kl_start, r.kl_base);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert(!kvf_prefix_open(ctx, other, KVF_CHECKPOINT_DEFAULT, &prefix));
    const kvf_json *lineage = prefix->file.lineage;
    ck_assert_str_eq(prefix->file.id.chat_template, "no-system");
    ck_assert_double_eq(kvf_json_real(kvf_json_get(lineage, "kl_prefix"), 0), r.kl_prefix);
    ck_assert_double_eq(kvf_json_real(kvf_json_get(lineage, "kl_start"), 0), r.kl_start);
    kvf_prefix_free(prefix);
}
END_TEST

/* The document is the text that the base's own template puts before the first user turn; rows
 * continue from there. */
START_TEST(system_prompt_is_the_templates)
{
    kvf_distill_options o = system_options(out);
    const kvf__message turns[] = {{"system", "zqkxz qqzkx zxqkz qkzxq kzqxz", 0, false},
                                  {"user", "abc", 0, false}};
    kvf__renderer own, apart;
    kvf__document read;
    kvf__ids whole = {0};
    kvf_base *opened = open_base();
    ck_assert(!kvf__renderer_init(ctx, opened, "auto", NULL, &own));
    ck_assert(!kvf__renderer_init(ctx, opened, "no-system", NULL, &apart));
    ck_assert(!kvf__document_open(ctx, opened, o.system_prompt, true, 0, &apart.render, &read));
    ck_assert(!kvf__render_chat(ctx, &own.render, turns, 2, &whole));
    ck_assert(!kvf__render_prompt(ctx, &apart.render, "abc", 3, &read.ids));
    ck_assert_uint_eq(read.ids.n, whole.n);
    ck_assert_mem_eq(read.ids.data, whole.data, whole.n * sizeof *whole.data);
    kvf__ids_done(&whole);
    kvf__document_done(&read);
    kvf__renderer_done(&own);
    kvf__renderer_done(&apart);
    kvf_base_free(opened);
}
END_TEST

START_TEST(system_prompt_resumes_to_the_bit)
{
    kvf_distill_options o = system_options(out);
    o.on_policy = _i;
    o.kl = "reverse";
    o.train.schedule_steps = 6;
    kvf_distill_options again = o;
    distill(&o);
    o.train.out = other;
    o.train.steps = 3;
    distill(&o);
    again = kvf_distill_defaults();
    again.system_prompt = o.system_prompt;
    again.train.base = base;
    again.train.out = other;
    again.train.resume = true;
    again.train.steps = 6;
    const kvf_distill_result r = distill(&again);
    ck_assert(equal_files(out, other));
    ck_assert(isfinite(r.kl_start));
    ck_assert(distill(&again).train.finished_before);
    ck_assert(equal_files(out, other));
}
END_TEST

START_TEST(dry_run_writes_nothing)
{
    kvf_distill_options o = options(out);
    o.train.dry_run = true;
    kvf_distill_result r = distill(&o);
    ck_assert(isnan(r.loss_prefix));
    ck_assert(!kvf__exists(out));
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static void refuse(const kvf_distill_options *o, kvf_status want, const char *part)
{
    kvf_distill_result result;
    kvf_status st = kvf_distill(ctx, o, &result);
    ck_assert_msg(st == want && strstr(kvf_ctx_error(ctx), part),
                  "status %s, line \"%s\", want %s and \"%s\"", kvf_status_name(st),
                  kvf_ctx_error(ctx), kvf_status_name(want), part);
    ck_assert(!kvf__exists(out));
}

static const struct {
    const char *option, *value, *part;
} OPTIONS[] = {
    {"method", "prompt", "distill trains keys and values only"},
    {"method", "full", "distill trains keys and values only"},
    {"task", "seq-cls", "--task: "},
    {"train-head", "true", "--train-head: "},
    {"infix", "true", "--infix: "},
    {"prefix-length", "250", "the document has only"},
    {"max-length", "299", "fit after the document"},
};

START_TEST(what_it_refuses)
{
    kvf_distill_options o = options(out);
    ck_assert(!kvf_train_set(ctx, &o.train, OPTIONS[_i].option, OPTIONS[_i].value));
    refuse(&o, KVF_EUSAGE, OPTIONS[_i].part);
}
END_TEST

START_TEST(documents_that_are_none)
{
    static const char *const TEXTS[] = {"", " \n\t\n"};
    kvf_distill_options o = options(out);
    char text[400];
    for (int i = 0; i < 2; i++) {
        toy_write(dir, "document.txt", TEXTS[i]);
        refuse(&o, KVF_EDATA, "the document is empty");
    }
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 0;
    toy_write(dir, "document.txt", text);
    o.window = 295;
    refuse(&o, KVF_ESHAPE, "windows of 295 tokens leave 5 of the model's positions");
    o.window = 3;
    refuse(&o, KVF_EUSAGE, "--window 3: want 4 or more");
    o.window = 0;
    o.document = NULL;
    refuse(&o, KVF_EUSAGE, "--document or --system-prompt is needed");
    o.document = "nowhere.txt";
    refuse(&o, KVF_EIO, "nowhere.txt");
}
END_TEST

START_TEST(distractors_that_are_none)
{
    static const char *many[65] = {"nowhere.txt"};
    kvf_distill_options o = options(out);
    o.distractors = many;
    o.n_distractors = 1;
    refuse(&o, KVF_EIO, "nowhere.txt");
    o.n_distractors = 65;
    refuse(&o, KVF_EUSAGE, "--distractor: 65 files, want at most 64");
    o.n_distractors = 2;
    many[0] = data;
    refuse(&o, KVF_EUSAGE, "distractors: file 2 is NULL");
    o.n_distractors = 1;
    refuse(&o, KVF_EFORMAT, "train.jsonl");
    ck_assert(!kvf_train_set(ctx, &o.train, "steps", "0"));
    refuse(&o, KVF_EUSAGE, "--distractor needs steps");
    o = system_options(out);
    o.distractors = many;
    o.n_distractors = 1;
    refuse(&o, KVF_EUSAGE, "--distractor is for documents, not --system-prompt");
}
END_TEST

START_TEST(system_prompts_that_are_none)
{
    kvf_distill_options good = system_options(out), o = good;
    o.document = o.system_prompt;
    refuse(&o, KVF_EUSAGE, "--document is for documents, not --system-prompt");
    o = good;
    o.chunk = 8;
    refuse(&o, KVF_EUSAGE, "--chunk is for documents");
    o = good;
    o.kl = "sideways";
    refuse(&o, KVF_EUSAGE, "--kl sideways: want forward or reverse");
    o = good;
    o.answer_tokens = 290;
    refuse(&o, KVF_EUSAGE, "--answer-tokens 290: leaves none of");
    o = good;
    ck_assert(!kvf_train_set(ctx, &o.train, "chat-template", "chatml"));
    refuse(&o, KVF_EUSAGE, "--chat-template chatml: ");
    o = options(out);
    o.on_policy = true;
    refuse(&o, KVF_EUSAGE, "--on-policy needs --system-prompt");
    toy_write(dir, "document.txt", "\n");
    refuse(&good, KVF_EDATA, "the document is empty");
    toy_write(dir, "document.txt", "zqkxz");
    toy_write(dir, "train.jsonl",
              "{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", "
              "\"content\": \"b\"}]}\n");
    o = good;
    o.train.data = data;
    refuse(&o, KVF_EDATA, "the prefix already replaces the system turn");
    toy_write(base, "chat_template.jinja", "");
    refuse(&good, KVF_EUNSUPPORTED, "chat template");
}
END_TEST

START_TEST(nothing_to_learn_from)
{
    kvf_distill_options o = options(out);
    o.self_study = o.chunk = 0;
    refuse(&o, KVF_EDATA, "0 training rows");
    o.top_k = 61;
    o.chunk = 32;
    refuse(&o, KVF_ESHAPE, "--top-k 61 of a vocabulary of 61");
}
END_TEST

/* Another document, or another number of its items, gives another run. */
START_TEST(resume_of_another_document)
{
    kvf_distill_options o = options(out);
    kvf_distill_result result;
    distill(&o);
    o.train.resume = true;
    o.train.steps = 7;
    toy_write(dir, "document.txt", "another text altogether, of some length to be sure");
    ck_assert_int_eq(kvf_distill(ctx, &o, &result), KVF_EMISMATCH);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "a different data file"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("distill");
    TCase *cases = tcase_create("core");
    tcase_add_checked_fixture(cases, setup, toy_run_teardown);
    tcase_set_timeout(cases, 100);
    tcase_add_loop_test(cases, loss_lies_between, 0, 3);
    tcase_add_test(cases, run_folds_to_an_ordinary_prefix);
    tcase_add_test(cases, whole_document_is_the_teacher);
    tcase_add_test(cases, same_command_same_bytes);
    tcase_add_test(cases, resume_equals_no_stop);
    tcase_add_test(cases, distractors);
    tcase_add_loop_test(cases, start_by_matching, 0, 3);
    tcase_add_test(cases, matching_all_of_it);
    tcase_add_loop_test(cases, windows, 0, 2);
    tcase_add_loop_test(cases, system_prompt, 0, 4);
    tcase_add_test(cases, system_prompt_is_the_templates);
    tcase_add_loop_test(cases, system_prompt_resumes_to_the_bit, 0, 2);
    tcase_add_test(cases, dry_run_writes_nothing);
    suite_add_tcase(suite, cases);
    cases = tcase_create("errors");
    tcase_add_checked_fixture(cases, setup, toy_run_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, what_it_refuses, 0, sizeof OPTIONS / sizeof OPTIONS[0]);
    tcase_add_test(cases, documents_that_are_none);
    tcase_add_test(cases, distractors_that_are_none);
    tcase_add_test(cases, system_prompts_that_are_none);
    tcase_add_test(cases, nothing_to_learn_from);
    tcase_add_test(cases, resume_of_another_document);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}

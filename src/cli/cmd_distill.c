/* kvfold distill. Most options are those of train. */
#include "cli_progress.h"

#include <math.h>
#include <stddef.h>

typedef struct distill_values {
    kvf_distill_options options;
    kvf__strings distractors;
} distill_values;

#define AT(field) offsetof(distill_values, options.field)
static const kvf__option_row OPTIONS[] = {
    {"document", "FILE", "", KVF_TEXT, AT(document),
     "document that the prefix replaces, UTF-8 "
     "text"},
    {"system-prompt", "FILE", "", KVF_TEXT, AT(system_prompt),
     "instead of a document: file with the system turn that the prefix replaces, in the base's "
     "chat template; user turns come from --data or are written by the base, and answers from "
     "the base with the prompt"},
    {"distractor", "FILE", "", KVF_TEXTS, offsetof(distill_values, distractors),
     "prefix of another document; in every other step rows read all distractors beside the prefix, "
     "as after compose --mode parallel; repeatable"},
    {"on-policy", NULL, "", KVF_FLAG, AT(on_policy),
     "--system-prompt: train on answers of the student, generated anew for every step"},
    {"kl", "forward|reverse", "forward", KVF_WORD, AT(kl),
     "loss of a step; forward: KL(teacher || student)"},
    {"window", "N", "all, or half of the base's positions", KVF_POSITIVE, AT(window),
     "window size in document tokens; consecutive windows overlap by 25 %"},
    {"self-study", "N", "96; with --data 0", KVF_COUNT, AT(self_study),
     "number of prompts that the base answers with the document in context, as training rows"},
    {"answer-tokens", "N", "64", KVF_POSITIVE, AT(answer_tokens), "longest such answer in tokens"},
    {"temperature", "X", "1", KVF_REAL, AT(temperature),
     "sampling temperature of the answers; "
     "0: greedy"},
    {"chunk", "N", "128; with --data or --system-prompt 0", KVF_COUNT, AT(chunk),
     "tokens in each piece of the document that becomes a row; 0: no pieces"},
    {"top-k", "N", "20", KVF_POSITIVE, AT(top_k),
     "teacher's likeliest tokens kept at each label; the rest is one more bucket"},
    CLI_VERBOSE,
};

enum { LEAST_ROWS = 4 }; /* with fewer held-out rows a share is noise */

/* Returns the prefix's share of the loss reduction by the document in context. */
static double share(const kvf_distill_result *r)
{
    return (r->loss_base - r->loss_prefix) / (r->loss_base - r->loss_document);
}

static int print_json(const cli_call *call, const kvf_distill_result *r, kvf_json *object)
{
    kvf__json_put(object, "document_tokens:I prefix_length:I held_out_rows:I", r->document_tokens,
                  r->prefix_length, r->held_out_rows);
    kvf__json_put(object, "held_out_label_tokens:I teacher_seconds:f", r->held_out_labels,
                  r->teacher_seconds);
    kvf__json_put(object, "loss_base:f loss_prefix:f loss_document:f kl_base:f kl_prefix:f",
                  r->loss_base, r->loss_prefix, r->loss_document, r->kl_base, r->kl_prefix);
    if (!isnan(r->kl_start)) kvf__json_put(object, "kl_start:f", r->kl_start);
    return cli_print_json(call, object);
}

static void print_text(const kvf_distill_result *r, const char *what)
{
    printf("%s of %lld tokens, prefix of %lld; held out: %lld rows with %lld label tokens\n", what,
           (long long)r->document_tokens, (long long)r->prefix_length, (long long)r->held_out_rows,
           (long long)r->held_out_labels);
    if (isnan(r->loss_base)) return;
    printf("held-out loss: %.4f bare, %.4f with the prefix, %.4f with the %s", r->loss_base,
           r->loss_prefix, r->loss_document, what);
    if (r->held_out_rows < LEAST_ROWS)
        printf(" (%lld row%s: too few to judge)\n", (long long)r->held_out_rows,
               r->held_out_rows == 1 ? "" : "s");
    else if (r->loss_document < r->loss_base)
        printf(" (%.0f %% of the way)\n", 100 * share(r));
    else
        printf(" (which does not lower it)\n");
    printf("KL to the base that reads the %s: %.4f bare, ", what, r->kl_base);
    if (!isnan(r->kl_start)) printf("%.4f at the start, ", r->kl_start);
    printf("%.4f with the prefix\n", r->kl_prefix);
}

static int distill(cli_call *call, kvf_distill_options *options, cli_watcher *w)
{
    kvf_distill_result result;
    int code = CLI_OK;
    kvf_status st = kvf_distill(call->ctx, options, &result);
    cli_progress_clear(&w->progress);
    if (st && st != KVF_ESTOPPED) return cli_fail_status(call, st);
    if (w->notes) {
        code = print_json(call, &result, cli_train_json(&result.train, &options->train, w));
    } else {
        cli_train_text(&result.train, &options->train, w->progress.steps, stdout);
        print_text(&result, options->system_prompt ? "system prompt" : "document");
    }
    return st == KVF_ESTOPPED ? cli_stopped(call, cli_stop_signal()) : code;
}

static int run(cli_call *call)
{
    distill_values values = {.options = kvf_distill_defaults()};
    kvf_distill_options *options = &values.options;
    cli_watcher w = {.progress = cli_progress_make(&call->common), .to = stdout};
    int code = cli_set_values(call, &values);
    if (code) return code;
    options->distractors = values.distractors.item;
    options->n_distractors = values.distractors.n;
    code = cli_watch_begin(call, &options->train, &w);
    if (!code) code = distill(call, options, &w);
    kvf_json_free(w.notes);
    return code;
}

const cli_command cli_distill = {
    .name = "distill",
    .group = CLI_TRAIN,
    .synopsis = "--base PATH --document FILE --out RUN.h5 [options]",
    .summary = "Compresses a document or system prompt into a prefix with the same effect.",
    .notes = "Rows are generated from the document: pieces of it, and the base's answers to "
             "questions that it asks about some of the words. The teacher is the base with the "
             "document in context, the student the base with the prefix. The loss is KL(teacher "
             "|| student) over the teacher's likeliest tokens. At the end the loss on held-out "
             "rows is printed for the bare base, the prefix and the document. The result is an "
             "ordinary run file: use merge to fold it, or --resume with the same document to "
             "continue.\n\n"
             "A system prompt (--system-prompt) is a turn of the base's chat template. "
             "Its rows, and later prompts for the prefix, use the template no-system, which "
             "omits the system turn and the default one of the template.\n",
    .usual = "what the prefix replaces: base document system-prompt out\n"
             "rows: data valid self-study answer-tokens chunk window distractor\n"
             "run: prefix-length init steps lr batch-size eval-every resume dry-run seed "
             "precision threads help\n",
    .examples = "  kvfold distill --base MODEL --document manual.txt --prefix-length 64 \\\n"
                "      --init match --steps 60 --out run.h5\n"
                "  kvfold distill --base MODEL --system-prompt system.txt --init match \\\n"
                "      --self-study 64 --steps 0 --out run.h5\n",
    .required = "base out",
    .train_row = kvf__distill_option_row,
    .train_offset = AT(train),
    CLI_ROWS(OPTIONS),
    .run = run,
};

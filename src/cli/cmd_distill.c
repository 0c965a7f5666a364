/* kvfold distill. Most options are train's: they go to the library by their names, with the
 * defaults that a distillation has. */
#include "cli_int.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define AT(field) offsetof(kvf_distill_options, field)
static const cli_option OPTIONS[] = {
    {{"document", "FILE", "", "the text that the prefix shall stand for, UTF-8"},
     CLI_TEXT,
     AT(document)},
    {{"self-study", "N", "96; with --data 0",
      "prompts that the base answers with the document in context, as rows"},
     CLI_COUNT,
     AT(self_study)},
    {{"answer-tokens", "N", "64", "longest such answer"}, CLI_POSITIVE, AT(answer_tokens)},
    {{"temperature", "X", "1", "at which answers are drawn; 0: greedy"}, CLI_REAL, AT(temperature)},
    {{"chunk", "N", "128; with --data 0",
      "tokens of the pieces of the document that are rows too; 0: none"},
     CLI_COUNT,
     AT(chunk)},
    {{"top-k", "N", "20", "items of the teacher at each label; the rest is one more bucket"},
     CLI_POSITIVE,
     AT(top_k)},
    /* train's, by name */
    {{"base", "PATH", "", "base model: Hugging Face folder, GGUF or base file"}, CLI_TEXT, 0},
    {{"data", "FILE", "", "rows about the document, in place of those made from it"}, CLI_TEXT, 0},
    {{"valid", "FILE", "one row in eight", "held-out rows to measure by"}, CLI_TEXT, 0},
    {{"out", "RUN.h5", "", "run file to write"}, CLI_TEXT, 0},
    {{"resume", NULL, "", "continue the run file named by --out"}, CLI_FLAG, 0},
    {{"force", NULL, "", "replace an existing output"}, CLI_FLAG, 0},
    {{"dry-run", NULL, "", "make the rows, say what would be done, and stop"}, CLI_FLAG, 0},
    {{"method", "direct|mlp|projected", "direct", "what emits the prefix"}, CLI_TEXT, 0},
    {{"prefix-length", "N", "20", "virtual tokens P"}, CLI_TEXT, 0},
    {{"encoder-hidden", "N", "512", "hidden width M of the encoder: mlp"}, CLI_TEXT, 0},
    {{"init", "vocab|random|zero|text|kv", "the document's first P tokens",
      "starting prefix, as train has it"},
     CLI_TEXT,
     0},
    {{"init-text", "TEXT", "", "text for --init text"}, CLI_TEXT, 0},
    {{"init-kv", "FILE", "", "prefix file for --init kv"}, CLI_TEXT, 0},
    {{"init-from", "FILE", "", "weights of a run or prefix file, without its optimizer"},
     CLI_TEXT,
     0},
    {{"approximate", NULL, "",
      "start from what the encoder comes nearest to, even if that misses by more than 0.01"},
     CLI_FLAG,
     0},
    {{"position-start", "P|N", "P", "position of a row's first token behind the prefix"},
     CLI_TEXT,
     0},
    {{"steps", "N", "200", "optimizer steps, counted from the start"}, CLI_TEXT, 0},
    {{"epochs", "N", "off", "passes over the rows, instead of --steps"}, CLI_TEXT, 0},
    {{"lr", "X", "0.03", "learning rate"}, CLI_TEXT, 0},
    {{"schedule", "linear|cosine|constant", "linear", "learning rate over time"}, CLI_TEXT, 0},
    {{"warmup", "N|N%", "5%", "steps of warmup"}, CLI_TEXT, 0},
    {{"batch-size", "N", "8", "rows per step"}, CLI_TEXT, 0},
    {{"grad-accum", "N", "1", "parts in which a step's rows are computed, to save memory"},
     CLI_TEXT,
     0},
    {{"max-length", "N", "what fits", "longest row in tokens"}, CLI_TEXT, 0},
    {{"overlong", "stop|truncate|truncate-end|skip", "stop", "what to do with longer rows"},
     CLI_TEXT,
     0},
    {{"format", CLI_FORMATS, "auto", "of the data files; auto: by name and content"}, CLI_TEXT, 0},
    {{"map", "OURS=THEIRS,...", "", "foreign field names: prompt=question,completion=answer"},
     CLI_TEXT,
     0},
    {{"chat-template", "auto|none|chatml|llama3|mistral", "auto",
      "auto: for messages only; named: wraps prompts too"},
     CLI_TEXT,
     0},
    {{"eval-every", "N", "epoch", "steps between validations"}, CLI_TEXT, 0},
    {{"save-every", "N", "epoch", "steps between saves"}, CLI_TEXT, 0},
    {{"early-stop", "N", "off", "stop after N validations without a better one"}, CLI_TEXT, 0},
    {{"meter", "FILE", "", "text that the prefix is not meant to change, as train has it"},
     CLI_TEXT,
     0},
    {{"kl-to-base", "X", "0", "adds X times KL(base || with the prefix) on that text to the loss"},
     CLI_TEXT,
     0},
    {{"precision", "auto|f32|bf16", "auto", "auto: bf16 where the CPU's flags say it is faster"},
     CLI_TEXT,
     0},
    {{"seed", "N", "0", "of prompts, answers, initialisation and order"}, CLI_TEXT, 0},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0], N_OWN = 6 };

static bool is_own(const char *name)
{
    for (size_t i = 0; i < N_OWN; i++)
        if (!strcmp(OPTIONS[i].row.name, name)) return true;
    return false;
}

static bool is_train(const char *name)
{
    for (size_t i = N_OWN; i < N_OPTIONS; i++)
        if (!strcmp(OPTIONS[i].row.name, name)) return true;
    return false;
}

static int set_train(cli_call *call, kvf_train_options *options)
{
    for (size_t i = 0; i < call->n_given; i++) {
        const cli_given *given = &call->given[i];
        if (is_own(given->name) || !is_train(given->name)) continue;
        if (kvf_train_set(call->ctx, options, given->name, given->value))
            return cli_misuse_at(call->command, given, kvf_ctx_error(call->ctx));
    }
    return CLI_OK;
}

/* How much of what the document gives the prefix gives. */
static double share(const kvf_distill_result *r)
{
    return (r->loss_base - r->loss_prefix) / (r->loss_base - r->loss_document);
}

static int print_json(const cli_call *call, const kvf_distill_result *r, kvf_json *object)
{
    kvf_json_set(object, "document_tokens", kvf_json_new_int(r->document_tokens));
    kvf_json_set(object, "prefix_length", kvf_json_new_int(r->prefix_length));
    kvf_json_set(object, "held_out_rows", kvf_json_new_int(r->held_out_rows));
    kvf_json_set(object, "held_out_label_tokens", kvf_json_new_int(r->held_out_labels));
    kvf_json_set(object, "teacher_seconds", kvf_json_new_real(r->teacher_seconds));
    kvf_json_set(object, "loss_base", kvf_json_new_real(r->loss_base));
    kvf_json_set(object, "loss_prefix", kvf_json_new_real(r->loss_prefix));
    kvf_json_set(object, "loss_document", kvf_json_new_real(r->loss_document));
    kvf_json_set(object, "kl_base", kvf_json_new_real(r->kl_base));
    kvf_json_set(object, "kl_prefix", kvf_json_new_real(r->kl_prefix));
    return cli_print_json(call, object);
}

static void print_text(const kvf_distill_result *r)
{
    printf("document of %lld tokens, prefix of %lld; held out: %lld rows with %lld label tokens\n",
           (long long)r->document_tokens, (long long)r->prefix_length, (long long)r->held_out_rows,
           (long long)r->held_out_labels);
    if (isnan(r->loss_base)) return;
    printf("held-out loss: %.4f bare, %.4f with the prefix, %.4f with the document (%.0f %% of the "
           "way)\n",
           r->loss_base, r->loss_prefix, r->loss_document, 100 * share(r));
    printf("KL to the base that reads the document: %.4f bare, %.4f with the prefix\n", r->kl_base,
           r->kl_prefix);
}

static int distill(cli_call *call, kvf_distill_options *options, cli_watcher *w)
{
    kvf_distill_result result;
    int code = CLI_OK;
    options->train.stop = cli_stop_install();
    options->train.event = cli_watch;
    options->train.event_user = w;
    kvf_status st = kvf_distill(call->ctx, options, &result);
    cli_progress_clear(&w->progress);
    if (st && st != KVF_ESTOPPED) return cli_fail_status(call, st);
    if (w->notes) {
        code = print_json(call, &result, cli_train_json(&result.train, &options->train, w));
    } else {
        cli_train_text(&result.train, &options->train, w->progress.steps, stdout);
        print_text(&result);
    }
    return st == KVF_ESTOPPED ? cli_stopped(call, cli_stop_signal()) : code;
}

static int run(cli_call *call)
{
    kvf_distill_options options = kvf_distill_defaults();
    cli_watcher w = {.progress = cli_progress_make(&call->common), .to = stdout};
    int code = cli_set_values(call, OPTIONS, N_OWN, &options);
    if (!code) code = set_train(call, &options.train);
    if (code) return code;
    if (call->common.json) w.notes = kvf_json_array();
    if (call->common.json && !w.notes) return cli_fail(call->command, "out of memory");
    code = distill(call, &options, &w);
    kvf_json_free(w.notes);
    return code;
}

const cli_command cli_distill = {
    .name = "distill",
    .group = CLI_TRAIN,
    .synopsis = "--base PATH --document FILE --out RUN.h5 [options]",
    .summary = "Compresses a document into a prefix that answers as if it had been read.",
    .notes = "Rows are made of the document: pieces of it, questions that the base asks about\n"
             "some of its words, and the base's answers. The teacher is the base with the\n"
             "document in context, the student the base with the prefix; the loss is\n"
             "KL(teacher || student) over the teacher's likeliest items. At the end the loss\n"
             "on held-out rows: of the bare base, with the prefix, with the document. The run\n"
             "file is one of train's: merge folds it.\n",
    .required = "base document out",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .run = run,
};

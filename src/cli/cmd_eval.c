/* kvfold eval. */
#include "cli_int.h"

#include <stddef.h>

typedef struct values {
    cli_model_paths paths;
    const char *data, *overlong, *chat_template, *map;
    int64_t max_length;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"base", "PATH", "", "base model: Hugging Face folder or GGUF file"},
     CLI_TEXT,
     AT(paths.base)},
    {{"data", "FILE", "", "data to measure on, JSONL"}, CLI_TEXT, AT(data)},
    {{"prefix", "FILE", "",
      "prefix or run file; given more than once, their probabilities are averaged; without it: the "
      "bare base"},
     CLI_TEXTS,
     AT(paths.prefixes)},
    {{"checkpoint", "best|last", "best if there is one", "state of a run file"},
     CLI_CHOICE,
     AT(paths.checkpoint)},
    {{"allow-other-base", NULL, "", "accept a prefix made for another base of the same shape"},
     CLI_FLAG,
     AT(paths.allow_other_base)},
    {{"max-length", "N", "the model's", "longest row in tokens"}, CLI_COUNT, AT(max_length)},
    {{"overlong", "stop|truncate|skip", "stop", "what to do with longer rows"},
     CLI_CHOICE,
     AT(overlong)},
    {{"chat-template", "auto|none|chatml|llama3|mistral", "the prefix's", "how rows are rendered"},
     CLI_CHOICE,
     AT(chat_template)},
    {{"map", "OURS=THEIRS,...", "", "foreign field names: prompt=question,completion=answer"},
     CLI_TEXT,
     AT(map)},
    {{"precision", "auto|f32|bf16", "auto", "auto: bf16 where a probe finds it 1.25x faster"},
     CLI_CHOICE,
     AT(paths.precision)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static int print_json(const cli_call *call, const kvf_eval_result *r)
{
    kvf_json *object = kvf_json_object();
    kvf_json_set(object, "loss", kvf_json_new_real(r->loss));
    kvf_json_set(object, "perplexity", kvf_json_new_real(r->perplexity));
    kvf_json_set(object, "label_tokens", kvf_json_new_int(r->label_tokens));
    kvf_json_set(object, "examples", kvf_json_new_int(r->examples));
    kvf_json_set(object, "skipped", kvf_json_new_int(r->skipped));
    kvf_json_set(object, "seconds", kvf_json_new_real(r->seconds));
    return cli_print_json(call, object);
}

static void print_text(const kvf_eval_result *r)
{
    printf("loss %.6f, perplexity %.4f\n", r->loss, r->perplexity);
    printf("%lld label tokens in %lld examples", (long long)r->label_tokens,
           (long long)r->examples);
    if (r->skipped) printf(", %lld skipped", (long long)r->skipped);
    printf(", %.1f s\n", r->seconds);
}

static int measure(cli_call *call, const values *v)
{
    const kvf_eval_options options = {.data = v->data,
                                      .max_length = v->max_length,
                                      .overlong = v->overlong,
                                      .chat_template = v->chat_template,
                                      .map = v->map};
    cli_model model;
    kvf_eval_result result;
    int code = cli_model_open(call, &v->paths, &model);
    if (code) return code;
    kvf_status st = kvf_eval(call->ctx, model.base, model.prefixes, model.n, &options, &result);
    cli_model_close(&model);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) return print_json(call, &result);
    print_text(&result);
    return CLI_OK;
}

static int run(cli_call *call)
{
    values v = {0};
    if (!cli_texts_init(call, &v.paths.prefixes)) return CLI_FAILED;
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (!code) code = measure(call, &v);
    cli_texts_done(&v.paths.prefixes);
    return code;
}

const cli_command cli_eval = {
    .name = "eval",
    .synopsis = "--base PATH [--prefix FILE] --data FILE [options]",
    .summary = "Measures loss and perplexity of a base with or without a prefix.",
    .required = "base data",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .run = run,
};

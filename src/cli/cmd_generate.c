/* kvfold generate. A single prompt is printed as it comes where a person looks at it; the text on
 * stdout is the same either way. */
#include "cli_int.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct values {
    cli_model_paths paths;
    cli_texts stop;
    const char *prompt, *data, *chat_template, *map;
    int64_t max_tokens, top_k, batch_size;
    double temperature, top_p;
    uint64_t seed;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"base", "PATH", "", "base model: Hugging Face folder, GGUF or base file"},
     CLI_TEXT,
     AT(paths.base)},
    {{"prefix", "FILE", "",
      "prefix or run file; given more than once, their probabilities are averaged; without it: "
      "the bare base"},
     CLI_TEXTS,
     AT(paths.prefixes)},
    {{"prompt", "TEXT", "", "text to complete; -: standard input, without its last line end"},
     CLI_TEXT,
     AT(prompt)},
    {{"data", "FILE", "", "JSONL file: completes the prompt of every row; -: standard input"},
     CLI_TEXT,
     AT(data)},
    {{"max-tokens", "N", "64", "most new tokens"}, CLI_COUNT, AT(max_tokens)},
    {{"temperature", "X", "0", "0: always the likeliest token"}, CLI_REAL, AT(temperature)},
    {{"top-k", "N", "0", "draw from the N likeliest tokens only; 0: from all"},
     CLI_COUNT,
     AT(top_k)},
    {{"top-p", "X", "1", "draw from the likeliest tokens that together reach this probability"},
     CLI_REAL,
     AT(top_p)},
    {{"stop", "TEXT", "",
      "text that ends a completion and is left out; may be given more than once"},
     CLI_TEXTS,
     AT(stop)},
    {{"seed", "N", "0", "of the draws"}, CLI_SEED, AT(seed)},
    {{"chat-template", "auto|none|chatml|llama3|mistral", "the prefix's",
      "how prompts are rendered"},
     CLI_CHOICE,
     AT(chat_template)},
    {{"map", "OURS=THEIRS,...", "", "foreign field names of --data"}, CLI_TEXT, AT(map)},
    {{"batch-size", "N", "16", "prompts computed together"}, CLI_COUNT, AT(batch_size)},
    {{"checkpoint", "best|last", "best if there is one", "state of a run file"},
     CLI_CHOICE,
     AT(paths.checkpoint)},
    {{"head", "NAME", "", "of a prefix trained on several tasks: the one to use"},
     CLI_TEXT,
     AT(paths.head)},
    {{"allow-other-base", NULL, "", "accept a prefix made for another base of the same shape"},
     CLI_FLAG,
     AT(paths.allow_other_base)},
    CLI_WEIGHT_OPTIONS(AT(paths.weight_dtype), AT(paths.stream_layers)),
    {{"precision", "auto|f32|bf16", "auto", "auto: bf16 where the CPU's flags say it is faster"},
     CLI_CHOICE,
     AT(paths.precision)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static void print_piece(void *user, size_t prompt, const char *text, size_t bytes)
{
    (void)user;
    (void)prompt;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

static void print_line(const char *text)
{
    fwrite(text, 1, kvf_text_bytes(text), stdout);
    putchar('\n');
}

static kvf_json *new_text(const char *text)
{
    return kvf_json_new_strn(text, kvf_text_bytes(text));
}

static int print_json(const cli_call *call, bool is_list, char **texts, size_t n,
                      const kvf_generate_stats *stats)
{
    kvf_json *object = kvf_json_object(), *list = is_list ? kvf_json_array() : NULL;
    for (size_t i = 0; list && i < n; i++)
        kvf_json_add(list, new_text(texts[i]));
    if (is_list)
        kvf_json_set(object, "texts", list);
    else
        kvf_json_set(object, "text", new_text(texts[0]));
    kvf_json_set(object, "prompt_tokens", kvf_json_new_int(stats->prompt_tokens));
    kvf_json_set(object, "new_tokens", kvf_json_new_int(stats->new_tokens));
    kvf_json_set(object, "prefill_seconds", kvf_json_new_real(stats->prefill_seconds));
    kvf_json_set(object, "decode_seconds", kvf_json_new_real(stats->decode_seconds));
    return cli_print_json(call, object);
}

/* Several completions stand under lines that number them: a completion may itself be many lines. */
static void print_texts(char **texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printf("==> %zu <==\n", i + 1);
        print_line(texts[i]);
    }
}

static int complete_prompt(cli_call *call, const cli_model *model, const values *v,
                           kvf_generate_options *options)
{
    char *text = NULL;
    kvf_generate_stats stats;
    bool streams = !call->common.json && isatty(STDOUT_FILENO);
    if (streams) options->token = print_piece;
    kvf_status st = kvf_generate(call->ctx, model->base, model->n ? model->prefixes[0] : NULL,
                                 &v->prompt, 1, options, &text, &stats);
    if (st) return cli_fail_status(call, st);
    int code = CLI_OK;
    if (call->common.json)
        code = print_json(call, false, &text, 1, &stats);
    else if (streams)
        putchar('\n');
    else
        print_line(text);
    kvf_texts_free(&text, 1);
    return code;
}

static int complete_file(cli_call *call, const cli_model *model, const values *v,
                         const kvf_generate_options *options)
{
    char **texts = NULL;
    size_t n = 0;
    kvf_generate_stats stats;
    kvf_status st = kvf_generate_file(call->ctx, model->base, model->n ? model->prefixes[0] : NULL,
                                      v->data, v->map, options, &texts, &n, &stats);
    if (st) return cli_fail_status(call, st);
    int code = CLI_OK;
    if (call->common.json)
        code = print_json(call, true, texts, n, &stats);
    else
        print_texts(texts, n);
    kvf_text_list_free(texts, n);
    return code;
}

/* What two options say together. */
static int check_values(const cli_call *call, const values *v)
{
    if (!v->prompt && !v->data)
        return cli_misuse(call->command, "--prompt TEXT or --data FILE is needed");
    if (v->prompt && v->data)
        return cli_misuse(call->command, "--prompt and --data exclude each other");
    if (v->max_tokens < 1) return cli_misuse(call->command, "--max-tokens 0: want at least 1");
    if (v->temperature < 0)
        return cli_misuse(call->command, "--temperature %g: want a number from 0 on",
                          v->temperature);
    if (!(v->top_p > 0 && v->top_p <= 1))
        return cli_misuse(call->command, "--top-p %g: want above 0 and at most 1", v->top_p);
    return CLI_OK;
}

static int complete(cli_call *call, const values *v)
{
    cli_model model;
    kvf_generate_options options = kvf_generate_defaults();
    options.max_tokens = v->max_tokens;
    options.temperature = v->temperature;
    options.top_k = v->top_k;
    options.top_p = v->top_p;
    options.seed = v->seed;
    options.stop = v->stop.at;
    options.n_stop = v->stop.n;
    options.chat_template = v->chat_template;
    options.batch_size = v->batch_size;
    int code = cli_model_open(call, &v->paths, &model);
    if (code) return code;
    if (model.n > 1) {
        options.more = (const kvf_prefix *const *)model.prefixes + 1;
        options.n_more = model.n - 1;
    }
    code = v->prompt ? complete_prompt(call, &model, v, &options)
                     : complete_file(call, &model, v, &options);
    cli_model_close(&model);
    return code;
}

/* The prompt is what standard input holds; *text keeps it. */
static int read_prompt(const cli_call *call, values *v, char **text)
{
    if (!v->prompt || strcmp(v->prompt, "-") != 0) return CLI_OK;
    int code = cli_read_text(call, CLI_STDIN, text);
    if (code) return code;
    size_t n = strlen(*text);
    if (n && (*text)[n - 1] == '\n') (*text)[--n] = 0;
    if (n && (*text)[n - 1] == '\r') (*text)[--n] = 0;
    v->prompt = *text;
    return CLI_OK;
}

static int run(cli_call *call)
{
    const kvf_generate_options defaults = kvf_generate_defaults();
    values v = {.max_tokens = defaults.max_tokens,
                .temperature = defaults.temperature,
                .top_k = defaults.top_k,
                .top_p = defaults.top_p,
                .seed = defaults.seed,
                .batch_size = defaults.batch_size};
    char *text = NULL;
    int code = CLI_FAILED;
    if (cli_texts_init(call, &v.paths.prefixes) && cli_texts_init(call, &v.stop)) {
        code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
        if (!code) code = check_values(call, &v);
        if (!code) code = cli_check_paths(call);
        if (!code) code = read_prompt(call, &v, &text);
        if (!code) code = complete(call, &v);
    }
    cli_texts_done(&v.paths.prefixes);
    cli_texts_done(&v.stop);
    free(text);
    return code;
}

const cli_command cli_generate = {
    .name = "generate",
    .group = CLI_USE,
    .synopsis = "--base PATH [--prefix FILE ...] (--prompt TEXT | --data FILE) [options]",
    .summary = "Completes prompts with a base and a prefix.",
    .required = "base",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .run = run,
};

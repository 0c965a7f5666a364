/* kvfold generate. On a terminal the completion of a single prompt is printed token by token. The
 * text on stdout is the same either way. */
#include "cli_model.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct generate_values {
    cli_model_options model;
    kvf_generate_options generate;
    kvf__strings stop, logit_bias;
    const char *prompt, *data, *map;
    bool interactive;
} generate_values;

#define AT(field)       offsetof(generate_values, field)
#define GENERATE(field) AT(generate.field)
#define MODEL(field)    AT(model.field)
static const kvf__option_row OPTIONS[] = {
    CLI_ANY_BASE(MODEL(base)),
    CLI_LORA(MODEL(open.base.lora)),
    {"prefix", "FILE", "", KVF_TEXTS, MODEL(prefixes),
     "prefix or run file; if repeated, the probabilities are averaged; without it: the bare base"},
    {"prompt", "TEXT", "", KVF_TEXT, AT(prompt),
     "text to complete; -: standard input, without its last newline"},
    {"data", "FILE", "", KVF_TEXT, AT(data),
     "JSONL file: complete the prompt of every row; -: standard input"},
    {"interactive", NULL, "", KVF_FLAG, AT(interactive),
     "answer the lines of standard input one by one; with a prefix trained on chats, or a named "
     "template, they are turns of one chat"},
    {"max-tokens", "N", "64", KVF_COUNT, GENERATE(max_tokens), "maximum number of new tokens"},
    {"temperature", "X", "0", KVF_REAL, GENERATE(temperature),
     "sampling temperature; 0: always "
     "the likeliest token"},
    {"top-k", "N", "0", KVF_COUNT, GENERATE(top_k),
     "sample from the N likeliest tokens; 0: from all"},
    {"top-p", "X", "1", KVF_REAL, GENERATE(top_p),
     "sample from the likeliest tokens that together reach this probability"},
    {"min-p", "X", "0", KVF_REAL, GENERATE(min_p),
     "sample from tokens with at least this share of the highest probability"},
    {"repetition-penalty", "X", "1", KVF_REAL, GENERATE(repetition_penalty),
     "divides positive logits of tokens in prompt or completion, multiplies negative ones; "
     "above 1: less repetition"},
    {"presence-penalty", "X", "0", KVF_REAL, GENERATE(presence_penalty),
     "subtracted from the logits of tokens in the completion; -2 to 2"},
    {"frequency-penalty", "X", "0", KVF_REAL, GENERATE(frequency_penalty),
     "subtracted once for each occurrence of the token in the completion"},
    {"logit-bias", "ID=X", "", KVF_TEXTS, AT(logit_bias),
     "added to a token's logit; may be repeated"},
    {"beams", "N", "1", KVF_POSITIVE, GENERATE(beams),
     "beam search with N beams per prompt; 1: "
     "none"},
    {"length-penalty", "X", "1", KVF_REAL, GENERATE(length_penalty),
     "with beams: completions rank by log-probability / (number of tokens) ** X"},
    {"draft", "N", "0", KVF_COUNT, GENERATE(draft),
     "speculative decoding: guess up to N tokens from similar earlier text and check them in "
     "one step; the same output, faster for repetitive text; 0: off"},
    {"stop", "TEXT", "", KVF_TEXTS, AT(stop),
     "text that ends a completion and is not printed; may be repeated"},
    {"seed", "N", "0", KVF_SEED, GENERATE(seed), "random seed of sampling"},
    CLI_CHAT_TEMPLATE(GENERATE(chat_template), "chat template of prompts"),
    CLI_MAP(AT(map), "names of the fields in --data"),
    {"batch-size", "N", "16", KVF_COUNT, GENERATE(batch_size), "prompts computed together"},
    CLI_CHECKPOINT(MODEL(open.checkpoint), "state of a run file to use"),
    CLI_HEAD(MODEL(open.head)),
    CLI_ALLOW_OTHER_BASE(MODEL(open.allow_other_base)),
    CLI_WEIGHTS(MODEL(open.base.weight_dtype), MODEL(open.base.stream_layers)),
    CLI_AUTO_PRECISION(MODEL(open.base.precision)),
};

static bool print_piece(void *user, size_t prompt, const char *text, size_t bytes)
{
    (void)user;
    (void)prompt;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
    return true;
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

/* Owned completions: of one prompt, or of the prompts in a file. */
typedef struct completions {
    char *one, **list;
    size_t n; /* length of the list */
    kvf_generate_stats stats;
} completions;

static int print_json(const cli_call *call, const completions *c)
{
    kvf_json *object = kvf_json_object(), *list = c->one ? NULL : kvf_json_array();
    for (size_t i = 0; i < c->n; i++)
        kvf_json_add(list, new_text(c->list[i]));
    kvf_json_set(object, c->one ? "text" : "texts", c->one ? new_text(c->one) : list);
    kvf__json_put(object, "prompt_tokens:I new_tokens:I prefill_seconds:f decode_seconds:f",
                  c->stats.prompt_tokens, c->stats.new_tokens, c->stats.prefill_seconds,
                  c->stats.decode_seconds);
    return cli_print_json(call, object);
}

/* A numbered line precedes each of several completions, because a completion may have several
 * lines. */
static void print_text(const completions *c, bool streamed)
{
    if (streamed) putchar('\n');
    if (c->one && !streamed) print_line(c->one);
    for (size_t i = 0; i < c->n; i++) {
        printf("==> %zu <==\n", i + 1);
        print_line(c->list[i]);
    }
}

static int complete(cli_call *call, const cli_model *model, generate_values *v)
{
    completions c = {.one = NULL};
    const kvf_prefix *prefix = model->n ? model->prefixes[0] : NULL;
    const bool streams = v->prompt && !call->common.json && isatty(STDOUT_FILENO);
    if (streams) v->generate.token = print_piece;
    kvf_status st = v->prompt ? kvf_generate(call->ctx, model->base, prefix, &v->prompt, 1,
                                             &v->generate, &c.one, &c.stats)
                              : kvf_generate_file(call->ctx, model->base, prefix, v->data, v->map,
                                                  &v->generate, &c.list, &c.n, &c.stats);
    if (st) return cli_fail_status(call, st);
    int code = CLI_OK;
    if (call->common.json)
        code = print_json(call, &c);
    else
        print_text(&c, streams);
    if (c.one) kvf_texts_free(&c.one, 1);
    kvf_text_list_free(c.list, c.n);
    return code;
}

/* Parses "ID=X". */
static bool split_bias(const char *text, kvf_token_bias *out)
{
    char *end = NULL;
    const long id = strtol(text, &end, 10);
    if (end == text || *end != '=' || id < 0 || id > INT32_MAX) return false;
    const char *number = end + 1;
    out->id = (int32_t)id;
    out->bias = strtof(number, &end);
    return end != number && !*end && out->bias >= -100 && out->bias <= 100;
}

/* The caller frees *biases. */
static int read_biases(const cli_call *call, generate_values *v, kvf_token_bias **biases)
{
    if (!v->logit_bias.n) return CLI_OK;
    kvf_token_bias *list = calloc(v->logit_bias.n, sizeof *list);
    if (!list) return cli_fail(call->command, "out of memory");
    *biases = list;
    for (size_t i = 0; i < v->logit_bias.n; i++)
        if (!split_bias(v->logit_bias.item[i], &list[i]))
            return cli_misuse(call->command,
                              "--logit-bias \"%s\": want the id of a token, =, and a number from "
                              "-100 to 100",
                              v->logit_bias.item[i]);
    v->generate.logit_bias = list;
    v->generate.n_logit_bias = v->logit_bias.n;
    return CLI_OK;
}

/* Checks the ranges of option values. */
static int check_ranges(const cli_call *call, const kvf_generate_options *o)
{
    const struct {
        const char *name;
        double value, least, most;
    } rows[] = {{"min-p", o->min_p, 0, 1},
                {"repetition-penalty", o->repetition_penalty, 0.01, 100},
                {"presence-penalty", o->presence_penalty, -2, 2},
                {"frequency-penalty", o->frequency_penalty, -2, 2},
                {"beams", (double)o->beams, 1, 1024},
                {"draft", (double)o->draft, 0, 64},
                {"length-penalty", o->length_penalty, -100, 100}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].value < rows[i].least || rows[i].value > rows[i].most)
            return cli_misuse(call->command, "--%s %g: want a number from %g to %g", rows[i].name,
                              rows[i].value, rows[i].least, rows[i].most);
    if (o->draft && (o->beams > 1 || o->temperature > 0))
        return cli_misuse(call->command,
                          "--draft and --%s exclude each other: drafts need greedy decoding",
                          o->beams > 1 ? "beams" : "temperature");
    if (o->beams > 1 && o->temperature > 0)
        return cli_misuse(
            call->command,
            "--beams and --temperature exclude each other: beam search does not sample");
    return CLI_OK;
}

/* Checks options that depend on each other, and ranges. */
static int check_values(const cli_call *call, const generate_values *v)
{
    if (!v->prompt && !v->data && !v->interactive)
        return cli_misuse(call->command, "--prompt TEXT, --data FILE or --interactive is needed");
    if (v->prompt && v->data)
        return cli_misuse(call->command, "--prompt and --data exclude each other");
    if (v->interactive && (v->prompt || v->data || call->common.json))
        return cli_misuse(call->command, "--interactive excludes --prompt, --data and --json");
    if (v->generate.max_tokens < 1)
        return cli_misuse(call->command, "--max-tokens 0: want at least 1");
    if (v->generate.temperature < 0)
        return cli_misuse(call->command, "--temperature %g: want a number of at least 0",
                          v->generate.temperature);
    if (!(v->generate.top_p > 0 && v->generate.top_p <= 1))
        return cli_misuse(call->command, "--top-p %g: want a number above 0 and at most 1",
                          v->generate.top_p);
    return check_ranges(call, &v->generate);
}

static int open_and_complete(cli_call *call, generate_values *v)
{
    cli_model model;
    int code = cli_model_open(call, &v->model, &model);
    if (code) return code;
    v->generate.stop = v->stop.item;
    v->generate.n_stop = v->stop.n;
    if (model.n > 1) {
        v->generate.more = (const kvf_prefix *const *)model.prefixes + 1;
        v->generate.n_more = model.n - 1;
    }
    code = v->interactive ? cli_converse(call, &model, &v->generate) : complete(call, &model, v);
    cli_model_close(&model);
    return code;
}

/* Reads the prompt from standard input; *text owns it. */
static int read_prompt(const cli_call *call, generate_values *v, char **text)
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
    generate_values v = {.generate = kvf_generate_defaults()};
    kvf_token_bias *biases = NULL;
    char *text = NULL;
    int code = cli_set_values(call, &v);
    if (!code) code = check_values(call, &v);
    if (!code) code = read_biases(call, &v, &biases);
    if (!code) code = cli_check_paths(call);
    if (!code) code = read_prompt(call, &v, &text);
    if (!code) code = open_and_complete(call, &v);
    free(biases);
    free(text);
    return code;
}

const cli_command cli_generate = {
    .name = "generate",
    .group = CLI_USE,
    .synopsis =
        "--base PATH [--prefix FILE ...] (--prompt TEXT | --data FILE | --interactive) [options]",
    .summary = "Completes prompts with a base and a prefix.",
    .notes = "A completion ends at any eos_token_id of generation_config.json, else of "
             "config.json, else of the tokenizer (in a GGUF the ids that end a text, turn or "
             "message). It also ends at the end of a turn of the chat template, and with a "
             "prefix at the tokenizer's EOS, with which training rows end. Only the completion "
             "is printed. A prefix trained on chats takes a prompt as the user's turn; "
             "--chat-template auto leaves it plain text. With --data a numbered line precedes each "
             "completion. Logits change in "
             "this order: biases, repetition penalty, the other penalties, temperature, --top-k, "
             "--top-p, --min-p. Beam search follows transformers: its penalties apply to "
             "log-probabilities.\n",
    .required = "base",
    .needs = "length-penalty>beams",
    CLI_ROWS(OPTIONS),
    .run = run,
};

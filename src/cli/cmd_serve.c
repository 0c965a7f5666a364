/* kvfold serve: a base and many prefixes behind a local HTTP server, until a signal ends it. */
#include "cli_int.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct values {
    const char *base, *base_name, *checkpoint, *precision, *weight_dtype, *stream_layers;
    cli_texts prefixes, allow_hosts;
    const char *host, *token_file, *chat_template;
    int64_t port, max_body, max_rows, max_queue, max_queue_bytes, max_tokens, max_context, timeout;
    bool allow_other_base;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"base", "PATH", "", "base model: Hugging Face folder or GGUF file"}, CLI_TEXT, AT(base)},
    {{"prefix", "NAME=FILE", "",
      "prefix or run file, a model of that name; given once for each; read again when replaced"},
     CLI_TEXTS,
     AT(prefixes)},
    {{"base-name", "NAME", "its own", "name of the bare base as a model"}, CLI_TEXT, AT(base_name)},
    {{"host", "ADDRESS", "127.0.0.1", "address to listen on, in numbers"}, CLI_TEXT, AT(host)},
    {{"port", "N", "8080", "port to listen on; 0: a free one, which is printed"},
     CLI_COUNT,
     AT(port)},
    {{"allow-host", "NAME", "",
      "name in the Host header to answer beside this machine's, such as a reverse proxy's; others "
      "get 421; may be given more than once"},
     CLI_TEXTS,
     AT(allow_hosts)},
    {{"token-file", "FILE", "", "its first line must come with requests, as Authorization: Bearer"},
     CLI_TEXT,
     AT(token_file)},
    {{"max-body", "BYTES", "1048576", "largest request"}, CLI_COUNT, AT(max_body)},
    {{"max-rows", "N", "16", "answers computed together; others wait"}, CLI_COUNT, AT(max_rows)},
    {{"max-queue", "N", "256", "requests that wait for a row; others are refused"},
     CLI_COUNT,
     AT(max_queue)},
    {{"max-queue-bytes", "BYTES", "67108864",
      "memory that waiting requests may take; others are refused"},
     CLI_COUNT,
     AT(max_queue_bytes)},
    {{"max-tokens", "N", "1024", "most new tokens a request may ask for"},
     CLI_COUNT,
     AT(max_tokens)},
    {{"max-context", "N", "4096", "most tokens of prompt and answer; 0: the model's positions"},
     CLI_COUNT,
     AT(max_context)},
    {{"timeout", "SECONDS", "30", "in which a request must have arrived"}, CLI_COUNT, AT(timeout)},
    {{"chat-template", "auto|none|chatml|llama3|mistral", "the prefix's",
      "how prompts are rendered"},
     CLI_CHOICE,
     AT(chat_template)},
    {{"checkpoint", "best|last", "best if there is one", "state of run files"},
     CLI_CHOICE,
     AT(checkpoint)},
    {{"allow-other-base", NULL, "", "accept prefixes made for another base of the same shape"},
     CLI_FLAG,
     AT(allow_other_base)},
    CLI_WEIGHT_OPTIONS(AT(weight_dtype), AT(stream_layers)),
    {{"precision", "auto|f32|bf16", "auto", "auto: bf16 where the CPU's flags say it is faster"},
     CLI_CHOICE,
     AT(precision)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

typedef struct session {
    const cli_call *call;
    const values *values;
} session;

/* The one result: where it can be reached. */
static void print_address(void *user, int port)
{
    const session *s = user;
    const bool six = strchr(s->values->host, ':') != NULL;
    char url[128];
    snprintf(url, sizeof url, "http://%s%s%s:%d", six ? "[" : "", s->values->host, six ? "]" : "",
             port);
    if (s->call->common.json) {
        kvf_json *object = kvf_json_object();
        kvf_json_set(object, "url", kvf_json_new_str(url));
        kvf_json_set(object, "port", kvf_json_new_int(port));
        cli_print_json(s->call, object);
    } else {
        printf("listening on %s\n", url);
    }
    fflush(stdout);
}

/* "NAME=FILE" into its parts; the text of the name is the caller's to free. */
static int split_prefix(const cli_call *call, const char *text, kvf_serve_prefix *out)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return cli_misuse(call->command, "--prefix \"%s\": want NAME=FILE", text);
    char *name = strndup(text, (size_t)(equals - text));
    if (!name) return cli_fail(call->command, "out of memory");
    *out = (kvf_serve_prefix){.name = name, .path = equals + 1};
    return CLI_OK;
}

static int serve_on(cli_call *call, const values *v, kvf_base *base,
                    const kvf_serve_prefix *prefixes)
{
    const session s = {call, v};
    kvf_serve_totals totals = {0};
    const kvf_serve_options options = {.prefixes = prefixes,
                                       .n_prefixes = v->prefixes.n,
                                       .base_name = v->base_name,
                                       .checkpoint = cli_checkpoint(v->checkpoint),
                                       .allow_other_base = v->allow_other_base,
                                       .chat_template = v->chat_template,
                                       .host = v->host,
                                       .allow_hosts = v->allow_hosts.at,
                                       .n_allow_hosts = v->allow_hosts.n,
                                       .port = v->port,
                                       .token_file = v->token_file,
                                       .max_body = v->max_body,
                                       .max_rows = v->max_rows,
                                       .max_queue = v->max_queue,
                                       .max_queue_bytes = v->max_queue_bytes,
                                       .max_tokens = v->max_tokens,
                                       .max_context = v->max_context,
                                       .timeout = v->timeout,
                                       .stop = cli_stop_install(),
                                       .listening = print_address,
                                       .user = (void *)&s};
    kvf_status st = kvf_serve(call->ctx, base, &options, &totals);
    if (st != KVF_ESTOPPED) return cli_fail_status(call, st);
    if (!call->common.quiet)
        cli_fail(call->command, "stopped; requests answered: %lld, tokens written: %lld",
                 (long long)totals.requests, (long long)totals.new_tokens);
    return CLI_SIGNAL + cli_stop_signal();
}

static int serve(cli_call *call, const values *v, kvf_serve_prefix *prefixes)
{
    const kvf_base_options how = cli_base_options(v->precision, v->weight_dtype, v->stream_layers);
    kvf_base *base = NULL;
    for (size_t i = 0; i < v->prefixes.n; i++) {
        int code = split_prefix(call, v->prefixes.at[i], &prefixes[i]);
        if (code) return code;
    }
    int code = cli_check_paths(call);
    if (code) return code;
    kvf_status st = kvf_base_open(call->ctx, v->base, &how, &base);
    if (st) return cli_fail_status(call, st);
    code = serve_on(call, v, base, prefixes);
    kvf_base_free(base);
    return code;
}

static int run(cli_call *call)
{
    const kvf_serve_options defaults = kvf_serve_defaults();
    values v = {.host = defaults.host,
                .port = defaults.port,
                .max_body = defaults.max_body,
                .max_rows = defaults.max_rows,
                .max_queue = defaults.max_queue,
                .max_queue_bytes = defaults.max_queue_bytes,
                .max_tokens = defaults.max_tokens,
                .max_context = defaults.max_context,
                .timeout = defaults.timeout};
    kvf_serve_prefix *prefixes = NULL;
    int code = CLI_FAILED;
    if (cli_texts_init(call, &v.prefixes) && cli_texts_init(call, &v.allow_hosts)) {
        code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
        if (!code) prefixes = calloc(v.prefixes.n + 1, sizeof *prefixes);
        if (!code && !prefixes) code = cli_fail(call->command, "out of memory");
        if (!code) code = serve(call, &v, prefixes);
    }
    for (size_t i = 0; prefixes && i < v.prefixes.n; i++)
        free((void *)prefixes[i].name);
    free(prefixes);
    cli_texts_done(&v.prefixes);
    cli_texts_done(&v.allow_hosts);
    return code;
}

const cli_command cli_serve = {
    .name = "serve",
    .group = CLI_USE,
    .synopsis = "--base PATH [--prefix NAME=FILE ...] [options]",
    .summary = "Serves a base and prefixes over HTTP, in the manner of OpenAI's API.",
    .notes = "POST /v1/completions and /v1/chat/completions: \"model\" names a prefix, or the\n"
             "base; \"prompt\" is a text, token ids, or an array of either. GET /v1/models,\n"
             "/metrics (Prometheus), /health. An answer is that of `kvfold generate` for its\n"
             "prompt, prefix and seed, whatever else is computed.\n"
             "SIGINT and SIGTERM end it once what was asked is answered.\n",
    .required = "base",
    .lasting = true,
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .run = run,
};

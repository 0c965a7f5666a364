/* kvfold words. */
#include "cli_int.h"

#include <stddef.h>

typedef struct values {
    const char *base, *checkpoint, *precision;
    int64_t top;
    bool allow_other_base;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"base", "PATH", "", "base model"}, CLI_TEXT, AT(base)},
    {{"top", "N", "5", "vocabulary items named for each"}, CLI_POSITIVE, AT(top)},
    {{"checkpoint", "best|last", "best if there is one", "state of run files"},
     CLI_CHOICE,
     AT(checkpoint)},
    {{"allow-other-base", NULL, "", "accept a prefix made for another base of the same shape"},
     CLI_FLAG,
     AT(allow_other_base)},
    {{"precision", "auto|f32|bf16", "f32", "of the base, which runs over its vocabulary"},
     CLI_CHOICE,
     AT(precision)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

/* "key "the" 0.91, "a" 0.88": white space and control characters stay visible by JSON's quotes. */
static void print_list(const char *what, const kvf_json *list)
{
    printf("%s", what);
    for (size_t i = 0; i < kvf_json_size(list); i++) {
        const kvf_json *item = kvf_json_at(list, i);
        char *text = kvf_json_text(kvf_json_get(item, "text"), KVF_JSON_COMPACT);
        printf("%s %s %.3f", i ? "," : "", text ? text : "?",
               kvf_json_real(kvf_json_get(item, "cosine"), 0));
        kvf_json_text_free(text);
    }
    putchar('\n');
}

static void print_tokens(const kvf_json *tokens)
{
    for (size_t p = 0; p < kvf_json_size(tokens); p++) {
        const kvf_json *token = kvf_json_at(tokens, p);
        if (kvf_json_get(token, "nearest")) {
            printf("%4zu ", p);
            print_list("", kvf_json_get(token, "nearest"));
            continue;
        }
        printf("%4zu  ", p);
        print_list("key  ", kvf_json_get(token, "key"));
        print_list("      value", kvf_json_get(token, "value"));
    }
}

static int report(const cli_call *call, kvf_json *found)
{
    if (call->common.json) return cli_print_json(call, found);
    const kvf_json *layers = kvf_json_get(found, "layers");
    for (size_t l = 0; l < kvf_json_size(layers); l++) {
        const kvf_json *layer = kvf_json_at(layers, l);
        printf("layer %lld\n", (long long)kvf_json_int(kvf_json_get(layer, "layer"), 0));
        print_tokens(kvf_json_get(layer, "tokens"));
    }
    if (!layers) print_tokens(kvf_json_get(found, "tokens"));
    kvf_json_free(found);
    return CLI_OK;
}

static int run(cli_call *call)
{
    values v = {.top = 5, .precision = "f32"};
    kvf_base *base = NULL;
    kvf_prefix *prefix = NULL;
    kvf_json *found = NULL;
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    cli_progress progress = cli_progress_make(&call->common);
    const kvf_words_options options = {
        .top = v.top, .progress = cli_progress_items, .user = &progress};
    const kvf_base_options how = {.precision = cli_precision(v.precision)};
    bool later;
    kvf_status st = kvf_prefix_needs_base(call->ctx, call->operands[0], &later);
    if (!st) st = kvf_base_open(call->ctx, v.base, &how, &base);
    if (!st)
        st = kvf_prefix_open_on(call->ctx, call->operands[0], base, cli_checkpoint(v.checkpoint),
                                &prefix);
    if (!st) st = kvf_prefix_check(call->ctx, prefix, base, v.allow_other_base);
    if (!st) st = kvf_words(call->ctx, base, prefix, &options, &found);
    cli_progress_clear(&progress);
    code = st ? cli_fail_status(call, st) : report(call, found);
    kvf_prefix_free(prefix);
    kvf_base_free(base);
    return code;
}

const cli_command cli_words = {
    .name = "words",
    .group = CLI_LOOK,
    .synopsis = "FILE --base PATH [options]",
    .summary = "Names the vocabulary items nearest to each virtual token, by layer.",
    .notes = "Nearest by cosine: keys (without rope) and values as the base computes them for\n"
             "each item alone; virtual tokens at the input by the token embeddings.\n",
    .required = "base",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 1,
    .run = run,
};

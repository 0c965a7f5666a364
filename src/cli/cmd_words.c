/* kvfold words. */
#include "cli_model.h"
#include "cli_progress.h"

#include <stddef.h>

typedef struct words_values {
    kvf_words_options words;
    const char *base;
    kvf_base_options how;
    kvf_checkpoint checkpoint;
    bool allow_other_base;
} words_values;

#define AT(field) offsetof(words_values, field)
static const kvf__option_row OPTIONS[] = {
    CLI_BASE(AT(base), "base model"),
    CLI_LORA(AT(how.lora)),
    {"top", "N", "5", KVF_POSITIVE, AT(words.top),
     "vocabulary items shown for each virtual "
     "token"},
    CLI_CHECKPOINT(AT(checkpoint), "state of run files to use"),
    CLI_ALLOW_OTHER_BASE(AT(allow_other_base)),
    CLI_PRECISION(AT(how.precision), "f32",
                  "precision of the base, which computes the whole "
                  "vocabulary"),
};

/* Prints "key "the" 0.91, "a" 0.88", with JSON quoting for white space and control characters. */
static void print_list(const char *what, const kvf_json *list)
{
    printf("%s", what);
    for (size_t i = 0; i < kvf_json_size(list); i++) {
        const kvf_json *item = kvf_json_at(list, i);
        char *text = kvf_json_text(kvf_json_get(item, "text"), KVF_JSON_COMPACT);
        printf("%s %s %.3f", i ? "," : "", text ? text : "?", kvf__real_at(item, "cosine"));
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
        printf("layer %lld\n", kvf__int_at(layer, "layer"));
        print_tokens(kvf_json_get(layer, "tokens"));
    }
    if (!layers) print_tokens(kvf_json_get(found, "tokens"));
    kvf_json_free(found);
    return CLI_OK;
}

static int run(cli_call *call)
{
    cli_progress progress = cli_progress_make(&call->common);
    words_values v = {.words = {.top = 5, .progress = cli_progress_items, .user = &progress},
                      .how.precision = KVF_PRECISION_F32};
    kvf_base *base = NULL;
    kvf_prefix *prefix = NULL;
    kvf_json *found = NULL;
    int code = cli_set_values(call, &v);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    bool later;
    kvf_status st = kvf__prefix_needs_base(call->ctx, call->operands[0], &later);
    if (!st) st = kvf_base_open(call->ctx, v.base, &v.how, &base);
    if (!st) st = kvf_prefix_open_on(call->ctx, call->operands[0], base, v.checkpoint, &prefix);
    if (!st) st = kvf_prefix_check(call->ctx, prefix, base, v.allow_other_base);
    if (!st) st = kvf_words(call->ctx, base, prefix, &v.words, NULL, &found);
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
    .notes = "Items are ranked by cosine similarity. Keys (without rope) and values are compared "
             "with those that the base computes for each item alone, virtual tokens at the input "
             "with the token embeddings.\n",
    .required = "base",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .lab = true,
    .run = run,
};

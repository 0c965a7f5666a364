/* Prints the ids of texts for comparison with other implementations; built, not run, by the tests.
 *
 *     dump_ids encode|decode|chat|origins|words|join TOKENIZER [special]
 *
 * TOKENIZER: a folder, a tokenizer.json, or a *.vocab.json (vocab_json.h). Reads one JSON value per
 * line from standard input and answers each with one line:
 *     encode  "text"     -> ids; with `special` as the post-processor adds them
 *     decode  [ids]      -> JSON string; `special` keeps special tokens
 *     origins "text"     -> ids, " | ", where each begins and ends in the text's bytes
 *     words   ["word"..] -> ids, " | ", how many each word has
 *     join    ["a", "b"] -> ids, " | ", types, " | ", where the texts begin; ["a"]: one text
 *     chat    {"messages": [...], "add_generation_prompt": bool, "template": name}
 *                        -> ids, " | ", loss; or "error: ..." */
#include "infile.h"
#include "tok_json.h"
#include "vocab_json.h"

#include <stdio.h>
#include <string.h>

typedef struct program {
    kvf_ctx *ctx;
    kvf__tokenizer *t;
    bool special;
} program;

static kvf_status open_vocab(kvf_ctx *ctx, const char *path, const kvf_json *json,
                             kvf__tokenizer **out)
{
    vocab_json vocab;
    kvf_status st;

    vocab_json_read(json, path, &vocab);
    st = kvf__tokenizer_from_vocab(ctx, &vocab.v, out);
    vocab_json_done(&vocab);
    return st;
}

static kvf_status open_tokenizer(kvf_ctx *ctx, const char *path, kvf__tokenizer **out)
{
    kvf__buf text = {0};
    kvf_json *json = NULL;
    size_t n = strlen(path);
    kvf_status st;

    if (kvf__is_dir(path)) return kvf__tokenizer_from_dir(ctx, path, out);
    st = kvf__read_file(ctx, path, (size_t)1 << 30, &text);
    if (st) goto out;
    if (n < 11 || strcmp(path + n - 11, ".vocab.json") != 0) {
        st = tokenizer_from_json(ctx, path, text.data, text.n, NULL, 0, out);
        goto out;
    }
    st = kvf_json_parse(ctx, path, text.data, text.n, &json);
    if (st) goto out;
    st = open_vocab(ctx, path, json, out);
out:
    kvf_json_free(json);
    kvf__buf_done(&text);
    return st;
}

static void print_ids(const kvf__ids *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        printf(i ? " %d" : "%d", ids->data[i]);
}

static kvf_status encode_line(program *p, const kvf_json *line)
{
    kvf__ids ids = {0};
    size_t n = 0;
    const char *text = kvf_json_str(line, &n);
    kvf_status st = kvf__encode(p->ctx, p->t, text, n, p->special, &ids);

    print_ids(&ids);
    putchar('\n');
    kvf__ids_done(&ids);
    return st;
}

static void print_line(const kvf__ids *first, const kvf__ids *second, const kvf__ids *third)
{
    print_ids(first);
    printf(" | ");
    print_ids(second);
    if (third) printf(" | ");
    if (third) print_ids(third);
    putchar('\n');
}

static kvf_status origins_line(program *p, const kvf_json *line)
{
    kvf__ids ids = {0}, origins = {0};
    size_t n = 0;
    const char *text = kvf_json_str(line, &n);
    kvf_status st = kvf__encode_offsets(p->ctx, p->t, text, n, &ids, &origins);

    print_line(&ids, &origins, NULL);
    kvf__ids_done(&ids);
    kvf__ids_done(&origins);
    return st;
}

static kvf_status words_line(program *p, const kvf_json *line)
{
    kvf__ids ids = {0}, counts = {0};
    kvf_status st = KVF_OK;

    for (size_t i = 0; i < kvf_json_size(line) && !st; i++) {
        size_t n = 0, before = ids.n;
        const char *word = kvf_json_str(kvf_json_at(line, i), &n);
        st = kvf__encode(p->ctx, p->t, word, n, false, &ids);
        if (!st) st = kvf__ids_add(p->ctx, &counts, (int32_t)(ids.n - before));
    }
    print_line(&ids, &counts, NULL);
    kvf__ids_done(&ids);
    kvf__ids_done(&counts);
    return st;
}

static kvf_status join_line(program *p, const kvf_json *line)
{
    kvf__ids text[2] = {{0}, {0}}, ids = {0}, types = {0}, places = {0};
    bool pair = kvf_json_size(line) == 2;
    size_t at[2] = {0, 0}, n = 0;
    kvf_status st = KVF_OK;

    for (size_t i = 0; i < kvf_json_size(line) && i < 2 && !st; i++) {
        const char *s = kvf_json_str(kvf_json_at(line, i), &n);
        st = kvf__encode(p->ctx, p->t, s, n, false, &text[i]);
    }
    if (!st)
        st = kvf__add_specials(p->ctx, p->t, &text[0], pair ? &text[1] : NULL, &ids, &types, &at[0],
                               &at[1]);
    for (size_t i = 0; i < kvf_json_size(line) && i < 2 && !st; i++)
        st = kvf__ids_add(p->ctx, &places, (int32_t)at[i]);
    if (!st && ids.n != text[0].n + text[1].n + kvf__specials_cost(p->t, pair))
        st = kvf__fail(p->ctx, KVF_EDATA, "join_cost is not what join added");
    print_line(&ids, &types, &places);
    kvf__ids_done(&text[0]);
    kvf__ids_done(&text[1]);
    kvf__ids_done(&ids);
    kvf__ids_done(&types);
    kvf__ids_done(&places);
    return st;
}

static kvf_status decode_line(program *p, const kvf_json *line)
{
    kvf__ids ids = {0};
    kvf__buf text = {0};
    kvf_json *string;
    char *shown;
    kvf_status st = KVF_OK;

    for (size_t i = 0; i < kvf_json_size(line) && !st; i++)
        st = kvf__ids_add(p->ctx, &ids, (int32_t)kvf_json_int(kvf_json_at(line, i), -1));
    if (!st) st = kvf__decode(p->ctx, p->t, ids.data, ids.n, !p->special, &text);
    string = kvf_json_new_str(text.data ? text.data : "");
    shown = kvf_json_text(string, KVF_JSON_COMPACT);
    puts(shown ? shown : "error");
    kvf_json_text_free(shown);
    kvf_json_free(string);
    kvf__ids_done(&ids);
    kvf__buf_done(&text);
    return st;
}

static kvf_status chat_line(program *p, const kvf_json *line)
{
    const kvf_json *list = kvf_json_get(line, "messages");
    const char *name = kvf_json_str(kvf_json_get(line, "template"), NULL);
    kvf__message messages[64];
    size_t n = 0;
    kvf__chat chat = {0};
    kvf__ids ids = {0}, loss = {0};
    kvf_status st = kvf__chat_init(p->ctx, p->t, name ? name : "auto", &chat);

    for (; n < kvf_json_size(list) && n < 64; n++) {
        const kvf_json *message = kvf_json_at(list, n);
        messages[n].role = kvf_json_str(kvf_json_get(message, "role"), NULL);
        messages[n].content = kvf_json_str(kvf_json_get(message, "content"), &messages[n].bytes);
    }
    if (!st)
        st = kvf__chat_encode(p->ctx, p->t, &chat, messages, n,
                              kvf_json_bool(kvf_json_get(line, "add_generation_prompt"), false),
                              &ids, &loss);
    if (st)
        printf("error: %s", kvf_ctx_error(p->ctx));
    else {
        print_ids(&ids);
        printf(" | ");
        print_ids(&loss);
    }
    putchar('\n');
    kvf__chat_done(&chat);
    kvf__ids_done(&ids);
    kvf__ids_done(&loss);
    return KVF_OK;
}

static const struct {
    const char *name;
    kvf_status (*line)(program *p, const kvf_json *line);
} MODES[] = {
    {"encode", encode_line},   {"decode", decode_line}, {"chat", chat_line},
    {"origins", origins_line}, {"words", words_line},   {"join", join_line},
};

static kvf_status run(program *p, const char *mode)
{
    char *line = NULL;
    size_t cap = 0, row = 0;
    ssize_t n;
    kvf_status st = KVF_OK;

    while (row < sizeof MODES / sizeof *MODES && strcmp(MODES[row].name, mode) != 0)
        row++;
    if (row == sizeof MODES / sizeof *MODES)
        return kvf__fail(p->ctx, KVF_EDATA, "no mode \"%s\"", mode);
    while (!st && (n = getline(&line, &cap, stdin)) > 0) {
        kvf_json *json = NULL;
        st = kvf_json_parse(p->ctx, "input", line, (size_t)n, &json);
        if (!st) st = MODES[row].line(p, json);
        kvf_json_free(json);
    }
    free(line);
    return st;
}

int main(int argc, char **argv)
{
    program p = {0};
    kvf_status st;

    if (argc < 3) {
        fputs("usage: dump_ids MODE TOKENIZER [special]\n", stderr);
        return 2;
    }
    p.special = argc > 3;
    st = kvf_ctx_create(NULL, &p.ctx);
    if (!st) st = open_tokenizer(p.ctx, argv[2], &p.t);
    if (!st) st = run(&p, argv[1]);
    if (st) fprintf(stderr, "dump_ids: %s\n", p.ctx ? kvf_ctx_error(p.ctx) : "no context");
    kvf__tokenizer_free(p.t);
    kvf_ctx_free(p.ctx);
    return st ? 1 : 0;
}

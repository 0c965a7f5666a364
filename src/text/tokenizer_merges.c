/* vocab.json and merges.txt of GPT-2, RoBERTa, BART and Qwen2, with the pipeline of the family.
 *
 * The family is the config's tokenizer_class; without one, RoBERTa if the vocabulary has its
 * special tokens, else GPT-2. Special tokens are those named in the files, by default the
 * family's. */
#include "tok_files.h"

#include <string.h>

typedef struct family {
    const char *stem;  /* stem of tokenizer_class */
    const char *regex; /* NULL: that of the byte-level step */
    bool nfc;
    const char *bos, *eos;  /* defaults */
    const char *special[6]; /* become added tokens if the vocabulary has them */
} family;

static const family FAMILIES[] = {
    {"GPT2", NULL, false, "<|endoftext|>", "<|endoftext|>", {"<|endoftext|>"}},
    {"Roberta", NULL, false, "<s>", "</s>", {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}},
    {"Bart", NULL, false, "<s>", "</s>", {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}},
    {"Qwen2",
     "qwen2",
     true,
     NULL,
     "<|endoftext|>",
     {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}},
    {"Qwen3_5",
     "qwen35",
     true,
     NULL,
     "<|endoftext|>",
     {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}},
};

static const family *choose(const kvf__tok_source *src, const kvf__tokenizer *t)
{
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++)
        if (kvf__class_is(src, FAMILIES[i].stem)) return &FAMILIES[i];
    if (kvf_json_get(src->json[KVF__FILE_CONFIG], "tokenizer_class")) return NULL;
    return kvf__token_id(t, "<s>") >= 0 && kvf__token_id(t, "<mask>") >= 0 ? &FAMILIES[1]
                                                                           : &FAMILIES[0];
}

/* RoBERTa's mask includes the space before it. */
static kvf_status add_specials(kvf_ctx *ctx, kvf__tokenizer *t, const char *where,
                               const family *fam)
{
    for (size_t i = 0; i < sizeof fam->special / sizeof *fam->special && fam->special[i]; i++) {
        const char *text = fam->special[i];
        kvf__added token = {.text = (char *)text,
                            .n = strlen(text),
                            .special = true,
                            .lstrip = strcmp(text, "<mask>") == 0};
        int32_t id = kvf__token_id(t, text);
        if (id >= 0) KVF_TRY(kvf__add_token(ctx, t, where, &token, id));
    }
    t->bos = fam->bos ? kvf__token_id(t, fam->bos) : -1;
    t->eos = fam->eos ? kvf__token_id(t, fam->eos) : -1;
    return KVF_OK;
}

static kvf_status add_pipeline(const kvf__tok_source *src, kvf__tokenizer *t, const family *fam)
{
    kvf_ctx *ctx = src->ctx;
    const char *where = src->path[KVF__FILE_CONFIG];
    const kvf_json *config = src->json[KVF__FILE_CONFIG];
    kvf__tok_step nfc = {.kind = KVF__STEP_NFC};
    bool roberta = fam->bos && !strcmp(fam->bos, "<s>"), prefix_space;

    KVF_TRY(kvf__want_bool(ctx, where, config, "add_prefix_space", false, &prefix_space));
    KVF_TRY(kvf__want_bool(ctx, where, config, "trim_offsets", roberta, &t->trim_offsets));
    t->trim_prefix_space = prefix_space;
    if (fam->nfc) KVF_TRY(kvf__steps_add(ctx, &t->normalizer, &nfc));
    KVF_TRY(kvf__byte_level_steps(ctx, where, fam->regex, prefix_space, t));
    if (!roberta || t->bos < 0 || t->eos < 0) return kvf__post_bare(ctx, t);
    t->cls = t->bos;
    return kvf__post_cls_sep(ctx, t, t->bos, t->eos, true);
}

/* Reads lines "left right" in rank order; "#version ..." and empty lines are skipped. */
static kvf_status read_merges(kvf_ctx *ctx, const char *where, const kvf__buf *text,
                              kvf__tokenizer *t)
{
    const char *line = NULL;
    size_t most = 1, rank = 0, at = 0, n = 0;

    for (size_t i = 0; i < text->n; i++)
        most += text->data[i] == '\n';
    KVF_TRY(kvf__pairs_init(ctx, &t->model.pairs, most));
    while (kvf__next_line(text->data, text->n, &at, &line, &n))
        if (n > 0 && !(n >= 8 && memcmp(line, "#version", 8) == 0))
            KVF_TRY(kvf__merge_line(ctx, t, where, rank++, line, n));
    return KVF_OK;
}

kvf_status kvf__read_vocab_merges(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const char *where = src->path[KVF__FILE_VOCAB];

    KVF_TRY(kvf__read_vocab(src->ctx, where, src->json[KVF__FILE_VOCAB], t));
    KVF_TRY(read_merges(src->ctx, src->path[KVF__FILE_MERGES], &src->text[KVF__FILE_MERGES], t));
    const family *fam = choose(src, t);
    if (!fam) {
        const kvf_json *class = kvf_json_get(src->json[KVF__FILE_CONFIG], "tokenizer_class");
        const char *name = kvf_json_str(class, NULL);
        return kvf__fail(src->ctx, KVF_EUNSUPPORTED,
                         "%s: tokenizer_class \"%s\" needs a tokenizer.json",
                         src->path[KVF__FILE_CONFIG], name ? name : "?");
    }
    KVF_TRY(add_specials(src->ctx, t, where, fam));
    return add_pipeline(src, t, fam);
}

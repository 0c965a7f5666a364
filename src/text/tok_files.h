/* The files that describe a tokenizer, and their readers. Each reader fills an empty tokenizer. */
#ifndef KVF_TOK_FILES_H
#define KVF_TOK_FILES_H

#include "tok_int.h"

typedef enum kvf__tok_file {
    KVF__FILE_TOKENIZER,
    KVF__FILE_GGUF,
    KVF__FILE_VOCAB,
    KVF__FILE_MERGES,
    KVF__FILE_LINES,
    KVF__FILE_CONFIG,
    KVF__FILE_SPECIAL,
    KVF__FILE_ADDED,
    KVF__FILE_TEMPLATE,
    KVF__FILE_MODEL,
    KVF__FILE_SPIECE,
    KVF__TOK_FILES
} kvf__tok_file;

typedef struct kvf__tok_source {
    kvf_ctx *ctx;
    const char *where;          /* folder, or its name in errors */
    char *path[KVF__TOK_FILES]; /* for errors */
    bool there[KVF__TOK_FILES];
    kvf__buf text[KVF__TOK_FILES];
    kvf_json *json[KVF__TOK_FILES]; /* parsed JSON files, NULL before parsing */
} kvf__tok_source;

kvf_status kvf__read_tokenizer_json(const kvf__tok_source *src, kvf__tokenizer *t);
kvf_status kvf__read_vocab_merges(const kvf__tok_source *src, kvf__tokenizer *t);
kvf_status kvf__read_vocab_txt(const kvf__tok_source *src, kvf__tokenizer *t);
kvf_status kvf__read_gguf_vocab(const kvf__tok_source *src, kvf__tokenizer *t);
kvf_status kvf__read_model(const kvf__tok_source *src, kvf__tokenizer *t);  /* tokenizer.model */
kvf_status kvf__read_spiece(const kvf__tok_source *src, kvf__tokenizer *t); /* spiece.model */
kvf_status kvf__read_tiktoken(kvf_ctx *ctx, const char *where, const char *text, size_t n,
                              kvf__tokenizer *t);
/* A vocabulary in the form of GGUF metadata (tokenizer_gguf.c). */
enum {
    KVF__GGUF_NORMAL = 1,
    KVF__GGUF_UNKNOWN,
    KVF__GGUF_CONTROL,
    KVF__GGUF_USER,
    KVF__GGUF_UNUSED,
    KVF__GGUF_BYTE
}; /* types of tokens */
typedef struct kvf__gguf_splitter {
    const char *pre;
    const char *regex; /* name for kvf__split_regex; NULL: that of the byte-level step */
    bool digits;       /* first isolate every digit */
    bool nfc, ignore_merges, add_bos;
} kvf__gguf_splitter;
const kvf__gguf_splitter *kvf__gguf_splitter_find(const char *pre); /* NULL: unknown */
/* Reads a vocabulary. *out borrows from *memory, which the caller frees, and from the source. */
kvf_status kvf__gguf_vocab_read(const kvf__tok_source *src, kvf__vocab *out, void **memory);
int32_t kvf__gguf_type(const kvf__vocab *v, size_t id);
kvf_status kvf__fill_from_vocab(kvf_ctx *ctx, const kvf__vocab *vocab, kvf__tokenizer *t);
/* tokenizer_config.json, special_tokens_map.json and added_tokens.json: added tokens, bos, eos, the
 * template and the BOS/EOS rule (config_json.c). */
kvf_status kvf__apply_config(const kvf__tok_source *src, kvf__tokenizer *t);
/* Returns a special token's text from the first two files; NULL: absent from both. */
const char *kvf__special_text(const kvf__tok_source *src, const char *key, size_t *n);
/* Returns whether tokenizer_class is stem + "Tokenizer[Fast]". */
bool kvf__class_is(const kvf__tok_source *src, const char *stem);

/* Parts of tokenizer.json (steps_json.c, post_json.c, tokenizer_json.c, json_fields.c). */
/* Reads normalizer, pre-tokenizer and decoder of the file. */
kvf_status kvf__read_steps(kvf_ctx *ctx, const char *where, const kvf_json *root,
                           kvf__tokenizer *t);
kvf_status kvf__read_post(kvf_ctx *ctx, const char *where, const kvf_json *json, kvf__tokenizer *t);
kvf_status kvf__read_vocab(kvf_ctx *ctx, const char *where, kvf_json *vocab, kvf__tokenizer *t);
kvf_status kvf__read_added_token(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                 kvf__added *out); /* text is a view */

/* Decodes base64. out has room for 3 bytes per 4 characters, rounded up; false: invalid
 * (charsmap.c). */
bool kvf__base64(const char *text, size_t n, char *out, size_t *out_n);
/* Sets step->text of a KVF__STEP_CHARSMAP from base64. */
kvf_status kvf__read_charsmap(kvf_ctx *ctx, const char *where, const char *base64, size_t n,
                              kvf__tok_step *step);
/* Sets it from bytes. */
kvf_status kvf__set_charsmap(kvf_ctx *ctx, const char *where, const uint8_t *bytes, size_t n,
                             kvf__tok_step *step);

/* BERT's parts (bert_files.c). */
kvf_status kvf__bert_normalizer(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                kvf__tok_steps *out);
kvf_status kvf__bert_pre_tokenizer(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                   kvf__tok_steps *out); /* where, json: not read */
/* Adds the steps and model of BERT's pipeline to a complete vocabulary, with BERT's names of
 * special tokens; where: its file, for errors. */
kvf_status kvf__bert_pipeline(kvf_ctx *ctx, const char *where, bool lowercase, kvf__tokenizer *t);
/* Overrides a BertNormalizer by the config's switches; does nothing for other normalizers. */
kvf_status kvf__bert_config(const kvf__tok_source *src, kvf__tokenizer *t);

bool kvf__has_bool(const kvf_json *config, const char *key);
/* Read fields that must have their type if present; null counts as absent. */
kvf_status kvf__want_bool(kvf_ctx *ctx, const char *where, const kvf_json *object, const char *key,
                          bool otherwise, bool *out);
kvf_status kvf__want_str(kvf_ctx *ctx, const char *where, const kvf_json *object, const char *key,
                         const char **out, size_t *n); /* NULL if absent */

#endif

/* Text to token ids and back, and the chat templates of the supported models.
 *
 * A tokenizer reproduces the ids of Hugging Face `tokenizers` for byte-level BPE (GPT-2, RoBERTa,
 * Llama 3, Qwen, SmolLM2), SentencePiece-style BPE (Llama 2) and WordPiece (BERT). It is immutable
 * after creation. */
#ifndef KVF_TEXT_INT_H
#define KVF_TEXT_INT_H

#include "base_int.h"
#include "utf8.h"

typedef struct kvf__tokenizer kvf__tokenizer;

/* A folder with tokenizer.json (preferred), tokenizer.gguf.json (the vocabulary of a GGUF),
 * vocab.json + merges.txt (GPT-2, RoBERTa, Qwen2), vocab.txt (BERT) or tokenizer.model (of
 * SentencePiece or tiktoken), and tokenizer_config.json,
 * special_tokens_map.json, chat_template.jinja if there. EFORMAT, EUNSUPPORTED name file and field.
 * add_bos_token and add_eos_token of the config, where written, rule over the post-processor;
 * add_prefix_space, do_lower_case, strip_accents and tokenize_chinese_chars over the
 * tokenizer.json's own. Its truncation and padding are ignored. */
kvf_status kvf__tokenizer_from_dir(kvf_ctx *ctx, const char *dir, kvf__tokenizer **out);
/* The same from texts in memory; `where` names the folder in errors. */
typedef struct kvf__text_file {
    const char *name, *text;
} kvf__text_file;
kvf_status kvf__tokenizer_from_texts(kvf_ctx *ctx, const char *where, const kvf__text_file *files,
                                     size_t n, kvf__tokenizer **out);
/* The files that either looks for, by index; NULL past the last. */
const char *kvf__tokenizer_file(size_t index);

/* Plain description of a vocabulary, as GGUF metadata holds it (ggml's docs/gguf.md). Everything is
 * viewed.
 */
typedef struct kvf__vocab {
    const char *where; /* file, for errors */
    const char *model; /* "gpt2", "bert", "llama" or "t5" (SentencePiece's BPE and Unigram) */
    const char *pre;   /* "smollm", "llama-bpe", "qwen2", "gpt-2"; NULL if absent */
    size_t n_tokens;
    const char *const *tokens;
    const size_t *token_bytes;
    const float *scores;  /* [n_tokens], SentencePiece only */
    const int32_t *types; /* [n_tokens]: 1 normal 2 unknown 3 control 4 user-defined 5 unused 6
                             byte; may be NULL */
    size_t n_merges;
    const char *const *merges; /* "left right" */
    const size_t *merge_bytes;
    int32_t bos, eos, unk, pad;             /* -1: none */
    int add_bos, add_eos, add_space_prefix; /* -1: not given, the family's default */
    const char *chat_template;              /* may be NULL */
    /* SentencePiece only. */
    const uint8_t *charsmap; /* [charsmap_bytes] its precompiled_charsmap */
    size_t charsmap_bytes;
    bool collapse_spaces; /* none at the ends of a text, one where there are several */
    bool fuse_unk;        /* a run of unknown characters is one token */
    bool strip_after;     /* white space behind special tokens goes, as of Phi-3 */
} kvf__vocab;
kvf_status kvf__tokenizer_from_vocab(kvf_ctx *ctx, const kvf__vocab *vocab, kvf__tokenizer **out);
/* The same as the text of tokenizer.gguf.json, from which a folder or a base file gives the same
 * tokenizer; *out to be freed. */
kvf_status kvf__vocab_to_json(kvf_ctx *ctx, const kvf__vocab *vocab, char **out);
/* The text of a tokenizer.gguf.json as those of tokenizer.json and tokenizer_config.json, from
 * which transformers makes the same tokenizer; both to be freed. where: its file, for errors. Of a
 * SentencePiece vocabulary the scores become merges in their order, which is the same as long as
 * they are different. */
kvf_status kvf__vocab_to_transformers(kvf_ctx *ctx, const char *where, const char *gguf_json,
                                      char **tokenizer, char **config);
/* Is a tokenizer.model one of SentencePiece, and no text? And as the text of a tokenizer.gguf.json;
 * *out to be freed. spiece: T5's file of that name; it has only the pieces of its own, and
 * config, its tokenizer_config.json or NULL, says how many <extra_id_N> come behind them. */
bool kvf__is_sentencepiece(const char *data, size_t n);
kvf_status kvf__sentencepiece_to_json(kvf_ctx *ctx, const char *where, const char *data, size_t n,
                                      char **out);
kvf_status kvf__spiece_to_json(kvf_ctx *ctx, const char *where, const char *data, size_t n,
                               const kvf_json *config, char **out);
void kvf__tokenizer_free(kvf__tokenizer *tokenizer);

/* Appends the ids of `text`. add_special: as the tokenizer's post-processor does (BOS, EOS); added
 * tokens written out in the text ("<|im_start|>") become their ids either way, as in `tokenizers`.
 * Invalid UTF-8: each bad byte is read as U+FFFD (maximal subpart rule). ENOMEM; EDATA if a regex
 * of the tokenizer gives up on this text, the text is longer than 2 GiB, or its ids are more than
 * `out` may hold, which is found before all are made. */
kvf_status kvf__encode(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *text,
                       size_t bytes, bool add_special, kvf__ids *out);
/* Appends the text of ids; skip_special leaves out special tokens. Ids outside the vocabulary give
 * U+FFFD. */
kvf_status kvf__decode(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const int32_t *ids, size_t n,
                       bool skip_special, kvf__buf *out);

/* The same of ids that come one by one, each in a time that does not grow with the text. `text` is
 * the same buffer in every call, which nobody else changes. What comes after `settled`
 * is not certain yet: a run of bytes may turn out to be no characters. grown may be NULL. */
typedef struct kvf__decoding kvf__decoding;
typedef struct kvf__grown {
    size_t changed; /* the text before it is as it was before the call */
    size_t settled; /* the text before it will not change */
} kvf__grown;
kvf_status kvf__decoding_create(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, bool skip_special,
                                kvf__decoding **out);
kvf_status kvf__decoding_add(kvf_ctx *ctx, kvf__decoding *decoding, int32_t id, kvf__buf *text,
                             kvf__grown *grown);
/* No more ids come, and no more calls: the text is what kvf__decode gives. */
kvf_status kvf__decoding_end(kvf_ctx *ctx, kvf__decoding *decoding, kvf__buf *text,
                             kvf__grown *grown);
void kvf__decoding_free(kvf__decoding *decoding); /* NULL is fine */

/* As kvf__encode without special tokens; offsets, two per id, are the bytes [from, to) of `text`
 * that became it (what `tokenizers` calls offsets, in bytes; an id of nothing has from = to). */
kvf_status kvf__encode_offsets(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *text,
                               size_t bytes, kvf__ids *out, kvf__ids *offsets);
/* Puts the special tokens around one text or two as the post-processor does: appends to ids, and
 * to types the token type of each. b NULL: one text. a_at, b_at: where the texts begin in `ids`. */
kvf_status kvf__add_specials(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const kvf__ids *a,
                             const kvf__ids *b, kvf__ids *ids, kvf__ids *types, size_t *a_at,
                             size_t *b_at);
/* How many special tokens join adds. */
size_t kvf__specials_cost(const kvf__tokenizer *tokenizer, bool pair);
int32_t kvf__token_mask(const kvf__tokenizer *tokenizer); /* -1: none */

/* Adds what decides the ids of a text (fingerprint.c). */
struct kvf__hash;
void kvf__tokenizer_hash(const kvf__tokenizer *tokenizer, struct kvf__hash *hash);

int32_t kvf__vocab_size(const kvf__tokenizer *tokenizer); /* largest id + 1 */
int32_t kvf__token_bos(const kvf__tokenizer *tokenizer);  /* -1: none */
int32_t kvf__token_eos(const kvf__tokenizer *tokenizer);
int32_t kvf__token_pad(const kvf__tokenizer *tokenizer);
bool kvf__adds_bos(const kvf__tokenizer *tokenizer); /* encode(add_special) begins with BOS */
/* Fallbacks for folders whose tokenizer files name none (config.json's bos_token_id /
 * eos_token_id). */
void kvf__tokenizer_set_eos(kvf__tokenizer *tokenizer, int32_t eos);
void kvf__tokenizer_set_bos(kvf__tokenizer *tokenizer, int32_t bos);
int32_t kvf__token_id(const kvf__tokenizer *tokenizer,
                      const char *token); /* by its written form, -1: none */
const char *kvf__token_text(const kvf__tokenizer *tokenizer,
                            int32_t id); /* written form, NULL: none */
bool kvf__token_is_special(const kvf__tokenizer *tokenizer, int32_t id);
bool kvf__token_is_ordinary(const kvf__tokenizer *tokenizer,
                            int32_t id); /* not special, unused, byte or unknown */
const char *
kvf__tokenizer_chat_template(const kvf__tokenizer *tokenizer); /* source text, NULL: none */

/* ---- chat templates -------------------------------------------------------------------------- */

typedef enum kvf__chat_kind {
    KVF__CHAT_NONE,
    KVF__CHAT_CHATML,
    KVF__CHAT_LLAMA3,
    KVF__CHAT_MISTRAL,
    KVF__CHAT_GEMMA,
    KVF__CHAT_PHI3,
    KVF__CHAT_PHI4,
    KVF__CHAT_PHI4_MINI,
    KVF__CHAT_OLMO2,
    KVF__CHAT_RENDERED /* texts are what a template has printed: no messages */
} kvf__chat_kind;

typedef struct kvf__chat {
    kvf__chat_kind kind;
    char *name;         /* as asked for. Owned. */
    char *system;       /* default system turn when the first role is not system (Llama 3.1: default
                           date); NULL: none. Owned. */
    const char *date;   /* within name; NULL: the template's own, if it prints one */
    int form;           /* which of the kind's templates; private to src/text */
    bool always_prompt; /* the template opens an assistant turn at the end whether asked or not */
    bool no_system;     /* a prefix stands for what comes before the first user turn */
} kvf__chat;

/* name: auto, none, a kind's or no-system. auto reads the tokenizer's own template: recognised by
 * its source (SmolLM2's and Qwen's default system turns included), KVF__CHAT_NONE if there is no
 * template, EUNSUPPORTED with the template's first line if it is none of ours. A kind named that is
 * also the tokenizer's own comes with all its own template does, default system turn included;
 * otherwise it is plain. A template that prints today's date (Llama 3.1's and later) prints a fixed
 * one: that of its source, 26 Jul 2024, or DATE of "auto:DATE" or "llama3:DATE". no-system: the
 * tokenizer's own from the first user turn on, for chats behind a prefix that stands for the rest;
 * EUNSUPPORTED where there is none or it puts the system text into a user turn. */
kvf_status kvf__chat_init(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *name,
                          kvf__chat *out);
void kvf__chat_done(kvf__chat *chat);
/* Does a name as above name this kind? */
bool kvf__chat_names(const char *name, kvf__chat_kind kind);
/* The text of the token that ends a turn; NULL: it is EOS, or there is none. */
const char *kvf__chat_end(const kvf__chat *chat);
/* The date that is printed; NULL: none is. */
const char *kvf__chat_date(const kvf__chat *chat);

typedef struct kvf__message {
    const char *role, *content; /* views, NUL-terminated UTF-8 */
    size_t bytes;               /* of the content, which may hold U+0000; 0: to its first NUL */
    bool mute;                  /* an assistant turn without loss */
} kvf__message;

/* Appends the ids of a conversation, rendered and tokenised as transformers' apply_chat_template
 * does. `loss`, if given, gets one entry per appended id: 1 for the content and end token of
 * assistant turns that are not mute, else 0. Pieces are tokenised separately where loss changes,
 * whether or not `loss` is given: a prompt's ids are a prefix of the whole conversation's. They
 * differ from the whole text's at once only where an answer begins with white space.
 * add_generation_prompt opens an assistant turn at the end. EDATA names the message whose role does
 * not fit (Mistral's and Gemma's turns must alternate; tool turns), EUNSUPPORTED if chat is
 * KVF__CHAT_NONE or RENDERED. */
kvf_status kvf__chat_encode(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const kvf__chat *chat,
                            const kvf__message *messages, size_t n, bool add_generation_prompt,
                            kvf__ids *out, kvf__ids *loss);

#endif

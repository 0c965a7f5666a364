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

/* Reads a folder with tokenizer.json (preferred), tokenizer.gguf.json (the vocabulary of a GGUF),
 * vocab.json + merges.txt (GPT-2, RoBERTa, Qwen2), vocab.txt (BERT) or tokenizer.model (of
 * SentencePiece or tiktoken). tokenizer_config.json, special_tokens_map.json and
 * chat_template.jinja are optional. EFORMAT, EUNSUPPORTED name file and field. In the config,
 * add_bos_token and add_eos_token override the post-processor; add_prefix_space, do_lower_case,
 * strip_accents and tokenize_chinese_chars override tokenizer.json. Its truncation and padding are
 * ignored. */
kvf_status kvf__tokenizer_from_dir(kvf_ctx *ctx, const char *dir, kvf__tokenizer **out);
/* Reads texts in memory; `where` names the folder in errors. */
typedef struct kvf__text_file {
    const char *name, *text;
} kvf__text_file;
kvf_status kvf__tokenizer_from_texts(kvf_ctx *ctx, const char *where, const kvf__text_file *files,
                                     size_t n, kvf__tokenizer **out);
/* Returns the name of a file that both look for, by index; NULL past the last. */
const char *kvf__tokenizer_file(size_t index);

/* A vocabulary in the form of GGUF metadata (ggml's docs/gguf.md). Everything is borrowed. */
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
    int add_bos, add_eos, add_space_prefix; /* -1: absent, the family's default */
    const char *chat_template;              /* may be NULL */
    /* SentencePiece only. */
    const uint8_t *charsmap; /* [charsmap_bytes] its precompiled_charsmap */
    size_t charsmap_bytes;
    bool collapse_spaces; /* remove spaces at the ends of a text, and keep one of several */
    bool fuse_unk;        /* a run of unknown characters is one token */
    bool strip_after;     /* remove white space after special tokens, as in Phi-3 */
} kvf__vocab;
kvf_status kvf__tokenizer_from_vocab(kvf_ctx *ctx, const kvf__vocab *vocab, kvf__tokenizer **out);
/* Texts, separated by spaces, of the tokens at which llama.cpp ends an answer whatever the file
 * says. */
extern const char kvf__gguf_ends[];
/* Writes the vocabulary as the text of tokenizer.gguf.json, from which a folder or a base file
 * gives the same tokenizer; the caller frees *out. */
kvf_status kvf__vocab_to_json(kvf_ctx *ctx, const kvf__vocab *vocab, char **out);
/* Converts the text of a tokenizer.gguf.json to those of tokenizer.json and tokenizer_config.json,
 * from which transformers makes the same tokenizer; the caller frees both. where: its file, for
 * errors. Scores of a SentencePiece vocabulary become merges in their order, which is equivalent if
 * they are distinct. */
kvf_status kvf__vocab_to_transformers(kvf_ctx *ctx, const char *where, const char *gguf_json,
                                      char **tokenizer, char **config);
/* Recognises a tokenizer.model of SentencePiece, and converts it to the text of a
 * tokenizer.gguf.json; the caller frees *out. spiece: T5's file of that name, which lacks the
 * <extra_id_N>; config, its tokenizer_config.json or NULL, gives their number. */
bool kvf__is_sentencepiece(const char *data, size_t n);
kvf_status kvf__sentencepiece_to_json(kvf_ctx *ctx, const char *where, const char *data, size_t n,
                                      char **out);
kvf_status kvf__spiece_to_json(kvf_ctx *ctx, const char *where, const char *data, size_t n,
                               const kvf_json *config, char **out);
void kvf__tokenizer_free(kvf__tokenizer *tokenizer);

/* Appends the ids of `text`. add_special: adds the tokenizer's special tokens (BOS, EOS). Added
 * tokens in the text ("<|im_start|>") always become their ids, as in `tokenizers`. Bad bytes are
 * read as U+FFFD (maximal subpart rule). ENOMEM; EDATA: a regex of the tokenizer reaches its limit,
 * the text is longer than 2 GiB, or `out` may not hold its ids, which is detected early. */
kvf_status kvf__encode(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *text,
                       size_t bytes, bool add_special, kvf__ids *out);
/* Appends the text of ids; skip_special omits special tokens. Ids outside the vocabulary give
 * U+FFFD. */
kvf_status kvf__decode(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const int32_t *ids, size_t n,
                       bool skip_special, kvf__buf *out);

/* Decodes ids one by one, each in constant time. `text` is the same buffer in every call, and only
 * these calls change it. Text after `settled` may still change: a run of bytes may turn out to be
 * no characters. grown may be NULL. */
typedef struct kvf__decoding kvf__decoding;
typedef struct kvf__grown {
    size_t changed; /* text before this offset is unchanged by the call */
    size_t settled; /* text before this offset is final */
} kvf__grown;
kvf_status kvf__decoding_create(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, bool skip_special,
                                kvf__decoding **out);
kvf_status kvf__decoding_add(kvf_ctx *ctx, kvf__decoding *decoding, int32_t id, kvf__buf *text,
                             kvf__grown *grown);
/* Ends the sequence of ids. The text is then the result of kvf__decode. */
kvf_status kvf__decoding_end(kvf_ctx *ctx, kvf__decoding *decoding, kvf__buf *text,
                             kvf__grown *grown);
void kvf__decoding_free(kvf__decoding *decoding); /* decoding may be NULL */

/* Encodes without special tokens. offsets, two per id, are the source bytes [from, to) in `text`
 * (the offsets of `tokenizers`, in bytes; from = to for an id without source). */
kvf_status kvf__encode_offsets(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *text,
                               size_t bytes, kvf__ids *out, kvf__ids *offsets);
/* Adds the special tokens of the post-processor around one text or two: appends to ids, and to
 * types the token type of each. b NULL: one text. a_at, b_at: positions of the texts in `ids`. */
kvf_status kvf__add_specials(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const kvf__ids *a,
                             const kvf__ids *b, kvf__ids *ids, kvf__ids *types, size_t *a_at,
                             size_t *b_at);
/* Returns the number of special tokens added by kvf__add_specials. */
size_t kvf__specials_cost(const kvf__tokenizer *tokenizer, bool pair);
int32_t kvf__token_mask(const kvf__tokenizer *tokenizer); /* -1: none */

/* Adds everything that determines the ids of a text (fingerprint.c). */
struct kvf__hash;
void kvf__tokenizer_hash(const kvf__tokenizer *tokenizer, struct kvf__hash *hash);

int32_t kvf__vocab_size(const kvf__tokenizer *tokenizer); /* largest id + 1 */
int32_t kvf__token_bos(const kvf__tokenizer *tokenizer);  /* -1: none */
int32_t kvf__token_eos(const kvf__tokenizer *tokenizer);
int32_t kvf__token_pad(const kvf__tokenizer *tokenizer);
/* whether encode(add_special) begins with BOS */
bool kvf__adds_bos(const kvf__tokenizer *tokenizer);
/* Fallbacks for folders whose tokenizer files name none (bos_token_id and eos_token_id of
 * config.json). */
void kvf__tokenizer_set_eos(kvf__tokenizer *tokenizer, int32_t eos);
void kvf__tokenizer_set_bos(kvf__tokenizer *tokenizer, int32_t bos);
int32_t kvf__token_id(const kvf__tokenizer *tokenizer,
                      const char *token); /* id by the written form, -1: none */
const char *kvf__token_text(const kvf__tokenizer *tokenizer,
                            int32_t id); /* written form, NULL: none */
bool kvf__token_is_special(const kvf__tokenizer *tokenizer, int32_t id);
/* Ordinary: not special, unused, byte or unknown. */
bool kvf__token_is_ordinary(const kvf__tokenizer *tokenizer, int32_t id);
/* Source text; NULL: none. */
const char *kvf__tokenizer_chat_template(const kvf__tokenizer *tokenizer);

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
    KVF__CHAT_GRANITE,
    KVF__CHAT_RENDERED /* texts are already rendered: no messages */
} kvf__chat_kind;

typedef struct kvf__chat {
    kvf__chat_kind kind;
    char *name;   /* the requested name; owned */
    char *system; /* default system turn if the first role is not system (Llama 3.1: default date);
                     NULL: none; owned */
    const char *date;   /* part of name; NULL: the template's own date, if it prints one */
    int form;           /* variant of the kind's templates; private to src/text */
    bool always_prompt; /* the template always opens an assistant turn at the end */
    bool no_system;     /* a prefix replaces the text before the first user turn */
} kvf__chat;

/* Selects a chat template by name: auto, none, a kind, or no-system.
 * - auto recognises the tokenizer's own template by its source, including the default system turns
 * of SmolLM2 and Qwen. KVF__CHAT_NONE: there is no template. EUNSUPPORTED, with the template's
 * first line: it is unknown.
 * - A kind that is also the tokenizer's own includes all details of its template, such as the
 * default system turn; otherwise it is plain. A template that prints today's date (Llama 3.1 and
 * later) prints a fixed one: that of its source, 26 Jul 2024, or DATE of "auto:DATE" or
 * "llama3:DATE".
 * - no-system is the tokenizer's own template from the first user turn on, for chats behind a
 * prefix that replaces the rest. EUNSUPPORTED: there is no template, or it puts the system text
 * into a user turn. */
kvf_status kvf__chat_init(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *name,
                          kvf__chat *out);
void kvf__chat_done(kvf__chat *chat);
/* Returns whether such a name means this kind. */
bool kvf__chat_names(const char *name, kvf__chat_kind kind);
/* Returns the text of the token that ends a turn; NULL: EOS or none. */
const char *kvf__chat_end(const kvf__chat *chat);
/* Returns the printed date; NULL: none. */
const char *kvf__chat_date(const kvf__chat *chat);

typedef struct kvf__message {
    const char *role, *content; /* borrowed, NUL-terminated UTF-8 */
    size_t bytes; /* bytes of the content, which may contain U+0000; 0: up to its first NUL */
    bool mute;    /* an assistant turn without loss */
} kvf__message;

/* Appends the ids of a conversation, rendered and tokenised like transformers' apply_chat_template.
 * `loss`, if given, receives one entry per id: 1 for the content and end token of assistant turns
 * that are not mute, else 0. Parts are tokenised separately where loss changes, even without
 * `loss`, so a prompt's ids are a prefix of the whole conversation's. Only an answer that begins
 * with white space gets other ids than in the whole text. add_generation_prompt opens an assistant
 * turn at the end. EDATA names the message whose role is not allowed (Mistral's and Gemma's turns
 * must alternate; tool turns). EUNSUPPORTED: chat is KVF__CHAT_NONE or RENDERED. */
kvf_status kvf__chat_encode(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const kvf__chat *chat,
                            const kvf__message *messages, size_t n, bool add_generation_prompt,
                            kvf__ids *out, kvf__ids *loss);

#endif

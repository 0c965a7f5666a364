/* The inside of a tokenizer. Private to src/text: everyone else goes through text_int.h.
 *
 * A tokenizer is a pipeline of data, as in `tokenizers`: added tokens are cut out of
 * the raw text, each piece between them is normalised and cut once more at the normalised added
 * tokens, what is left is pre-tokenised, and each pre-token goes through the model. All of it is
 * immutable; whatever changes while a text runs through lives in a kvf__work. Text inside the
 * pipeline is always valid UTF-8. */
#ifndef KVF_TOK_INT_H
#define KVF_TOK_INT_H

#include "map.h"
#include "text_int.h"

/* ---- character classes (uchar.c) -------------------------------------------------------------- */

bool kvf__is_space(uint32_t cp);       /* White_Space */
bool kvf__is_numeric(uint32_t cp);     /* category N */
bool kvf__is_punct(uint32_t cp);       /* ASCII punctuation and symbols, category P of Unicode 8 */
bool kvf__is_word(uint32_t cp);        /* \w of UTS 18 */
bool kvf__is_accent(uint32_t cp);      /* category M of Unicode 9 */
bool kvf__is_mark(uint32_t cp);        /* category M */
bool kvf__is_nonspacing(uint32_t cp);  /* category Mn of Unicode 8 */
bool kvf__is_dropped(uint32_t cp);     /* BERT's clean_text drops it: controls of Unicode 8 */
bool kvf__is_chinese(uint32_t cp);     /* BERT's idea of it */
int kvf__combining_class(uint32_t cp); /* of Unicode 9 */
bool kvf__may_decompose(uint32_t cp);  /* false: has no decomposition in Unicode 9 */
uint32_t kvf__lower(uint32_t cp);      /* U+0130 is an i, and a U+0307 that this does not give */

/* ---- patterns (pattern.c) -------------------------------------------------------------------- */

typedef struct kvf__pattern kvf__pattern; /* a regular expression or a literal string */
typedef struct kvf__work kvf__work;

kvf_status kvf__pattern_regex(kvf_ctx *ctx, const char *where, const char *source, size_t n,
                              kvf__pattern **out);
kvf_status kvf__pattern_literal(kvf_ctx *ctx, const char *text, size_t n, kvf__pattern **out);
bool kvf__pattern_may_be_empty(const kvf__pattern *pattern); /* may match no text at all */
void kvf__pattern_free(kvf__pattern *pattern);

/* A search over one text: {.s, .n} to begin; each hit is bytes start .. end-1. */
typedef struct kvf__search {
    const char *s;
    size_t n, at, last_end;
    bool any;
    size_t start, end;
} kvf__search;
/* *found = false at the end. ENOMEM, EDATA (the match limit was reached). */
kvf_status kvf__pattern_next(kvf__work *work, const kvf__pattern *pattern, kvf__search *search,
                             bool *found);
void kvf__match_free(void *match);
bool kvf__pattern_is_character(const kvf__pattern *pattern); /* matches one, and no other text */

/* ---- steps: normalizers, pre-tokenizers and decoders, as rows of data ------------------------ */

typedef enum kvf__step_kind {
    KVF__STEP_NFC,
    KVF__STEP_NFD,
    KVF__STEP_NFKC,
    KVF__STEP_NFKD, /* normalizers */
    KVF__STEP_LOWERCASE,
    KVF__STEP_STRIP_ACCENTS,
    KVF__STEP_PREPEND,
    KVF__STEP_CLEAN,         /* BERT: control characters out, white space to ' ' */
    KVF__STEP_SPACE_CHINESE, /* BERT: ' ' on both sides of each */
    KVF__STEP_STRIP_MARKS,   /* BERT: non-spacing marks only */
    KVF__STEP_REPLACE,       /* normalizer and decoder */
    KVF__STEP_BYTE_LEVEL,
    KVF__STEP_METASPACE, /* pre-tokenizer and decoder */
    KVF__STEP_SPLIT,
    KVF__STEP_DIGITS,
    KVF__STEP_WHITESPACE, /* pre-tokenizers */
    KVF__STEP_WHITESPACE_SPLIT,
    KVF__STEP_PUNCTUATION,
    KVF__STEP_BYTE_FALLBACK,
    KVF__STEP_FUSE,
    KVF__STEP_STRIP,
    KVF__STEP_WORDPIECE /* decoders */
} kvf__step_kind;

typedef enum kvf__behavior {
    KVF__ISOLATED,
    KVF__REMOVED,
    KVF__MERGED_PREVIOUS,
    KVF__MERGED_NEXT,
    KVF__CONTIGUOUS
} kvf__behavior;

typedef enum kvf__scheme {
    KVF__PREPEND_ALWAYS,
    KVF__PREPEND_FIRST,
    KVF__PREPEND_NEVER
} kvf__scheme;

typedef struct kvf__step {
    kvf__step_kind kind;
    kvf__pattern *pattern; /* replace, split; byte-level: its regex, NULL without; owned */
    char *text; /* prepend, replace: content; metaspace: replacement; strip: the character;
                   wordpiece: the prefix; owned */
    size_t text_n;
    kvf__behavior behavior; /* split, digits, punctuation */
    kvf__scheme scheme;     /* metaspace */
    bool invert, prefix_space, split;
    bool cleanup;        /* wordpiece decoder */
    int64_t start, stop; /* strip: at most so many characters at either end */
} kvf__step;

typedef struct kvf__steps {
    kvf__step *v;
    size_t n, cap;
} kvf__steps;
kvf_status kvf__steps_add(kvf_ctx *ctx, kvf__steps *steps,
                          kvf__step *step); /* takes what step owns, always */
void kvf__step_done(kvf__step *step);
void kvf__steps_done(kvf__steps *steps);

/* Text whose every byte may know the bytes [from, to) of the original that became it (trace.c). */
typedef struct kvf__span {
    uint32_t from, to;
} kvf__span;
typedef struct kvf__traced {
    kvf__buf buf;
    kvf__span *from; /* [buf.n] while work->origins is set, else stale */
    size_t cap;
} kvf__traced;

/* A list of strings in one buffer: pre-tokens on the way in, tokens on the way out. */
typedef struct kvf__piece {
    size_t at, n;
} kvf__piece;
typedef struct kvf__pieces {
    kvf__traced text;
    kvf__piece *v;
    size_t n, cap;
    bool head; /* v[0] begins where the whole text begins */
} kvf__pieces;
kvf_status kvf__pieces_add(kvf_ctx *ctx, kvf__pieces *pieces, size_t at,
                           size_t n); /* n = 0 is left out */
void kvf__pieces_clear(kvf__pieces *pieces);
void kvf__pieces_done(kvf__pieces *pieces);

/* ---- vocabulary (lexicon.c) ------------------------------------------------------------------ */

enum {
    KVF__TOK_PRESENT = 1,
    KVF__TOK_SPECIAL = 2,
    KVF__TOK_BYTE = 4,
    KVF__TOK_UNKNOWN = 8,
    KVF__TOK_UNUSED = 16
};
/* The largest vocabulary known has 0.9 million tokens (XLM-V); a table by id stays below 64 MB. */
enum { KVF__DIRECT_CHARS = 0x180, KVF__MAX_TOKEN_ID = 1 << 21 };

typedef struct kvf__lexicon {
    kvf__map model; /* text -> id, what the model may produce */
    kvf__map added; /* text -> id of added tokens */
    kvf__buf text;  /* written forms, each followed by a NUL */
    struct kvf__token {
        size_t at;
        uint32_t n;
        uint32_t flags;
    } * v;                            /* by id */
    size_t n, cap;                    /* n: largest id + 1 */
    size_t longest;                   /* of the model's tokens, bytes */
    int32_t chars[KVF__DIRECT_CHARS]; /* id of a one-character token below U+0180, -1 */
    int32_t bytes[256];               /* id of <0xXX>, -1 */
} kvf__lexicon;
void kvf__lexicon_init(kvf__lexicon *lex);
/* `added` tokens go to the added map only. where names the source if the id is not usable. */
kvf_status kvf__lexicon_put(kvf_ctx *ctx, kvf__lexicon *lex, const char *where, const char *text,
                            size_t n, int64_t id, uint32_t flags, bool added);
int32_t kvf__lexicon_model(const kvf__lexicon *lex, const char *text, size_t n); /* -1: none */
int32_t kvf__lexicon_find(const kvf__lexicon *lex, const char *text, size_t n);  /* added first */
void kvf__lexicon_index(kvf__lexicon *lex); /* fills chars and bytes, once complete */
void kvf__lexicon_done(kvf__lexicon *lex);

/* ---- added tokens (added.c) ------------------------------------------------------------------ */

typedef struct kvf__added {
    char *text; /* owned */
    size_t n;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} kvf__added;

/* Matches a set of texts, leftmost, then longest. */
typedef struct kvf__trie {
    struct kvf__trie_node {
        int32_t child, sibling, value;
        uint8_t byte;
    } * v;
    size_t n, cap;
    bool first[256];
} kvf__trie;
kvf_status kvf__trie_add(kvf_ctx *ctx, kvf__trie *trie, const char *text, size_t n, int32_t value);
void kvf__trie_done(kvf__trie *trie);

typedef struct kvf__added_list {
    kvf__added *v;
    size_t n, cap;
    kvf__trie raw, normal; /* values are indices into v */
} kvf__added_list;
kvf_status kvf__added_put(kvf_ctx *ctx, kvf__added_list *list,
                          const kvf__added *token); /* copies text; replaces one of equal text */
void kvf__added_done(kvf__added_list *list);

/* The next part of text from *at on: an added token (*token set) or the text before one (NULL),
 * bytes *start .. *end-1. False at the end. */
typedef struct kvf__cut {
    const char *s;
    size_t n, search_at, done;
    const kvf__added *token; /* what this part is; NULL: plain text */
    size_t start, end;
    const kvf__added *held; /* a match behind the plain part handed out first */
    size_t held_start, held_end;
} kvf__cut;
bool kvf__added_next(const kvf__added_list *list, const kvf__trie *trie, kvf__cut *cut);

/* ---- models (bpe.c, spm.c, wordpiece.c) ------------------------------------------------------ */

typedef struct kvf__pairs {
    struct kvf__pair {
        uint64_t key;
        int32_t rank, id;
    } * v; /* key 0: free */
    size_t cap;
} kvf__pairs;
kvf_status kvf__pairs_init(kvf_ctx *ctx, kvf__pairs *pairs, size_t n);
void kvf__pairs_put(kvf__pairs *pairs, int32_t left, int32_t right, int32_t rank,
                    int32_t id); /* last wins */
const struct kvf__pair *kvf__pairs_get(const kvf__pairs *pairs, int32_t left, int32_t right);

typedef enum kvf__model_kind {
    KVF__MODEL_BPE,
    KVF__MODEL_SCORES, /* SentencePiece scores instead of merge ranks */
    KVF__MODEL_WORDPIECE
} kvf__model_kind;

typedef struct kvf__model {
    kvf__model_kind kind;
    kvf__pairs pairs;
    float *scores;         /* [lexicon.n] */
    int32_t unk;           /* -1: none */
    char *prefix, *suffix; /* of continuing characters, of a word's last one; NULL: none */
    bool byte_fallback, fuse_unk, ignore_merges;
    int64_t max_chars; /* wordpiece: of a word that is not unknown as a whole */
} kvf__model;

/* One symbol of a word, a doubly linked list; n = 0 once merged away. */
typedef struct kvf__symbol {
    int32_t id, prev, next;
    uint32_t at, n; /* its bytes in the word; `at` by-score only */
} kvf__symbol;
typedef struct kvf__merge {
    double key;     /* smallest first: rank, or minus the score */
    int32_t at, id; /* left symbol; what the pair becomes */
    uint32_t n;     /* by-score: bytes of the pair when queued */
} kvf__merge;
/* The word being merged. */
typedef struct kvf__word {
    kvf__symbol *v;
    size_t n, cap;
    kvf__merge *heap;
    size_t heap_n, heap_cap;
    kvf__buf affixed;
} kvf__word;
kvf_status kvf__word_add(kvf_ctx *ctx, kvf__word *word, int32_t id, size_t at, size_t n);
kvf_status kvf__word_push(kvf_ctx *ctx, kvf__word *word, kvf__merge merge);
bool kvf__word_pop(kvf__word *word, kvf__merge *merge);
void kvf__word_join(kvf__word *word, int32_t at,
                    int32_t id); /* symbol `at` swallows the next one */
void kvf__word_done(kvf__word *word);

/* Append the ids of one pre-token, work->pieces.v[work->piece], to work->out. */
kvf_status kvf__bpe_encode(kvf__work *work, const char *text, size_t n);
kvf_status kvf__spm_encode(kvf__work *work, const char *text, size_t n);
kvf_status kvf__wordpiece_encode(kvf__work *work, const char *text, size_t n);

/* ---- the whole ------------------------------------------------------------------------------- */

enum { KVF__POST_TEXT = -1, KVF__POST_PAIR = -2 };

/* Special ids, with KVF__POST_TEXT and KVF__POST_PAIR in the places of the texts; and the token
 * type of each place. */
typedef struct kvf__template {
    kvf__ids items, types;
} kvf__template;
kvf_status kvf__template_add(kvf_ctx *ctx, kvf__template *to, int32_t item, int32_t type);
void kvf__template_done(kvf__template *template);

struct kvf__tokenizer {
    kvf__lexicon lex;
    kvf__added_list added;
    kvf__steps normalizer, pre, decoder;
    bool has_decoder;
    kvf__model model;
    kvf__template post, pair;             /* around one text, around two */
    bool trim_offsets, trim_prefix_space; /* origins leave out spaces, but not one put in front */
    int32_t bos, eos, cls, mask;          /* -1: none */
    char *chat_template;
};

/* A code point on its way to a normalisation form. */
typedef struct kvf__point {
    int32_t cp;
    int32_t change; /* how many characters it is more than what it came from */
    size_t at;      /* its place, while its run is sorted */
} kvf__point;

/* What changes while one text is encoded or decoded. */
struct kvf__work {
    kvf_ctx *ctx;
    const kvf__tokenizer *t;
    kvf__ids *out, *origins;           /* origins: two per id of `out`; NULL: not wanted */
    const char *raw;                   /* the text as it came, which origins count in */
    kvf__traced text, normal, scratch; /* repaired; a normalised section; the step before it */
    kvf__pieces pieces, spare;
    size_t piece;       /* the one the model is at */
    kvf__piece *events; /* of one split; the top bit of n marks a match */
    size_t events_cap;
    kvf__word word;
    kvf__point *points; /* of one normalisation */
    size_t points_cap;
    void *match;         /* pattern.c */
    bool ended_in_token; /* the text's last part was an added token */
};
void kvf__work_done(kvf__work *work);

/* Where a text stands in a larger one of which it is a part: `continues` means that the part before
 * it ended in plain text, so nothing is put before its first section. */
typedef struct kvf__place {
    bool inside, continues;
} kvf__place;
kvf_status kvf__encode_part(kvf__work *work, const char *text, size_t bytes, bool add_special,
                            kvf__place place);

/* Appends bytes of one origin; a part of a traced text with its origins. */
kvf_status kvf__trace_put(kvf__work *work, kvf__traced *to, const char *bytes, size_t n,
                          kvf__span from);
kvf_status kvf__trace_copy(kvf__work *work, kvf__traced *to, const kvf__traced *text, size_t at,
                           size_t n);
kvf__span kvf__trace_at(const kvf__work *work, const kvf__traced *text, size_t at);
kvf_status kvf__trace_text(kvf__work *work, const char *text,
                           size_t n); /* work->text := text, repaired */
void kvf__traced_clear(kvf__traced *text);
void kvf__traced_done(kvf__traced *text);
/* Appends an id to work->out: of bytes at .. at+n-1 of the current piece; of an added token. */
kvf_status kvf__emit(kvf__work *work, int32_t id, size_t at, size_t n);
kvf_status kvf__emit_added(kvf__work *work, const kvf__traced *text, size_t at, size_t n,
                           int32_t id);

/* work->normal := the normalised form of a part of text. `bare` leaves out Prepend. */
kvf_status kvf__normalize(kvf__work *work, const kvf__traced *text, size_t at, size_t n, bool bare);
/* A normalisation form (normal_forms.c). */
kvf_status kvf__apply_form(kvf__work *work, kvf__step_kind form, const kvf__traced *text,
                           kvf__traced *out);
/* work->pieces := the pre-tokens of work->pieces, which holds one piece. `bare` leaves out prefix
 * spaces. */
kvf_status kvf__pre_tokenize(kvf__work *work, bool bare);
void kvf__byte_char(uint8_t byte, char out[2], size_t *n); /* the printable character of a byte */
int kvf__char_byte(uint32_t cp);                           /* its inverse, -1 */
kvf_status kvf__replace_all(kvf__work *work, const kvf__step *step, const kvf__traced *text,
                            size_t at, size_t n, kvf__traced *out);

kvf_status kvf__tokenizer_create(kvf_ctx *ctx, kvf__tokenizer **out); /* empty */
/* Fills the indexes once lexicon, added tokens and normalizer are complete. */
kvf_status kvf__tokenizer_finish(kvf_ctx *ctx, kvf__tokenizer *t);
/* post := text; [bos] text [eos]; cls text sep. pair: the same for two. */
kvf_status kvf__post_bare(kvf_ctx *ctx, kvf__tokenizer *t);
kvf_status kvf__post_bos_eos(kvf_ctx *ctx, kvf__tokenizer *t, bool bos, bool eos);
kvf_status kvf__post_cls_sep(kvf_ctx *ctx, kvf__tokenizer *t, int32_t cls, int32_t sep,
                             bool roberta);

/* The merges "left right" given one at a time; rank is the order. `place` names it in errors. */
kvf_status kvf__merge_put(kvf_ctx *ctx, kvf__tokenizer *t, const char *where, size_t rank,
                          const char *left, size_t left_n, const char *right, size_t right_n);
kvf_status kvf__merge_line(kvf_ctx *ctx, kvf__tokenizer *t, const char *where, size_t rank,
                           const char *line, size_t n);

/* Split regexes by the name of what uses them: "gpt-2", "llama-bpe", "qwen2"; NULL: not known. */
const char *kvf__split_regex(const char *name);
kvf_status kvf__step_byte_level(kvf_ctx *ctx, kvf__steps *steps, bool prefix_space, bool use_regex);
kvf_status kvf__step_regex_split(kvf_ctx *ctx, const char *where, kvf__steps *steps,
                                 const char *regex);

/* Parts of tokenizer.json (steps_json.c) and of tokenizer_config.json (config_json.c). */
kvf_status kvf__read_normalizer(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                kvf__steps *out);
kvf_status kvf__read_pre_tokenizer(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                   kvf__steps *out);
kvf_status kvf__read_decoder(kvf_ctx *ctx, const char *where, const kvf_json *json,
                             kvf__steps *out);
kvf_status kvf__read_post(kvf_ctx *ctx, const char *where, const kvf_json *json, kvf__tokenizer *t);
/* Fields that must have their type when present; null counts as absent. */
kvf_status kvf__want_bool(kvf_ctx *ctx, const char *where, const kvf_json *object, const char *key,
                          bool otherwise, bool *out);
kvf_status kvf__want_str(kvf_ctx *ctx, const char *where, const kvf_json *object, const char *key,
                         const char **out, size_t *n); /* NULL if absent */
kvf_status kvf__read_added_token(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                 bool special, kvf__added *out); /* text is a view */
/* A tokenizer from parsed files. config, special_map may be NULL. */
kvf_status kvf__tokenizer_from_parts(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                     const char *config_where, const kvf_json *config,
                                     const kvf_json *special_map, kvf__tokenizer **out);
/* The vocabulary of a GGUF as JSON (vocab_text.c). */
kvf_status kvf__tokenizer_from_vocab_json(kvf_ctx *ctx, const char *where, const kvf_json *root,
                                          kvf__tokenizer **out);
/* vocab.json and the text of merges.txt (tokenizer_merges.c). */
kvf_status kvf__tokenizer_from_merges(kvf_ctx *ctx, const char *vocab_where, kvf_json *vocab,
                                      const char *merges_where, const kvf__buf *merges,
                                      const char *config_where, const kvf_json *config,
                                      const kvf_json *special_map, kvf__tokenizer **out);
/* vocab.txt, and BERT's parts of the other files (bert_files.c). */
kvf_status kvf__tokenizer_from_vocab_txt(kvf_ctx *ctx, const char *where, const kvf__buf *vocab,
                                         const char *config_where, const kvf_json *config,
                                         const kvf_json *special_map, kvf__tokenizer **out);
kvf_status kvf__bert_normalizer(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                kvf__steps *out);
kvf_status kvf__bert_pre_tokenizer(kvf_ctx *ctx, kvf__steps *out);
/* The config's switches rule over a BertNormalizer; over any other nothing happens. */
kvf_status kvf__bert_config(kvf_ctx *ctx, kvf__tokenizer *t, const char *where,
                            const kvf_json *normalizer, const char *config_where,
                            const kvf_json *config);
/* A token field: "x" or {"content": "x"}; NULL if neither. */
const char *kvf__token_field(const kvf_json *object, const char *key, size_t *n);
kvf_status kvf__read_vocab(kvf_ctx *ctx, const char *where, kvf_json *vocab, kvf__tokenizer *t);
/* Added tokens, bos, eos, the template and the BOS/EOS rule. config, map may be NULL.
 */
kvf_status kvf__apply_config(kvf_ctx *ctx, kvf__tokenizer *t, const char *where,
                             const kvf_json *config, const kvf_json *special_map);
bool kvf__class_is(const kvf_json *config,
                   const char *stem); /* tokenizer_class is stem + "Tokenizer[Fast]" */

/* ---- chat (chat.c, chat_template.c) ---------------------------------------------------------- */

/* What a template in our table does beyond its kind. */
typedef enum kvf__chat_form {
    KVF__FORM_PLAIN,       /* every turn alike, any role */
    KVF__FORM_QWEN2,       /* roles system, user, assistant */
    KVF__FORM_QWEN3,       /* the same, with think blocks */
    KVF__FORM_MISTRAL_OLD, /* "[INST] u [/INST]a</s>", no system turn */
    KVF__FORM_MISTRAL_V1,  /* " [INST] s\n\nu [/INST] a</s>" */
    KVF__FORM_MISTRAL_V3   /* "[INST] u[/INST] a</s>"; the system text goes to a last user turn */
} kvf__chat_form;

/* Recognises a template by its source; kind NONE if it is none of ours. chat->system is allocated.
 */
kvf_status kvf__chat_recognise(kvf_ctx *ctx, const char *source, kvf__chat *out);

#endif

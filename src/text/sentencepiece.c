/* tokenizer.model and spiece.model of SentencePiece: the fields of their protobuf that determine
 * ids (sentencepiece_model.proto), as a vocabulary in the form of GGUF metadata.
 *
 * The reader uses the pieces, the kind of model (BPE by scores, or Unigram), the ids of special
 * pieces and the normalisation. Other fields are skipped by their length.
 *
 * A spiece.model of T5 is completed like in transformers: T5Tokenizer appends EOS to a text, and
 * <extra_id_99> to <extra_id_0> to the pieces. */
#include "infile.h"
#include "tok_files.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */
enum { UNIGRAM = 1, BPE = 2 };                            /* values of TrainerSpec.model_type */
enum { EXTRA_IDS = 100, MOST_EXTRA_IDS = 9999, EXTRA_BYTES = 24 };

/* A field of a message. value: of a number; bytes and n: of other types. */
typedef struct field {
    uint64_t number, value;
    const uint8_t *bytes;
    size_t n;
    int wire;
} field;

typedef struct spm {
    kvf_ctx *ctx;
    const char *where;
    size_t n, cap;
    const char **tokens;
    size_t *token_bytes;
    float *scores;
    int32_t *types;
    size_t extra;               /* number of <extra_id_N> to add */
    char (*names)[EXTRA_BYTES]; /* [extra] */
    uint64_t model;
    bool add_dummy_prefix, escape, suffix;
    kvf__vocab vocab;
} spm;

static uint64_t read_varint(kvf__reader *r)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = kvf__read_u8(r);
        value |= (uint64_t)(byte & 127) << shift;
        if (r->failed || byte < 128) return value;
    }
    r->failed = true;
    return 0;
}

/* Reads the next field; false at the end, and, with r->failed, for malformed bytes. */
static bool next_field(kvf__reader *r, field *f)
{
    if (r->failed || r->at >= r->n) return false;
    const uint64_t key = read_varint(r);
    *f = (field){.number = key >> 3, .wire = (int)(key & 7)};
    switch (f->wire) {
    case VARINT:
        f->value = read_varint(r);
        break;
    case FIXED64:
        f->value = kvf__read_u64(r);
        break;
    case FIXED32:
        f->value = kvf__read_u32(r);
        break;
    case BYTES: {
        const uint64_t n = read_varint(r);
        if (n > r->n - r->at) r->failed = true;
        f->n = r->failed ? 0 : (size_t)n;
        f->bytes = kvf__read_bytes(r, f->n);
        break;
    }
    default: /* groups are not used */
        r->failed = true;
    }
    if (f->number == 0) r->failed = true;
    return !r->failed;
}

static kvf_status damaged(const spm *s, const char *what)
{
    return kvf__fail(s->ctx, KVF_EFORMAT, "%s: %s is damaged or cut short", s->where, what);
}

/* ---- the messages ---------------------------------------------------------------------------- */

static kvf_status add_piece(spm *s, const field *message)
{
    kvf__reader r = {.data = message->bytes, .n = message->n};
    const char *text = "";
    size_t bytes = 0;
    uint32_t score = 0;
    uint64_t type = KVF__GGUF_NORMAL;
    field f;

    while (next_field(&r, &f)) {
        if (f.number == 1 && f.wire == BYTES) {
            text = (const char *)f.bytes;
            bytes = f.n;
        }
        if (f.number == 2 && f.wire == FIXED32) score = (uint32_t)f.value;
        if (f.number == 3 && f.wire == VARINT) type = f.value;
    }
    if (r.failed) return damaged(s, "a piece");
    if (type < KVF__GGUF_NORMAL || type > KVF__GGUF_BYTE || !bytes)
        return kvf__fail(s->ctx, KVF_EFORMAT, "%s: piece %zu has type %llu and %zu bytes", s->where,
                         s->n, (unsigned long long)type, bytes);
    s->tokens[s->n] = text;
    s->token_bytes[s->n] = bytes;
    memcpy(&s->scores[s->n], &score, sizeof score);
    s->types[s->n++] = (int32_t)type;
    return KVF_OK;
}

/* Converts a varint to an int32 id, -1: none. */
static int32_t id_of(uint64_t value)
{
    return value > INT32_MAX ? -1 : (int32_t)value;
}

static kvf_status read_trainer(spm *s, const field *message)
{
    kvf__reader r = {.data = message->bytes, .n = message->n};
    field f;

    while (next_field(&r, &f)) {
        if (f.wire != VARINT) continue;
        if (f.number == 3) s->model = f.value;
        if (f.number == 24) s->suffix = f.value != 0;
        if (f.number == 40) s->vocab.unk = id_of(f.value);
        if (f.number == 41) s->vocab.bos = id_of(f.value);
        if (f.number == 42) s->vocab.eos = id_of(f.value);
        if (f.number == 43) s->vocab.pad = id_of(f.value);
    }
    return r.failed ? damaged(s, "trainer_spec") : KVF_OK;
}

static kvf_status read_normalizer(spm *s, const field *message)
{
    kvf__reader r = {.data = message->bytes, .n = message->n};
    field f;

    while (next_field(&r, &f)) {
        if (f.number == 2 && f.wire == BYTES) {
            s->vocab.charsmap = f.bytes;
            s->vocab.charsmap_bytes = f.n;
        }
        if (f.wire != VARINT) continue;
        if (f.number == 3) s->add_dummy_prefix = f.value != 0;
        if (f.number == 4) s->vocab.collapse_spaces = f.value != 0;
        if (f.number == 5) s->escape = f.value != 0;
    }
    return r.failed ? damaged(s, "normalizer_spec") : KVF_OK;
}

static size_t count_pieces(const void *data, size_t n)
{
    kvf__reader r = {.data = data, .n = n};
    size_t count = 0;
    field f;

    while (next_field(&r, &f))
        count += f.number == 1 && f.wire == BYTES;
    return count;
}

static kvf_status read_messages(spm *s, const void *data, size_t n)
{
    kvf__reader r = {.data = data, .n = n};
    field f;

    while (next_field(&r, &f)) {
        if (f.wire != BYTES) continue;
        if (f.number == 1) KVF_TRY(add_piece(s, &f));
        if (f.number == 2) KVF_TRY(read_trainer(s, &f));
        if (f.number == 3) KVF_TRY(read_normalizer(s, &f));
    }
    return r.failed ? damaged(s, "the SentencePiece model") : KVF_OK;
}

/* ---- the vocabulary -------------------------------------------------------------------------- */

static kvf_status check(const spm *s)
{
    if (!s->n) return kvf__fail(s->ctx, KVF_EFORMAT, "%s: no pieces", s->where);
    if (s->model != UNIGRAM && s->model != BPE)
        return kvf__fail(s->ctx, KVF_EUNSUPPORTED,
                         "%s: a SentencePiece model of type %llu, want Unigram (1) or BPE (2)",
                         s->where, (unsigned long long)s->model);
    if (s->suffix || !s->escape)
        return kvf__fail(s->ctx, KVF_EUNSUPPORTED, "%s: %s is not supported", s->where,
                         s->suffix ? "treat_whitespace_as_suffix" : "escape_whitespaces off");
    return KVF_OK;
}

static kvf_status alloc_pieces(spm *s, size_t n)
{
    KVF_TRY(kvf__alloc_array(s->ctx, n, sizeof *s->tokens, &s->tokens));
    KVF_TRY(kvf__alloc_array(s->ctx, n, sizeof *s->token_bytes, &s->token_bytes));
    KVF_TRY(kvf__alloc_array(s->ctx, n, sizeof *s->scores, &s->scores));
    KVF_TRY(kvf__alloc_array(s->ctx, s->extra, sizeof *s->names, &s->names));
    return kvf__alloc_array(s->ctx, n, sizeof *s->types, &s->types);
}

static bool piece_is(const spm *s, size_t id, const char *text)
{
    return id < s->n && s->token_bytes[id] == strlen(text) &&
           !memcmp(s->tokens[id], text, s->token_bytes[id]);
}

/* Returns whether this is T5's file: <pad>, </s> and <unk> come first, and there are no
 * sentinels. */
static bool is_t5(const spm *s)
{
    return s->model == UNIGRAM && piece_is(s, 0, "<pad>") && piece_is(s, 1, "</s>") &&
           piece_is(s, 2, "<unk>") && !piece_is(s, s->n - 1, "<extra_id_0>");
}

static void complete_t5(spm *s)
{
    for (size_t i = s->extra; i-- > 0; s->n++) {
        const int n = snprintf(s->names[i], EXTRA_BYTES, "<extra_id_%zu>", i);
        s->tokens[s->n] = s->names[i];
        s->token_bytes[s->n] = (size_t)n;
        s->types[s->n] = KVF__GGUF_CONTROL;
    }
    s->vocab.add_eos = 1;
}

static kvf_status parse(spm *s, const void *data, size_t n, bool spiece)
{
    KVF_TRY(alloc_pieces(s, count_pieces(data, n) + s->extra));
    KVF_TRY(read_messages(s, data, n));
    KVF_TRY(check(s));
    if (spiece && is_t5(s)) complete_t5(s);
    s->vocab.model = s->model == BPE ? "llama" : "t5";
    s->vocab.n_tokens = s->n;
    s->vocab.tokens = s->tokens;
    s->vocab.token_bytes = s->token_bytes;
    s->vocab.scores = s->scores;
    s->vocab.types = s->types;
    s->vocab.add_space_prefix = s->add_dummy_prefix;
    s->vocab.add_bos = s->model == BPE ? -1 : 0; /* as in Llama's; T5's texts have no BOS */
    return KVF_OK;
}

/* Processes the vocabulary of a file. */
typedef kvf_status use_fn(kvf_ctx *ctx, const kvf__vocab *vocab, void *user);

/* extra: number of <extra_id_N> of a spiece.model; -1: not a spiece.model. */
static kvf_status with_vocab(kvf_ctx *ctx, const char *where, const void *data, size_t n,
                             int64_t extra, use_fn *use, void *user)
{
    spm s = {.ctx = ctx,
             .where = where,
             .model = UNIGRAM,
             .extra = extra > 0 ? (size_t)extra : 0,
             .add_dummy_prefix = true,
             .escape = true,
             .vocab = {.where = where,
                       .unk = 0,
                       .bos = 1,
                       .eos = 2,
                       .pad = -1,
                       .add_eos = 0,
                       .collapse_spaces = true,
                       .fuse_unk = true}};

    kvf_status st = parse(&s, data, n, extra >= 0);
    if (!st) st = use(ctx, &s.vocab, user);
    kvf__free(s.tokens);
    kvf__free(s.token_bytes);
    kvf__free(s.scores);
    kvf__free(s.types);
    kvf__free(s.names);
    return st;
}

static kvf_status fill(kvf_ctx *ctx, const kvf__vocab *vocab, void *t)
{
    return kvf__fill_from_vocab(ctx, vocab, t);
}

static kvf_status write(kvf_ctx *ctx, const kvf__vocab *vocab, void *text)
{
    return kvf__vocab_to_json(ctx, vocab, text);
}

/* The first field is a message, whose key is a byte that no line of base64 begins with. */
bool kvf__is_sentencepiece(const char *data, size_t n)
{
    return n > 0 && data[0] == (1 << 3 | BYTES);
}

kvf_status kvf__sentencepiece_to_json(kvf_ctx *ctx, const char *where, const char *data, size_t n,
                                      char **out)
{
    return with_vocab(ctx, where, data, n, -1, write, out);
}

static kvf_status count_extra(kvf_ctx *ctx, const char *where, const kvf_json *config, int64_t *out)
{
    *out = kvf_json_int(kvf_json_get(config, "extra_ids"), EXTRA_IDS);
    if (*out >= 0 && *out <= MOST_EXTRA_IDS) return KVF_OK;
    return kvf__fail(ctx, KVF_EFORMAT, "%s: extra_ids of tokenizer_config.json is %lld", where,
                     (long long)*out);
}

kvf_status kvf__spiece_to_json(kvf_ctx *ctx, const char *where, const char *data, size_t n,
                               const kvf_json *config, char **out)
{
    int64_t extra;
    KVF_TRY(count_extra(ctx, where, config, &extra));
    return with_vocab(ctx, where, data, n, extra, write, out);
}

kvf_status kvf__read_model(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const kvf__buf *data = &src->text[KVF__FILE_MODEL];
    const char *where = src->path[KVF__FILE_MODEL];

    if (!kvf__is_sentencepiece(data->data, data->n))
        return kvf__read_tiktoken(src->ctx, where, data->data, data->n, t);
    return with_vocab(src->ctx, where, data->data, data->n, -1, fill, t);
}

kvf_status kvf__read_spiece(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const kvf__buf *data = &src->text[KVF__FILE_SPIECE];
    const char *where = src->path[KVF__FILE_SPIECE];
    int64_t extra;

    KVF_TRY(count_extra(src->ctx, where, src->json[KVF__FILE_CONFIG], &extra));
    return with_vocab(src->ctx, where, data->data, data->n, extra, fill, t);
}

/* Writes a Llama or a BERT of 0.1 MB with random weights, as a Hugging Face folder for tests of the
 * command. One token per byte, so that any text has ids; the same bytes every time.
 *
 * Usage: make_tiny FOLDER [SEED [llama|bert|lora]]; lora: a LoRA for that Llama, as PEFT saves it
 */
#include "toy_lora.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { L = 2, C = 32, H = 4, G = 2, D = 8, F = 64, BYTES = 256, V = BYTES + 2, POSITIONS = 512 };

static const char CONFIG[] =
    "{\"model_type\":\"llama\",\"vocab_size\":258,\"hidden_size\":32,\"intermediate_size\":64,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,"
    "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
    "\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,\"bos_token_id\":256,"
    "\"eos_token_id\":257}\n";

static const char BERT_CONFIG[] =
    "{\"model_type\":\"bert\",\"vocab_size\":258,\"hidden_size\":32,\"intermediate_size\":64,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"max_position_embeddings\":512,"
    "\"type_vocab_size\":2,\"layer_norm_eps\":1e-12,\"hidden_act\":\"gelu\","
    "\"hidden_dropout_prob\":0.1,\"initializer_range\":0.02,\"pad_token_id\":0}\n";

/* L times the tensors of the largest block, and those outside blocks. */
typedef struct model {
    kvf_ctx *ctx;
    bool bert;
    kvf__rng rng;
    kvf__table table;
    float *memory[L * 16 + 7];
    size_t n;
} model;

static kvf_status add(model *m, const char *name, int64_t rows, int64_t cols)
{
    kvf__view view = {.dtype = KVF__F32, .rank = cols ? 2 : 1, .dim = {rows, cols}};
    size_t n = (size_t)kvf__view_count(&view);
    float *values = NULL;

    KVF_TRY(kvf__alloc_array(m->ctx, n, sizeof(float), &values));
    m->memory[m->n++] = values;
    for (size_t i = 0; i < n; i++)
        values[i] = cols ? (float)(2 * kvf__rng_normal(&m->rng) / sqrt((double)cols))
                         : 1.0F; /* norms */
    view.data = values;
    return kvf__table_add(m->ctx, &m->table, name, view);
}

typedef struct shape {
    const char *name;
    int rows, cols;
} shape;

static kvf_status add_block(model *m, int layer)
{
    static const shape ROWS[] = {
        {"input_layernorm", C, 0},      {"self_attn.q_proj", H * D, C},
        {"self_attn.k_proj", G * D, C}, {"self_attn.v_proj", G * D, C},
        {"self_attn.o_proj", C, H * D}, {"post_attention_layernorm", C, 0},
        {"mlp.gate_proj", F, C},        {"mlp.up_proj", F, C},
        {"mlp.down_proj", C, F},
    };
    char name[96];

    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, ROWS[i].name);
        KVF_TRY(add(m, name, ROWS[i].rows, ROWS[i].cols));
    }
    return KVF_OK;
}

/* A linear layer with its bias, or a norm with one; biases are ones here. */
static kvf_status add_pair(model *m, const char *name, int64_t rows, int64_t cols)
{
    char full[96];
    snprintf(full, sizeof full, "%s.weight", name);
    KVF_TRY(add(m, full, rows, cols));
    snprintf(full, sizeof full, "%s.bias", name);
    return add(m, full, rows, 0);
}

static kvf_status add_bert(model *m)
{
    static const shape ROWS[] = {
        {"attention.self.query", C, C},
        {"attention.self.key", C, C},
        {"attention.self.value", C, C},
        {"attention.output.dense", C, C},
        {"attention.output.LayerNorm", C, 0},
        {"intermediate.dense", F, C},
        {"output.dense", C, F},
        {"output.LayerNorm", C, 0},
    };
    char name[96];

    KVF_TRY(add(m, "embeddings.word_embeddings.weight", V, C));
    KVF_TRY(add(m, "embeddings.position_embeddings.weight", POSITIONS, C));
    KVF_TRY(add(m, "embeddings.token_type_embeddings.weight", 2, C));
    KVF_TRY(add_pair(m, "embeddings.LayerNorm", C, 0));
    for (int l = 0; l < L; l++)
        for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
            snprintf(name, sizeof name, "encoder.layer.%d.%s", l, ROWS[i].name);
            KVF_TRY(add_pair(m, name, ROWS[i].rows, ROWS[i].cols));
        }
    return add_pair(m, "pooler.dense", C, C);
}

static kvf_status add_llama(model *m)
{
    KVF_TRY(add(m, "model.embed_tokens.weight", V, C));
    for (int l = 0; l < L; l++)
        KVF_TRY(add_block(m, l));
    return add(m, "model.norm.weight", C, 0);
}

static kvf_status write_weights(model *m, const char *path)
{
    KVF_TRY(m->bert ? add_bert(m) : add_llama(m));
    return kvf__safetensors_write(m->ctx, path, true, m->table.items, m->table.n);
}

/* GPT-2's printable form of a byte: a byte that is not a visible Latin-1 character becomes U+0100
 * or above. */
static void byte_token(int byte, char out[8])
{
    int code = byte, hidden = 0;
    for (int b = 0; b <= byte; b++) {
        bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        code = shown ? b : 256 + hidden++;
    }
    if (code < 0x80)
        snprintf(out, 8, "%c", code);
    else
        snprintf(out, 8, "%c%c", 0xC0 | code >> 6, 0x80 | (code & 0x3F));
}

static kvf_json *added_token(int id, const char *content)
{
    static const char *const FLAGS[] = {"single_word", "lstrip", "rstrip", "normalized"};
    kvf_json *token = kvf_json_object();
    kvf_json_set(token, "id", kvf_json_new_int(id));
    kvf_json_set(token, "content", kvf_json_new_str(content));
    kvf_json_set(token, "special", kvf_json_new_bool(true));
    for (size_t i = 0; i < sizeof FLAGS / sizeof FLAGS[0]; i++) /* tokenizers wants them all */
        kvf_json_set(token, FLAGS[i], kvf_json_new_bool(false));
    return token;
}

static kvf_json *byte_level(void)
{
    kvf_json *part = kvf_json_object();
    kvf_json_set(part, "type", kvf_json_new_str("ByteLevel"));
    kvf_json_set(part, "add_prefix_space", kvf_json_new_bool(false));
    kvf_json_set(part, "trim_offsets", kvf_json_new_bool(true));
    kvf_json_set(part, "use_regex", kvf_json_new_bool(true));
    return part;
}

/* {"KIND":{"id":...,"type_id":...}} */
static kvf_json *piece(const char *kind, const char *id, int type)
{
    kvf_json *outer = kvf_json_object(), *inner = kvf_json_object();
    kvf_json_set(inner, "id", kvf_json_new_str(id));
    kvf_json_set(inner, "type_id", kvf_json_new_int(type));
    kvf_json_set(outer, kind, inner);
    return outer;
}

static void add_special(kvf_json *specials, const char *token, int id)
{
    kvf_json *special = kvf_json_object(), *ids = kvf_json_array(), *tokens = kvf_json_array();
    kvf_json_add(ids, kvf_json_new_int(id));
    kvf_json_add(tokens, kvf_json_new_str(token));
    kvf_json_set(special, "id", kvf_json_new_str(token));
    kvf_json_set(special, "ids", ids);
    kvf_json_set(special, "tokens", tokens);
    kvf_json_set(specials, token, special);
}

/* [CLS] A [SEP] and [CLS] A [SEP] B [SEP]. */
static kvf_json *bert_template(void)
{
    kvf_json *post = kvf_json_object(), *single = kvf_json_array(), *pair = kvf_json_array(),
             *specials = kvf_json_object();
    for (int i = 0; i < 2; i++) {
        kvf_json *list = i ? pair : single;
        kvf_json_add(list, piece("SpecialToken", "[CLS]", 0));
        kvf_json_add(list, piece("Sequence", "A", 0));
        kvf_json_add(list, piece("SpecialToken", "[SEP]", 0));
    }
    kvf_json_add(pair, piece("Sequence", "B", 1));
    kvf_json_add(pair, piece("SpecialToken", "[SEP]", 1));
    add_special(specials, "[CLS]", BYTES);
    add_special(specials, "[SEP]", BYTES + 1);
    kvf_json_set(post, "type", kvf_json_new_str("TemplateProcessing"));
    kvf_json_set(post, "single", single);
    kvf_json_set(post, "pair", pair);
    kvf_json_set(post, "special_tokens", specials);
    return post;
}

static kvf_status write_tokenizer(model *m, const char *path)
{
    kvf_json *root = kvf_json_object(), *bpe = kvf_json_object(), *vocab = kvf_json_object(),
             *added = kvf_json_array();
    char token[8];

    kvf_json_set(root, "version", kvf_json_new_str("1.0"));
    kvf_json_add(added, added_token(BYTES, m->bert ? "[CLS]" : "<s>"));
    kvf_json_add(added, added_token(BYTES + 1, m->bert ? "[SEP]" : "</s>"));
    kvf_json_set(root, "added_tokens", added);
    kvf_json_set(root, "pre_tokenizer", byte_level());
    if (m->bert) kvf_json_set(root, "post_processor", bert_template());
    kvf_json_set(root, "decoder", byte_level());
    for (int byte = 0; byte < BYTES; byte++) {
        byte_token(byte, token);
        kvf_json_set(vocab, token, kvf_json_new_int(byte));
    }
    kvf_json_set(bpe, "type", kvf_json_new_str("BPE"));
    kvf_json_set(bpe, "vocab", vocab);
    kvf_json_set(bpe, "merges", kvf_json_array());
    kvf_json_set(root, "model", bpe);
    char *text = kvf_json_text(root, KVF_JSON_INDENT);
    kvf_json_free(root);
    if (!text) return kvf__fail(m->ctx, KVF_ENOMEM, "out of memory");
    kvf_status st = kvf__write_file(m->ctx, path, true, text, strlen(text));
    kvf_json_text_free(text);
    return st;
}

static kvf_status write_folder(model *m, const char *folder)
{
    static const char TOKENS[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}\n",
                      BERT_TOKENS[] = "{\"cls_token\":\"[CLS]\",\"sep_token\":\"[SEP]\"}\n";
    const char *config = m->bert ? BERT_CONFIG : CONFIG, *tokens = m->bert ? BERT_TOKENS : TOKENS;
    char path[4096];

    if (mkdir(folder, 0777) && errno != EEXIST)
        return kvf__fail(m->ctx, KVF_EIO, "%s: %s", folder, strerror(errno));
    snprintf(path, sizeof path, "%s/config.json", folder);
    KVF_TRY(kvf__write_file(m->ctx, path, true, config, strlen(config)));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    KVF_TRY(kvf__write_file(m->ctx, path, true, tokens, strlen(tokens)));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    KVF_TRY(write_tokenizer(m, path));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return write_weights(m, path);
}

int main(int argc, char **argv)
{
    model m = {.rng = kvf__rng_make(argc > 2 ? strtoull(argv[2], NULL, 10) : 1, 0),
               .bert = argc > 3 && !strcmp(argv[3], "bert")};
    kvf_status st = KVF_EUSAGE;

    if (argc < 2 || kvf_ctx_create(NULL, &m.ctx)) {
        fprintf(stderr, "usage: make_tiny FOLDER [SEED [llama|bert|lora]]\n");
        return 2;
    }
    st = argc > 3 && !strcmp(argv[3], "lora")
             ? toy_lora(m.ctx, argv[1], strtoull(argv[2], NULL, 10))
             : write_folder(&m, argv[1]);
    if (st) fprintf(stderr, "make_tiny: %s\n", kvf_ctx_error(m.ctx));
    for (size_t i = 0; i < m.n; i++)
        kvf__free(m.memory[i]);
    kvf__table_done(&m.table);
    kvf_ctx_free(m.ctx);
    return st ? 1 : 0;
}

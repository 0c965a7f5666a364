/* Writes a Llama of 0.1 MB with random weights, as a Hugging Face folder: what the tests of the
 * command train and read. One token per byte, so that any text has ids; the same bytes every time.
 *
 * Usage: make_tiny FOLDER [SEED] */
#include "file_int.h"

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

/* L times the nine tensors of a block, and the two around them. */
typedef struct model {
    kvf_ctx *ctx;
    kvf__rng rng;
    kvf__table table;
    float *memory[L * 9 + 2];
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

static kvf_status add_block(model *m, int layer)
{
    static const struct {
        const char *name;
        int rows, cols;
    } ROWS[] = {
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

static kvf_status write_weights(model *m, const char *path)
{
    KVF_TRY(add(m, "model.embed_tokens.weight", V, C));
    for (int l = 0; l < L; l++)
        KVF_TRY(add_block(m, l));
    KVF_TRY(add(m, "model.norm.weight", C, 0));
    return kvf__safetensors_write(m->ctx, path, true, m->table.items, m->table.n);
}

/* GPT-2's printable stand-ins: bytes that are no visible Latin-1 character become U+0100 and on. */
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
    kvf_json *token = kvf_json_object();
    kvf_json_set(token, "id", kvf_json_new_int(id));
    kvf_json_set(token, "content", kvf_json_new_str(content));
    kvf_json_set(token, "special", kvf_json_new_bool(true));
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

static kvf_status write_tokenizer(model *m, const char *path)
{
    kvf_json *root = kvf_json_object(), *bpe = kvf_json_object(), *vocab = kvf_json_object(),
             *added = kvf_json_array();
    char token[8];

    kvf_json_set(root, "version", kvf_json_new_str("1.0"));
    kvf_json_add(added, added_token(BYTES, "<s>"));
    kvf_json_add(added, added_token(BYTES + 1, "</s>"));
    kvf_json_set(root, "added_tokens", added);
    kvf_json_set(root, "pre_tokenizer", byte_level());
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
    static const char TOKENS[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}\n";
    char path[4096];

    if (mkdir(folder, 0777) && errno != EEXIST)
        return kvf__fail(m->ctx, KVF_EIO, "%s: %s", folder, strerror(errno));
    snprintf(path, sizeof path, "%s/config.json", folder);
    KVF_TRY(kvf__write_file(m->ctx, path, true, CONFIG, strlen(CONFIG)));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    KVF_TRY(kvf__write_file(m->ctx, path, true, TOKENS, strlen(TOKENS)));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    KVF_TRY(write_tokenizer(m, path));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return write_weights(m, path);
}

int main(int argc, char **argv)
{
    model m = {.rng = kvf__rng_make(argc > 2 ? strtoull(argv[2], NULL, 10) : 1, 0)};
    kvf_status st = KVF_EUSAGE;

    if (argc < 2 || kvf_ctx_create(NULL, &m.ctx)) {
        fprintf(stderr, "usage: make_tiny FOLDER [SEED]\n");
        return 2;
    }
    st = write_folder(&m, argv[1]);
    if (st) fprintf(stderr, "make_tiny: %s\n", kvf_ctx_error(m.ctx));
    for (size_t i = 0; i < m.n; i++)
        kvf__free(m.memory[i]);
    kvf__table_done(&m.table);
    kvf_ctx_free(m.ctx);
    return st ? 1 : 0;
}

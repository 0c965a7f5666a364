/* A Llama of one layer whose attention and feed-forward outputs are zero. The next token depends on
 * the last token alone, so all answers are known in advance. */
#ifndef CHAIN_BASE_H
#define CHAIN_BASE_H

#include "toy_base.h"

enum { CHAIN_C = 64, CHAIN_F = 16, CHAIN_D = 32, CHAIN_POSITIONS = 40000 };

/* Tokens as written in the vocabulary. Each token is followed by the next one, the last by itself.
 * The decoder is Llama 2's: byte tokens, and a space for U+2581. */
typedef struct chain {
    const char *const *tokens; /* [n] */
    int n;
    const char *config;     /* more members of config.json: ",\"eos_token_id\":3", or "" */
    const char *generation; /* generation_config.json, NULL: none */
    const char *tokenizer_config;
    int last_to; /* the token after the last token; its own index: itself */
} chain;

static inline void chain_tensor(kvf_ctx *ctx, kvf__table *table, const char *name, int64_t rows,
                                int64_t cols, float *data)
{
    kvf__view view = {.dtype = KVF__F32, .rank = cols ? 2 : 1, .dim = {rows, cols}, .data = data};
    ck_assert_int_eq(kvf__table_add(ctx, table, name, view), KVF_OK);
}

static inline void chain_weights(kvf_ctx *ctx, const char *dir, const chain *c)
{
    enum { MOST = 4 * CHAIN_C * CHAIN_C };
    static float embed[MOST], head[MOST], zeros[MOST], ones[CHAIN_C];
    const char *const square[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    kvf__table table = {0};
    char path[1024], name[64];
    memset(embed, 0, sizeof embed);
    memset(head, 0, sizeof head);
    for (int i = 0; i < CHAIN_C; i++)
        ones[i] = 1;
    for (int i = 0; i < c->n; i++) {
        const int next = i + 1 < c->n ? i + 1 : c->last_to;
        embed[i * CHAIN_C + i] = 1;
        head[next * CHAIN_C + i] = 10;
    }
    chain_tensor(ctx, &table, "model.embed_tokens.weight", c->n, CHAIN_C, embed);
    chain_tensor(ctx, &table, "model.norm.weight", CHAIN_C, 0, ones);
    chain_tensor(ctx, &table, "lm_head.weight", c->n, CHAIN_C, head);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "model.layers.0.self_attn.%s.weight", square[i]);
        chain_tensor(ctx, &table, name, CHAIN_C, CHAIN_C, zeros);
    }
    chain_tensor(ctx, &table, "model.layers.0.input_layernorm.weight", CHAIN_C, 0, ones);
    chain_tensor(ctx, &table, "model.layers.0.post_attention_layernorm.weight", CHAIN_C, 0, ones);
    chain_tensor(ctx, &table, "model.layers.0.mlp.gate_proj.weight", CHAIN_F, CHAIN_C, zeros);
    chain_tensor(ctx, &table, "model.layers.0.mlp.up_proj.weight", CHAIN_F, CHAIN_C, zeros);
    chain_tensor(ctx, &table, "model.layers.0.mlp.down_proj.weight", CHAIN_C, CHAIN_F, zeros);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    remove(path); /* an open base may have it mapped */
    ck_assert_msg(!kvf__safetensors_write(ctx, path, true, table.items, table.n), "%s",
                  kvf_ctx_error(ctx));
    kvf__table_done(&table);
}

static inline void chain_tokenizer(const char *dir, const chain *c)
{
    char text[8192];
    size_t n = (size_t)snprintf(
        text, sizeof text,
        "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,"
        "\"post_processor\":null,\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},"
        "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < c->n; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"%s\":%d", i ? "," : "", c->tokens[i],
                              i);
    snprintf(text + n, sizeof text - n, "}}}");
    toy_write(dir, "tokenizer.json", text);
    toy_write(dir, "tokenizer_config.json", c->tokenizer_config ? c->tokenizer_config : "{}");
}

static inline void chain_folder(kvf_ctx *ctx, const char *dir, const chain *c)
{
    char config[2048], path[1024];
    ck_assert_int_le(c->n, CHAIN_C);
    snprintf(config, sizeof config,
             "{\"model_type\":\"llama\",\"vocab_size\":%d,\"hidden_size\":%d,\"intermediate_size\":"
             "%d,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":2,"
             "\"head_dim\":%d,\"max_position_embeddings\":%d,\"rms_norm_eps\":1e-5,\"rope_theta\":"
             "10000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false%s}",
             c->n, CHAIN_C, CHAIN_F, CHAIN_D, CHAIN_POSITIONS, c->config ? c->config : "");
    toy_write(dir, "config.json", config);
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    remove(path);
    if (c->generation) toy_write(dir, "generation_config.json", c->generation);
    chain_tokenizer(dir, c);
    chain_weights(ctx, dir, c);
}

#endif

/* The table of architectures: numbers, names and habits of each model family, as data.
 *
 * Key names, defaults and tensor names are those of transformers' configuration and state dict
 * (INTEROP 2.1 to 2.8; openai-gpt as modeling_openai.py); GGUF names those of llama.cpp's converter
 * (INTEROP 5.3). Mistral's and Qwen's weights are Llama's, but for q_norm and k_norm; RoBERTa's are
 * BERT's, but for the head of pretraining. */
#include "arch.h"

#include <string.h>
#include <strings.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const kvf__weight llama_weights[] = {
    {KVF__W_TOKENS, "embed_tokens.weight", "token_embd.weight", "V C", 0},
    {KVF__W_NORM1, "layers.#.input_layernorm.weight", "blk.#.attn_norm.weight", "C", 0},
    {KVF__W_Q, "layers.#.self_attn.q_proj.weight", "blk.#.attn_q.weight", "HD C",
     KVF__W_PERMUTED_H},
    {KVF__W_Q_BIAS, "layers.#.self_attn.q_proj.bias", "blk.#.attn_q.bias", "HD",
     KVF__W_PERMUTED_H | KVF__W_IF_QKV},
    {KVF__W_K, "layers.#.self_attn.k_proj.weight", "blk.#.attn_k.weight", "GD C",
     KVF__W_PERMUTED_G},
    {KVF__W_K_BIAS, "layers.#.self_attn.k_proj.bias", "blk.#.attn_k.bias", "GD",
     KVF__W_PERMUTED_G | KVF__W_IF_QKV},
    {KVF__W_V, "layers.#.self_attn.v_proj.weight", "blk.#.attn_v.weight", "GD C", 0},
    {KVF__W_V_BIAS, "layers.#.self_attn.v_proj.bias", "blk.#.attn_v.bias", "GD", KVF__W_IF_QKV},
    {KVF__W_Q_NORM, "layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", "D",
     KVF__W_IF_QK_NORM},
    {KVF__W_K_NORM, "layers.#.self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", "D",
     KVF__W_IF_QK_NORM},
    {KVF__W_OUT, "layers.#.self_attn.o_proj.weight", "blk.#.attn_output.weight", "C HD", 0},
    {KVF__W_OUT_BIAS, "layers.#.self_attn.o_proj.bias", "blk.#.attn_output.bias", "C",
     KVF__W_IF_OUT},
    {KVF__W_NORM2, "layers.#.post_attention_layernorm.weight", "blk.#.ffn_norm.weight", "C", 0},
    {KVF__W_GATE, "layers.#.mlp.gate_proj.weight", "blk.#.ffn_gate.weight", "F C", 0},
    {KVF__W_GATE_BIAS, "layers.#.mlp.gate_proj.bias", "blk.#.ffn_gate.bias", "F", KVF__W_IF_MLP},
    {KVF__W_UP, "layers.#.mlp.up_proj.weight", "blk.#.ffn_up.weight", "F C", 0},
    {KVF__W_UP_BIAS, "layers.#.mlp.up_proj.bias", "blk.#.ffn_up.bias", "F", KVF__W_IF_MLP},
    {KVF__W_DOWN, "layers.#.mlp.down_proj.weight", "blk.#.ffn_down.weight", "C F", 0},
    {KVF__W_DOWN_BIAS, "layers.#.mlp.down_proj.bias", "blk.#.ffn_down.bias", "C", KVF__W_IF_MLP},
    {KVF__W_FINAL, "norm.weight", "output_norm.weight", "C", 0},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

/* Shapes of Conv1D weights as Hugging Face stores them, [in, out]. */
static const kvf__weight gpt2_weights[] = {
    {KVF__W_TOKENS, "wte.weight", "token_embd.weight", "V C", 0},
    {KVF__W_POSITIONS, "wpe.weight", "position_embd.weight", "X C", 0},
    {KVF__W_NORM1, "h.#.ln_1.weight", "blk.#.attn_norm.weight", "C", 0},
    {KVF__W_NORM1_BETA, "h.#.ln_1.bias", "blk.#.attn_norm.bias", "C", 0},
    {KVF__W_QKV, "h.#.attn.c_attn.weight", "blk.#.attn_qkv.weight", "C SD", KVF__W_CONV1D},
    {KVF__W_QKV_BIAS, "h.#.attn.c_attn.bias", "blk.#.attn_qkv.bias", "SD", KVF__W_IF_QKV},
    {KVF__W_OUT, "h.#.attn.c_proj.weight", "blk.#.attn_output.weight", "HD C", KVF__W_CONV1D},
    {KVF__W_OUT_BIAS, "h.#.attn.c_proj.bias", "blk.#.attn_output.bias", "C", KVF__W_IF_OUT},
    {KVF__W_NORM2, "h.#.ln_2.weight", "blk.#.ffn_norm.weight", "C", 0},
    {KVF__W_NORM2_BETA, "h.#.ln_2.bias", "blk.#.ffn_norm.bias", "C", 0},
    {KVF__W_UP, "h.#.mlp.c_fc.weight", "blk.#.ffn_up.weight", "C F", KVF__W_CONV1D},
    {KVF__W_UP_BIAS, "h.#.mlp.c_fc.bias", "blk.#.ffn_up.bias", "F", KVF__W_IF_MLP},
    {KVF__W_DOWN, "h.#.mlp.c_proj.weight", "blk.#.ffn_down.weight", "F C", KVF__W_CONV1D},
    {KVF__W_DOWN_BIAS, "h.#.mlp.c_proj.bias", "blk.#.ffn_down.bias", "C", KVF__W_IF_MLP},
    {KVF__W_FINAL, "ln_f.weight", "output_norm.weight", "C", 0},
    {KVF__W_FINAL_BETA, "ln_f.bias", "output_norm.bias", "C", 0},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

/* The first GPT: norms behind the sums, none at the end. Hugging Face's head is tied and has no
 * bias; lm_head_bias is a key of ours, for bases made here. */
static const kvf__weight openai_gpt_weights[] = {
    {KVF__W_TOKENS, "tokens_embed.weight", NULL, "V C", 0},
    {KVF__W_POSITIONS, "positions_embed.weight", NULL, "X C", 0},
    {KVF__W_QKV, "h.#.attn.c_attn.weight", NULL, "C SD", KVF__W_CONV1D},
    {KVF__W_QKV_BIAS, "h.#.attn.c_attn.bias", NULL, "SD", 0},
    {KVF__W_OUT, "h.#.attn.c_proj.weight", NULL, "HD C", KVF__W_CONV1D},
    {KVF__W_OUT_BIAS, "h.#.attn.c_proj.bias", NULL, "C", 0},
    {KVF__W_NORM1, "h.#.ln_1.weight", NULL, "C", 0},
    {KVF__W_NORM1_BETA, "h.#.ln_1.bias", NULL, "C", 0},
    {KVF__W_UP, "h.#.mlp.c_fc.weight", NULL, "C F", KVF__W_CONV1D},
    {KVF__W_UP_BIAS, "h.#.mlp.c_fc.bias", NULL, "F", 0},
    {KVF__W_DOWN, "h.#.mlp.c_proj.weight", NULL, "F C", KVF__W_CONV1D},
    {KVF__W_DOWN_BIAS, "h.#.mlp.c_proj.bias", NULL, "C", 0},
    {KVF__W_NORM2, "h.#.ln_2.weight", NULL, "C", 0},
    {KVF__W_NORM2_BETA, "h.#.ln_2.bias", NULL, "C", 0},
    {KVF__W_HEAD, "lm_head.weight", NULL, "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
    {KVF__W_HEAD_BIAS, "lm_head.bias", NULL, "V", KVF__W_IF_HEAD_BIAS | KVF__W_OUTSIDE},
};

/* Read from Hugging Face files only: llama.cpp's converter drops the pooler (INTEROP 5.3). */
#define BERT_BODY                                                                                  \
    {KVF__W_TOKENS, "embeddings.word_embeddings.weight", NULL, "V C", 0},                          \
        {KVF__W_POSITIONS, "embeddings.position_embeddings.weight", NULL, "X C", 0},               \
        {KVF__W_TYPES, "embeddings.token_type_embeddings.weight", NULL, "Y C", 0},                 \
        {KVF__W_EMBED_NORM, "embeddings.LayerNorm.weight", NULL, "C", 0},                          \
        {KVF__W_EMBED_NORM_BETA, "embeddings.LayerNorm.bias", NULL, "C", 0},                       \
        {KVF__W_Q, "encoder.layer.#.attention.self.query.weight", NULL, "HD C", 0},                \
        {KVF__W_Q_BIAS, "encoder.layer.#.attention.self.query.bias", NULL, "HD", 0},               \
        {KVF__W_K, "encoder.layer.#.attention.self.key.weight", NULL, "GD C", 0},                  \
        {KVF__W_K_BIAS, "encoder.layer.#.attention.self.key.bias", NULL, "GD", 0},                 \
        {KVF__W_V, "encoder.layer.#.attention.self.value.weight", NULL, "GD C", 0},                \
        {KVF__W_V_BIAS, "encoder.layer.#.attention.self.value.bias", NULL, "GD", 0},               \
        {KVF__W_OUT, "encoder.layer.#.attention.output.dense.weight", NULL, "C HD", 0},            \
        {KVF__W_OUT_BIAS, "encoder.layer.#.attention.output.dense.bias", NULL, "C", 0},            \
        {KVF__W_NORM1, "encoder.layer.#.attention.output.LayerNorm.weight", NULL, "C", 0},         \
        {KVF__W_NORM1_BETA, "encoder.layer.#.attention.output.LayerNorm.bias", NULL, "C", 0},      \
        {KVF__W_UP, "encoder.layer.#.intermediate.dense.weight", NULL, "F C", 0},                  \
        {KVF__W_UP_BIAS, "encoder.layer.#.intermediate.dense.bias", NULL, "F", 0},                 \
        {KVF__W_DOWN, "encoder.layer.#.output.dense.weight", NULL, "C F", 0},                      \
        {KVF__W_DOWN_BIAS, "encoder.layer.#.output.dense.bias", NULL, "C", 0},                     \
        {KVF__W_NORM2, "encoder.layer.#.output.LayerNorm.weight", NULL, "C", 0},                   \
        {KVF__W_NORM2_BETA, "encoder.layer.#.output.LayerNorm.bias", NULL, "C", 0},                \
        {KVF__W_POOLER, "pooler.dense.weight", NULL, "C C", KVF__W_OPTIONAL},                      \
    {                                                                                              \
        KVF__W_POOLER_BIAS, "pooler.dense.bias", NULL, "C", KVF__W_OPTIONAL                        \
    }

/* The head of pretraining, but for its decoder: that is the word embeddings. */
#define MASKED_LM (KVF__W_OPTIONAL | KVF__W_OUTSIDE | KVF__W_ASIDE)

static const kvf__weight bert_weights[] = {
    BERT_BODY,
    {KVF__W_MLM_DENSE, "cls.predictions.transform.dense.weight", NULL, "C C", MASKED_LM},
    {KVF__W_MLM_DENSE_BIAS, "cls.predictions.transform.dense.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM, "cls.predictions.transform.LayerNorm.weight", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM_BETA, "cls.predictions.transform.LayerNorm.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_BIAS, "cls.predictions.bias", NULL, "V", MASKED_LM},
};

static const kvf__weight roberta_weights[] = {
    BERT_BODY,
    {KVF__W_MLM_DENSE, "lm_head.dense.weight", NULL, "C C", MASKED_LM},
    {KVF__W_MLM_DENSE_BIAS, "lm_head.dense.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM, "lm_head.layer_norm.weight", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM_BETA, "lm_head.layer_norm.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_BIAS, "lm_head.bias", NULL, "V", MASKED_LM},
};

static const char *const llama_buffers[] = {"layers.#.self_attn.rotary_emb.inv_freq",
                                            "rotary_emb.inv_freq", "rope_freqs.weight", NULL};
static const char *const gpt2_buffers[] = {"h.#.attn.bias", "h.#.attn.masked_bias", NULL};
static const char *const bert_buffers[] = {"embeddings.position_ids",
                                           "embeddings.token_type_ids",
                                           "cls.predictions.bias",
                                           "cls.predictions.decoder.weight",
                                           "cls.predictions.decoder.bias",
                                           "cls.predictions.transform.dense.weight",
                                           "cls.predictions.transform.dense.bias",
                                           "cls.predictions.transform.LayerNorm.weight",
                                           "cls.predictions.transform.LayerNorm.bias",
                                           "cls.predictions.transform.LayerNorm.gamma",
                                           "cls.predictions.transform.LayerNorm.beta",
                                           "cls.seq_relationship.weight",
                                           "cls.seq_relationship.bias",
                                           NULL};
static const char *const roberta_buffers[] = {"embeddings.position_ids",
                                              "embeddings.token_type_ids",
                                              "lm_head.bias",
                                              "lm_head.dense.weight",
                                              "lm_head.dense.bias",
                                              "lm_head.layer_norm.weight",
                                              "lm_head.layer_norm.bias",
                                              "lm_head.decoder.weight",
                                              "lm_head.decoder.bias",
                                              NULL};
/* As the first files of BERT were converted from TensorFlow. */
static const char *const bert_renamed[] = {"LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias",
                                           "LayerNorm.beta", NULL};

static const kvf__config_keys llama_keys = {
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .kv_heads = {{"num_key_value_heads"}, KVF__DERIVED},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .ffn = {{"intermediate_size"}, 0},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"max_position_embeddings"}, 2048},
    .eps = "rms_norm_eps",
    .eps_otherwise = 1e-6,
    .act = "hidden_act",
    .attention_bias = "attention_bias",
    .mlp_bias = "mlp_bias",
};

static const kvf__config_keys mistral_keys = {
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .kv_heads = {{"num_key_value_heads"}, 8},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .ffn = {{"intermediate_size"}, 0},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"max_position_embeddings"}, 131072},
    .eps = "rms_norm_eps",
    .eps_otherwise = 1e-6,
    .act = "hidden_act",
    .sliding_window = "sliding_window",
    .sliding_window_otherwise = 4096,
};

static const kvf__config_keys gpt2_keys = {
    .width = {{"n_embd", "hidden_size"}, 0},
    .layers = {{"n_layer", "num_hidden_layers"}, 0},
    .heads = {{"n_head", "num_attention_heads"}, 0},
    .kv_heads = {{NULL}, KVF__DERIVED},
    .head_dim = {{NULL}, KVF__DERIVED},
    .ffn = {{"n_inner"}, KVF__DERIVED},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"n_positions", "max_position_embeddings", "n_ctx"}, 1024},
    .eps = "layer_norm_epsilon",
    .eps_otherwise = 1e-5,
    .act = "activation_function",
};

static const kvf__config_keys openai_gpt_keys = {
    .width = {{"n_embd", "hidden_size"}, 0},
    .layers = {{"n_layer", "num_hidden_layers"}, 0},
    .heads = {{"n_head", "num_attention_heads"}, 0},
    .kv_heads = {{NULL}, KVF__DERIVED},
    .head_dim = {{NULL}, KVF__DERIVED},
    .ffn = {{"n_inner"}, KVF__DERIVED},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"n_positions", "max_position_embeddings", "n_ctx"}, 512},
    .eps = "layer_norm_epsilon",
    .eps_otherwise = 1e-5,
    .act = "afn",
    .head_bias = "lm_head_bias",
};

static const kvf__config_keys qwen2_keys = {
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .kv_heads = {{"num_key_value_heads"}, 32},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .ffn = {{"intermediate_size"}, 0},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"max_position_embeddings"}, 32768},
    .eps = "rms_norm_eps",
    .eps_otherwise = 1e-6,
    .act = "hidden_act",
    .sliding_window = "sliding_window",
    .sliding_window_switch = "use_sliding_window",
    .sliding_window_otherwise = 4096,
};

static const kvf__config_keys qwen3_keys = {
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .kv_heads = {{"num_key_value_heads"}, 32},
    .head_dim = {{"head_dim"}, 128},
    .ffn = {{"intermediate_size"}, 0},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"max_position_embeddings"}, 32768},
    .eps = "rms_norm_eps",
    .eps_otherwise = 1e-6,
    .act = "hidden_act",
    .attention_bias = "attention_bias",
    .sliding_window = "sliding_window",
    .sliding_window_switch = "use_sliding_window",
    .sliding_window_otherwise = 4096,
};

static const kvf__config_keys bert_keys = {
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .kv_heads = {{NULL}, KVF__DERIVED},
    .head_dim = {{NULL}, KVF__DERIVED},
    .ffn = {{"intermediate_size"}, 0},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"max_position_embeddings"}, 512},
    .types = {{"type_vocab_size"}, 2},
    .eps = "layer_norm_eps",
    .eps_otherwise = 1e-12,
    .act = "hidden_act",
};

static const kvf__arch archs[] = {
    {
        .name = "llama",
        .class_stem = "Llama",
        .gguf = "llama",
        .prefix = "model.",
        .keys = &llama_keys,
        .weights = llama_weights,
        .n_weights = COUNT(llama_weights),
        .buffers = llama_buffers,
        .norm = KVF__RMSNORM,
        .positions = KVF__POS_ROPE,
        .act = KVF__SILU,
        .act_name = "silu",
        .gated = true,
        .causal = true,
        .gguf_permuted = true,
    },
    {
        .name = "mistral",
        .class_stem = "Mistral",
        .prefix = "model.",
        .keys = &mistral_keys,
        .weights = llama_weights,
        .n_weights = COUNT(llama_weights),
        .buffers = llama_buffers,
        .norm = KVF__RMSNORM,
        .positions = KVF__POS_ROPE,
        .act = KVF__SILU,
        .act_name = "silu",
        .gated = true,
        .causal = true,
    },
    {
        .name = "gpt2",
        .class_stem = "GPT2",
        .prefix = "transformer.",
        .keys = &gpt2_keys,
        .weights = gpt2_weights,
        .n_weights = COUNT(gpt2_weights),
        .buffers = gpt2_buffers,
        .norm = KVF__LAYERNORM,
        .positions = KVF__POS_LEARNED,
        .act = KVF__GELU_TANH,
        .act_name = "gelu_new",
        .causal = true,
        .tied = true,
        .qkv_bias = true,
        .out_bias = true,
        .mlp_bias = true,
        .score_flags = true,
    },
    {
        .name = "openai-gpt",
        .class_stem = "OpenAIGPT",
        .prefix = "transformer.",
        .keys = &openai_gpt_keys,
        .weights = openai_gpt_weights,
        .n_weights = COUNT(openai_gpt_weights),
        .buffers = gpt2_buffers,
        .norm = KVF__LAYERNORM,
        .positions = KVF__POS_LEARNED,
        .act = KVF__GELU_TANH,
        .act_name = "gelu_new",
        .gelu_is_new = true,
        .causal = true,
        .tied = true,
        .post_norm = true,
        .qkv_bias = true,
        .out_bias = true,
        .mlp_bias = true,
        .starts_at_0 = true,
    },
    {
        .name = "qwen2",
        .class_stem = "Qwen2",
        .gguf = "qwen2",
        .prefix = "model.",
        .keys = &qwen2_keys,
        .weights = llama_weights,
        .n_weights = COUNT(llama_weights),
        .buffers = llama_buffers,
        .norm = KVF__RMSNORM,
        .positions = KVF__POS_ROPE,
        .act = KVF__SILU,
        .act_name = "silu",
        .gated = true,
        .causal = true,
        .qkv_bias = true,
    },
    {
        .name = "qwen3",
        .class_stem = "Qwen3",
        .gguf = "qwen3",
        .prefix = "model.",
        .keys = &qwen3_keys,
        .weights = llama_weights,
        .n_weights = COUNT(llama_weights),
        .buffers = llama_buffers,
        .norm = KVF__RMSNORM,
        .positions = KVF__POS_ROPE,
        .act = KVF__SILU,
        .act_name = "silu",
        .gated = true,
        .causal = true,
        .qk_norm = true,
    },
    {
        .name = "bert",
        .class_stem = "Bert",
        .prefix = "bert.",
        .keys = &bert_keys,
        .weights = bert_weights,
        .n_weights = COUNT(bert_weights),
        .buffers = bert_buffers,
        .renamed = bert_renamed,
        .norm = KVF__LAYERNORM,
        .positions = KVF__POS_LEARNED,
        .act = KVF__GELU_ERF,
        .act_name = "gelu",
        .tied = true,
        .post_norm = true,
        .qkv_bias = true,
        .out_bias = true,
        .mlp_bias = true,
    },
    {
        .name = "roberta",
        .class_stem = "Roberta",
        .prefix = "roberta.",
        .keys = &bert_keys,
        .weights = roberta_weights,
        .n_weights = COUNT(roberta_weights),
        .buffers = roberta_buffers,
        .renamed = bert_renamed,
        .norm = KVF__LAYERNORM,
        .positions = KVF__POS_LEARNED,
        .act = KVF__GELU_ERF,
        .act_name = "gelu",
        .tied = true,
        .post_norm = true,
        .qkv_bias = true,
        .out_bias = true,
        .mlp_bias = true,
        .pad_positions = true,
        .mlm_gelu = true,
        .pad = 1,
    },
    {
        .name = "xlm-roberta",
        .class_stem = "XLMRoberta",
        .prefix = "roberta.",
        .keys = &bert_keys,
        .weights = roberta_weights,
        .n_weights = COUNT(roberta_weights),
        .buffers = roberta_buffers,
        .renamed = bert_renamed,
        .norm = KVF__LAYERNORM,
        .positions = KVF__POS_LEARNED,
        .act = KVF__GELU_ERF,
        .act_name = "gelu",
        .tied = true,
        .post_norm = true,
        .qkv_bias = true,
        .out_bias = true,
        .mlp_bias = true,
        .pad_positions = true,
        .mlm_gelu = true,
        .pad = 1,
    },
};

const kvf__arch *kvf__arch_by_model_type(const char *model_type)
{
    for (size_t i = 0; i < COUNT(archs); i++)
        if (!strcmp(archs[i].name, model_type)) return &archs[i];
    return NULL;
}

const kvf__arch *kvf__arch_by_class(const char *class_name)
{
    for (size_t i = 0; i < COUNT(archs); i++) {
        const char *rest = class_name + strlen(archs[i].class_stem);
        if (strncasecmp(archs[i].class_stem, class_name, strlen(archs[i].class_stem))) continue;
        if (!strncmp(rest, "For", 3) || !strncmp(rest, "LMHead", 6) || !strncmp(rest, "Model", 5) ||
            !strncmp(rest, "DoubleHeads", 11))
            return &archs[i];
    }
    return NULL;
}

const kvf__arch *kvf__arch_by_gguf(const char *architecture)
{
    for (size_t i = 0; i < COUNT(archs); i++)
        if (archs[i].gguf && !strcmp(archs[i].gguf, architecture)) return &archs[i];
    return NULL;
}

const char *kvf__arch_list(char buf[128], bool gguf)
{
    size_t at = 0;

    buf[0] = 0;
    for (size_t i = 0; i < COUNT(archs) && at < 128; i++) {
        const char *name = gguf ? archs[i].gguf : archs[i].name;
        if (name) at += (size_t)snprintf(buf + at, 128 - at, "%s%s", at ? ", " : "", name);
    }
    return buf;
}

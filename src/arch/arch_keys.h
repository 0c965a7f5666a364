/* Names of a family's config.json keys, by meaning; part of the family's row (arch.h). */
#ifndef KVF_ARCH_KEYS_H
#define KVF_ARCH_KEYS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kvf__pair {
    const char *first, *second;
} kvf__pair;

/* An integer of config.json: the first of `names` that is present. otherwise: default; 0 =
 * required, KVF__DERIVED = computed from others. null always means KVF__DERIVED, and so do absent
 * names of kv_heads and head_dim. */
#define KVF__DERIVED (-1)
typedef struct kvf__config_key {
    const char *names[3];
    int64_t otherwise;
} kvf__config_key;

/* A real number of config.json; name NULL: the family has none. */
typedef struct kvf__config_number {
    const char *name;
    double otherwise; /* default */
} kvf__config_number;

typedef struct kvf__config_keys {
    kvf__config_key width, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
    /* encoder-decoder: default is the encoder's number; NULL: one stack */
    const char *decoder_layers;
    kvf__config_key types, sliding_window; /* no name: absent in this family */
    kvf__config_key embed_width;           /* no name: equal to the model's width */
    /* keys of the two stacks that must be equal, NULL-terminated; NULL: none */
    const kvf__pair *alike;
    bool starts_with_eos;     /* a decoder starts with EOS by default, else with the padding */
    const char *embed_scaled; /* switch: multiply embeddings by the root of the width */
    const char *init_std;     /* NULL: "initializer_range" */
    const char *eps;          /* NULL: none */
    double eps_otherwise;
    const char *act;
    kvf__config_number attention_dropout, pooled, qa; /* dropout rates */
    const char *hidden_dropout;            /* NULL: hidden_dropout or hidden_dropout_prob */
    const char *attention_bias, *mlp_bias; /* keys of switches; NULL: fixed by the row */
    const char *head_bias;                 /* key of a switch; NULL: none */
    const char *parallel;                  /* key of a switch; NULL: none */
    const char *sliding_window_switch; /* switch that enables the window; NULL: always enabled */
    struct {                           /* layers with the window */
        const char *pattern;           /* NULL: given by layer_types only */
        int64_t global_every;          /* every n-th layer has none; 0: all have it */
        bool from_0;                   /* counting from layer 0 instead of from the n-th */
        bool two_sided;                /* the key is the total width of both sides */
        const char *first;             /* key of the first local layer; NULL: none */
        const char *theta; /* rope base of local layers, default 10000; NULL: none of their own */
        bool unscaled;     /* else they have the rope of all layers, here without its scaling */
    } local;
    struct {               /* layers without rope */
        const char *list;  /* 0 for such a layer, else 1; NULL: all layers have rope */
        const char *every; /* without the list every n-th layer is one, by default of `n` */
        int64_t n;
        const char *type; /* all layers are such unless this key is "rope"; NULL: no such key */
    } no_rope;
    const char *rope_theta;          /* key outside of rope_parameters; NULL: "rope_theta" */
    double theta_otherwise;          /* 0: 10000 */
    kvf__config_number rotary;       /* rotated fraction of a head; no name: all */
    kvf__config_number query_scalar; /* scores are divided by its root; no name: by D's */
    kvf__config_number score_cap, logit_cap;
    kvf__config_number proportional; /* fraction of a head rotated by proportional rope, also the
                                        default kind; no name: no such kind */
    const char *query_growth;        /* beta inside of rope_parameters (desc.h); NULL: none */
    bool multipliers;                /* Granite's, see kvf__config_multipliers */
    bool no_defaults; /* keys of `fixed` and layer_types have no default that is supported */
    const struct kvf__layer_keys *by_layer; /* keys of per-layer differences; NULL: none */
    const struct kvf__mixer_keys *mixer;    /* keys of layers without attention; NULL: none */
    const kvf__pair *fixed; /* keys that must have one value if present, as JSON text,
                               NULL-terminated; NULL: none */
} kvf__config_keys;

/* The usual key names of required sizes. */
#define KVF__USUAL_SIZES                                                                           \
    .width = {{"hidden_size"}, 0}, .layers = {{"num_hidden_layers"}, 0},                           \
    .heads = {{"num_attention_heads"}, 0}, .ffn = {{"intermediate_size"}, 0},                      \
    .vocab = {{"vocab_size"}, 0}

/* Keys of per-layer overrides (config_layers.c). */
typedef struct kvf__layer_keys {
    const char *list; /* object of objects by layer number, with the keys of head_dim and kv_heads;
                         without it the next keys apply */
    kvf__config_number global_head_dim; /* head size of layers that are not local */
    /* key/value heads of non-local layers, with k_is_v; null or absent: as the other layers */
    const char *global_kv_heads;
    const char *k_is_v; /* switch for non-local layers: keys serve as values */
    const char *shared; /* number of last layers that read the keys and values of the last earlier
                           layer of their kind (local or not) */
    const char *wide;   /* switch: those layers have twice the feed-forward width */
    kvf__config_number inputs; /* width of a layer's input per token, besides the stream */
    const char *inputs_vocab;  /* vocabulary of the inputs, which must equal the base's */
} kvf__layer_keys;

/* Keys of layers without attention (config_mixer.c). */
typedef struct kvf__mixer_keys {
    const char *type;         /* its word in layer_types */
    const char *attention;    /* list of the layers with attention; NULL: none */
    kvf__config_number every; /* without lists every n-th layer has attention; no name: all have */
    bool delta;               /* gated delta rule, else short convolutions */
    kvf__config_key kernel, key_heads, value_heads, key_dim, value_dim;
    struct { /* keys of a GGUF; `inner`: of all value heads; NULL: none */
        const char *kernel, *key_heads, *value_heads, *key_dim, *inner;
    } gguf;
    const char *ffn[3]; /* LFM2's switch, factor and multiple of the feed-forward width */
} kvf__mixer_keys;

#endif

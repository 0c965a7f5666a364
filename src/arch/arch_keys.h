/* What keys a config.json of a family has, by what they mean: a part of the family's row (arch.h).
 */
#ifndef KVF_ARCH_KEYS_H
#define KVF_ARCH_KEYS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kvf__pair {
    const char *first, *second;
} kvf__pair;

/* One number of config.json: the first of `names` that is there. otherwise: the value of an
 * absent key; 0 = it must be there, KVF__DERIVED = computed from others (null always means that,
 * and of kv_heads and head_dim that there are no names). */
#define KVF__DERIVED (-1)
typedef struct kvf__config_key {
    const char *names[3];
    int64_t otherwise;
} kvf__config_key;

/* A real number of config.json; name NULL: the family has none. */
typedef struct kvf__config_number {
    const char *name;
    double otherwise; /* the value of an absent key */
} kvf__config_number;

typedef struct kvf__config_keys {
    kvf__config_key width, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
    const char *decoder_layers;            /* of an encoder-decoder, else as many as the encoder's;
                                              NULL: the family is one stack */
    kvf__config_key types, sliding_window; /* no name: this family has none */
    kvf__config_key embed_width;           /* no name: that of the model */
    const kvf__pair *alike;                /* keys of one stack and of the other that must be equal,
                                              NULL-terminated; NULL: there are none */
    bool starts_with_eos;                  /* a decoder, where the config does not say it; else with
                                              the padding */
    const char *embed_scaled;              /* switch: embeddings times the root of the width */
    const char *init_std;                  /* NULL: "initializer_range" */
    const char *eps;                       /* NULL: none */
    double eps_otherwise;
    const char *act;
    kvf__config_number attention_dropout, pooled, qa; /* rates */
    const char *hidden_dropout;            /* NULL: hidden_dropout or hidden_dropout_prob */
    const char *attention_bias, *mlp_bias; /* keys of switches, NULL: fixed by the row */
    const char *head_bias;                 /* NULL: there is none */
    const char *parallel;                  /* the same */
    const char *sliding_window_switch; /* the window counts only if this is true; NULL: always */
    struct {                           /* which layers have the window */
        const char *pattern;           /* NULL: only layer_types says */
        int64_t global_every;          /* every so-manieth has not; 0: all have */
        bool from_0;                   /* of these the first is layer 0, else the so-manieth */
        bool two_sided;                /* the key is how many tokens it spans, on both sides */
        const char *first;             /* or: those from this one on; NULL: not so */
        const char *theta;             /* of their own rope, else 10000; NULL: they have none */
    } local;
    const char *rope_theta;          /* outside rope_parameters; NULL: "rope_theta" */
    double theta_otherwise;          /* 0: 10000 */
    kvf__config_number rotary;       /* the part of a head that is rotated; no name: all */
    kvf__config_number query_scalar; /* scores are divided by its root; no name: by D's */
    kvf__config_number score_cap, logit_cap;
    kvf__config_number proportional; /* the part of a head that rope of this kind rotates, and where
                                        nothing names a kind; no name: not so */
    const struct kvf__layer_keys *by_layer; /* what layers differ in; NULL: nothing */
    const kvf__pair *fixed; /* keys that have one value here where they are there, as JSON text,
                               NULL-terminated; NULL: none */
} kvf__config_keys;

/* Of a family whose keys are the usual ones, without which a config.json is refused. */
#define KVF__USUAL_SIZES                                                                           \
    .width = {{"hidden_size"}, 0}, .layers = {{"num_hidden_layers"}, 0},                           \
    .heads = {{"num_attention_heads"}, 0}, .ffn = {{"intermediate_size"}, 0},                      \
    .vocab = {{"vocab_size"}, 0}

/* What layers differ in (config_layers.c). */
typedef struct kvf__layer_keys {
    const char *list; /* an object of objects by number of a layer, with keys of head_dim and
                         kv_heads; where there is none: */
    kvf__config_number global_head_dim; /* of layers that are not local */
    const char *global_kv_heads;        /* the same, with k_is_v; null or absent: as the others */
    const char *k_is_v;                 /* switch: in layers that are not local */
    const char *shared; /* so many last layers read keys and values of the last layer before them
                           that is local or not as they are */
    const char *wide;   /* switch: those have twice the feed-forward width */
    kvf__config_number inputs; /* width of what each layer reads of a token besides the stream */
    const char *inputs_vocab;  /* their vocabulary, which must be that of the base */
} kvf__layer_keys;

#endif

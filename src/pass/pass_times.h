/* Private to src/pass: time of a pass by component. */
#ifndef KVF_PASS_TIMES_H
#define KVF_PASS_TIMES_H

struct kvf__pass;

/* Components of the timings, in the order of kvf__pass_timings. */
#define KVF__PART_LIST(X)                                                                          \
    X(EMBED, "embed")                                                                              \
    X(NORM, "norm")                                                                                \
    X(QKV, "qkv")                                                                                  \
    X(ROPE, "rope")                                                                                \
    X(ATTN, "attention") /* or mixer */                                                            \
    X(OUT, "out")                                                                                  \
    X(FFN, "ffn")                                                                                  \
    X(ACT, "activation")                                                                           \
    X(ADAPTER, "adapter")                                                                          \
    X(HEAD, "head")                                                                                \
    X(LOSS, "loss")                                                                                \
    X(HEAD_BWD, "head_bwd")                                                                        \
    X(FFN_BWD, "ffn_bwd")                                                                          \
    X(ACT_BWD, "activation_bwd")                                                                   \
    X(NORM_BWD, "norm_bwd")                                                                        \
    X(OUT_BWD, "out_bwd")                                                                          \
    X(ADAPTER_BWD, "adapter_bwd")                                                                  \
    X(ATTN_BWD, "attention_bwd")                                                                   \
    X(ROPE_BWD, "rope_bwd")                                                                        \
    X(QKV_BWD, "qkv_bwd")                                                                          \
    X(EMBED_BWD, "embed_bwd")                                                                      \
    X(WEIGHT_GRAD, "weight_grad")                                                                  \
    X(PACK, "pack")                                                                                \
    X(RECOMPUTE, "recompute")                                                                      \
    X(OTHER, "other")

typedef enum kvf__part {
#define KVF__PART_ENUM(name, text) KVF__PART_##name,
    KVF__PART_LIST(KVF__PART_ENUM)
#undef KVF__PART_ENUM
        KVF__PARTS
} kvf__part;

typedef struct kvf__pass_times {
    double seconds[KVF__PARTS], mark;
} kvf__pass_times;

/* Adds the time since the last call to a component. */
void kvf__pass_lap(struct kvf__pass *pass, kvf__part part);

#endif

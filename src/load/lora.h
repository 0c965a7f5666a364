/* A LoRA of PEFT (Hu et al., arXiv 2106.09685): read, and folded into a base's weights. */
#ifndef KVF_LORA_H
#define KVF_LORA_H

#include "open_base.h"

/* The term added to the weight of a module: scale * B A. */
typedef struct kvf__lora_module {
    char *name;         /* "model.layers.0.self_attn.q_proj" */
    const kvf__view *a; /* [r, in] */
    const kvf__view *b; /* [out, r] */
    double rank, alpha; /* values of the config */
    double scale;
} kvf__lora_module;

/* An adapter folder (lora_file.c). */
typedef struct kvf__lora {
    kvf__weights weights; /* source of the modules' views */
    kvf__lora_module *modules;
    size_t n;
} kvf__lora;
/* Reads adapter_config.json and adapter_model.safetensors of peft_type LORA. EUNSUPPORTED, by name:
 * everything beyond low-rank matrices of linear layers, such as DoRA, biases, modules_to_save,
 * embeddings, initial values that change the base. */
kvf_status kvf__lora_open(kvf_ctx *ctx, const char *dir, kvf__lora *out);
void kvf__lora_close(kvf__lora *lora);

/* Makes the slots of a base that is being opened add the LoRA of base->lora whenever they are read.
 * Changes base->hash from that of the weights to that of both, and base->name to both names.
 * EMISMATCH: a module is missing from the base, or has another shape. */
kvf_status kvf__lora_fold(kvf_ctx *ctx, const kvf__desc *desc, kvf_base *base);

#endif

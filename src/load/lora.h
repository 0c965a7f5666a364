/* A LoRA (Hu and others, arXiv 2106.09685) of PEFT: read, and folded into a base's weights. */
#ifndef KVF_LORA_H
#define KVF_LORA_H

#include "open_base.h"

/* What is added to the weight of a module: scale * B A. */
typedef struct kvf__lora_module {
    char *name;         /* "model.layers.0.self_attn.q_proj" */
    const kvf__view *a; /* [r, in] */
    const kvf__view *b; /* [out, r] */
    double rank, alpha; /* as the config has them */
    double scale;
} kvf__lora_module;

/* An adapter folder (lora_file.c). */
typedef struct kvf__lora {
    kvf__weights weights; /* that the modules view */
    kvf__lora_module *modules;
    size_t n;
} kvf__lora;
/* adapter_config.json and adapter_model.safetensors of peft_type LORA. What is more than matrices
 * of low rank beside linear layers is EUNSUPPORTED, by name: DoRA, biases, modules_to_save,
 * embeddings, starting values that change the base. */
kvf_status kvf__lora_open(kvf_ctx *ctx, const char *dir, kvf__lora *out);
void kvf__lora_close(kvf__lora *lora);

/* Has the slots of a base that is being opened add the LoRA of base->lora wherever they are read,
 * and makes base->hash, until now that of the weights, the hash of both; base->name names both.
 * EMISMATCH: a module that the base does not have, or of another shape. */
kvf_status kvf__lora_fold(kvf_ctx *ctx, const kvf__desc *desc, kvf_base *base);

#endif

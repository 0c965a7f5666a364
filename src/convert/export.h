/* Internals of export: prefixes as caches that engines load. */
#ifndef KVF_EXPORT_H
#define KVF_EXPORT_H

#include <kvfold/io.h>

#include "arch_keys.h"
#include "llama_state.h"
#include "open_prefix.h"
#include "peft.h"

/* An engine: a program that runs a base with a saved cache, and the format that it reads. */
typedef struct kvf__engine {
    const char *name;
    kvf_export_format format;
    int64_t version;      /* llamacpp: version of the state; mlx: 0 is the layout up to mlx-lm
                           * 0.31.3 */
    bool flash_attention; /* llamacpp: its default setting */
} kvf__engine;
/* Returns the row of options->engine, or the first of the format. EUSAGE: the format has no such
 * engine. */
kvf_status kvf__engine_find(kvf_ctx *ctx, const kvf_export_options *options,
                            const kvf__engine **out);
/* EUNSUPPORTED: a cache of P cells at positions 0 to P - 1 cannot represent the prefix. */
kvf_status kvf__check_cache(kvf_ctx *ctx, const kvf_export_options *options,
                            const kvf_prefix *prefix);

/* Returns the cache layout of a base in llama.cpp; `global` is borrowed from it. */
kvf__llama_base kvf__llama_base_of(const kvf__desc *desc);

/* A saved sequence of llama.cpp and its accompanying files. */
typedef struct kvf__llama_export {
    const kvf_export_options *options;
    const kvf_prefix *prefix;
    const kvf_base *base;
    const kvf__engine *engine;
    bool folds; /* writes the base with the neurons of the prefix too */
    kvf__llama_form form;
    kvf__ids ids;         /* [P] ids that stand for the prefix; the first is BOS if texts have one
                           */
    kvf__buf text;        /* their text without that BOS, with which a chat template begins */
    const char *template; /* the base's own chat template; NULL: rows did not use it */
    kvf__buf date;        /* statement that sets the date of the rows; empty: none */
} kvf__llama_export;
/* Chooses ids and text. EUNSUPPORTED: no special token can stand for the prefix. */
kvf_status kvf__placeholders(kvf_ctx *ctx, kvf__llama_export *export);
/* Appends a text of engines/ with its values filled in. */
kvf_status kvf__llama_readme(kvf_ctx *ctx, const kvf__llama_export *export, const char *name,
                             kvf__buf *out);
extern const kvf__pair kvf__engine_texts[]; /* name and text */

static inline const char *kvf__or_empty(const char *text)
{
    return text ? text : "";
}

/* The content of an adapter folder of PEFT, made from a prefix. */
typedef struct kvf__peft_form {
    kvf__peft_content what;
    kvf__identity id;
    kvf__prefix stacks; /* of an encoder-decoder */
} kvf__peft_form;
/* Returns what a model card tells of the prefix, without its values. */
kvf__peft_content kvf__peft_facts(const kvf_export_options *options, const kvf_prefix *prefix);
/* Fills *out. EUNSUPPORTED: PEFT cannot hold the prefix. Free ->stacks, even on failure. */
kvf_status kvf__peft_form_of(kvf_ctx *ctx, const kvf_export_options *options,
                             const kvf_prefix *prefix, kvf__peft_form *out);
kvf_status kvf__export_peft(kvf_ctx *ctx, const kvf_export_options *options,
                            const kvf_prefix *prefix);
/* EUNSUPPORTED: the user cannot hold what the blocks of the base's family need. */
kvf_status kvf__check_block_user(kvf_ctx *ctx, const kvf_export_options *options,
                                 const kvf_prefix *prefix, kvf__block_user user);
/* EUNSUPPORTED: transformers scales virtual tokens at the input of this family, so that their
 * values would mean others there. arch: NULL if unknown. */
kvf_status kvf__check_tokens_scale(kvf_ctx *ctx, const char *path, const struct kvf__arch *arch);
/* EUNSUPPORTED: other programs than kvfold cannot hold the prefix. */
kvf_status kvf__check_foreign(kvf_ctx *ctx, const kvf_export_options *options,
                              const kvf_prefix *prefix);
kvf_status kvf__export_safetensors(kvf_ctx *ctx, const kvf_export_options *options,
                                   const kvf_prefix *prefix);
/* Row of the format hub-repo (export_hub.c). */
kvf_status kvf__export_hub(kvf_ctx *ctx, const kvf_export_options *options,
                           const kvf_prefix *prefix);
/* Rows of the formats llamacpp and gguf (export.c). */
kvf_status kvf__export_llamacpp(kvf_ctx *ctx, const kvf_export_options *options,
                                const kvf_prefix *prefix);
/* Exports a base, with the neurons of a prefix in its matrices, as a transformers folder
 * (export_transformers.c). */
kvf_status kvf__export_transformers(kvf_ctx *ctx, const kvf_export_options *options);
/* Writes the base, a GGUF, with the neurons in its matrices (export_gguf.c). content: a
 * kvf__llama_export. */
kvf_status kvf__write_wide_gguf(kvf_ctx *ctx, const char *path, bool force, const void *content);
/* Writes a GGUF with the weights of a trained base (export_gguf_trained.c). */
kvf_status kvf__export_gguf_trained(kvf_ctx *ctx, const kvf_export_options *options);
/* Opens a base to read its weights from the mapped file; none is packed. */
kvf_status kvf__open_mapped(kvf_ctx *ctx, const char *path, const char *lora, kvf_base **out);
/* EUSAGE: settings of an engine, where no state is written; what: why none is. */
kvf_status kvf__check_no_state(kvf_ctx *ctx, const kvf_export_options *options, const char *what);
/* Sets the type in which a tensor is stored, which is its own unless one is asked for by name.
 * EUNSUPPORTED: its rows cannot be. */
kvf_status kvf__gguf_store_as(kvf_ctx *ctx, const char *where, const char *name, const char *asked,
                              kvf__view *view);
/* Writes n values in the type. ENUMERIC: it cannot store one. */
kvf_status kvf__gguf_encode(kvf_ctx *ctx, const char *name, kvf__dtype dtype, const float *values,
                            int64_t n, uint8_t *out);
/* Refuses what an ordinary model, and a cache beside it, cannot hold. */
kvf_status kvf__check_foldable(kvf_ctx *ctx, const kvf_export_options *options,
                               const kvf_prefix *prefix, const kvf_base *base);
/* Reads config and tokenizer files of a base; *made has the tokenizer files in transformers' form,
 * if those of the base have another. The caller frees both, even on failure. */
kvf_status kvf__transformers_texts(kvf_ctx *ctx, const char *path, kvf__base_file *found,
                                   kvf__base_file *made);
/* Exports the tokenizer of the base at options->path (export_tokenizer.c). */
kvf_status kvf__export_tokenizer(kvf_ctx *ctx, const kvf_export_options *options);

#endif

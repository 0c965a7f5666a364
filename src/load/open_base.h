/* From a path to a base: weights, tokenizer, packed model. And the texts that a base file keeps. */
#ifndef KVF_OPEN_BASE_H
#define KVF_OPEN_BASE_H

#include <kvfold/io.h>
#include <kvfold/model.h>

#include "base_file.h"
#include "file_int.h"
#include "pass_int.h"
#include "text_int.h"

struct kvf_base {
    kvf_ctx *ctx;
    char *path, *name;
    char *lora; /* its folder; NULL: none */
    char hash[33];
    kvf__weights weights; /* keeps the bytes mapped that the model views */
    kvf__slots slots;
    kvf__low_rank *folds; /* [n_folds] what the LoRA has slots add */
    size_t n_folds;
    kvf__tokenizer *tokenizer;
    kvf__model *model;
    kvf_precision precision;
    kvf_weight_dtype weight_dtype;
    bool backward;             /* open for these too */
    bool random;               /* weights of no file that anyone has */
    const kvf_prefix *carries; /* whose values the model has taken (port block); NULL: its own */
    bool is_copy;              /* weights, slots, folds and tokenizer are views of another base's */
};

/* "auto", "f32", "bf16", "int8". */
const char *kvf__precision_name(kvf_precision precision);
const char *kvf__weight_dtype_name(kvf_weight_dtype dtype);
/* AUTO becomes BF16 where a rule on CPU and base predicts that it is faster, else F32; BF16 on a
 * CPU without it is EUNSUPPORTED. */
kvf_status kvf__precision_resolve(kvf_ctx *ctx, kvf_precision wanted, const kvf__desc *desc,
                                  kvf_precision *out);

/* A base of random weights that no file holds, without a tokenizer and without a hash: for bench.
 * name: kvf__base_shape() or the path of a config.json. Every weight views one pool of numbers, so
 * that it takes no more memory than its largest tensor (the embedding) and the packed weights,
 * about what a mapped file keeps resident. */
kvf_status kvf__base_random(kvf_ctx *ctx, const char *name, const kvf_base_options *options,
                            uint64_t seed, kvf_base **out);
/* Names of known shapes by index: "gpt2", ...; NULL past the last. */
const char *kvf__base_shape(size_t index);
kvf_status kvf__base_shape_desc(kvf_ctx *ctx, const char *name, kvf__desc *out);
/* Makes the hash of a base out of that of its weights: what decides ids is part of it. */
kvf_status kvf__base_hash_ids(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, char hex[33]);
/* From a description and a table of weights to base->model: binds, decides the precision, packs.
 * `where` names them in errors; form: to be trained in, NULL: frozen. */
kvf_status kvf__base_pack(kvf_ctx *ctx, kvf_base *base, const char *where, kvf__desc *desc,
                          const kvf_base_options *options, const kvf__train *form);

/* config.json and the tokenizer's files of a Hugging Face folder or a base file; of a GGUF as they
 * are made of its metadata. */
kvf_status kvf__base_texts(kvf_ctx *ctx, const char *path, kvf__base_file *out);
/* One of them; NULL: there is none of that name. */
const char *kvf__base_text_find(const kvf__base_file *file, const char *name);
/* kvf__base_file_open for a file whose texts are all files of a tokenizer, by their names. */
kvf_status kvf__base_file_load(kvf_ctx *ctx, const char *path, kvf__weights *weights,
                               kvf__base_file *out);
kvf_status kvf__base_tokenizer(kvf_ctx *ctx, const char *where, const kvf__base_file *file,
                               kvf__tokenizer **out);
/* One of them, or config.json alone, or those of a tokenizer that a folder has. */
kvf_status kvf__base_text_read(kvf_ctx *ctx, const char *path, const char *name,
                               kvf__base_file *file);
kvf_status kvf__base_config_read(kvf_ctx *ctx, const char *path, kvf__base_file *file);
kvf_status kvf__base_tokenizer_dir(kvf_ctx *ctx, const char *dir, kvf__base_file *file);
/* The end ids of a folder's generation_config.json, if there is one that has some. */
kvf_status kvf__base_ends_read(kvf_ctx *ctx, const char *dir, kvf__desc *desc);
/* The description in its config. */
kvf_status kvf__base_desc(kvf_ctx *ctx, const char *where, const kvf__base_file *file,
                          kvf__desc *out);

/* The path, or the folder that holds the model of this name in the cache of the Hugging Face Hub;
 * EIO where it can only be such a name, and is not there. *out is the caller's. */
kvf_status kvf__hub_find(kvf_ctx *ctx, const char *path, char **out);
/* ORG/NAME of a folder in that cache; *out untouched: it is elsewhere. */
kvf_status kvf__hub_name(kvf_ctx *ctx, const char *path, char **out);
/* A base, with its LoRA unless NULL, as it computes exactly: in f32. */
kvf_status kvf__base_open_exact(kvf_ctx *ctx, const char *path, const char *lora, kvf_base **out);
/* kvf_base_open in a form to be trained. */
kvf_status kvf__base_open_as(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                             const kvf__train *form, kvf_base **out);
/* The same of a base that is open, which stays as it is and must outlive *out: a model of its own,
 * in the precision of `from`, packed from what that has mapped; no file is opened. */
kvf_status kvf__base_copy_as(kvf_ctx *ctx, const kvf_base *from, const kvf_base_options *options,
                             const kvf__train *form, kvf_base **out);
/* Makes an open base ready for backward passes, from what it has mapped; no file is opened. On
 * failure the base is as it was. */
kvf_status kvf__base_add_backward(kvf_ctx *ctx, kvf_base *base);
/* kvf__base_copy_as for forward passes in bf16, as the file has it: what another precision is
 * compared with.
 */
kvf_status kvf__base_copy_bf16(kvf_ctx *ctx, const kvf_base *from, kvf_base **out);
/* Tokenizer of a GGUF's metadata. */
kvf_status kvf__tokenizer_from_gguf(kvf_ctx *ctx, const char *path, const kvf__weights *weights,
                                    kvf__tokenizer **out);
/* The same as the text that a base file keeps (tokenizer.gguf.json); to be freed. */
kvf_status kvf__gguf_vocab_text(kvf_ctx *ctx, const char *path, const kvf__weights *weights,
                                char **out);

/* What words are to the base, without tokens that only mark where a text begins and ends: those of
 * the tokenizer are put around the words on a base that reads in both directions, which never saw a
 * text without them; elsewhere nothing is added. *before is where the words begin. */
kvf_status kvf__base_wrap(kvf_ctx *ctx, const kvf_base *base, const int32_t *words, int64_t n,
                          kvf__ids *out, int64_t *before);
/* Of the bare base, run on words [out->P] so wrapped, from position 0 on: keys and values of every
 * layer, out->kv, and what enters it (kvf__input.streams), inputs [L, P, C] unless NULL. */
kvf_status kvf__base_keys_values(kvf_ctx *ctx, kvf_base *base, const int32_t *words,
                                 kvf__prefix *out, float *inputs);
/* How many parameters the base has: copies of tied weights and the masked-LM head are left out. And
 * how many values of a list are among them, by name. */
int64_t kvf__base_parameters(const kvf_base *base);
int64_t kvf__base_own_values(const kvf_base *base, const kvf__params *list);
/* Longest row that fits: positions of the model less position_start. */
int64_t kvf__longest_row(const kvf_base *base, int64_t position_start);

#endif

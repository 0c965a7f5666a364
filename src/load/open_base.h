/* From a path to a base: weights, tokenizer, packed model. Also the texts of a base file. */
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
    char *lora; /* folder of the LoRA; NULL: none */
    char hash[33];
    kvf__weights weights; /* owner of the maps that the model views */
    kvf__slots slots;
    kvf__low_rank *folds; /* [n_folds] LoRA terms of slots */
    size_t n_folds;
    kvf__tokenizer *tokenizer;
    kvf__model *model;
    kvf_precision precision;
    kvf_weight_dtype weight_dtype;
    bool backward;             /* prepared for backward passes */
    bool random;               /* random weights that are in no file */
    const kvf_prefix *carries; /* prefix whose values the model carries (port block); NULL: none */
    bool is_copy; /* weights, slots, folds and tokenizer are borrowed from another base */
};

/* Returns "auto", "f32", "bf16" or "int8". */
const char *kvf__precision_name(kvf_precision precision);
const char *kvf__weight_dtype_name(kvf_weight_dtype dtype);
/* Resolves AUTO: BF16 if a rule on CPU and base predicts that it is faster, else F32. EUNSUPPORTED:
 * BF16 on a CPU without it. */
kvf_status kvf__precision_resolve(kvf_ctx *ctx, kvf_precision wanted, const kvf__desc *desc,
                                  kvf_precision *out);

/* Makes a base of random weights, without tokenizer and hash, for bench. name: kvf__base_shape() or
 * the path of a config.json. Every weight views one pool of numbers, so memory is that of its
 * largest tensor (the embedding) and the packed weights, about as with a mapped file. */
kvf_status kvf__base_random(kvf_ctx *ctx, const char *name, const kvf_base_options *options,
                            uint64_t seed, kvf_base **out);
/* Returns names of known shapes by index: "gpt2", ...; NULL past the last. */
const char *kvf__base_shape(size_t index);
kvf_status kvf__base_shape_desc(kvf_ctx *ctx, const char *name, kvf__desc *out);
/* Turns the hash of the weights into that of the base, which includes everything that determines
 * ids. */
kvf_status kvf__base_hash_ids(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, char hex[33]);
/* Makes base->model from a description and a table of weights: binds, chooses the precision, packs.
 * `where` names them in errors; form: trained parts, NULL: frozen. */
kvf_status kvf__base_pack(kvf_ctx *ctx, kvf_base *base, const char *where, kvf__desc *desc,
                          const kvf_base_options *options, const kvf__train *form);

/* Reads config.json and the tokenizer's files of a Hugging Face folder or a base file; for a GGUF
 * they are made from its metadata. */
kvf_status kvf__base_texts(kvf_ctx *ctx, const char *path, kvf__base_file *out);
/* Returns one of the texts; NULL: none of that name. */
const char *kvf__base_text_find(const kvf__base_file *file, const char *name);
/* kvf__base_file_open for a file whose texts must all be tokenizer files, by name. */
kvf_status kvf__base_file_load(kvf_ctx *ctx, const char *path, kvf__weights *weights,
                               kvf__base_file *out);
kvf_status kvf__base_tokenizer(kvf_ctx *ctx, const char *where, const kvf__base_file *file,
                               kvf__tokenizer **out);
/* Reads one text; or config.json alone; or a folder's tokenizer files. */
kvf_status kvf__base_text_read(kvf_ctx *ctx, const char *path, const char *name,
                               kvf__base_file *file);
kvf_status kvf__base_config_read(kvf_ctx *ctx, const char *path, kvf__base_file *file);
kvf_status kvf__base_tokenizer_dir(kvf_ctx *ctx, const char *dir, kvf__base_file *file);
/* Reads the end ids of a folder's generation_config.json, if any. */
kvf_status kvf__base_ends_read(kvf_ctx *ctx, const char *dir, kvf__desc *desc);
/* Reads the description from the config. */
kvf_status kvf__base_desc(kvf_ctx *ctx, const char *where, const kvf__base_file *file,
                          kvf__desc *out);

/* Returns the path, or the folder of the model with this name in the cache of the Hugging Face Hub.
 * EIO: it can only be such a name, and is not in the cache. The caller frees *out. */
kvf_status kvf__hub_find(kvf_ctx *ctx, const char *path, char **out);
/* The same for a prefix: of a folder with a file of this name, that file. */
#define KVF__HUB_PREFIX "prefix.h5"
kvf_status kvf__hub_find_prefix(kvf_ctx *ctx, const char *path, char **out);
/* Returns ORG/NAME of a folder in that cache; otherwise *out is unchanged. */
kvf_status kvf__hub_name(kvf_ctx *ctx, const char *path, char **out);
/* Opens a base, with its LoRA unless NULL, in f32. */
kvf_status kvf__base_open_exact(kvf_ctx *ctx, const char *path, const char *lora, kvf_base **out);
/* kvf_base_open with trained parts. */
kvf_status kvf__base_open_as(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                             const kvf__train *form, kvf_base **out);
/* Makes a second model of an open base, which is unchanged and must outlive *out, in the precision
 * of `from`, packed from its mapped weights; no file is opened. */
kvf_status kvf__base_copy_as(kvf_ctx *ctx, const kvf_base *from, const kvf_base_options *options,
                             const kvf__train *form, kvf_base **out);
/* Prepares an open base for backward passes, from its mapped weights; no file is opened. On failure
 * the base is unchanged. */
kvf_status kvf__base_add_backward(kvf_ctx *ctx, kvf_base *base);
/* kvf__base_copy_as for forward passes in bf16 with the file's weights, as a reference for other
 * precisions. */
kvf_status kvf__base_copy_bf16(kvf_ctx *ctx, const kvf_base *from, kvf_base **out);
/* Makes the tokenizer of a GGUF's metadata. */
kvf_status kvf__tokenizer_from_gguf(kvf_ctx *ctx, const char *path, const kvf__weights *weights,
                                    kvf__tokenizer **out);
/* Writes it as the text in a base file (tokenizer.gguf.json), freed by the caller. */
kvf_status kvf__gguf_vocab_text(kvf_ctx *ctx, const char *path, const kvf__weights *weights,
                                char **out);

/* Wraps words in the tokenizer's special tokens on a bidirectional base, which never saw a text
 * without them; on other bases adds nothing. *before: position of the words. */
kvf_status kvf__base_wrap(kvf_ctx *ctx, const kvf_base *base, const int32_t *words, int64_t n,
                          kvf__ids *out, int64_t *before);
/* Runs the bare base on wrapped words [out->P] from position 0 on. out->kv: keys and values of
 * every layer; inputs [L, P, C], unless NULL: the input of each layer (kvf__input.streams). */
kvf_status kvf__base_keys_values(kvf_ctx *ctx, kvf_base *base, const int32_t *words,
                                 kvf__prefix *out, float *inputs);
/* Return the number of the base's parameters, without copies of tied weights and the masked-LM
 * head; and how many values of a list are among them, by name. */
int64_t kvf__base_parameters(const kvf_base *base);
int64_t kvf__base_own_values(const kvf_base *base, const kvf__params *list);
/* Returns the longest row that fits: positions of the model minus position_start. */
int64_t kvf__longest_row(const kvf_base *base, int64_t position_start);

#endif

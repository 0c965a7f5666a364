/* From a path to a live object: a base (weights, tokenizer, packed model), a prefix (read from its
 * file, or emitted by the encoder of a run), and the renderer that turns rows into ids the way a
 * prefix was trained. The only folder that knows all file formats and all objects at once;
 * everything above it works on objects. */
#ifndef KVF_LOAD_INT_H
#define KVF_LOAD_INT_H

#include <kvfold/io.h>
#include <kvfold/model.h>

#include "base_file.h"
#include "data_int.h"
#include "model_int.h"
#include "text_int.h"

struct kvf_base {
    kvf_ctx *ctx;
    char *path, *name;
    char hash[33];
    kvf__weights weights; /* keeps the bytes mapped that the model views */
    kvf__slots slots;
    kvf__tokenizer *tokenizer;
    kvf__model *model;
    kvf_precision precision;
    kvf_weight_dtype weight_dtype;
    bool random;               /* weights of no file that anyone has */
    const kvf_prefix *carries; /* whose values the model has taken (port block); NULL: its own */
};

/* What conditions a base: a prefix, or vectors at its input. */
struct kvf_prefix {
    kvf__identity id;
    kvf__prefix prefix;          /* P = 0: none */
    kvf__vectors vectors;        /* P = 0: none */
    char *pattern;               /* --p-template, NULL: there is none */
    kvf__params_owned block;     /* n = 0: none; else values for what the model publishes, and */
    kvf__train form;             /* the form of the model that publishes it */
    kvf__task task;              /* of id.task */
    kvf__head_values head;       /* lm: empty, or lm_head.weight where that was trained */
    kvf_json *options, *lineage; /* of the file; may be NULL */
    char *path;
    bool from_run;
    int64_t step; /* of the state that was used; -1 for prefix files */
};

/* What a file of that kind holds of a prefix; all is viewed. */
kvf__artifact kvf__prefix_view(const kvf_prefix *prefix, kvf__kind kind);

/* "auto", "f32", "bf16", "int8". */
const char *kvf__precision_name(kvf_precision precision);
const char *kvf__weight_dtype_name(kvf_weight_dtype dtype);
/* AUTO becomes BF16 where a rule on CPU and base says that it is faster, else F32; BF16 on a CPU
 * without it is EUNSUPPORTED. */
kvf_status kvf__precision_resolve(kvf_ctx *ctx, kvf_precision wanted, const kvf__desc *desc,
                                  kvf_precision *out);

/* A base of random weights that no file holds, without a tokenizer and without a hash: for bench.
 * name: kvf__base_shape() or the path of a config.json. Every weight views one pool of numbers, so
 * that it takes no more memory than its largest tensor (the embedding) beside the packed weights,
 * about what a mapped file keeps resident. */
kvf_status kvf__base_random(kvf_ctx *ctx, const char *name, const kvf_base_options *options,
                            uint64_t seed, kvf_base **out);
/* Names of known shapes by index: "gpt2", ...; NULL past the last. */
const char *kvf__base_shape(size_t index);
kvf_status kvf__base_shape_desc(kvf_ctx *ctx, const char *name, kvf__desc *out);
/* From a description and a table of weights to base->model: binds, decides the precision, packs.
 * `where` names them in errors. */
kvf_status kvf__base_pack(kvf_ctx *ctx, kvf_base *base, const char *where, kvf__desc *desc,
                          const kvf_base_options *options);

/* config.json and the tokenizer's files of a Hugging Face folder or a base file; of a GGUF as they
 * are made of its metadata. */
kvf_status kvf__base_texts(kvf_ctx *ctx, const char *path, kvf__base_file *out);
kvf_status kvf__base_tokenizer(kvf_ctx *ctx, const char *where, const kvf__base_file *file,
                               kvf__tokenizer **out);
/* A base file of the base's weights, where `values` has no others for them, by name. task: what it
 * says of a head, the hash of the new weights being filled in; NULL: there is none. */
kvf_status kvf__base_from_values(kvf_ctx *ctx, const kvf_base *base, const kvf__params *values,
                                 kvf__artifact *task, const char *out, bool force);
/* A Hugging Face folder or a GGUF as a base file: the same model in the same bits, the latter's
 * integers as the f32 that they stand for. */
kvf_status kvf__base_import(kvf_ctx *ctx, const char *path, const char *out, bool force);

/* The path, or the folder that holds the model of this name in the cache of the Hugging Face Hub;
 * EIO where it can only be such a name, and is not there. *out is the caller's. */
kvf_status kvf__hub_find(kvf_ctx *ctx, const char *path, char **out);
/* ORG/NAME of a folder in that cache; *out untouched: it is elsewhere. */
kvf_status kvf__hub_name(kvf_ctx *ctx, const char *path, char **out);
/* kvf_base_open in a form to be trained. */
kvf_status kvf__base_open_as(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                             const kvf__train *form, kvf_base **out);
/* The form of a model that has the values of an adapter file. */
kvf_status kvf__block_form(kvf_ctx *ctx, const char *path, const kvf__artifact *adapter,
                           kvf__train *out);
/* Into a new prefix: the values of a run of port block, which are taken over. */
kvf_status kvf__block_from_run(kvf_ctx *ctx, const char *path, kvf__artifact *run, bool best,
                               kvf_prefix *prefix);
/* The base's part of a run that trained it beside an encoder (--unfreeze base): copies of the
 * values that are not the encoder's; none if the run's options do not say so. */
kvf_status kvf__block_beside(kvf_ctx *ctx, const kvf_json *options, const kvf__params *values,
                             const kvf__params *encoder, kvf_prefix *prefix);
/* Values for all that the model publishes, by name; EMISMATCH, ESHAPE if they are not. `where`
 * names the source. */
kvf_status kvf__block_load(kvf_ctx *ctx, const char *where, const kvf__params *values,
                           kvf__model *model);
/* What a file says of its base, held against one, heads and what the base carries apart; a file
 * that names none (base_hash empty: allow_other_base lets it pass) gets its stamp. */
kvf_status kvf__identity_check(kvf_ctx *ctx, const char *path, kvf__identity *id,
                               const kvf_base *base, bool allow_other_base);
/* The stamp alone: name, architecture and hash, in place of those there are. */
kvf_status kvf__identity_stamp(kvf_ctx *ctx, kvf__identity *id, const kvf_base *base);
/* kvf_prefix_check but for what the base carries. */
kvf_status kvf__prefix_fits(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_base *base,
                            bool allow_other_base);

/* Tokenizer of a GGUF's metadata. */
kvf_status kvf__tokenizer_from_gguf(kvf_ctx *ctx, const char *path, const kvf__weights *weights,
                                    kvf__tokenizer **out);
/* The same as the text that a base file keeps (tokenizer.gguf.json); to be freed. */
kvf_status kvf__gguf_vocab_text(kvf_ctx *ctx, const char *path, const kvf__weights *weights,
                                char **out);

struct kvf__encoder; /* infer sees this header, and not the encoder */
struct kvf__encoder_shape;

/* An encoder with what its method reads of the base. shape: P, M and
 * form; the rest is the base's. */
kvf_status kvf__encoder_on_base(kvf_ctx *ctx, const kvf_base *base, const char *method,
                                const struct kvf__encoder_shape *shape, struct kvf__encoder **out);

/* The encoder of a run with the values of a checkpoint; *step: of that state. base may be NULL
 * where the method does not read it (EUSAGE otherwise). */
kvf_status kvf__encoder_from_run(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                                 const kvf_base *base, kvf_checkpoint checkpoint,
                                 struct kvf__encoder **out, int64_t *step);

/* Writes a run at step 0 with zero moments: the encoder's parameters, and what *run has already:
 * identity, head, layer_mask (NULL: every layer), options and lineage. */
kvf_status kvf__first_run_write(kvf_ctx *ctx, const char *path, bool force,
                                struct kvf__encoder *encoder, kvf__artifact *run);

/* Copies values into a head's parameters by name. EFORMAT, ESHAPE: the names or shapes are not the
 * head's; `where` names the source. */
kvf_status kvf__head_load(kvf_ctx *ctx, kvf__params *to, const char *where,
                          const kvf__params *from);
/* The head that came with a prefix on a base, dropout 0, a language model's without a gradient;
 * *out stays NULL where that is the base's own. */
kvf_status kvf__prefix_head(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                            kvf__head **out);

/* Classes as words of a masked model (verbalizer.c): of "label=word,..." a word for each label, [n]
 * texts to free; EUSAGE says which label has none. And the head that reads them; EUSAGE names a
 * word that is not one token, EUNSUPPORTED: the base has no masked-language-model head. */
kvf_status kvf__verbalizer_words(kvf_ctx *ctx, const char *text, char *const *labels, size_t n,
                                 char ***out);
void kvf__verbalizer_free(char **words, size_t n);
kvf_status kvf__verbalizer_head(kvf_ctx *ctx, const kvf_base *base, char *const *words, size_t n,
                                kvf__head **out);

/* Names and kind of the outputs of an imported head; names: "a,b,c", NULL: LABEL_0 and on. */
kvf_status kvf__import_head(kvf_ctx *ctx, const char *path, const char *names, const char *task,
                            kvf__head_values *head);

struct kvf__foreign; /* foreign.h */
/* L, G, D (with a base), texts, position_start = P of what is imported. */
kvf_status kvf__import_stamp(kvf_ctx *ctx, const kvf_base *base, const char *base_name,
                             const char *method, const char *task, kvf__identity *id);
/* Another program's prefix, opened, as a run or prefix file; kind as of kvf_import. */
kvf_status kvf__import_foreign(kvf_ctx *ctx, const kvf_import_options *options,
                               const kvf_base *base, const struct kvf__foreign *foreign,
                               char *kind);
/* Its task (static), and the head that this task has on the base; EFORMAT: it has none. */
kvf_status kvf__foreign_task(kvf_ctx *ctx, const kvf_import_options *options,
                             const struct kvf__foreign *foreign, const char **task);
kvf_status kvf__foreign_head(kvf_ctx *ctx, const kvf_import_options *options, const kvf_base *base,
                             const struct kvf__foreign *foreign, const char *task,
                             kvf__head_values *out);

/* A render with what it views. */
typedef struct kvf__renderer {
    kvf__chat chat;
    kvf__field_map map;
    kvf__row_template pattern; /* of render, where that has one */
    kvf__render render;
} kvf__renderer;
/* template_name as of --chat-template (NULL: auto); map_text as of --map. The address of *out must
 * not change afterwards. */
kvf_status kvf__renderer_init(kvf_ctx *ctx, const kvf_base *base, const char *template_name,
                              const char *map_text, kvf__renderer *out);
/* Rows get virtual tokens: where the text of --p-template says, or (NULL, "") P of them in front.
 * EUSAGE also for [MASK] on a base without one. */
kvf_status kvf__renderer_pattern(kvf_ctx *ctx, kvf__renderer *renderer, const char *text,
                                 int64_t P);
/* As `prefix` (NULL: none) was trained; template_name NULL: as that says. */
kvf_status kvf__renderer_for(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                             const char *template_name, const char *map_text, kvf__renderer *out);
void kvf__renderer_done(kvf__renderer *renderer);
/* Are rows the same ids under both? */
bool kvf__prefix_same_rows(const kvf_prefix *a, const kvf_prefix *b);

/* "2-5" or "2", from 0 on. EUSAGE. */
kvf_status kvf__layers_parse(kvf_ctx *ctx, const char *layers, int64_t *first, int64_t *last);

/* What words are to the base, without tokens that only mark where a text begins and ends: those of
 * the tokenizer stand around the words on a base that reads in both directions, to which a text is
 * nothing without them; elsewhere nothing does. *before is where the words begin. */
kvf_status kvf__base_wrap(kvf_ctx *ctx, const kvf_base *base, const int32_t *words, int64_t n,
                          kvf__ids *out, int64_t *before);
/* Of the bare base, run on words [out->P] so wrapped, from position 0 on: keys and values of every
 * layer, out->kv, and what enters it (kvf__input.streams), inputs [L, P, C] unless NULL. */
kvf_status kvf__base_keys_values(kvf_ctx *ctx, kvf_base *base, const int32_t *words,
                                 kvf__prefix *out, float *inputs);
/* A row's first position: "P", or a number from 0 on. EUSAGE. */
kvf_status kvf__position_parse(kvf_ctx *ctx, const char *text, int64_t P, int64_t *out);
/* Longest row that fits: positions of the model less position_start, and the sliding window less P.
 */
int64_t kvf__longest_row(const kvf_base *base, int64_t P, int64_t position_start);
/* Behind a prefix (NULL: none): ids of a row in all, and those that are not virtual tokens. */
int64_t kvf__row_capacity(const kvf_base *base, const kvf_prefix *prefix);
int64_t kvf__text_capacity(const kvf_base *base, const kvf_prefix *prefix);

#endif

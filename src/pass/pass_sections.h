/* Private to src/pass: rows of a batch with different prefixes (pass_sections.c). */
#ifndef KVF_PASS_SECTIONS_H
#define KVF_PASS_SECTIONS_H

#include "model_priv.h"

struct kvf__pass;

/* Rows with the same prefix: a section of the input, or all rows. */
typedef struct kvf__pass_section {
    int64_t first, end;          /* rows */
    kvf__condition condition;    /* the prefix is NULL if P = 0 */
    double *loss_sum;            /* NULL: not wanted */
    const kvf__neurons *neurons; /* of the prefix; NULL: none */
    const float *state;          /* states of mixers after the prefix; NULL: zeros */
    kvf__neurons *dneurons;      /* set by bwd */
    kvf__prefix *dprefix;
    kvf__vectors *dvectors;
    int32_t seg;  /* segment of its prefix in the current layer; -1: none */
    bool planned; /* included in the attention plan */
} kvf__pass_section;

/* Carved from the pass's arena. */
typedef struct kvf__pass_sections {
    kvf__pass_section *at; /* [limits.sections] at least one */
    int64_t n;
    bool given;         /* the input has sections */
    float *label_scale; /* [Lx] factor on the loss of each label; NULL: no sections */
} kvf__pass_sections;

/* ESHAPE: the prefix (NULL: none) does not fit the model, is longer than P, or has more than N
 * neurons. */
kvf_status kvf__prefix_check(kvf_ctx *ctx, const kvf__model *model, const kvf__prefix *prefix,
                             int64_t P, int64_t N);
/* Sections (pass_sections.c). set_sections takes them from the input, set_grads sets their gradient
 * targets. has_prefix returns whether layer l has a prefix segment for any row, section_of the
 * section of row r, vectors_at the vectors for ids below 0 at a token. */
kvf_status kvf__pass_set_sections(kvf_ctx *ctx, struct kvf__pass *pass, const kvf__input *input);
kvf_status kvf__pass_set_grads(kvf_ctx *ctx, struct kvf__pass *pass, const kvf__grads *into);
bool kvf__pass_has_prefix(const struct kvf__pass *pass, int64_t l);
/* Backward: returns whether any section has memory for the gradient of its state. */
bool kvf__pass_trains_state(const struct kvf__pass *pass);
/* l: layer of the prefix */
bool kvf__section_has_prefix(const kvf__pass_section *section, int64_t l);
const kvf__pass_section *kvf__pass_section_of(const struct kvf__pass *pass, int64_t r);
void kvf__pass_add_loss(const struct kvf__pass *pass, int64_t label,
                        double loss); /* adds to its section's sum */
const kvf__vectors *kvf__pass_vectors_at(const struct kvf__pass *pass, int64_t token);

#endif

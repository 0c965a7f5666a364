/* Prefixes that other programs have trained, as they lie in safetensors files: P-tuning v2 (THUDM),
 * Li & Liang's PrefixTuning, AdapterHub's adapters, HazyResearch's cartridges.
 *
 * A format is a row of the table in foreign.c. Whatever its names are, it comes out as one of two
 * things: the keys and values themselves, or a table of rows that go through linear layers. The
 * rows they end in, or are, are PEFT's: element ((2*l + kv)*G + g)*D + d of virtual token p. All
 * four view their output as [P, 2L, heads, head_dim] and split it into pairs. */
#ifndef KVF_FOREIGN_H
#define KVF_FOREIGN_H

#include "file_int.h"
#include "prefix.h"

enum { KVF__FOREIGN_LAYERS = 3 };

typedef struct kvf__foreign {
    const char *format;             /* "p-tuning-v2", ...; static */
    kvf__weights weights;           /* views below lie in them */
    kvf__weights head;              /* of a head in a file of its own; else empty */
    char *head_pickle;              /* its path where it is a torch pickle; else NULL */
    kvf_json *config, *head_config; /* NULL: there is none */

    kvf__prefix prefix; /* kv NULL: */
    kvf__view table;    /* [P, W]; without layers [P, 2*L*G*D], or that in one row */
    struct {
        kvf__view weight, bias; /* [out, in], [out] */
    } layer[KVF__FOREIGN_LAYERS];
    int layers;
    const char *activation;    /* between layers: "tanh", "relu", "gelu", "silu" */
    const kvf_json *leave_out; /* numbers of layers without a prefix, NULL: none */
    bool starts_at_0;          /* rows after the prefix count from 0, not from P */
    const char *model_class;   /* "BertPrefixForTokenClassification", NULL: not known */
} kvf__foreign;

/* path: a safetensors file, or a folder with one (and a config). from: the word of a format; NULL:
 * the one whose tensors are there, and *found is whether there is one. EUNSUPPORTED: the content
 * has no form here; EFORMAT, ESHAPE: tensors are missing, surplus or of other shapes. */
kvf_status kvf__foreign_open(kvf_ctx *ctx, const char *path, const char *from, kvf__foreign *out,
                             bool *found);
void kvf__foreign_close(kvf__foreign *foreign); /* {0} and half-open ones are fine */
/* "p-tuning-v2, prefixtuning, ..." */
const char *kvf__foreign_formats(char buf[128]);
bool kvf__foreign_known(const char *from);

/* Through the layers, in f64: flat [P, n], n the outputs of the last one (or of a row). */
kvf_status kvf__foreign_emit(kvf_ctx *ctx, const kvf__foreign *foreign, int64_t P, int64_t n,
                             float *flat);

/* ---- readers of the formats, rows of the table ----------------------------------------------- */

/* From f->weights and f->config into the fields below them; where: names the file in errors. */
kvf_status kvf__foreign_ptuning_v2(kvf_ctx *ctx, const char *where, kvf__foreign *f);
kvf_status kvf__foreign_prefixtuning(kvf_ctx *ctx, const char *where, kvf__foreign *f);
kvf_status kvf__foreign_adapterhub(kvf_ctx *ctx, const char *where, kvf__foreign *f);
kvf_status kvf__foreign_cartridge(kvf_ctx *ctx, const char *where, kvf__foreign *f);
/* A layer by the names stem.weight and stem.bias, checked against each other and the one before. */
kvf_status kvf__foreign_add_layer(kvf_ctx *ctx, const char *where, const char *stem,
                                  const kvf__view *weight, const kvf__view *bias, kvf__foreign *f);
/* A float tensor of that rank. */
kvf_status kvf__foreign_check_view(kvf_ctx *ctx, const char *where, const char *name,
                                   const kvf__view *view, int rank);

#endif

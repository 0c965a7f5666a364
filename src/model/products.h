/* Private to src/model: the products of a model on oneDNN: every dense layer with its weights, cut
 * into the sizes that oneDNN runs fastest (docs/architecture.md, Computing).
 *
 * A *unit* is packed at once: units 0 .. L - 1 are the layers, unit L + p is plane p of the
 * language-model head. The products of a layer are, in this order: qkv, out, and the two of the
 * half that reads the layer's input (if any). Then up, gate (if any) and down follow for each plane
 * of the feed-forward width. A plane of the head is one product. If a layer reads the keys and
 * values of another, qkv is q with zero columns for k and v. Cross-attention has q instead of qkv,
 * preceded by kv, which reads the encoder's states. Self-attention in a decoder with
 * cross-attention has no feed-forward half. A layer without attention has the first product of its
 * mixer as qkv. Packing, primitives, gradients of trained weights,
 * benchmarks and the memory forecast all use this list. */
#ifndef KVF_PRODUCTS_H
#define KVF_PRODUCTS_H

#include "arch.h"
#include "model_priv.h"

typedef enum kvf__product_kind {
    KVF__PRODUCT_QKV,
    KVF__PRODUCT_OUT,
    KVF__PRODUCT_UP,
    KVF__PRODUCT_GATE,
    KVF__PRODUCT_DOWN,
    KVF__PRODUCT_INPUT_GATE,
    KVF__PRODUCT_INPUT_DOWN,
    KVF__PRODUCT_HEAD,
    KVF__PRODUCT_Q,
    KVF__PRODUCT_KV,
    KVF__PRODUCT_KINDS
} kvf__product_kind;

/* y [M, n] = x [M, k] W + b: outputs n0 .. n0 + n - 1 of all_n, inputs k0 .. k0 + k - 1 of all_k.
 */
typedef struct kvf__product {
    kvf__product_kind kind;
    int64_t unit, plane; /* plane: of the feed-forward width or of the vocabulary */
    int64_t n0, n, all_n;
    int64_t k0, k, all_k;
    int64_t n_padded;   /* n plus zero columns */
    bool adds;          /* y is added to the residual stream */
    bool gradient_adds; /* the gradient of x is added to that of earlier products */
} kvf__product;

/* The weights of a kind and their biases: one weight, or several stacked along the outputs. */
typedef struct kvf__product_weights {
    kvf__role weight[9], bias[9]; /* a layer has the first, or others in this order */
    int n;
    kvf__role gamma, beta; /* preceding norm; KVF__W_ROLES: none */
} kvf__product_weights;
const kvf__product_weights *kvf__product_weights_of(kvf__product_kind kind);

/* Planes of the feed-forward width F: of equal width if possible, multiples of 16 (a cache line of
 * floats) if F is one. */
typedef struct kvf__plane {
    int64_t start, width;
} kvf__plane;
int64_t kvf__ffn_planes(int64_t F);
kvf__plane kvf__ffn_plane(int64_t F, int64_t p);
/* Returns the vocabulary items in plane p; the rest of the plane is padding. */
int64_t kvf__vocab_width(int64_t V, int64_t p);

/* Return product i of a unit, false past the last; the number of a layer's products; the weights of
 * a kind. */
bool kvf__product_at(const kvf__desc *desc, int64_t unit, size_t i, kvf__product *out);
size_t kvf__products_of_layer(const kvf__desc *desc, int64_t l);
kvf__product kvf__product_of(const kvf__desc *desc, int64_t unit, kvf__product_kind kind,
                             int64_t plane);
/* Return the packed weights of a product; of plane p of the head. */
kvf__packed_pair *kvf__product_packed(const kvf__model *model, const kvf__product *product);
kvf__packed_pair *kvf__vocab_plane(const kvf__model *model, int64_t p);
/* Returns the type its weights are packed for, or I8. */
kvf__dtype kvf__product_type(const kvf__model *model, const kvf__product *product);
/* Returns the type of y: as read by the stream, the loss or the next product. */
kvf__dtype kvf__product_dst(const kvf__model *model, const kvf__product *product);
/* Returns slot i of its weights in the file, *bias NULL: none; NULL past the last. The head's role
 * is KVF__W_HEAD; a tied head has no slot. */
const kvf__slot *kvf__product_slot(const kvf__desc *desc, const kvf__slots *slots,
                                   const kvf__product *product, int i, const kvf__slot **bias);
/* Sets the rows of slot i that belong to its product, which stacks the rows of all slots. A query
 * projection with gates is slot 0 and, for the gates, the last slot. */
void kvf__product_rows(const kvf__desc *desc, const kvf__slot *slot, int i, int64_t *first,
                       int64_t *rows);
/* Returns the rows computed for n: exact up to 8, then multiples of 8 up to 64, then of
 * row_step. */
int64_t kvf__padded_rows(const kvf__model *model, int64_t n);

#endif

/* The stacks of an encoder-decoder as one list of layers. */
#ifndef KVF_STACKS_H
#define KVF_STACKS_H

#include <stdbool.h>
#include <stdint.h>

struct kvf__desc;

/* Attention of a layer. In an encoder-decoder the layers of the encoder come first. Each block of
 * the decoder is then two layers: self-attention alone, and cross-attention, whose keys come from
 * the encoder's states, with the feed-forward half. */
typedef enum kvf__place {
    KVF__PLACE_ONLY, /* a base of one stack: attention to its own tokens */
    KVF__PLACE_ENCODER,
    KVF__PLACE_DECODER,
    KVF__PLACE_CROSS,
    KVF__PLACES /* number of places */
} kvf__place;

/* Return the place of a layer; whether it is the first there; whether it has a feed-forward half;
 * its number in a file. */
kvf__place kvf__layer_place(const struct kvf__desc *desc, int64_t layer);
bool kvf__layer_is_first(const struct kvf__desc *desc, int64_t layer);
bool kvf__layer_feeds(const struct kvf__desc *desc, int64_t layer);
int64_t kvf__layer_number(const struct kvf__desc *desc, int64_t layer);
int64_t kvf__stacks(const struct kvf__desc *desc); /* 1, or encoder and decoder */

#endif

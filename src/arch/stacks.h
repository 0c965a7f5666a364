/* The stacks of an encoder-decoder as one list of layers. */
#ifndef KVF_STACKS_H
#define KVF_STACKS_H

#include <stdbool.h>
#include <stdint.h>

struct kvf__desc;

/* What a layer attends to. In an encoder-decoder the layers of the encoder come first; each block
 * of the decoder is then two layers: self-attention alone, and cross-attention, whose keys are made
 * of the encoder's states, with the feed-forward half. */
typedef enum kvf__place {
    KVF__PLACE_ONLY, /* of a base that is one stack: its own tokens */
    KVF__PLACE_ENCODER,
    KVF__PLACE_DECODER,
    KVF__PLACE_CROSS,
    KVF__PLACES /* how many there are */
} kvf__place;

/* The place of a layer; is it the first one there; has it a feed-forward half; its number in a
 * file.
 */
kvf__place kvf__layer_place(const struct kvf__desc *desc, int64_t layer);
bool kvf__layer_is_first(const struct kvf__desc *desc, int64_t layer);
bool kvf__layer_feeds(const struct kvf__desc *desc, int64_t layer);
int64_t kvf__layer_number(const struct kvf__desc *desc, int64_t layer);
int64_t kvf__stacks(const struct kvf__desc *desc); /* 1, or encoder and decoder */

#endif

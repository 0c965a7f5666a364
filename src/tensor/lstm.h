/* One bidirectional LSTM layer over a short sequence (the virtual tokens of p-tuning), forward and
 * backward, in f32. It uses oneDNN's LSTM primitive, or ref_lstm.c where oneDNN has none for the
 * CPU.
 *
 * Parameters have the layout of torch.nn.LSTM: gates i, f, g, o, two biases that are added, and
 * everything twice, for the sequence forward and backward in time:
 *
 *     i, f, o = sigmoid(wx x + bx + wh h + bh), g = tanh(...)   c = f c + i g   h = o tanh(c) */
#ifndef KVF_LSTM_H
#define KVF_LSTM_H

#include "base_int.h"

typedef struct kvf__lstm kvf__lstm;

typedef struct kvf__lstm_sizes {
    int64_t T, I, H; /* steps, width of the input, width of a direction's state */
} kvf__lstm_sizes;

/* Weights of one direction: wx [4 H, I], wh [4 H, H], bx and bh [4 H]. */
typedef struct kvf__lstm_weights {
    const float *wx, *wh, *bx, *bh;
} kvf__lstm_weights;
typedef struct kvf__lstm_grads {
    float *wx, *wh, *bx, *bh;
} kvf__lstm_grads;

/* Allocates all memory of fwd and bwd. */
kvf_status kvf__lstm_create(kvf_ctx *ctx, const kvf__lstm_sizes *sizes, kvf__lstm **out);
void kvf__lstm_free(kvf__lstm *lstm); /* lstm may be NULL */

/* Computes the states y [T, 2 H], the forward direction first. Keeps copies for bwd. */
kvf_status kvf__lstm_fwd(kvf_ctx *ctx, kvf__lstm *lstm, float *y, const float *x,
                         const kvf__lstm_weights w[2]);
/* Call once after each fwd. Overwrites dx [T, I] and the gradients, given dy [T, 2 H]. */
kvf_status kvf__lstm_bwd(kvf_ctx *ctx, kvf__lstm *lstm, float *dx, const kvf__lstm_grads g[2],
                         const float *dy);

/* ---- reference (ref_lstm.c) ------------------------------------------------------------------ */

/* keep [2, T, 6, H]: gates, cell, its tanh, for bwd. */
void kvf__lstm_ref_fwd(const kvf__lstm_sizes *sizes, float *y, float *keep, const float *x,
                       const kvf__lstm_weights w[2]);
/* scratch [6 H] in f64. */
void kvf__lstm_ref_bwd(const kvf__lstm_sizes *sizes, float *dx, const kvf__lstm_grads g[2],
                       const float *dy, const float *y, const float *keep, const float *x,
                       const kvf__lstm_weights w[2], double *scratch);

#endif

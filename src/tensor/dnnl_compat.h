/* Differences between the C interfaces of oneDNN 2.6 and 3.x, for the dnnl_ files only.
 *
 * A memory descriptor is a struct in 2.x and a handle to be destroyed in 3.x. Both are held as a
 * dnnl_memory_desc_t, zero = none; KVF__MD(&md) is the argument of oneDNN's functions in either
 * version. 2.x makes a primitive's descriptor in two steps, 3.x in one. */
#ifndef KVF_DNNL_COMPAT_H
#define KVF_DNNL_COMPAT_H

#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>

#define KVF__DNNL_3 (DNNL_VERSION_MAJOR >= 3)

#if KVF__DNNL_3
#define KVF__MD(md) (*(md))
typedef const_dnnl_memory_desc_t kvf__md_arg; /* type of KVF__MD(), and of a query's result */
#else
#define KVF__MD(md) (md)
typedef const dnnl_memory_desc_t *kvf__md_arg;
#endif

/* Memory descriptors of an LSTM layer. */
typedef struct kvf__lstm_mds {
    dnnl_memory_desc_t src, dst;     /* [T, 1, I], [T, 1, 2 H] */
    dnnl_memory_desc_t wx, wh, bias; /* [1, 2, I or H, 4, H], [1, 2, 4, H] */
} kvf__lstm_mds;

static inline dnnl_status_t kvf__md_create(dnnl_memory_desc_t *md, int rank, const dnnl_dims_t dims,
                                           dnnl_data_type_t type, dnnl_format_tag_t tag)
{
#if KVF__DNNL_3
    return dnnl_memory_desc_create_with_tag(md, rank, dims, type, tag);
#else
    return dnnl_memory_desc_init_by_tag(md, rank, dims, type, tag);
#endif
}

/* An f32 matrix whose rows are ld elements apart. */
static inline dnnl_status_t kvf__md_create_rows(dnnl_memory_desc_t *md, int64_t rows,
                                                int64_t columns, int64_t ld)
{
    const dnnl_dims_t dims = {rows, columns}, strides = {ld, 1};
#if KVF__DNNL_3
    return dnnl_memory_desc_create_with_strides(md, 2, dims, dnnl_f32, strides);
#else
    return dnnl_memory_desc_init_by_strides(md, 2, dims, dnnl_f32, strides);
#endif
}

static inline dnnl_status_t kvf__md_clone(dnnl_memory_desc_t *md, kvf__md_arg from)
{
#if KVF__DNNL_3
    return dnnl_memory_desc_clone(md, from);
#else
    *md = *from;
    return dnnl_success;
#endif
}

static inline void kvf__md_destroy(dnnl_memory_desc_t *md)
{
#if KVF__DNNL_3
    if (*md) dnnl_memory_desc_destroy(*md);
    *md = NULL;
#else
    (void)md;
#endif
}

/* bias may be NULL. */
static inline dnnl_status_t kvf__matmul_pd_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                                  const dnnl_memory_desc_t *src,
                                                  const dnnl_memory_desc_t *weights,
                                                  const dnnl_memory_desc_t *bias,
                                                  const dnnl_memory_desc_t *dst,
                                                  const_dnnl_primitive_attr_t attr)
{
#if KVF__DNNL_3
    return dnnl_matmul_primitive_desc_create(pd, engine, *src, *weights, bias ? *bias : NULL, *dst,
                                             attr);
#else
    dnnl_matmul_desc_t matmul;
    dnnl_status_t st = dnnl_matmul_desc_init(&matmul, src, weights, bias, dst);
    return st ? st : dnnl_primitive_desc_create(pd, &matmul, attr, engine, NULL);
#endif
}

static inline dnnl_status_t kvf__append_sum(dnnl_post_ops_t ops)
{
#if KVF__DNNL_3
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(ops, 1.0f);
#endif
}

/* One bidirectional layer. The initial states are zero, the final ones are not returned. */
static inline dnnl_status_t kvf__lstm_fwd_pd_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                                    const kvf__lstm_mds *m)
{
#if KVF__DNNL_3
    return dnnl_lstm_forward_primitive_desc_create(
        pd, engine, dnnl_forward_training, dnnl_bidirectional_concat, m->src, NULL, NULL, m->wx,
        m->wh, NULL, NULL, m->bias, m->dst, NULL, NULL, 0, NULL);
#else
    dnnl_rnn_desc_t lstm;
    dnnl_status_t st = dnnl_lstm_forward_desc_init(
        &lstm, dnnl_forward_training, dnnl_bidirectional_concat, &m->src, NULL, NULL, &m->wx,
        &m->wh, &m->bias, &m->dst, NULL, NULL, 0);
    return st ? st : dnnl_primitive_desc_create(pd, &lstm, NULL, engine, NULL);
#endif
}

/* Gradients have the layouts of their values. */
static inline dnnl_status_t kvf__lstm_bwd_pd_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                                    const kvf__lstm_mds *m,
                                                    dnnl_primitive_desc_t fwd)
{
#if KVF__DNNL_3
    return dnnl_lstm_backward_primitive_desc_create(
        pd, engine, dnnl_backward, dnnl_bidirectional_concat, m->src, NULL, NULL, m->wx, m->wh,
        NULL, NULL, m->bias, m->dst, NULL, NULL, m->src, NULL, NULL, m->wx, m->wh, NULL, NULL,
        m->bias, m->dst, NULL, NULL, 0, fwd, NULL);
#else
    dnnl_rnn_desc_t lstm;
    dnnl_status_t st = dnnl_lstm_backward_desc_init(
        &lstm, dnnl_backward, dnnl_bidirectional_concat, &m->src, NULL, NULL, &m->wx, &m->wh,
        &m->bias, &m->dst, NULL, NULL, &m->src, NULL, NULL, &m->wx, &m->wh, &m->bias, &m->dst, NULL,
        NULL, 0);
    return st ? st : dnnl_primitive_desc_create(pd, &lstm, NULL, engine, fwd);
#endif
}

#endif

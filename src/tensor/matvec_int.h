/* Shared by the files of matvec.h: constants of the scratch layout. */
#ifndef KVF_MATVEC_INT_H
#define KVF_MATVEC_INT_H

#include "matvec.h"

#define KVF__MATVEC_ROWS 4  /* rows of W unpacked at a time */
#define KVF__MATVEC_PART 32 /* elements unpacked at a time, and padding of panels */

static inline int64_t kvf__matvec_padded(int64_t K)
{
    return (K + KVF__MATVEC_PART - 1) / KVF__MATVEC_PART * KVF__MATVEC_PART;
}

#endif

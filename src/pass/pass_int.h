/* The frozen transformer for other folders: its description, its weights bound by name and packed
 * for oneDNN, a pass forward and backward, and generation. */
#ifndef KVF_PASS_INT_H
#define KVF_PASS_INT_H

#include "decoder.h"
#include "loss.h"
#include "pass.h"
#include "probe.h"

#endif

/* All of kvfold. base.h defines the ownership terms and the shape letters. */
#ifndef KVFOLD_KVFOLD_H
#define KVFOLD_KVFOLD_H

#include <kvfold/base.h>
#include <kvfold/infer.h>
#include <kvfold/io.h>
#include <kvfold/json.h>
#include <kvfold/merge.h>
#include <kvfold/model.h>
#include <kvfold/rows.h>
#include <kvfold/train.h>
#ifdef KVF_EXPERIMENTAL
#include <kvfold/bench.h>
#include <kvfold/distill.h>
#include <kvfold/lab.h>
#include <kvfold/serve.h>
#endif

#endif

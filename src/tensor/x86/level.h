/* Names with the instruction set that a file of this folder is compiled for: KVF_LEVEL, from
 * src/tensor/meson.build. */
#ifndef KVF_LEVEL_H
#define KVF_LEVEL_H

#define KVF__PASTED(stem, level)   stem##level
#define KVF__EXPANDED(stem, level) KVF__PASTED(stem, level)
#define KVF__QUOTED(level)         #level
#define KVF__TEXT(level)           KVF__QUOTED(level)

#define KVF__LEVEL(stem) KVF__EXPANDED(stem, KVF_LEVEL) /* kvf__wide_ -> kvf__wide_avx2 */
#define KVF__LEVEL_NAME  KVF__TEXT(KVF_LEVEL)           /* "avx2" */

#endif

/* Request bodies of `kvfold serve`, parsed as completions and as chats. Every refusal has an error
 * line. */
#include "fuzz.h"
#include "request.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const kvf__request_kind KINDS[] = {KVF__COMPLETIONS, KVF__CHAT, KVF__TOKENIZE,
                                              KVF__DETOKENIZE};
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        kvf__request request = {0};
        kvf__problem problem = {0};
        bool fine = kvf__request_parse(fuzz_context(), (const char *)data, n, KINDS[i], 64,
                                       &request, &problem);
        if (!fine && (problem.status < 400 || !*problem.message)) abort();
        kvf__request_done(&request);
    }
    return 0;
}

"""litellm (PyPI) against `kvfold serve`: a completion, a chat, a stream, an unknown model."""
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # fetches nothing

import litellm

import program
import served

args = program.parse(__doc__)
messages = [{"role": "user", "content": served.QUESTION}]
with served.serve(args) as url:
    completion, answer = served.answers(url)
    how = {"api_base": url + "/v1", "api_key": "none", "temperature": 0, "max_tokens": served.NEW}
    said = litellm.text_completion(model="text-completion-openai/p", prompt=served.PROMPT, **how)
    program.expect("litellm: completion", said.choices[0].text, completion)
    said = litellm.completion(model="openai/p", messages=messages, logprobs=True, top_logprobs=2, **how)
    program.expect("litellm: chat", said.choices[0].message.content, answer)
    program.expect("litellm: log-probabilities", len(said.choices[0].logprobs.content), said.usage.completion_tokens)
    parts = litellm.completion(model="openai/p", messages=messages, stream=True, **how)
    program.expect("litellm: stream", "".join(part.choices[0].delta.content or "" for part in parts), answer)
    try:
        litellm.completion(model="openai/nobody", messages=messages, **how)
        refused = None
    except litellm.exceptions.NotFoundError as error:
        refused = error.status_code
    program.expect("litellm: a model that is not there", refused, 404)
program.finish()
